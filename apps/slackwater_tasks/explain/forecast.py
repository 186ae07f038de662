"""When a waiting task will likely start: the simulator, run from the present state with the live policies.

Each run draws the run times from what was learnt of them ("Monte Carlo"), and what comes in meanwhile from what came in lately,
so that the interval is as wide as what is known.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.run_times import LEARNT_FROM, TENANTS, Buckets, RunTimes, merged, remaining_s, script_keys
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import NodeView, Snapshot
from scheduler_ext.policies.base import OrderPolicy
from scheduler_ext.policies.registry import order_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Cell, Job, RateLimit, Trace
from slackwater_tasks.explain.work import Spread, Waiting, again, lately
from slackwater_tasks.ledger.round_store import PgRoundStore

MAX_JOBS = 3_000
RUNS = 40
"""The most futures drawn; fewer when that takes longer than ``BUDGET_S``, but never fewer than ``LEAST``."""
LEAST = 8
BUDGET_S = 0.5
INTERVAL = (0.1, 0.5, 0.9)
"""Earliest, likely and latest are these quantiles of the futures: eight in ten lie between the outer two."""
SHORTEST_S = 0.01
"""A run of which nothing is learnt lasts from this to its cap, each order of magnitude equally likely."""
WIDEST_S = 10.0
"""It is known when it starts if that is at most so much, and three times the likely wait, should all that is unknown run
to its cap; and so much, and three times the wait if nothing more came in, should as much come in as did lately."""
AHEAD_S, AHEAD_TIMES = 30.0, 10.0
"""What comes in is foreseen for so long, and so many times the wait if nothing more came in."""
SOON_US = 1_000
"""What waits now arrives this long after what runs."""
BY_ITSELF = "l.alone OR l.total_attempts = 1"

RUNNING = named(f"""
SELECT l.task_id::text, l.tenant_id, l.line_id, t.handler, extract(epoch FROM clock_timestamp() - l.started_at)::float8,
       l.mutex_key, l.kind, l.handler_id, {BY_ITSELF}, t.cap_ms, l.mutex_limit
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
    WHERE l.phase = :phase.IN_FLIGHT LIMIT %s
""")  # noqa: S608 - statements of ours
# The task, what it needs and has not ended, and who waits for its key with it.
WAITING = named(f"""
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
       l.handler_id, l.rate_key, l.kind, {BY_ITSELF}, t.cap_ms, l.mutex_limit,
       extract(epoch FROM l.latest_start - greatest(clock_timestamp(), l.not_before))::float8
FROM wanted JOIN slackwater_tasks_livetask l ON l.task_id = wanted.id JOIN slackwater_tasks_task t ON t.id = l.task_id
WHERE l.phase IN (:phase.BLOCKED, :phase.SCHEDULED, :phase.READY)
""")  # noqa: S608 - statements of ours
SCRIPTS = "SELECT id::text, script_sha256, script_path, name FROM slackwater_tasks_task WHERE id = ANY(%s::uuid[])"
LEARNT = """
SELECT tenant_id, key, mean_us, coalesce(long_us, mean_us), buckets FROM slackwater_tasks_runtime
WHERE key = ANY(%s) AND samples >= %s
"""
# What counts against a rate now, and since when; a claim whose start is not known counts from now.
RATE_STARTS = """
SELECT limit_id, coalesce(extract(epoch FROM clock_timestamp() - at), 0)::float8 FROM slackwater_tasks_ratestart LIMIT 20000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present(Cell):
    """The live nodes instead of equal ones."""

    live: tuple[NodeView, ...] = ()

    def views(self) -> tuple[NodeView, ...]:
        """The nodes, empty, with their slots of each kind."""
        return tuple(
            NodeView(
                node_id=node.node_id, name=node.name, capacity=node.capacity, slots=node.slots, labels=node.labels,
            )
            for node in self.live
        )  # fmt: skip


def forecast(conf: SchedulerConf, store: PgRoundStore, snapshot: Snapshot, task_id: str, mutex_key: str | None,
             ahead: int, rate: int | None = None) -> tuple[float, float, float] | str:  # fmt: skip
    """Seconds until the task starts (earliest, likely, latest), or why nobody can tell.

    ``ahead``: how many stand before it in its line. ``rate``: the limit for which it is parked, with those that wait
    for it before it.
    """
    tasks = _collect(store, snapshot, {"id": task_id, "key": mutex_key, "rate": rate, "most": MAX_JOBS // 6})
    if task_id not in tasks or not snapshot.nodes:
        return "No node is at work, or it stands too far back to be looked at."
    later, known_s = lately(store, snapshot.now)
    _learn(store, [*tasks.values(), *later])
    line_id = tasks[task_id].line_id
    seen = sum(1 for t in tasks.values() if t.line_id == line_id and t.elapsed_s is None and t.task_id != task_id)
    present = [t for t in tasks.values() if t.line_id in store.reference.lines]
    alone_s = _run(conf, store, snapshot, present, task_id, _limits(store), None)
    until_s = AHEAD_S + AHEAD_TIMES * (alone_s or 0.0)
    coming = partial(again, [t for t in later if t.spread is not None], known_s, until_s=until_s)
    found = _futures(conf, store, snapshot, present, task_id, coming)
    if None in found[int(len(found) * INTERVAL[2]) :]:
        return "As things stand it would not start."
    # A long line is looked at from its head only: the rest of it goes on as the head does.
    stretch = max(1.0, ahead / seen) if seen else 1.0
    low, likely, high = (stretch * (found[int(len(found) * part)] or 0.0) for part in INTERVAL)
    unknown = sum(1 for t in tasks.values() if t.spread is None and t.task_id != task_id)
    if unknown and (alone_s is None or alone_s > WIDEST_S + 3 * likely):
        return f"It hangs on {counted(unknown, 'task')} before it whose run times nobody knows yet."
    alone_s = stretch * (alone_s or 0.0)
    if high > WIDEST_S + 3 * alone_s:
        return f"It hangs on what comes in before it: {alone_s:.3g} s if nothing does, {high:.3g} s if it goes on as lately."
    return low, likely, high


def _futures(conf: SchedulerConf, store: PgRoundStore, snapshot: Snapshot, tasks: list[Waiting],
             task_id: str, coming: Callable[[Random], Iterable[Waiting]]) -> list[float | None]:  # fmt: skip
    """When the task starts in each of the drawn futures, soonest first; ``coming``: what is submitted."""
    limits, rng, until = _limits(store), Random(task_id), time.perf_counter() + BUDGET_S
    found: list[float | None] = []
    while len(found) < RUNS and (len(found) < LEAST or time.perf_counter() < until):
        found.append(_run(conf, store, snapshot, [*tasks, *coming(rng)], task_id, limits, rng))
    return sorted(found, key=lambda seconds: float("inf") if seconds is None else seconds)


def _collect(store: PgRoundStore, snapshot: Snapshot, params: dict[str, Any]) -> dict[str, Waiting]:
    conn, names = store.db.conn, store.reference.handlers
    tasks: dict[str, Waiting] = {}
    for row in conn.execute(RUNNING, (MAX_JOBS,)).fetchall():
        kind = store.reference.kind_of(row[6], row[7], row[8])
        tasks[row[0]] = Waiting(
            row[0], row[1], row[2], row[3], elapsed_s=row[4] or 0.0, mutex_key=row[5], kind=kind, cap_s=row[9] / 1000,
            mutex_limit=row[10],
        )  # fmt: skip
    for line in snapshot.lines:
        for head in line.heads[:MAX_JOBS]:
            name = names[head.handler_id][0] if head.handler_id in names else ""
            tasks[head.task_id] = Waiting(
                head.task_id, line.tenant_id, abs(line.line_id), name, rank=head.rank, mutex_key=head.mutex_key,
                mutex_limit=head.mutex_limit,
                priority=head.priority, rates=head.rates, kind=head.kind, cap_s=(head.long_us or 3600e6) / 1e6,
                tolerance_s=None if head.latest_start is None else head.latest_start - snapshot.now,
            )  # fmt: skip
    for row in conn.execute(WAITING, params).fetchall():
        tasks[row[0]] = Waiting(
            row[0], row[1], row[2], row[3], rank=(row[4], row[5]), mutex_key=row[6], priority=row[7],
            arrives_s=row[8] or 0.0, parents=row[9], rates=store.rates.of(row[1], row[10], row[11]),
            kind=store.reference.kind_of(row[12], row[10], row[13]), cap_s=row[14] / 1000, mutex_limit=row[15],
            tolerance_s=row[16],
        )  # fmt: skip
    return tasks


def _learn(store: PgRoundStore, tasks: Sequence[Waiting]) -> None:
    """Give each task what is learnt of its run times, as a round takes it, with their spread.

    Those of all tenants only where several know them: else the wait shown would tell how long another's tasks run.
    """
    conn = store.db.conn
    keys = {each.task_id: [each.handler] for each in tasks if each.handler}
    scripts = [each.task_id for each in tasks if not each.handler]
    for task_id, *what in conn.execute(SCRIPTS, (scripts,)).fetchall() if scripts else ():
        keys[task_id] = script_keys(*what)
    wanted = {key for of_task in keys.values() for key in of_task}
    run_times = RunTimes(least=TENANTS)
    seen: dict[tuple[int | None, str], Buckets] = {}
    for tenant, key, mean_us, long_us, found in conn.execute(LEARNT, (list(wanted), LEARNT_FROM)).fetchall():
        given = json.loads(found) if isinstance(found, str) else found  # as Django's own connection has it
        buckets = {int(bucket): float(count) for bucket, count in given.items()}
        run_times.read([(tenant, key, mean_us, long_us)])
        seen[tenant, key] = buckets
        seen[None, key] = merged(seen.get((None, key), {}), buckets)
    spreads: dict[tuple[int | None, str], Spread] = {}
    for each in tasks:
        of_task = keys.get(each.task_id, ())
        learnt, whose = run_times.of(each.tenant_id, of_task), run_times.whose(each.tenant_id, of_task)
        if learnt is not None and whose is not None:
            if whose not in spreads:
                spreads[whose] = Spread(learnt, seen[whose])
            each.spread = spreads[whose]


def _run(conf: SchedulerConf, store: PgRoundStore, snapshot: Snapshot, tasks: list[Waiting], task_id: str,
         limits: dict[int, RateLimit], rng: Random | None) -> float | None:  # fmt: skip
    """The simulated start of the task in one future, in seconds; ``None`` if it does not start.

    Without ``rng`` in the one where what is unknown runs to its cap.
    """
    tasks.sort(key=lambda t: (t.elapsed_s is None, t.arrives_s, t.rank, t.task_id))
    places = {t.task_id: n for n, t in enumerate(tasks)}
    members: dict[str, int] = {}
    for line_id, info in store.reference.lines.items() if store.reference.split else ():
        if info.workflow:
            members.setdefault(info.workflow, line_id)
    jobs = [_job(store, t, n, places, members, rng) for n, t in enumerate(tasks)]
    tenants = {i: replace(view, in_flight=0, used=(), used_slots_milli={}) for i, view in snapshot.tenants.items()}
    shares = {number: store.reference.lines[number].weight for number in members.values()}
    trace = Trace(name="now", jobs=jobs, begins_at=snapshot.now, limits=limits, shares=shares)
    engine = Engine(
        trace, Present(live=snapshot.nodes), order=_order(store, tasks[places[task_id]]), share=store.share(),
        conf=conf, tenants=tenants, until=places[task_id],
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


def _order(store: PgRoundStore, task: Waiting) -> OrderPolicy:
    """The order of the task's line; first come, first served in place of time slices, whose turns nobody knows."""
    order = store.chosen().order_of(task.tenant_id, task.line_id)
    return order_policy("fifo") if hasattr(order, "quantum_us") else order


def _job(store: PgRoundStore, task: Waiting, index: int, places: dict[str, int], members: dict[str, int],
         rng: Random | None) -> Job:  # fmt: skip
    info = store.reference.lines[task.line_id]
    spread, elapsed_us = task.spread, (task.elapsed_s or 0.0) * 1e6
    if spread is not None:
        run_us = spread.left_us(elapsed_us, rng.random() if rng else 0.5)
    elif rng is None:
        run_us = task.cap_s * 1e6
    else:
        shortest = max(SHORTEST_S, task.elapsed_s or 0.0)
        run_us = (shortest * max(1.0, task.cap_s / shortest) ** rng.random()) * 1e6 - elapsed_us
    running = task.elapsed_s is not None
    job = Job(
        index, 0 if running else SOON_US + int(task.arrives_s * 1e6), max(1, int(min(run_us, task.cap_s * 1e6))),
        tenant=task.tenant_id, vector=info.vector, priority=task.priority,
        category=Category.URGENT if running else info.category,
        expected_us=spread.learnt.mean_us if spread is not None else None,
        mutex_key=task.mutex_key, mutex_limit=task.mutex_limit, workflow=members.get(info.workflow),
        pool=store.pool_of(info), labels=info.labels,
        rates=() if running else task.rates, kind=task.kind,
        parents=[places[p] for p in task.parents if p in places], name=task.task_id,
        tolerance_us=None if running or task.tolerance_s is None else int(task.tolerance_s * 1e6),
    )  # fmt: skip
    long_s = spread.learnt.long_us / 1e6 if spread is not None else None
    job.long_us = max(1, int(remaining_s(task.elapsed_s, long_s, task.cap_s) * 1e6))
    return job
