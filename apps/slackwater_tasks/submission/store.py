"""Storing accepted tasks: rows built once, written by INSERT or COPY, and the tenant's counters last."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn
from uuid import UUID

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper
from psycopg.types.json import Jsonb

from scheduler_ext.core.errors import LimitExceeded, QuotaExceeded, TooLarge
from scheduler_ext.core.states import Category, TaskState
from scheduler_ext.policies.base import RankInput
from slackwater_resources import components
from slackwater_tasks.ledger import copy_format, reference_cache
from slackwater_tasks.ledger.active_policies import Chosen
from slackwater_tasks.ledger.reference_cache import TierInfo
from slackwater_tasks.models import Task, new_id
from slackwater_tasks.spec import Payload, TaskSpec
from slackwater_tenants.models import Plan, Tenant

COPY_FROM = 8
"""From this many rows on, COPY is cheaper than INSERT."""
URGENT_FREE = 100
"""Urgent tasks a tenant may always have, whatever its plan's share of urgent work."""

TASK_COLUMNS = (
    "id", "tenant_id", "workflow_id", "name", "kind", "handler", "script_sha256", "script_path", "args", "kwargs",
    "category", "tier_id", "priority", "delay_tolerance_ms", "on_late", "cap_ms", "total_attempts", "retry",
    "mutex_key", "mutex_limit", "condition", "tags", "submitted_at", "submitted_by", "start_at", "attempts_used",
    "error", "reason", "release_pending", "admitted_by",
)  # fmt: skip
LIVE_COLUMNS = (
    "task_id", "tenant_id", "line_id", "state", "rank_group", "rank", "kind", "handler_id", "priority", "fence",
    "attempts", "total_attempts", "pending", "condition", "has_children", "alone", "batch", "cancel_requested",
    "mutex_key", "mutex_limit", "tolerance_ms", "on_late", "not_before", "latest_start", "promote_at", "slot_milli",
    "rate_key",
)  # fmt: skip
EDGE_COLUMNS = ("parent_id", "child_id", "outcome")


@dataclass(slots=True, kw_only=True)
class Accepted:
    """A task that passed admission, with everything its rows need.

    Never changed; but a frozen one would take three times as long to make, and bulk submissions make many.
    """

    id: UUID
    spec: TaskSpec
    payload: Payload
    tier: TierInfo
    line_id: int
    handler_id: int | None
    tolerance_ms: int
    cap_ms: int
    pending: int = 0
    has_children: bool = False
    checkpoints: bool = False
    """It, or its handler, declares checkpoints: it never shares a batch."""


def rank_of(tenant_id: int, task: Accepted, arrived: datetime, chosen: Chosen) -> tuple[int, int]:
    """The place of a task in its line."""
    start = task.spec.start_at or arrived
    return chosen.order_of(tenant_id, task.line_id).rank(
        RankInput(
            arrived_us=microseconds(arrived),
            latest_start_us=microseconds(max(start, arrived)) + task.tolerance_ms * 1000,
            expected_us=chosen.run_times.get((tenant_id, task.spec.handler)) if chosen.run_times else None,
            cap_us=task.cap_ms * 1000,
            priority=task.spec.priority,
            level=first_level(tenant_id, task.line_id, chosen),
        )
    )


def first_level(tenant_id: int, line_id: int, chosen: Chosen) -> int:
    """The level a newcomer to a line begins at, where its order shares time."""
    order: Any = chosen.order_of(tenant_id, line_id)
    return order.first_level(reference_cache.serving(line_id)) if hasattr(order, "first_level") else 0


def microseconds(moment: datetime) -> int:
    """Since the Unix epoch."""
    return math.floor(moment.timestamp() * 1_000_000)


def task_row(tenant_id: int, workflow_id: UUID | None, task: Accepted, at: datetime, actor: str) -> tuple[Any, ...]:
    """The wide row, in the order of :data:`TASK_COLUMNS`."""
    spec = task.spec
    kind = Task.Kind.HANDLER if spec.handler else Task.Kind.SCRIPT
    return (
        task.id, tenant_id, workflow_id, spec.name, kind, spec.handler, spec.script, spec.script_path,
        task.payload[0],
        task.payload[1],
        int(spec.category), task.tier.id, spec.priority, task.tolerance_ms, int(spec.on_late), task.cap_ms,
        spec.total_attempts, json.dumps(spec.retry) if spec.retry is not None else None, spec.mutex_key,
        spec.mutex_limit, int(spec.condition), list(spec.tags), at, actor[:120], spec.start_at, 0, "", "", False,
        components.own.id,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a task may and must start, as its live row says it."""

    state: TaskState
    not_before: datetime | None
    latest_start: datetime | None
    promote_at: datetime | None


def timing(task: Accepted, at: datetime, lead_s: float) -> Timing:
    """State and times of a task that is stored (or edited) at ``at``."""
    later = task.spec.start_at if task.spec.start_at is not None and task.spec.start_at > at else None
    promotable = task.spec.category is not Category.URGENT
    if task.pending:
        # A marker: the real time is set when the task is released.
        return Timing(
            state=TaskState.BLOCKED,
            not_before=later,
            latest_start=None,
            promote_at=at if promotable else None,
        )
    latest = (later or at) + timedelta(milliseconds=task.tolerance_ms)
    lead = timedelta(milliseconds=min(task.tolerance_ms, int(lead_s * 1000)))
    return Timing(
        state=TaskState.SCHEDULED if later else TaskState.READY,
        not_before=later,
        latest_start=latest,
        promote_at=latest - lead if promotable else None,
    )


def live_row(tenant_id: int, task: Accepted, at: datetime, arrived: datetime, chosen: Chosen, lead_s: float,
             ) -> tuple[Any, ...]:  # fmt: skip
    """The narrow row, in the order of :data:`LIVE_COLUMNS`."""
    spec = task.spec
    when = timing(task, at, lead_s)
    group, rank = rank_of(tenant_id, task, arrived, chosen)
    kind = Task.Kind.HANDLER if spec.handler else Task.Kind.SCRIPT
    return (
        task.id, tenant_id, task.line_id, int(when.state), group, rank, kind, task.handler_id, spec.priority, 0,
        0, spec.total_attempts, task.pending, int(spec.condition), task.has_children, task.checkpoints, 0, False,
        scoped_mutex(tenant_id, spec.excluded_by), spec.mutex_limit, task.tolerance_ms,
        reference_cache.on_late_mark(tenant_id, int(spec.on_late)), when.not_before, when.latest_start, when.promote_at, 1000,
        spec.rate_key or None,
    )  # fmt: skip


def scoped_mutex(tenant_id: int, key: str) -> str | None:
    """A mutex key under its tenant: keys of two tenants never meet."""
    return f"{tenant_id}:{key}" if key else None


def insert(cur: Any, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows: a few by INSERT, many by COPY."""
    names = ", ".join(columns)
    if len(rows) >= COPY_FROM:
        copy_lines(cur, table, columns, map(copy_format.line, rows))
    elif rows:
        one = f"({', '.join(['%s'] * len(columns))})"
        cur.execute(
            f"INSERT INTO {table} ({names}) VALUES {', '.join([one] * len(rows))}",  # noqa: S608 - names of ours
            [value for row in rows for value in row],
        )


def insert_tasks(cur: Any, tenant_id: int, workflow_id: UUID | None, tasks: Sequence[Accepted], at: datetime,
                 actors: Sequence[str], chosen: Chosen, lead_s: float) -> None:  # fmt: skip
    """Write the wide and the narrow rows of tasks submitted at ``at``; ``actors``: who submitted each."""

    def wide(item: tuple[Accepted, str]) -> tuple[Any, ...]:
        return task_row(tenant_id, workflow_id, item[0], at, item[1])

    def narrow(task: Accepted) -> tuple[Any, ...]:
        return live_row(tenant_id, task, at, at, chosen, lead_s)

    items = list(zip(tasks, actors, strict=True))
    if len(tasks) < COPY_FROM:
        insert(cur, "slackwater_tasks_task", TASK_COLUMNS, [wide(item) for item in items])
        insert(cur, "slackwater_tasks_livetask", LIVE_COLUMNS, [narrow(task) for task in tasks])
        return
    # One specification means one tier, line, handler and cap: what is left of a row is the same.
    lines = copy_format.alike(items, lambda item: (id(item[0].spec), item[1]), wide, _WIDE_VARIES)
    copy_lines(cur, "slackwater_tasks_task", TASK_COLUMNS, lines)
    lines = copy_format.alike(tasks, lambda t: (id(t.spec), t.pending, t.has_children), narrow, _NARROW_VARIES)
    copy_lines(cur, "slackwater_tasks_livetask", LIVE_COLUMNS, lines)


_WIDE_VARIES: Final[Sequence[tuple[int, Callable[[tuple[Accepted, str]], str]]]] = (
    (TASK_COLUMNS.index("id"), lambda item: copy_format.uuid_text(item[0].id)),
    (TASK_COLUMNS.index("args"), lambda item: copy_format.json_text(item[0].payload[0])),
    (TASK_COLUMNS.index("kwargs"), lambda item: copy_format.json_text(item[0].payload[1])),
)
_NARROW_VARIES: Final[Sequence[tuple[int, Callable[[Accepted], str]]]] = (
    (LIVE_COLUMNS.index("task_id"), lambda task: copy_format.uuid_text(task.id)),
)


def copy_lines(cur: Any, table: str, columns: Sequence[str], lines: Iterable[str]) -> None:
    """Write lines of COPY's text format."""
    data = "".join(lines)  # before COPY begins: making them may ask the database something
    # Django hands COPY on without translating what it raises.
    faults = cur.db.wrap_database_errors if isinstance(cur, CursorWrapper) else nullcontext()
    with faults, cur.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        copy.write(data)


ASIDE = """
UPDATE slackwater_tasks_task t SET rate_key = u.key, mutex_scope = u.scope
FROM unnest(%s::uuid[], %s::text[], %s::int[]) AS u(id, key, scope) WHERE t.id = u.id
"""


def write_aside(cur: Any, tasks: Sequence[Accepted]) -> None:
    """Add what few tasks have to their wide rows: the ordinary ones should not pay for it."""
    some = [t for t in tasks if t.spec.aside]
    if some:
        cur.execute(
            ASIDE,
            ([t.id for t in some], [t.spec.rate_key for t in some], [int(t.spec.mutex_scope) for t in some]),
        )


COUNT = """
UPDATE slackwater_tenants_tenantcounter
SET unfinished = unfinished + %(n)s::bigint, urgent_unfinished = urgent_unfinished + %(urgent)s::bigint,
    theoretical_arrival = greatest(coalesce(theoretical_arrival, clock_timestamp()), clock_timestamp())
        + %(charged)s::float8 * %(step)s::float8 * interval '1 second'
WHERE tenant_id = %(tenant)s::bigint AND unfinished + %(n)s::bigint <= %(most)s::bigint
    AND greatest(coalesce(theoretical_arrival, clock_timestamp()), clock_timestamp())
        + %(charged)s::float8 * %(step)s::float8 * interval '1 second'
        <= clock_timestamp() + %(burst)s::float8 * %(step)s::float8 * interval '1 second'
    AND (%(urgent)s::bigint = 0 OR urgent_unfinished + %(urgent)s::bigint
         <= greatest(%(urgent_free)s::bigint, (unfinished + %(n)s::bigint) * %(permille)s::bigint / 1000))
"""
WHY = """
SELECT unfinished, urgent_unfinished,
    extract(epoch FROM greatest(coalesce(theoretical_arrival, clock_timestamp()), clock_timestamp())
        - clock_timestamp())::float8
FROM slackwater_tenants_tenantcounter WHERE tenant_id = %s
"""


# A lone task in one statement: counters first, and the rows only where they allow it. By far the most frequent
# submission over REST; five round trips become one.
_TASK_TYPES = (
    "uuid", "bigint", "uuid", "text", "int", "text", "text", "text", "jsonb", "jsonb", "int", "bigint", "int",
    "bigint", "int", "bigint", "int", "jsonb", "text", "int", "int", "text[]", "timestamptz", "text",
    "timestamptz", "int", "text", "text", "boolean", "int",
)  # fmt: skip
_LIVE_TYPES = (
    "uuid", "bigint", "bigint", "int", "int", "bigint", "int", "bigint", "int", "int", "int", "int", "int",
    "int", "boolean", "boolean", "int", "boolean", "text", "int", "bigint", "int", "timestamptz",
    "timestamptz", "timestamptz", "int", "text",
)  # fmt: skip


_COUNT_NAMES = ("tenant", "n", "urgent", "most", "step", "burst", "charged", "permille", "urgent_free")


def _alone() -> str:
    """The statement with numbered parameters: the counters', then the task's, then the live row's."""
    places = {name: f"${n}" for n, name in enumerate(_COUNT_NAMES, 1)}
    count = re.sub(r"%\((\w+)\)s", lambda match: places[match[1]], COUNT)
    first = len(_COUNT_NAMES) + 1
    task = ", ".join(f"${n}::{kind}" for n, kind in enumerate(_TASK_TYPES, first))
    live = ", ".join(f"${n}::{kind}" for n, kind in enumerate(_LIVE_TYPES, first + len(_TASK_TYPES)))
    return f"""
WITH counted AS ({count} RETURNING 1),
task AS (INSERT INTO slackwater_tasks_task ({", ".join(TASK_COLUMNS)}) SELECT {task} FROM counted)
INSERT INTO slackwater_tasks_livetask ({", ".join(LIVE_COLUMNS)}) SELECT {live} FROM counted
"""  # noqa: S608 - names and types of ours


ALONE = _alone()


def insert_alone(tenant: Tenant, task: tuple[Any, ...], live: tuple[Any, ...], *, urgent: int) -> None:
    """Write and count one task that depends on nothing, in one statement; raises as :func:`count_in` does."""
    params = count_params(tenant, tenant.plan, n=1, urgent=urgent, charged=1)
    connection.ensure_connection()
    # Numbered parameters, bound by the server and prepared once a connection: to rewrite or to plan this statement
    # anew would cost more than to run it.
    with psycopg.RawCursor(connection.connection) as cur:
        prepare = None if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS") else True
        with connection.wrap_database_errors:
            cur.execute(ALONE, [*(params[name] for name in _COUNT_NAMES), *task, *live], prepare=prepare)
        done = cur.rowcount == 1
    if not done:
        with connection.cursor() as plain:
            _refuse(plain, tenant, params)


def count_in(cur: Any, tenant: Tenant, plan: Plan, *, n: int, urgent: int, charged: int) -> None:
    """Raise the tenant's counters, last in the transaction; ``charged`` submissions count against the rate.

    Raises :class:`LimitExceeded` (the rate, with the seconds to wait), :class:`QuotaExceeded` or
    :class:`TooLarge` (more at once than the plan's burst); the caller's transaction is rolled back with it.
    """
    params = count_params(tenant, plan, n=n, urgent=urgent, charged=charged)
    cur.execute(COUNT, params)
    if cur.rowcount != 1:
        _refuse(cur, tenant, params)


def count_params(tenant: Tenant, plan: Plan, *, n: int, urgent: int, charged: int) -> dict[str, Any]:
    """The parameters of :data:`COUNT`; :class:`TooLarge` for more at once than the plan's burst."""
    step = 3600.0 / plan.tasks_per_hour if plan.tasks_per_hour else math.inf
    if charged > plan.burst or math.isinf(step):
        allowed = plan.burst if plan.tasks_per_hour else 0
        raise TooLarge(f"the plan allows {allowed} submissions at once, these are {charged}", field="tasks")
    permille = min(1000, plan.max_urgent_permille)
    free = n + 10**12 if permille == 1000 else (URGENT_FREE if permille else 0)
    return {
        "tenant": tenant.pk, "n": n, "urgent": urgent, "most": plan.max_waiting, "step": step, "burst": plan.burst,
        "charged": charged, "permille": permille, "urgent_free": free,
    }  # fmt: skip


def _refuse(cur: Any, tenant: Tenant, params: dict[str, Any]) -> NoReturn:
    """Say which limit the counters' condition met."""
    plan, n, step = tenant.plan, params["n"], params["step"]
    cur.execute(WHY, (tenant.pk,))
    unfinished, _urgent, ahead_s = cur.fetchone()
    wait = ahead_s + params["charged"] * step - plan.burst * step
    if wait > 0:
        raise LimitExceeded(retry_after=wait, limit=plan.tasks_per_hour, burst=plan.burst)
    if unfinished + n > plan.max_waiting:
        raise QuotaExceeded(
            f"the plan allows {plan.max_waiting} tasks waiting; {unfinished} wait, {n} were handed in",
            limit=plan.max_waiting,
        )
    raise QuotaExceeded(
        f"the plan allows {params['permille'] / 10:g} % of the tasks waiting to be urgent",
        field="category",
        limit=params["permille"],
    )


def fresh_ids(n: int) -> list[UUID]:
    """That many new ids, in order."""
    return [new_id() for _ in range(n)]


def write_event(
    cur: Any,
    tenant_id: int,
    task_id: UUID,
    state: TaskState,
    *,
    actor: str,
    reason: str,
    before: TaskState | None = None,
    fence: int = 0,
    detail: dict[str, Any] | None = None,
) -> None:
    """Write one event row."""
    cur.execute(
        "INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason, detail) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
        (task_id, tenant_id, int(before or state), int(state), fence, actor[:120], reason[:300],
         Jsonb(detail) if detail is not None else None),
    )  # fmt: skip
