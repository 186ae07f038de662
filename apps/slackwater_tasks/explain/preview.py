"""What a change of a weight, a plan or a policy would have made of the last hour, replayed by the live policies.

Both runs, as things are and as they would be, are simulated on the nodes of this moment, so that they differ in the change alone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import Conflict
from scheduler_ext.core.run_times import RunTime
from scheduler_ext.core.states import Category
from scheduler_ext.policies.base import OrderPolicy
from scheduler_ext.policies.registry import order_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Job, RateLimit, Trace
from slackwater_conf import conf
from slackwater_tasks.explain.forecast import Present
from slackwater_tasks.ledger.active_policies import Chosen
from slackwater_tasks.ledger.connection import Borrowed, fetch_all
from slackwater_tasks.ledger.learnt import KEYS
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.models.base import MutexScope

HOUR_S: Final = 3_600
MOST: Final = 10_000
"""The latest tasks of the hour that are replayed."""
# What has not ended yet runs as long as is learnt; what ended without a run took nobody's room.
HOUR: Final = f"""
SELECT t.id, t.tenant_id, t.category, t.tier_id, t.priority, t.kind, h.id, t.total_attempts = 1, t.cap_ms,
    extract(epoch FROM greatest(t.submitted_at, t.start_at))::float8, t.delay_tolerance_ms,
    t.mutex_key, t.mutex_limit, t.mutex_scope, t.rate_key, d.parents, d.ended::float8[], a.ran::float8,
    extract(epoch FROM a.began)::float8, {KEYS}
FROM slackwater_tasks_task t
LEFT JOIN LATERAL (
    SELECT extract(epoch FROM sum(x.finished_at - x.started_at) FILTER (WHERE t.state IS NOT NULL)) AS ran,
        min(x.started_at) AS began
    FROM slackwater_tasks_attempt x WHERE x.task_id = t.id) a ON true
LEFT JOIN LATERAL (SELECT array_agg(p.id) AS parents, array_agg(extract(epoch FROM p.finished_at)) AS ended
    FROM slackwater_tasks_dependency e JOIN slackwater_tasks_task p ON p.id = e.parent_id WHERE e.child_id = t.id) d ON true
LEFT JOIN slackwater_resources_handler h ON h.name = t.handler
WHERE t.id >= (lpad(to_hex(((extract(epoch FROM clock_timestamp()) - %s) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
    AND (t.state IS NULL OR a.ran IS NOT NULL)
ORDER BY t.id DESC LIMIT %s
"""  # noqa: S608 - texts of ours


class Recorded(NamedTuple):
    """A task of the hour, as its row tells it."""

    id: UUID
    tenant: int
    category: int
    tier: int
    priority: int
    kind: int
    handler: int | None
    by_itself: bool
    cap_ms: int
    at: float
    """From when on it could start, apart from what it needs."""
    tolerance_ms: int
    mutex_key: str
    mutex_limit: int
    mutex_scope: int
    rate_key: str
    parents: list[UUID] | None
    ended: list[float | None] | None
    """When each of them ended."""
    ran_s: float | None
    began: float | None
    """When the first of its attempts that have ended began."""
    keys: Sequence[str]

    @property
    def excludes(self) -> str | None:
        """The mutex key that it holds while it runs: the tenant's own."""
        scope = MutexScope.DEPENDENT if self.parents else MutexScope.INDEPENDENT
        return (
            f"{self.tenant} {self.mutex_key}"
            if self.mutex_key and self.mutex_scope in (MutexScope.BOTH, scope)
            else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """One tenant's waits in seconds, replayed as things are and as they would be; ``None`` where nothing starts."""

    tenant_id: int
    tasks: int
    really: tuple[float | None, float | None]
    """The mean and the 95 in 100 of what the tasks that have begun waited in fact, with all that a replay does not know."""
    mean: tuple[float | None, float | None]
    p95: tuple[float | None, float | None]
    never: tuple[int, int]
    """Tasks that would not have started at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Both runs of the hour."""

    tasks: int
    left_out: int
    """Tasks about whose run time nothing is known."""
    capped: bool
    waits: list[Waits]


class Orders:
    """The order of each task's own line; first come, first served in place of time slices, whose turns nobody recorded."""

    def __init__(self, chosen: Chosen, lines: Sequence[tuple[int, int]]) -> None:
        """``lines``: tenant and line of each job."""
        self.name = chosen.order.name
        self._of = [self._plain(chosen.order_of(*line)) for line in lines]

    def _plain(self, order: OrderPolicy) -> OrderPolicy:
        return order_policy("fifo") if hasattr(order, "quantum_us") else order

    def rank(self, job: Any) -> tuple[int, int]:
        """Its place in its line."""
        place: tuple[int, int] = self._of[job.index].rank(job)
        return place


def preview(change: Callable[[], object], cell: str) -> Preview:
    """Replay the last hour of a cell without the change and with it; the change is taken back again.

    ``Conflict`` when nothing ran, or no node is at work.
    """
    settings = replace(conf().scheduler, cell=cell)
    recorded = [Recorded(*row) for row in fetch_all(HOUR, (HOUR_S, MOST))]
    before = _replay(settings, recorded)
    with transaction.atomic():
        change()
        after = _replay(settings, recorded)
        transaction.set_rollback(True)
    really = _really(recorded)
    tenants = [_compared(tenant, really[tenant], waits, after.get(tenant, [])) for tenant, waits in before.items()]
    told = sum(each.tasks for each in tenants)
    return Preview(
        tasks=told, left_out=len(recorded) - told, capped=len(recorded) == MOST,
        waits=sorted(tenants, key=lambda each: (-each.tasks, each.tenant_id)),
    )  # fmt: skip


def _really(recorded: Sequence[Recorded]) -> dict[int, list[float]]:
    """What the tasks of each tenant that have begun waited, from when they could start."""
    waits: dict[int, list[float]] = defaultdict(list)
    for row in recorded:
        if row.began is not None:
            waits[row.tenant].append(max(0.0, row.began - _arrival(row, {})))
    return waits


def _compared(tenant: int, really: list[float], before: Sequence[float | None], after: Sequence[float | None]) -> Waits:
    now, then = (sorted(each for each in waits if each is not None) for waits in (before, after))
    return Waits(
        tenant_id=tenant, tasks=len(before), really=(_mean(really), _p95(sorted(really))),
        mean=(_mean(now), _mean(then)), p95=(_p95(now), _p95(then)),
        never=(len(before) - len(now), len(before) - len(then)),
    )  # fmt: skip


def _replay(settings: SchedulerConf, recorded: list[Recorded]) -> dict[int, list[float | None]]:
    """The waits of each tenant's tasks under what the database says now; ``None`` of one that never starts."""
    borrowed: Any = Borrowed()
    store = PgRoundStore(settings, "preview", borrowed)
    snapshot = store.view(0)
    if not snapshot.nodes:
        raise Conflict("no node is at work, so there is nothing to replay the hour on")
    jobs, lines, begins_at = _jobs(store, recorded)
    if not jobs:
        raise Conflict("nothing ran within the last hour")
    limits = {
        number: RateLimit(starts=limit.starts, per_us=limit.per_s * 1_000_000)
        for number, limit in store.rates.limits.items()
    }
    tenants = {i: replace(view, in_flight=0, used=(), used_slots_milli={}) for i, view in snapshot.tenants.items()}
    engine = Engine(
        Trace(name="the last hour", jobs=jobs, begins_at=begins_at, limits=limits), Present(live=snapshot.nodes),
        share=store.share(), conf=settings, order=Orders(store.chosen(), lines), tenants=tenants,
    )  # fmt: skip
    run = engine.run(time.perf_counter)
    waits: dict[int, list[float | None]] = {}
    for job, started in zip(jobs, run.started_us, strict=True):
        ready = max([job.arrived_us, *(run.ended_us[parent] for parent in job.parents)])
        waits.setdefault(job.tenant, []).append((started - ready) / 1e6 if started >= 0 else None)
    return waits


def _jobs(store: PgRoundStore, recorded: list[Recorded]) -> tuple[list[Job], list[tuple[int, int]], float]:
    """The recorded tasks of this cell whose run time is known, by arrival; tenant and line of each; the first arrival."""
    infos = {
        (info.tenant_id, int(info.category), info.tier_id): (number, info)
        for number, info in reversed(store.reference.lines.items())
        if info.cell == store.conf.cell
    }
    times = store.reference.run_times
    known: dict[UUID, tuple[Recorded, RunTime | None]] = {}
    for row in recorded:
        usual = times.of(row.tenant, row.keys)
        if (row.ran_s is not None or usual is not None) and (row.tenant, row.category, row.tier) in infos:
            known[row.id] = (row, usual)
    _without_orphans(known)
    rows = sorted(known.values(), key=lambda each: (_arrival(each[0], known), each[0].id))
    places = {row.id: place for place, (row, _) in enumerate(rows)}
    begins_at = _arrival(rows[0][0], known) if rows else 0.0
    jobs: list[Job] = []
    lines: list[tuple[int, int]] = []
    for row, usual in rows:
        number, info = infos[row.tenant, row.category, row.tier]
        arrives = _arrival(row, known)
        job = Job(
            len(jobs), int((arrives - begins_at) * 1e6), max(1, int(_run_us(row, usual))), tenant=row.tenant, vector=info.vector,
            category=Category(row.category), priority=row.priority, expected_us=usual.mean_us if usual else None,
            tolerance_us=int((row.at - arrives) * 1e6) + row.tolerance_ms * 1000, mutex_key=row.excludes,
            mutex_limit=row.mutex_limit, parents=[places[each] for each in row.parents or () if each in places],
            rates=store.rates.of(row.tenant, row.handler, row.rate_key), pool=store.pool_of(info),
            kind=store.reference.kind_of(row.kind, row.handler, row.by_itself), labels=info.labels,
        )  # fmt: skip
        job.cap_us = row.cap_ms * 1000
        job.long_us = usual.long_us if usual else job.cap_us
        jobs.append(job)
        lines.append((row.tenant, number))
    return jobs, lines, begins_at


def _without_orphans(known: dict[UUID, Any]) -> None:
    """Leave out what waits for tasks that have not ended and are left out."""
    while orphans := [
        key for key, (row, _) in known.items()
        if any(ended is None and parent not in known for parent, ended in _needed(row))
    ]:  # fmt: skip
        for key in orphans:
            del known[key]


def _needed(row: Recorded) -> Sequence[tuple[UUID, float | None]]:
    return list(zip(row.parents or (), row.ended or (), strict=True))


def _arrival(row: Recorded, known: dict[UUID, Any]) -> float:
    """When it came; what it needs that is not replayed had ended when it had."""
    return max([row.at, *(ended for parent, ended in _needed(row) if parent not in known and ended is not None)])


def _run_us(row: Recorded, usual: RunTime | None) -> float:
    if row.ran_s is not None:
        return row.ran_s * 1e6
    assert usual is not None
    return usual.mean_us


def _mean(waits: list[float]) -> float | None:
    return sum(waits) / len(waits) if waits else None


def _p95(waits: list[float]) -> float | None:
    return waits[int(len(waits) * 0.95)] if waits else None
