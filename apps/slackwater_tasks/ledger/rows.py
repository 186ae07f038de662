"""The two rows of an accepted task: the wide one as submitted, and the narrow one that is read to decide and run."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from scheduler_ext.conf import PROMOTE_LEAD_MS
from scheduler_ext.core.precedence import Weight
from scheduler_ext.core.states import Category, TaskState
from scheduler_ext.policies.base import RankInput
from slackwater_resources import components
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.ledger.learnt import keys_of
from slackwater_tasks.models import Task
from slackwater_tasks.models.base import OnLate
from slackwater_tasks.spec import COLUMNS, Payload, TaskSpec

if TYPE_CHECKING:
    from slackwater_tasks.ledger.active_policies import Orders


@dataclass(slots=True, kw_only=True)
class Accepted:
    """A task that passed admission, with everything its rows need.

    Never changed; but a frozen one would take three times as long to make, and bulk submissions make many.
    """

    id: UUID
    spec: TaskSpec
    payload: Payload
    tier: reference_cache.TierInfo
    line_id: int
    handler_id: int | None
    tolerance_ms: int
    cap_ms: int
    pending: int = 0
    """What it waits for: its parents that are not final, and of a map its elements, as one."""
    has_children: bool = False
    checkpoints: bool = False
    """Whether it, or its handler, declares checkpoints: it then never shares a batch."""
    weight: Weight | None = None
    """What its graph says of its order; ``None`` for a task without a graph."""
    pressed: bool = False
    """Whether it, or a task that needs it, is urgent."""
    inherited: int = 0
    """The highest priority among the tasks that need it."""

    @property
    def priority(self) -> int:
        """Its own priority, or that of the most pressing task that needs it."""
        return max(self.spec.priority, self.inherited)


class _Resolved(NamedTuple):
    """The columns of the wide row that are no field of the specification, or that admission has resolved."""

    id: UUID
    tenant_id: int
    workflow_id: UUID | None
    kind: int
    args: str
    kwargs: str
    tier_id: int
    delay_tolerance_ms: int
    cap_ms: int
    retry: str | None
    start_at: datetime | None
    expires_at: datetime | None
    metadata: str | None
    submitted_at: datetime
    submitted_by: str
    admitted_by: int | None
    attempts_used: int = 0
    error: str = ""
    reason: str = ""
    release_pending: bool = False


_DECLARED = {column: field for column, field in COLUMNS.items() if column not in _Resolved._fields}
_of_spec = attrgetter(*(field.attribute for field in _DECLARED.values()))
_STORED = [field.kind.stored for field in _DECLARED.values()]
TASK_COLUMNS = (*_Resolved._fields, *_DECLARED)


USUAL_TASK = {
    **dict.fromkeys(("workflow_id", "retry", "start_at", "expires_at", "metadata")),
    **_Resolved._field_defaults,
    **{
        column: field.kind.stored(field.default)
        for column, field in _DECLARED.items()
        if column not in ("handler", "category", "on_late", "total_attempts", "condition")
    },
}
"""Columns of the wide row that have the same value in nearly all, and that value."""


def task_row(tenant_id: int, workflow_id: UUID | None, task: Accepted, at: datetime, actor: str) -> tuple[Any, ...]:
    """The wide row, in the order of :data:`TASK_COLUMNS`."""
    spec = task.spec
    resolved = _Resolved(
        id=task.id,
        tenant_id=tenant_id,
        workflow_id=workflow_id,
        kind=_kind(spec),
        args=task.payload[0],
        kwargs=task.payload[1],
        tier_id=task.tier.id,
        delay_tolerance_ms=task.tolerance_ms,
        cap_ms=task.cap_ms,
        retry=json.dumps(spec.retry) if spec.retry is not None else None,
        start_at=start_of(spec, at),
        expires_at=expiry_of(spec, at),
        metadata=json.dumps(spec.metadata, ensure_ascii=False) if spec.metadata else None,
        submitted_at=at,
        submitted_by=actor[:120],
        admitted_by=components.own.id,
    )
    return (*resolved, *(stored(value) for stored, value in zip(_STORED, _of_spec(spec), strict=True)))


def start_of(spec: TaskSpec, at: datetime) -> datetime | None:
    """The moment before which it is not to start, if it is submitted ``at`` a time."""
    return spec.start_at if spec.start_in_ms is None else at + timedelta(milliseconds=spec.start_in_ms)


def expiry_of(spec: TaskSpec, at: datetime) -> datetime | None:
    """The moment after which it is not to start."""
    return spec.expires_at if spec.expires_in_ms is None else at + timedelta(milliseconds=spec.expires_in_ms)


class LiveRow(NamedTuple):
    """The narrow row of a task when it begins; its other columns are empty."""

    task_id: UUID
    tenant_id: int
    line_id: int
    state: int
    rank_group: int
    rank: int
    kind: int
    handler_id: int | None
    priority: int
    total_attempts: int
    pending: int
    condition: int
    has_children: bool
    alone: bool
    mutex_key: str | None
    mutex_limit: int
    tolerance_ms: int
    on_late: int
    not_before: datetime | None
    latest_start: datetime | None
    promote_at: datetime | None
    expires_at: datetime | None
    rate_key: str | None
    fence: int = 0
    attempts: int = 0
    batch: int = 0
    cancel_requested: bool = False
    slot_milli: int = 1000
    path_us: int | None = None
    work_us: int | None = None

    @property
    def opens(self) -> tuple[int, int | None, bool]:
        """What an opening for it is for: its line, its handler, and whether it never shares a batch."""
        return self.line_id, self.handler_id, self.alone or self.total_attempts == 1


GRAPH_COLUMNS = LiveRow._fields
LIVE_COLUMNS = GRAPH_COLUMNS[:-2]
"""The columns of which a task without a graph uses any."""


USUAL_LIVE = {
    **dict.fromkeys(("mutex_key", "not_before", "expires_at", "rate_key")),
    **{name: value for name, value in LiveRow._field_defaults.items() if name in LIVE_COLUMNS},
    "priority": 0, "pending": 0, "has_children": False, "mutex_limit": 1,
}  # fmt: skip
"""The same of the narrow row."""


class Own(NamedTuple):
    """What a task does not share with others of its kind."""

    kind: int
    """The place of its kind's rows among those given."""
    id: UUID
    args: str
    kwargs: str


class Herd(NamedTuple):
    """Tasks of one kind, which differ in their ids and arguments alone."""

    wide: Sequence[Any]
    """The rows of any of them."""
    narrow: Sequence[Any]
    ids: Sequence[str]
    args: Sequence[str]
    kwargs: Sequence[str]

    def split(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
        """The columns of the two tables that hold the same in all of them, and JSON arrays of the arguments that differ."""
        wide = {name: value for name, value in zip(TASK_COLUMNS, self.wide, strict=True) if value is not None}
        narrow = {name: value for name, value in zip(GRAPH_COLUMNS, self.narrow, strict=True) if value is not None}
        del wide["id"], narrow["task_id"]
        own = {}
        for name, texts in (("args", self.args), ("kwargs", self.kwargs)):
            if texts.count(texts[0]) == len(texts):
                wide[name] = texts[0]
            else:
                del wide[name]
                own[name] = f"[{','.join(texts)}]"
        return wide, narrow, own


class Place(NamedTuple):
    """Where tasks were claimed as they were stored: the columns of an opening."""

    node_id: int
    kind: str
    queue: str
    slot_milli: int
    expected_us: int
    places: int
    """Those that are left; below zero: so many tasks found none."""
    low: bool
    """Whether few places are left."""


def live_row(tenant_id: int, task: Accepted, at: datetime, arrived: datetime, chosen: Orders) -> LiveRow:
    """The narrow row of a task that becomes live ``at`` a time and ``arrived`` then or before."""
    spec = task.spec
    state, not_before, latest_start, promote_at = timing(task, at)
    group, rank = rank_of(tenant_id, task, arrived, chosen)
    return LiveRow(
        task_id=task.id,
        tenant_id=tenant_id,
        line_id=task.line_id,
        state=int(state),
        rank_group=group,
        rank=rank,
        kind=_kind(spec),
        handler_id=task.handler_id,
        priority=task.priority,
        total_attempts=spec.total_attempts,
        pending=task.pending,
        condition=int(spec.condition),
        has_children=task.has_children,
        alone=task.checkpoints,
        mutex_key=scoped_mutex(tenant_id, spec.excluded_by),
        mutex_limit=spec.mutex_limit,
        tolerance_ms=task.tolerance_ms,
        on_late=reference_cache.on_late_mark(tenant_id, int(spec.on_late)),
        not_before=not_before,
        latest_start=latest_start,
        promote_at=promote_at,
        expires_at=expiry_of(spec, at),
        rate_key=spec.rate_key or None,
        path_us=task.weight.path_us if task.weight else None,
        work_us=task.weight.work_us if task.weight else None,
    )


def _kind(spec: TaskSpec) -> int:
    return int(Task.Kind.HANDLER if spec.handler else Task.Kind.SCRIPT)


def rank_of(tenant_id: int, task: Accepted, arrived: datetime, chosen: Orders) -> tuple[int, int]:
    """The place of a task in its line."""
    order, spec = chosen.order_of(tenant_id, task.line_id), task.spec
    start = max(start_of(spec, arrived) or arrived, arrived)
    level = first_level(order, task.line_id)
    run_time = chosen.run_time_us(tenant_id, keys_of(spec)) if chosen.run_times is not None else None
    return order.rank(
        rank_input(arrived, start, task.tolerance_ms, task.cap_ms, task.priority, level, run_time, task.weight)
    )


def rank_input(arrived: datetime, start: datetime, tolerance_ms: int, cap_ms: int, priority: int, level: int,
               run_time_us: int | None, weight: Weight | None = None) -> RankInput:  # fmt: skip
    """What an order policy may look at; ``start``: the moment from which the task's delay counts."""
    arrived_us = microseconds(arrived)
    start_us = arrived_us if start is arrived else microseconds(start)
    return RankInput(
        arrived_us=arrived_us, latest_start_us=start_us + tolerance_ms * 1000,
        expected_us=run_time_us, cap_us=cap_ms * 1000, priority=priority, level=level,
        path_us=weight.path_us if weight else 0, work_us=weight.work_us if weight else None,
    )  # fmt: skip


def first_level(order: Any, line_id: int, serving: int | None = None) -> int:
    """The level at which a newcomer to a line begins: the cycle being served (``serving``), if the order has cycles,
    else 0.
    """
    if not hasattr(order, "level_of"):
        return 0
    return reference_cache.serving(line_id) if serving is None else serving


def microseconds(moment: datetime) -> int:
    """Seconds since the Unix epoch."""
    return math.floor(moment.timestamp() * 1_000_000)


def timing(task: Accepted, at: datetime) -> tuple[TaskState, datetime | None, datetime | None, datetime | None]:
    """State, not before, latest start and promotion of a task that is stored (or edited) at ``at``."""
    start = start_of(task.spec, at)
    later = start if start is not None and start > at else None
    # What is urgent, and given up when it is late, never moves.
    promotable = task.spec.category is not Category.URGENT or task.spec.on_late is OnLate.RUN_FIRST
    if task.pending:
        # A marker: the real time is set when the task is released.
        return TaskState.BLOCKED, later, None, at if promotable else None
    latest = (later or at) + timedelta(milliseconds=task.tolerance_ms)
    lead = timedelta(milliseconds=min(task.tolerance_ms, PROMOTE_LEAD_MS))
    return TaskState.SCHEDULED if later else TaskState.READY, later, latest, latest - lead if promotable else None


def scoped_mutex(tenant_id: int, key: str) -> str | None:
    """A mutex key under its tenant, so that keys of two tenants never meet."""
    return f"{tenant_id}:{key}" if key else None
