"""What every generated page needs: its head, tables, and the docstrings of attributes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

NOTE = "<!-- Written by `make docs` from {source}; change that, not this page. -->"


def page(title: str, source: str, *parts: str) -> str:
    """A whole page."""
    body = "\n\n".join(part.strip("\n") for part in (NOTE.format(source=source), f"# {title}", *parts))
    return body + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what a cell may not contain is escaped."""
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    lines += [f"| {' | '.join(cell(text) for text in row)} |" for row in rows]
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text on one line, with its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Text as code; nothing for an empty one."""
    return f"`{text}`" if text else ""


def plain(docstring: str) -> str:
    """A docstring's reStructuredText marks as Markdown's."""
    return docstring.replace("``", "`").replace(":class:", "").replace(":data:", "")


def attribute_docs(cls: type[Any]) -> dict[str, str]:
    """The string below each attribute of a class or of its base, which Python itself throws away."""
    inherited = attribute_docs(cls.__base__) if cls.__base__ is not None and is_dataclass(cls.__base__) else {}
    source = Path(inspect.getsourcefile(cls) or "").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return inherited | dict(_documented(node.body))
    raise LookupError(f"{cls.__name__} is not at the top of its module")


def _documented(body: Sequence[ast.stmt]) -> Iterable[tuple[str, str]]:
    for statement, after in zip(body, [*body[1:], None], strict=True):
        target = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(statement, ast.Assign):
            target = statement.targets[0] if isinstance(statement.targets[0], ast.Name) else None
        if not isinstance(target, ast.Name):
            continue
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            text = after.value.value
        yield target.id, inspect.cleandoc(text)
