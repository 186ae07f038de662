"""Only ``ledger/transitions.py`` writes the state of a task: no other SQL does, and no object of Django's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

APPS = Path(__file__).resolve().parents[2] / "apps"
SQL = APPS / "slackwater_tasks" / "ledger" / "sql"
WRITER = APPS / "slackwater_tasks" / "ledger" / "transitions.py"
TABLES = {"slackwater_tasks_task", "slackwater_tasks_livetask"}
COLUMNS = {"state", "phase"}
UPDATE = re.compile(
    r"\bUPDATE\s+(?:ONLY\s+)?\"?(?:slackwater_tasks_task|slackwater_tasks_livetask|\{[^}]*\})\"?(?:\s+(?:AS\s+)?\w+)?\s+SET\b"
    r"(?P<sets>.*?)(?:\bWHERE\b|\bFROM\b|\bRETURNING\b|$)",
    re.IGNORECASE | re.DOTALL,
)
STATE = re.compile(r"(?:^|,|\()\s*\"?(?:state|phase)\"?\s*(?:=|,|\))", re.IGNORECASE)
INSERT = re.compile(
    r"\b(?:INSERT\s+INTO|COPY|MERGE\s+INTO)\s+\"?(?:slackwater_tasks_task|slackwater_tasks_livetask)\b", re.IGNORECASE
)
# A row is live, and so has a state, from its insertion until it is deleted by the statement that writes its end.
MODELS = {"Task", "LiveTask"}
MAKERS = {"create", "bulk_create", "get_or_create", "update_or_create"}


def sources() -> list[Path]:
    """Return the modules of ``apps/``, without migrations."""
    return [path for path in APPS.rglob("*.py") if "migrations" not in path.parts]


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every string of a module; what is put into an f-string stands in it as ``{…}``."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(p.value) if isinstance(p, ast.Constant) else f"{{{ast.unparse(p)}}}" for p in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def writes_state(text: str) -> bool:
    """Whether a statement writes the state of a task."""
    bare = re.sub(r"--[^\n]*", "", text)
    return bool(INSERT.search(bare)) or any(STATE.search(found["sets"]) for found in UPDATE.finditer(bare))


def statements(path: Path) -> set[str]:
    """Return the names of a module's constants and functions that hold a statement which writes a state."""
    module = import_module(f"slackwater_tasks.ledger.sql.{path.stem}")
    found = {name for name, value in vars(module).items() if isinstance(value, str) and writes_state(value)}
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if any(writes_state(text) for _, text in texts(node)):
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UPDATE slackwater_tasks_livetask l SET fence = 1, state = 3 FROM u WHERE l.state = 1", True),
        ("UPDATE slackwater_tasks_task SET state = NULL", True),
        ("UPDATE slackwater_tasks_task SET (error, state) = ('', 1)", True),
        ("UPDATE slackwater_tasks_livetask SET alone = true WHERE state = 5", False),
        ("UPDATE slackwater_resources_node SET state = 'lost'", False),
        ("INSERT INTO slackwater_tasks_livetask (task_id) VALUES (1)", True),
        ("INSERT INTO slackwater_tasks_taskevent (task_id) VALUES (1)", False),
        ("COPY slackwater_tasks_task (id) FROM STDIN", True),
    ],
)
def test_what_counts_as_a_write(text: str, expected: bool) -> None:
    assert writes_state(text) is expected


def test_sql_that_writes_a_state_stands_with_the_ledgers_queries() -> None:
    found = [
        f"{path.relative_to(APPS)}:{line}"
        for path in sources()
        if path != WRITER and path.parent != SQL
        for line, text in texts(ast.parse(path.read_text()))
        if writes_state(text) or text in TABLES
    ]
    assert found == []


def test_only_transitions_runs_it() -> None:
    writing = {path.stem: statements(path) for path in SQL.glob("[a-z]*.py")}
    assert sum(map(len, writing.values())) > 10, "the statements are found"
    found = []
    for path in sources():
        if path == WRITER or path.parent == SQL:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            used: set[str] = set()
            if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
                module = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                used = {node.attr} & writing.get(module, set())
            elif isinstance(node, ast.ImportFrom) and node.module:
                used = {alias.name for alias in node.names} & writing.get(node.module.rpartition(".")[2], set())
            found += [f"{path.relative_to(APPS)}:{node.lineno} {name}" for name in used if hasattr(node, "lineno")]
    assert found == []


def written_by_objects(path: Path) -> list[int]:
    """Return the lines where a module writes a state through Django's objects."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            written = any(isinstance(t, ast.Attribute) and t.attr in COLUMNS and not _is_self(t.value) for t in targets)
        else:
            written = isinstance(node, ast.Call) and _call_writes(node)
        if written and isinstance(node, (ast.stmt, ast.expr)):
            found.append(node.lineno)
    return found


def _call_writes(call: ast.Call) -> bool:
    """Whether a call makes a task, or names a state as what it writes."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "update":
        return not COLUMNS.isdisjoint(keyword.arg or "" for keyword in call.keywords)
    if name in {"setattr", "__setattr__", "bulk_update", "save"}:
        inside = [part for argument in (*call.args, *call.keywords) for part in ast.walk(argument)]
        return any(isinstance(part, ast.Constant) and part.value in COLUMNS for part in inside)
    makes = name in MAKERS and isinstance(call.func, ast.Attribute) and _model(call.func.value) in MODELS
    return makes or (name in MODELS and bool(call.keywords))


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "self"


def _model(value: ast.expr) -> str:
    """Return the name at the root of ``Model.objects.filter(…)``."""
    while isinstance(value, (ast.Attribute, ast.Call)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def test_no_object_of_djangos_writes_a_state() -> None:
    # Nodes and subscriptions have states too.
    others = {
        APPS / "slackwater_resources" / "services.py",
        APPS / "slackwater_monitoring" / "notify" / "subscriptions.py",
    }
    found = [
        f"{path.relative_to(APPS)}:{line}"
        for path in sources()
        if path not in others
        for line in written_by_objects(path)
    ]
    assert found == []
