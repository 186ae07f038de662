"""docs/reference/rooms.md: where a thing lives, from the first line of each module's docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.lab.reference.markdown import code, page, plain, table

ROOT = Path(__file__).resolve().parents[3]
TREES = {
    "platform/slackwater": "The face and the service",
    "apps/slackwater_tasks": "Tasks: the ledger",
    "apps/slackwater_tenants": "Tenants",
    "apps/slackwater_resources": "Resources",
    "apps/slackwater_schedules": "Schedules",
    "apps/slackwater_monitoring": "Monitoring",
    "apps/slackwater_api": "The REST interface",
    "apps/slackwater_console": "The console of a tenant's people",
    "apps/slackwater_dashboard": "The live pages of the admin",
    "apps/slackwater_adminkit": "What the admin's pages share",
    "scheduler_ext": "The engine",
}
"""Each folder of packages, and its heading; from what knows most to what knows least."""
LEFT_OUT = {"migrations", "__pycache__", "commands"}
INTRO = """
A wing is a folder, a room is a file; each has one job, which the first line of its docstring says. The commands have
[a page of their own](commands.md). Words are those of the [glossary](../glossary.md).
"""


def render() -> str:
    """The page."""
    parts = []
    for folder, title in TREES.items():
        parts += [f"## {title}: `{folder}/`", *_wings(ROOT / folder)]
    return page("Where does it live", "the docstrings of the modules", INTRO, *parts)


def _wings(tree: Path) -> Iterator[str]:
    """A table for each folder that holds modules, its own line above it."""
    for folder in sorted(path for path in (tree, *tree.rglob("*")) if path.is_dir()):
        if LEFT_OUT & set(folder.relative_to(tree.parent).parts):
            continue
        rooms = [(code(path.stem), _says(path)) for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
        if not rooms:
            continue
        if folder != tree:
            yield f"### `{folder.relative_to(tree)}/`"
        yield _says(folder / "__init__.py")
        yield table(("room", "what it is for"), rooms)


def _says(path: Path) -> str:
    """The first sentence or line of a module's docstring."""
    if not path.exists():
        return ""
    return plain((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split("\n")[0])
