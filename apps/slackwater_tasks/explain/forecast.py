"""When a waiting task will likely start: the simulator, run forward from the present state with the live policies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import NodeView, Snapshot, WorkKind
from scheduler_ext.policies.base import OrderPolicy
from scheduler_ext.policies.registry import order_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Cell, Job, RateLimit, Trace
from slackwater_tasks.ledger.round_store import PgRoundStore

MAX_JOBS = 3_000
UNKNOWN_S = (0.1, 1.0, 60.0)
"""What a run is taken to last where nothing is learnt: at best, likely, at worst."""
SPREAD = (0.5, 1.0, 2.0)
"""A learnt run time is taken times these."""
SOON_US = 1_000
"""What waits now arrives this long after what runs."""

RUNNING = named("""
SELECT l.task_id::text, l.tenant_id, l.line_id, t.handler, extract(epoch FROM clock_timestamp() - l.started_at)::float8,
       l.mutex_key
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
    WHERE l.phase = :phase.IN_FLIGHT LIMIT %s
""")
# The task, what it needs and has not ended, and who waits for its key with it.
WAITING = named("""
WITH RECURSIVE up AS (
    SELECT %(id)s::uuid AS id
    UNION SELECT d.parent_id FROM slackwater_tasks_dependency d JOIN up ON up.id = d.child_id
        WHERE d.outcome = :edge.PENDING),
wanted AS (
    (SELECT id FROM up LIMIT %(most)s)
    UNION (SELECT o.task_id FROM slackwater_tasks_livetask o WHERE o.mutex_key = %(key)s
        AND o.phase IN (:phase.BLOCKED, :phase.SCHEDULED, :phase.READY) LIMIT %(most)s)
    UNION (SELECT o.task_id FROM slackwater_tasks_livetask o WHERE o.parked = %(rate)s AND o.phase = :phase.BLOCKED
           ORDER BY o.line_id, o.rank_group, o.rank LIMIT %(most)s))
SELECT l.task_id::text, l.tenant_id, l.line_id, t.handler, l.rank_group, l.rank, l.mutex_key, l.priority,
       greatest(0, extract(epoch FROM l.not_before - clock_timestamp()))::float8,
       ARRAY(SELECT d.parent_id::text FROM slackwater_tasks_dependency d WHERE d.child_id = l.task_id
           AND d.outcome = :edge.PENDING),
       l.handler_id, l.rate_key
FROM wanted JOIN slackwater_tasks_livetask l ON l.task_id = wanted.id JOIN slackwater_tasks_task t ON t.id = l.task_id
WHERE l.phase IN (:phase.BLOCKED, :phase.SCHEDULED, :phase.READY)
""")
# What counts against a rate now, and since when; a claim whose start is not known counts from now.
RATE_STARTS = """
SELECT limit_id, coalesce(extract(epoch FROM clock_timestamp() - at), 0)::float8 FROM slackwater_tasks_ratestart LIMIT 20000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present(Cell):
    """The live nodes instead of equal ones."""

    live: tuple[NodeView, ...] = ()

    def views(self) -> tuple[NodeView, ...]:
        """The nodes, empty; a script's slot counts like any other."""
        return tuple(
            NodeView(
                node_id=node.node_id, name=node.name, capacity=node.capacity, slots={WorkKind.PROCESS: slots},
                labels=node.labels,
            )
            for node in self.live
            if (slots := node.slots.get(WorkKind.PROCESS, 0) + node.slots.get(WorkKind.SCRIPT, 0))
        )  # fmt: skip


@dataclass(slots=True)
class _Waiting:
    """One task of the simulated cell; times in seconds from now."""

    task_id: str
    tenant_id: int
    line_id: int
    handler: str
    rank: tuple[int, int] = (0, 0)
    arrives_s: float = 0.0
    elapsed_s: float | None = None
    """Set for what is in flight."""
    mutex_key: str | None = None
    priority: int = 0
    parents: Sequence[str] = ()
    rates: tuple[int, ...] = ()


def forecast(conf: SchedulerConf, store: PgRoundStore, snapshot: Snapshot, task_id: str, mutex_key: str | None,
             ahead: int, rate: int | None = None) -> tuple[float, float, float] | None:  # fmt: skip
    """In how many seconds the task starts, at best, likely and at worst; ``None`` when it would never.

    ``ahead``: how many stand before it in its line. ``rate``: the limit for which it is parked, with those that wait
    for it before it.
    """
    tasks = _collect(store, snapshot, {"id": task_id, "key": mutex_key, "rate": rate, "most": MAX_JOBS // 6})
    if task_id not in tasks or not snapshot.nodes:
        return None
    limits = _limits(store)
    found = [_run(conf, store, snapshot, list(tasks.values()), task_id, n, limits) for n in range(3)]
    known = [seconds for seconds in found if seconds is not None]
    if not known:
        return None
    line_id = tasks[task_id].line_id
    seen = sum(1 for t in tasks.values() if t.line_id == line_id and t.elapsed_s is None and t.task_id != task_id)
    # A long line is looked at from its head only: the rest of it goes on as the head does.
    stretch = max(1.0, ahead / seen) if seen else 1.0
    low, likely, high = (known[-1] if seconds is None else seconds for seconds in found)
    return min(low, likely) * stretch, likely * stretch, max(likely, high) * stretch


def _collect(store: PgRoundStore, snapshot: Snapshot, params: dict[str, Any]) -> dict[str, _Waiting]:
    conn, names = store.db.conn, store.reference.handlers
    tasks: dict[str, _Waiting] = {}
    for row in conn.execute(RUNNING, (MAX_JOBS,)).fetchall():
        tasks[row[0]] = _Waiting(row[0], row[1], row[2], row[3], elapsed_s=row[4] or 0.0, mutex_key=row[5])
    for line in snapshot.lines:
        for head in line.heads[:MAX_JOBS]:
            name = names[head.handler_id][0] if head.handler_id in names else ""
            tasks[head.task_id] = _Waiting(
                head.task_id, line.tenant_id, abs(line.line_id), name, rank=head.rank, mutex_key=head.mutex_key,
                priority=head.priority, rates=head.rates,
            )  # fmt: skip
    for row in conn.execute(WAITING, params).fetchall():
        tasks[row[0]] = _Waiting(
            row[0], row[1], row[2], row[3], rank=(row[4], row[5]), mutex_key=row[6], priority=row[7],
            arrives_s=row[8] or 0.0, parents=row[9], rates=store.rates.of(row[1], row[10], row[11]),
        )  # fmt: skip
    return tasks


def _run(conf: SchedulerConf, store: PgRoundStore, snapshot: Snapshot, tasks: list[_Waiting], task_id: str,
         case: int, limits: dict[int, RateLimit]) -> float | None:  # fmt: skip
    """The simulated start of the task, in seconds; ``None`` when it does not."""
    tasks = [t for t in tasks if t.line_id in store.reference.lines]
    tasks.sort(key=lambda t: (t.elapsed_s is None, t.arrives_s, t.rank, t.task_id))
    places = {t.task_id: n for n, t in enumerate(tasks)}
    jobs = [_job(store, t, n, places, case) for n, t in enumerate(tasks)]
    tenants = {i: replace(view, in_flight=0, used=(), used_slots_milli={}) for i, view in snapshot.tenants.items()}
    trace = Trace(name="now", jobs=jobs, begins_at=snapshot.now, limits=limits)
    engine = Engine(
        trace, Present(live=snapshot.nodes), order=_order(store, tasks[places[task_id]]), share=store.share(),
        conf=conf, tenants=tenants,
    )  # fmt: skip
    started = engine.run(time.perf_counter).started_us[places[task_id]]
    return None if started < 0 else max(0.0, started / 1e6)


def _limits(store: PgRoundStore) -> dict[int, RateLimit]:
    """The execution rates, with the starts that count against each now."""
    limits = store.rates.limits
    used: dict[int, list[int]] = {limit_id: [] for limit_id in limits}
    for limit_id, age_s in store.db.conn.execute(RATE_STARTS).fetchall() if limits else ():
        if limit_id in used and age_s < limits[limit_id].per_s:
            used[limit_id].append(int(age_s * 1e6))
    return {
        limit_id: RateLimit(
            starts=limit.starts, per_us=limit.per_s * 1_000_000,
            used_us=tuple(sorted(used[limit_id])[: limit.starts]),
        )
        for limit_id, limit in limits.items()
    }  # fmt: skip


def _order(store: PgRoundStore, task: _Waiting) -> OrderPolicy:
    """The order of the task's line; first come, first served in the place of time slices, whose turns nobody knows."""
    order = store.chosen().order_of(task.tenant_id, task.line_id)
    return order_policy("fifo") if hasattr(order, "quantum_us") else order


def _job(store: PgRoundStore, task: _Waiting, index: int, places: dict[str, int], case: int) -> Job:
    info = store.reference.lines[task.line_id]
    reference = store.reference
    learnt = reference.run_times.get((task.tenant_id, task.handler)) or reference.common_times.get(task.handler)
    run_s = learnt.mean_us / 1e6 * SPREAD[case] if learnt else UNKNOWN_S[case]
    running = task.elapsed_s is not None
    if task.elapsed_s is not None:
        run_s = max(run_s / 20, run_s - task.elapsed_s)
    return Job(
        index, 0 if running else SOON_US + int(task.arrives_s * 1e6), max(1, int(run_s * 1e6)),
        tenant=task.tenant_id, vector=info.vector, priority=task.priority,
        category=Category.URGENT if running else info.category, expected_us=max(1, int(run_s * 1e6)),
        mutex_key=task.mutex_key, pool=store.pool_of(info), labels=info.labels, rates=() if running else task.rates,
        parents=[places[p] for p in task.parents if p in places], name=task.task_id,
    )  # fmt: skip
