"""Calls of Celery's API in source code, read without running it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from scheduler_ext.task.celery_options import CALLED, OPTIONS
from scheduler_ext.task.in_flight import CANVASES, LINKS
from slackwater.moving.findings import OF_FATE, Finding, Verdict

SKIPPED: Final = {"node_modules", "site-packages", "__pycache__", "venv", "env", "build", "dist"}
CALLS: Final = {option.name: option for option in OPTIONS if CALLED in option.given}
ARGUMENTS: Final = {"args", "kwargs", "name"}
RETRY: Final = {"args", "kwargs", "exc", "throw", "eta", "countdown", "max_retries"}
POSITIONS: Final = {
    "apply_async()": ("args", "kwargs", "task_id", "producer", "link", "link_error"),
    "send_task()": ("name", "args", "kwargs", "countdown", "eta", "task_id"),
}
"""What such a call takes without its name."""
SIGNED: Final = {"s", "si", "signature", "subtask", "apply_async"}
MAPS: Final = {"map", "starmap", "chunks"}


def files(places: Collection[Path]) -> Iterator[Path]:
    """The source files in folders, without environments and hidden folders, and the files named."""
    for place in places:
        if place.is_file():
            yield place
            continue
        for path in sorted(place.rglob("*.py")):
            parts = path.relative_to(place).parts[:-1]
            if not any(part.startswith(".") or part in SKIPPED for part in parts):
                yield path


def read(path: Path, functions: Collection[str], durable: Collection[str], ordinary: Collection[str]) -> list[Finding]:
    """What a file calls. ``functions``: the names of the tasks' functions; of them ``ordinary`` stay Celery's."""
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        return [Finding(kind="call", subject=str(path), verdict=Verdict.CHANGES, why=f"it cannot be read: {error}")]
    found: list[Finding] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found += _call(node, node.func, f"{path}:{node.lineno}", functions)
    for node in _canvases(tree):
        names = set(_signed(node))
        ours, others = sorted(names & set(durable)), sorted(names & set(ordinary))
        if ours and others:
            why = f"{', '.join(ours)} would be durable and {', '.join(others)} not: a canvas is stored as a whole: make all so"
            found.append(_refused(_word(node), f"{path}:{node.lineno}", why))
    return found


def _canvases(node: ast.AST) -> Iterator[ast.Call | ast.BinOp]:
    """The canvases that are written in a tree, without those inside another one; calls with links are such too."""
    if isinstance(node, (ast.Call, ast.BinOp)) and _word(node):
        yield node
        return
    for inner in ast.iter_child_nodes(node):
        yield from _canvases(inner)


def _word(node: ast.Call | ast.BinOp) -> str:
    """How a canvas is begun; empty for what is none."""
    if isinstance(node, ast.BinOp):
        return "a | b" if isinstance(node.op, ast.BitOr) and any(_signed(node)) else ""
    name = _last(node.func)
    linked = name == "apply_async" and any(keyword.arg in LINKS for keyword in node.keywords)
    return f"{name}()" if name in CANVASES or linked else ""


def _signed(node: ast.AST) -> Iterator[str]:
    """The functions of whose calls signatures are made, and the one that is called with links."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in SIGNED:
            yield _last(inner.func.value)


def _call(node: ast.Call, func: ast.Attribute, where: str, functions: Collection[str]) -> Iterator[Finding]:
    on = _last(func.value)
    subject = f"{on}.{func.attr}()" if on else f".{func.attr}()"
    if func.attr in ("apply_async", "send_task", "apply_async_on_commit"):
        yield from _options(node, subject, where, strict=True)
    elif func.attr in ("set", "signature", "subtask"):
        yield from _options(node, subject, where, strict=False)
    elif func.attr in ("delay", "delay_on_commit") and on in functions:
        yield Finding(kind="call", subject=subject, where=where, verdict=Verdict.CARRIES)
    elif func.attr in MAPS and on in functions:
        yield _refused(subject, where, "write it as a group: each call is a task of its own then")
    elif func.attr == "retry" and on == "self":
        for keyword in node.keywords:
            if keyword.arg and keyword.arg not in RETRY:
                yield _refused(subject, where, "a retry is the same task again", keyword.arg)


def _options(node: ast.Call, subject: str, where: str, *, strict: bool) -> Iterator[Finding]:
    """Each option of a call. ``strict``: it is Celery's call for sure, whatever it is given."""
    told = 0
    by_place = POSITIONS.get(subject.rpartition(".")[2], ())[: len(node.args)]
    for name in (*by_place, *(keyword.arg for keyword in node.keywords)):
        option = CALLS.get(name or "")
        if name is None and strict:
            yield Finding(kind="call", subject=subject, where=where, verdict=Verdict.CHANGES, option="**",
                          why="what it brings is known when it runs: an option that cannot be kept is refused then")  # fmt: skip
        elif option is not None:
            yield Finding(kind="call", subject=subject, where=where, option=option.name, verdict=OF_FATE[option.fate],
                          why=option.becomes)  # fmt: skip
        elif strict and name not in ARGUMENTS:
            yield _refused(subject, where, "there is no such option of Celery's", name or "")
        else:
            continue
        told += 1
    if strict and not told:
        yield Finding(kind="call", subject=subject, where=where, verdict=Verdict.CARRIES)


def _last(node: ast.expr) -> str:
    """``send`` of ``mail.send``; empty for what has no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _refused(subject: str, where: str, why: str, option: str = "") -> Finding:
    return Finding(kind="call", subject=subject, where=where, option=option, verdict=Verdict.REFUSED, why=why)
