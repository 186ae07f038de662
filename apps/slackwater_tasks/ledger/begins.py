"""What begins, as the statements that begin it return it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from scheduler_ext.core.work import Started


def started(rows: Sequence[tuple[Any, ...]]) -> list[Started]:
    """The tasks of rows as ``sql.claims.START`` has them.

    Arguments come as text and are read all at once: by a loader of psycopg's for each, they would take as long as all
    else of a start.
    """
    given = values([text for row in rows for text in row[6:8]])
    return [
        Started(
            task_id, fence, tenant, handler, sha256, path, args, kwargs, cap_ms, attempt, name, workflow, at, before, earlier
        )
        for (task_id, fence, tenant, handler, sha256, path, _, _, cap_ms, earlier, attempt, name, workflow, at,
             before), args, kwargs in zip(rows, given[::2], given[1::2], strict=True)
    ]  # fmt: skip


def values(texts: Sequence[str]) -> list[Any]:
    """What texts of PostgreSQL's ``jsonb`` say."""
    found: list[Any] = json.loads(f"[{','.join(texts)}]")
    return found
