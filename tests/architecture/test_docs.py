"""The documents keep up with the code: whatever can be set, run, named or met stands in them."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest
from django.core.management import call_command

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import TRANSITIONS, Outcome, RunCondition, TaskState
from scheduler_ext.policies.registry import ORDER_POLICIES, SHARE_POLICIES, parameters_of
from slackwater_conf import Conf
from tests.lab.reference import PAGES, commands, environment
from tests.lab.reference.command import Command as GenerateDocs
from tests.lab.reference.markdown import attribute_docs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
# In quotes, or in a shell's ${…}: read or set. Without quotes, in Python, it is a Django setting.
READ_OR_SET = re.compile(
    r"""["']([A-Z]*SLACKWATER_[A-Z_]+)["'=]|\$\{?(SLACKWATER_[A-Z_]+)|[f"'](SLACKWATER_[A-Z_]+)="""
)


def text(name: str) -> str:
    return (DOCS / name).read_text()


def pages() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *sorted(DOCS.rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def test_generated_pages_are_up_to_date() -> None:
    call_command(GenerateDocs(), "--check", verbosity=0)


def test_every_setting_says_what_it_does() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `?.*?`? \| (.*) \|$", text("reference/settings.md"), re.MULTILINE)
    assert [name for name, _ in rows] == [spec.name for spec in fields(SchedulerConf)]
    assert [name for name, said in rows if not said.strip()] == []


def test_every_command_is_documented_and_says_what_it_does() -> None:
    page = text("reference/commands.md")
    assert commands.names()
    for name in commands.names():
        section = re.search(rf"^## `{name}`\n\n(.+)$", page, re.MULTILINE)
        assert section, f"{name} is missing, or has no help"


def test_every_state_change_and_outcome_is_documented() -> None:
    page = text("reference/states.md")
    for state in TaskState:
        row = re.search(rf"^\| `{state.name.lower()}` \| [\w ]+ \| (?:yes)? ?\| (.*) \|$", page, re.MULTILINE)
        assert row, f"{state.name} is missing"
        assert row[1].strip(), f"{state.name} has no meaning"
    assert all(f"| {why} |" in page for why in TRANSITIONS.values())
    for member in [*Outcome, *RunCondition]:
        row = re.search(rf"^\| `{member.name.lower()}` \| (.*) \|$", page, re.MULTILINE)
        assert row, f"{member.name} is missing"
        assert row[1].strip(), f"{member.name} has no meaning"


@pytest.mark.parametrize(("name", "policy"), [*ORDER_POLICIES.items(), *SHARE_POLICIES.items()])
def test_every_policy_and_parameter_is_documented(name: str, policy: type) -> None:
    section = text("reference/policies.md").split(f"### `{name}`\n")
    assert len(section) == 2, f"{name} is missing"
    said = attribute_docs(policy)
    for parameter in parameters_of(policy):
        assert f"| `{parameter}` |" in section[1].split("### ")[0]
        assert said.get(parameter), f"{name}.{parameter} has no meaning"


def test_every_environment_variable_is_documented() -> None:
    files = [
        path for folder in ("platform", "apps", "scheduler_ext", "examples") for path in (ROOT / folder).rglob("*.py")
    ]
    files += [ROOT / "manage.py", ROOT / "Makefile", ROOT / "docker" / "entrypoint", *(ROOT / "bin").iterdir()]
    used = set()
    for path in files:
        if path.parent.name != "reference":
            used |= {name for found in READ_OR_SET.findall(path.read_text()) for name in found if name}
    used = {name for name in used if name.startswith("SLACKWATER_")}
    assert "SLACKWATER_SECRET_KEY" in used, "the search finds nothing"
    used |= {f"SLACKWATER_{spec.name.upper()}" for spec in fields(Conf) if spec.name != "trace_endpoint"}
    assert all(environment.READ.values()), "a setting without a word on what it does"
    assert used - set(environment.CATALOGUE) == set(), "used in the code, not documented"
    assert set(environment.CATALOGUE) - used == set(), "documented, not used in the code"
    assert set(environment.defaults()) <= set(environment.READ | environment.INTERNAL)


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in targets if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_python_on_a_page_imports_what_there_is(page: Path) -> None:
    lacking = []
    for code in re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
        tree = compile(dedent(code), str(page), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("slackwater", "scheduler_ext")):
                found = import_module(node.module or "")
                lacking += [f"{node.module}.{each.name}" for each in node.names if not hasattr(found, each.name)]
    assert lacking == []


def test_the_site_leads_to_every_page() -> None:
    """``make site`` would say so too; here it costs nothing."""
    site = (ROOT / "mkdocs.yml").read_text()
    led_to = set(re.findall(r": (\S+\.md)$", site, re.MULTILINE))
    assert {str(page.relative_to(ROOT)) for page in pages()} <= led_to
    assert all((ROOT / name).exists() for name in led_to - {"docs/reference/api.md"})
    assert re.search(r"^strict: true$", site, re.MULTILINE)


def test_every_page_can_be_reached_from_the_index() -> None:
    found, todo = set(), [DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page in found or page.suffix != ".md":
            continue
        found.add(page)
        todo += [(page.parent / link).resolve() for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page not in found] == []


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in sorted((DOCS / "adr").glob("[0-9]*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_pages_are_written_where_the_list_says() -> None:
    assert all((DOCS / name).exists() for name in PAGES)
