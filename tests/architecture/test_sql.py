"""SQL says states, phases, events and outcomes by name: a number in a statement is found here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_ext.core.sql import ENUMS, named

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = r"\w*state|phase|outcome|category|events|on_late|asked|condition"
BY_NUMBER = re.compile(
    rf"(?!events <> 0\b)\b(?:{COLUMNS})\s*(?:=|<>|!=|[<>]=?|&|\|)\s*\d"  # state = 3, events & 64
    rf"|\b(?:{COLUMNS})\s+(?:NOT\s+)?IN\s*\(\s*\d"  # phase IN (1, 2)
    rf"|\b(?:{COLUMNS})\s+WHEN\s+\d"  # CASE outcome WHEN 4
    r"|\bWHEN\s+\d+\s+THEN\s+\d"  # WHEN 7 THEN 516
    r"|\b\d,\s*\d,\s*(?:\w+\.)?fence\b",  # the states of an event: 3, 1, fence
    re.IGNORECASE,
)

BY_A_QUERY = re.compile(r"\bIN\s*\(\s*SELECT\b", re.IGNORECASE)
LOCKED_FEW = re.compile(r"\bLIMIT\b.*\bFOR\s+UPDATE\b", re.IGNORECASE | re.DOTALL)


def statements(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string that holds SQL; of an f-string, ``{…:d}`` stands as a number."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_part(part) for part in node.values)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return "0" if part.format_spec and ast.unparse(part.format_spec) == "f'd'" else ""
    return str(part.value) if isinstance(part, ast.Constant) else ""


def queries_in(text: str) -> Iterator[str]:
    """The queries that stand in ``IN (SELECT …)``."""
    for found in BY_A_QUERY.finditer(text):
        depth = 0
        for place in range(text.index("(", found.start()), len(text)):
            depth += {"(": 1, ")": -1}.get(text[place], 0)
            if depth == 0:
                yield text[found.start() : place]
                break


def by_number(source: str) -> list[str]:
    return [
        f"line {line + text.count(chr(10), 0, found.start())}: {found[0]}"
        for line, text in statements(source)
        for found in BY_NUMBER.finditer(text)
    ]


def modules() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "apps").rglob("*.py")
        if not {"migrations", "control"} & set(path.parts)
    )


@pytest.mark.parametrize("path", modules())
def test_no_state_is_written_as_a_number(path: str) -> None:
    assert not by_number((ROOT / path).read_text())


@pytest.mark.parametrize("path", modules())
def test_rows_to_be_locked_are_chosen_once(path: str) -> None:
    """The planner may run ``IN (SELECT … LIMIT … FOR UPDATE)`` anew for each row, and so take more than the limit."""
    for line, text in statements((ROOT / path).read_text()):
        again = [query for query in queries_in(text) if LOCKED_FEW.search(query)]
        assert not again, f"line {line}: write = ANY(ARRAY(SELECT …)), or a WITH"


@pytest.mark.parametrize("path", modules())
def test_a_name_is_replaced_before_it_reaches_the_database(path: str) -> None:
    """A public constant that is no call of ``named`` holds no name."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            target = ast.unparse(node.targets[0])
            assert target.startswith("_") or not re.search(r"(?<![:\w]):[a-z]+\.[A-Z]", ast.unparse(node.value)), target


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM slackwater_tasks_livetask WHERE state = 5",
        "WHERE l.phase IN (1, 2)",
        "UPDATE slackwater_tasks_livetask SET state = 3",
        "WHERE w.events & 64 <> 0",
        "CASE g.final WHEN 6 THEN 2 WHEN 7 THEN 516 END",
        "8 | CASE outcome WHEN 4 THEN :event.FAILED END",
        "SELECT task_id, tenant_id, 3, 1, fence FROM parked",
    ],
)
def test_a_number_is_found(text: str) -> None:
    assert by_number(f"SQL = {text!r}")
    assert not by_number(f"SQL = {re.sub(r'[0-9]', 'x', text)!r}")


def test_a_formatted_number_is_found() -> None:
    assert by_number("SQL = f'WHERE state = {TaskState.READY:d}'")


def test_names_stand_for_their_numbers() -> None:
    assert named("state = :state.READY AND x::text = %(phase)s") == "state = 3 AND x::text = %(phase)s"
    assert named("events & :event.FAILED|DEAD_LETTERED") == "events & 516"
    assert all(
        named(f":{enum}.{name}") == str(int(kind[name])) for enum, kind in ENUMS.items() for name in kind.__members__
    )


@pytest.mark.parametrize("text", [":state.READDY", ":stage.READY", ":event.FAILED|LATER"])
def test_an_unknown_name_is_refused(text: str) -> None:
    with pytest.raises(KeyError):
        named(text)
