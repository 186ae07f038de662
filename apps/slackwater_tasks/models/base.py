"""What the tables share: ids, choices, and the owner of a row."""

from __future__ import annotations

import uuid
from collections import deque
from functools import partial
from itertools import repeat
from typing import Any, Final

import uuid_utils.compat
from django.db import models

from scheduler_ext.core.states import FINAL, TaskState
from slackwater_tenants.scoping import TenantOwned

_set_int: Final = vars(uuid.UUID)["int"].__set__
_set_is_safe: Final = vars(uuid.UUID)["is_safe"].__set__
_exhaust: Final = partial(deque[Any], maxlen=0)
LIVE_STATES = [state for state in TaskState if state not in FINAL]


def new_id() -> uuid.UUID:
    """A UUIDv7: made without coordination, sortable by time."""
    return uuid_utils.compat.uuid7()


def new_ids(count: int) -> list[uuid.UUID]:
    """That many of them, in order, for a third of what each alone costs."""
    ids = list(map(object.__new__, repeat(uuid.UUID, count)))
    # A UUID lets nobody set what it is made of, but by the descriptors of its slots.
    _exhaust(map(_set_int, ids, [uuid_utils.uuid7().int for _ in range(count)]))
    _exhaust(map(_set_is_safe, ids, repeat(uuid.SafeUUID.unknown)))
    return ids


def choices(enum: type[Any]) -> list[tuple[int, str]]:
    return [(int(member), member.name.lower().replace("_", " ")) for member in enum]


class OnLate(models.IntegerChoices):
    """What happens when a task's latest start passes."""

    RUN_FIRST = 1, "run first"
    GIVE_UP = 2, "give up"


class MutexScope(models.IntegerChoices):
    """Which work a mutex key excludes: a task outside the key's scope runs as if it had no key."""

    BOTH = 1, "both"
    DEPENDENT = 2, "dependent work: tasks that need others"
    INDEPENDENT = 3, "independent work: tasks that need no others"


class LooseKey(models.ForeignKey):  # type: ignore[type-arg]
    """A reference that the database neither checks nor indexes: the statements of ``ledger/sql`` are its only writers."""

    def __init__(
        self, to: Any, on_delete: Any = models.CASCADE, related_name: str = "+", *, null: bool = False, **options: Any
    ) -> None:
        options = {"db_constraint": False, "db_index": False, **options}
        super().__init__(to, on_delete, related_name, null=null, **options)

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, _, args, options = super().deconstruct()
        return name, "django.db.models.ForeignKey", args, options


class LedgerRow(TenantOwned):
    """A row beside a task, of the task's tenant."""

    tenant = LooseKey("slackwater_tenants.Tenant")

    class Meta(TenantOwned.Meta):
        abstract = True
