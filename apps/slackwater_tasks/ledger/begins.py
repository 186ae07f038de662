"""What begins, as the statements that begin it return it."""

from __future__ import annotations

from collections.abc import Iterable
from json import JSONDecoder
from typing import Any

from scheduler_ext.core.work import Started

_decode = JSONDecoder().raw_decode


def started(rows: Iterable[tuple[Any, ...]]) -> list[Started]:
    """The tasks of rows that begin as ``sql.claims.START`` has them."""
    return [
        Started(
            task_id, fence, tenant, handler, sha256, path, value(args), value(kwargs), cap_ms, attempt, name, workflow,
            at, before,
        )
        for task_id, fence, tenant, handler, sha256, path, args, kwargs, cap_ms, attempt, name, workflow, at, before
        in rows
    ]  # fmt: skip


def value(text: str) -> Any:
    """What a text of PostgreSQL's ``jsonb`` says. Most tasks have no arguments, and nobody need parse that.

    That text has no blanks around it; to fetch it as text costs a fifth of what a loader of psycopg's does.
    """
    return [] if text == "[]" else {} if text == "{}" else _decode(text)[0]
