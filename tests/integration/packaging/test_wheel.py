"""The wheel, beside a project with an ``apps`` package, an app labelled ``tasks`` and users of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from packaging.requirements import Requirement
from psycopg.conninfo import conninfo_to_dict

from slackwater.settings.environment import given_database_url
from slackwater_conf import conf
from tests.conftest import with_database
from tests.lab.matrix.moved import built_wheel
from tests.support.processes import ROOT

GUEST = ROOT / "tests" / "support" / "guest"
SHIPPED = (
    "scheduler_ext", "slackwater", "slackwater_adminkit", "slackwater_api", "slackwater_conf", "slackwater_console",
    "slackwater_dashboard", "slackwater_monitoring", "slackwater_resources", "slackwater_schedules", "slackwater_tasks",
    "slackwater_tenants",
)  # fmt: skip
STORY = """
from django.contrib.auth import get_user_model
from django.core.management import ManagementUtility, call_command
from django.test import Client
from orders import order
from apps.tasks.models import Task as Mine
from slackwater import create_tenant
from slackwater_resources.models import Handler
from slackwater_tasks.models import Task
from slackwater_tenants.services import ensure_plan

call_command("makemigrations", "people", "tasks")
call_command("check", fail_level="WARNING")
call_command("migrate", verbosity=0)
call_command("makemigrations", check_changes=True)
Handler.objects.create(name="guest.mail")
ensure_plan("standard")
tenant = create_tenant("guest", "Guest")
try:
    order(tenant, "taken back", fails=True)
except RuntimeError:
    pass
assert (Mine.objects.count(), Task._plain.count()) == (0, 0)
made = order(tenant, "kept")
assert (Mine.objects.count(), str(Task._plain.get().pk)) == (1, made)
print("both or neither")

get_user_model().objects.create_superuser("root", password="root")
client = Client(headers={"host": "localhost"})
assert client.login(username="root", password="root")
for page in ("", "slackwater_tasks/task/", f"slackwater_tasks/task/{made}/change/", "slackwater_tenants/tenant/add/"):
    answer = client.get(f"/admin/{page}", follow=True)
    assert answer.status_code == 200, (page, answer.status_code)
import slackwater.moving.doctor, slackwater.testing.inbox
print("pages")
print(ManagementUtility(["manage.py"]).main_help_text(commands_only=True))
"""
BARE = """
import slackwater, sys
slackwater.Client("http://sw.example", "key").close()
from slackwater.cli import command
assert command.main(["--version"]) == 0
assert command.main(["status", "--url", "nowhere"]) == 2
assert {"django", "celery", "kombu", "redis", "psycopg", "rich", "click"}.isdisjoint(sys.modules)
print("modules", len(sys.modules))
"""
LACKS = (
    "drf_spectacular environ flower granian hiredis opentelemetry.sdk prometheus_client psutil requests rest_framework "
    "structlog whitenoise"
)
"""What the extra ``server`` brings and the extra ``django`` does not."""
TYPED = """
import slackwater

@slackwater.handler(name="a.b")
def work(number: int) -> str:
    task: slackwater.TaskContext = slackwater.current()
    return task.task_id

wrong: int = slackwater.current().task_id
work.delay("1")
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str], fails: bool = False) -> str:
    """What a program says; it must succeed, or fail where that is expected."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=250
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once for all of these."""
    return built_wheel(tmp_path_factory.mktemp("wheel") / "built")


def unpacked(wheel: Path, environment: Path) -> Path:
    """Install the wheel, with what the tree has compiled of the same sources; returns the folder of packages."""
    site = next((environment / "lib").glob("python3*")) / "site-packages"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    for folder in (ROOT, ROOT / "apps", ROOT / "platform"):
        for source in (path for name in SHIPPED if (folder / name).is_dir() for path in (folder / name).rglob("*.py")):
            installed, compiled = site / source.relative_to(folder), Path(cache_from_source(str(source)))
            if compiled.is_file() and installed.is_file():
                shutil.copystat(source, installed)  # by its time a compiled file knows its source
                Path(cache_from_source(str(installed))).parent.mkdir(exist_ok=True)
                shutil.copyfile(compiled, cache_from_source(str(installed)))
    return site


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; what it depends on is lent by this one."""
    home = tmp_path_factory.mktemp("home")
    venv.create(home / "venv", symlinks=True)
    site = unpacked(wheel, home / "venv")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "venv" / "bin" / "python"


def lend(site: Path, extra: str = "") -> None:
    """Lend the packages that the wheel asks for, for one of its extras too."""
    asked, seen = (
        list(next(iter(metadata.distributions(path=[str(site)]))).requires or ()),
        {"slackwater", *(path.name for path in site.iterdir())},
    )
    while asked:
        one = Requirement(asked.pop())
        if one.name in seen or (one.marker and not one.marker.evaluate({"extra": extra})):
            continue
        seen.add(one.name)
        lent = metadata.distribution(one.name)
        asked += lent.requires or ()
        for top in {file.parts[0] for file in lent.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(lent.locate_file(top))  # type: ignore[arg-type]


@pytest.fixture
def bare(wheel: Path, tmp_path: Path) -> Path:
    """An environment with the wheel without extras, and with what that asks for, all of it lent."""
    venv.create(tmp_path / "bare", symlinks=True)
    site = unpacked(wheel, tmp_path / "bare")
    lend(site)
    return tmp_path / "bare" / "bin" / "python"


@pytest.fixture
def plain(tmp_path: Path) -> dict[str, str]:
    """An environment without a word of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLACKWATER_", "DJANGO_"))}
    return {**kept, "PYTHONPATH": "", "HOME": str(tmp_path), "XDG_DATA_HOME": ""}


@pytest.fixture
def guest(tmp_path: Path, plain: dict[str, str]) -> Iterator[tuple[Path, dict[str, str]]]:
    """The project, and its environment with a database of its own."""
    folder, name = tmp_path / "guest", f"guest_{uuid4().hex[:8]}"
    shutil.copytree(GUEST, folder, ignore=shutil.ignore_patterns("__pycache__"))
    parts = conninfo_to_dict(given_database_url())
    env = {f"GUEST_{key}": str(parts.get(key.lower()) or "") for key in ("HOST", "PORT", "USER", "PASSWORD")}
    admin = with_database(given_database_url(), "postgres")
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"')
    try:
        yield folder, {**plain, **env, "GUEST_NAME": name, "GUEST_REDIS": conf().redis_url, "GUEST_LACKS": LACKS}
    finally:
        with psycopg.connect(admin, autocommit=True) as conn:
            conn.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def test_the_wheel_holds_the_packages_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (about,) = (packed.read(name).decode() for name in names if name.endswith("dist-info/METADATA"))
        (scripts,) = (packed.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    folders = {name.split("/")[0] for name in names}
    assert {name for name in folders if not name.endswith(".dist-info")} == set(SHIPPED)
    assert {f"{package}/py.typed" for package in SHIPPED} <= set(names)
    assert not [name for name in names if "/tests/" in name or "/lab/" in name or "torture" in name or "bench" in name]
    assert "slackwater = slackwater.__main__:main" in scripts
    assert "[pytest11]\nslackwater = slackwater.testing.plugin" in scripts
    needed = [line for line in about.splitlines() if line.startswith("Requires-Dist:")]
    assert not [line for line in needed if "==" in line.split(";")[0]], "ranges, not pins"
    assert [line.split()[1] for line in needed if "extra ==" not in line] == ["httpx<1,>=0.28"], (
        "bare, it is the client"
    )


def test_a_guest_with_apps_and_users_of_its_own_is_clean(python: Path, guest: tuple[Path, dict[str, str]]) -> None:
    folder, env = guest
    said = run(python, "manage.py", "shell", "-c", STORY, cwd=folder, env=env)
    assert "no issues" in said
    assert said.split("both or neither\n")[1].startswith("pages\n")
    offered = said.split("pages\n")[1].split()
    assert {"status", "submit", "run_dispatcher"} <= set(offered)
    assert not {"bench", "torture", "sandbox_score"} & set(offered)
    wrong = (folder / "guest" / "settings.py").read_text().replace('"LABELS"', '"LABEL"')
    (folder / "guest" / "settings.py").write_text(wrong)
    said = run(python, "manage.py", "check", cwd=folder, env=env, fails=True)
    assert 'SLACKWATER["LABEL"] is no setting' in said


def test_the_command_finds_the_settings_of_the_project_it_is_called_in(
    python: Path, guest: tuple[Path, dict[str, str]]
) -> None:
    folder, env = guest
    env = {**env, "DJANGO_SETTINGS_MODULE": "guest.settings"}
    program = (python, "-P", "-m", "slackwater")  # as the installed program: the folder is not on its path
    assert "no issues" in run(*program, "check", cwd=folder, env=env)
    said = run(*program, "check", cwd=folder.parent, env=env, fails=True)
    assert said == (
        "slackwater: DJANGO_SETTINGS_MODULE names guest.settings, and there is no module guest.settings here: "
        "call it in the project's folder\n"
    )


@pytest.mark.slow
def test_type_checkers_see_the_names(python: Path, tmp_path: Path, plain: dict[str, str]) -> None:
    (tmp_path / "mine.py").write_text(TYPED)
    said = run(
        sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "mine.py",
        cwd=tmp_path, env=plain, fails=True,
    )  # fmt: skip
    assert 'mine.py:9: error: Incompatible types in assignment (expression has type "str"' in said
    assert (
        'mine.py:10: error: Argument 1 to "delay" of "HandlerTask" has incompatible type "str"; expected "int"' in said
    )
    assert "Found 2 errors" in said


def test_without_extras_there_are_the_client_and_the_command(bare: Path, tmp_path: Path, plain: dict[str, str]) -> None:
    said = run(bare, "-c", BARE, cwd=tmp_path, env=plain)
    assert "url: must look like" in said
    # Three hundred modules are loaded within 0.3 s: counted, since a clock would tell of the machine.
    assert int(said.split("modules ")[1].split()[0]) < 400
    said = run(bare, "-m", "slackwater", "up", cwd=tmp_path, env=plain, fails=True)
    assert "django is not installed here: `pip install 'slackwater[embedded]'`" in said
    assert "slackwater submit demo.add" in run(bare, "-m", "slackwater", cwd=tmp_path, env=plain)


def test_receipts_are_proved_without_django(bare: Path, tmp_path: Path, plain: dict[str, str]) -> None:
    examples = json.loads((ROOT / "apps" / "slackwater_api" / "v1" / "examples.json").read_text())
    for name in ("list_receipts", "list_receipt_keys"):
        (tmp_path / name).write_text(json.dumps(examples[name]["value"]))
    proof = (bare, "-m", "slackwater", "verify-receipts", "list_receipts", "--keys", "list_receipt_keys")
    assert "pip install 'slackwater[receipts]'" in run(*proof, cwd=tmp_path, env=plain, fails=True)
    lend(next(bare.parents[1].glob("lib/python3*/site-packages")), "receipts")
    assert "1 receipts, 1 to 1; 1 seals; charged 0.000030; 0 faults" in run(*proof, cwd=tmp_path, env=plain)
    forged = (tmp_path / "list_receipts").read_text().replace('"charged_micros": 30', '"charged_micros": 3')
    (tmp_path / "list_receipts").write_text(forged)
    assert "changed" in run(*proof, cwd=tmp_path, env=plain, fails=True)


def test_what_the_platforms_own_settings_lack_is_said_with_the_extra(
    python: Path, tmp_path: Path, plain: dict[str, str]
) -> None:
    hidden = (
        "import runpy, sys; sys.modules['environ'] = None; sys.argv[1:] = ['doctor', 'shop']\n"
        "runpy.run_module('slackwater', run_name='__main__')"
    )
    said = run(python, "-c", hidden, cwd=tmp_path, env=plain, fails=True)
    assert "need environ, which is not installed here: `pip install 'slackwater[server]'`" in said
    assert "Traceback" not in said


def test_commands_run_from_the_wheel_and_leave_it_alone(python: Path, tmp_path: Path, plain: dict[str, str]) -> None:
    before = sorted(path for path in python.parents[1].rglob("*") if "__pycache__" not in path.parts)
    offered = run(python, "-m", "slackwater", "manage", "help", cwd=tmp_path, env=plain).split()
    assert {"up", "status", "submit"} <= set(offered)
    assert not {"bench", "torture", "sandbox_score"} & set(offered)
    run(python, "-m", "slackwater", "check", cwd=tmp_path, env=plain)
    assert (tmp_path / ".local" / "share" / "slackwater" / "var" / "secret_key").is_file()
    after = sorted(path for path in python.parents[1].rglob("*") if "__pycache__" not in path.parts)
    assert after == before
