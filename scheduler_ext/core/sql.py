"""Enumerations by name in SQL: ``:state.READY`` in a statement stands for the number that the column holds.

The number is written into the statement's text when its module is imported, so the planner sees a constant, which it
needs in order to use a partial index.
"""

from __future__ import annotations

import re
from enum import IntEnum, IntFlag
from typing import Final

from scheduler_ext.core.states import (
    Category,
    ClientStatus,
    EdgeOutcome,
    EffectState,
    Event,
    LateMark,
    Outcome,
    Phase,
    RunCondition,
    TaskState,
)

ENUMS: Final[dict[str, type[IntEnum | IntFlag]]] = {
    "state": TaskState,
    "phase": Phase,
    "outcome": Outcome,
    "edge": EdgeOutcome,
    "condition": RunCondition,
    "category": Category,
    "event": Event,
    "late": LateMark,
    "effect": EffectState,
    "status": ClientStatus,
}
"""The name before the dot, and the enumeration it stands for."""
_NAME: Final = re.compile(r"(?<![:\w]):([a-z]+)\.([A-Z_]+(?:\|[A-Z_]+)*)(?!\w)")


def named(statement: str) -> str:
    """Return ``statement`` with every ``:enum.MEMBER`` replaced by its number.

    ``:event.FAILED|DEAD_LETTERED`` stands for the sum of both flags. Raises ``KeyError`` for an unknown enumeration or
    member.
    """
    return _NAME.sub(lambda found: str(sum(int(ENUMS[found[1]][name]) for name in found[2].split("|"))), statement)
