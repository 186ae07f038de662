"""The history of tasks: one row for each change that an attempt's own row does not tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from scheduler_ext.core.states import TaskState
from slackwater_tasks.ledger.copy_format import insert

COLUMNS: Final = ("task_id", "tenant_id", "from_state", "to_state", "fence", "actor", "reason", "detail")
Row = tuple[Any, ...]


def row(tenant_id: int, task_id: UUID, state: TaskState, *, actor: str, reason: str, before: TaskState | None = None,
        fence: int = 0, detail: dict[str, Any] | None = None) -> Row:  # fmt: skip
    """A change to ``state``; without ``before`` the state stayed as it was."""
    text = json.dumps(detail) if detail is not None else None
    return task_id, tenant_id, int(before or state), int(state), fence, actor[:120], reason[:300], text


def write(cur: Any, rows: Sequence[Row]) -> None:
    """Write rows as :func:`row` makes them."""
    insert(cur, "slackwater_tasks_taskevent", COLUMNS, rows)
