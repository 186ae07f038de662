"""Enumerations by name in SQL: ``:state.READY`` in a statement stands for the number that the column holds.

The number is written into the statement's text when its module is imported, so the planner sees a constant, which it
needs in order to use a partial index.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from scheduler_ext.core.states import Category, ClientStatus, EdgeOutcome, Outcome, RunCondition, TaskState

ENUMS: Final[dict[str, type[IntEnum]]] = {
    "state": TaskState,
    "outcome": Outcome,
    "edge": EdgeOutcome,
    "condition": RunCondition,
    "category": Category,
    "status": ClientStatus,
}
"""The name before the dot, and the enumeration whose member stands behind it."""
_NAME: Final = re.compile(r"(?<![:\w]):([a-z]+)\.([A-Z_]+)\b")


def named(statement: str, **more: type[IntEnum]) -> str:
    """Return ``statement`` with every ``:enum.MEMBER`` replaced by its number.

    ``more`` adds enumerations that only the caller knows. Raises ``KeyError`` for an unknown enumeration or member.
    """
    enums = {**ENUMS, **more}
    return _NAME.sub(lambda found: str(int(enums[found[1]][found[2]])), statement)
