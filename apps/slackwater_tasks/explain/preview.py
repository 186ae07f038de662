"""What a change of a weight, a plan or a policy would have made of the last hour, replayed by the live policies.

Both runs, as things are and as they would be, are simulated on the nodes of this moment, so that they differ in the change alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db import transaction

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import Conflict
from scheduler_ext.core.states import Category
from scheduler_ext.policies.registry import order_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Job, Trace
from slackwater_conf import conf
from slackwater_tasks.explain.forecast import Present
from slackwater_tasks.ledger.connection import Borrowed, fetch_all
from slackwater_tasks.ledger.learnt import KEYS
from slackwater_tasks.ledger.round_store import PgRoundStore

HOUR_S: Final = 3_600
MOST: Final = 10_000
"""The latest tasks of the hour that are replayed."""
# A task could start once its parents had ended. What has not ended yet runs as long as is learnt.
HOUR: Final = f"""
SELECT t.tenant_id, t.category, t.tier_id, t.priority, t.kind, h.id, t.total_attempts = 1,
    extract(epoch FROM greatest(t.submitted_at, t.start_at, (SELECT max(p.finished_at) FROM slackwater_tasks_dependency d
        JOIN slackwater_tasks_task p ON p.id = d.parent_id WHERE d.child_id = t.id)))::float8,
    a.ran::float8, t.delay_tolerance_ms, {KEYS}
FROM slackwater_tasks_task t
LEFT JOIN LATERAL (SELECT extract(epoch FROM sum(x.finished_at - x.started_at)) AS ran FROM slackwater_tasks_attempt x
    WHERE x.task_id = t.id AND t.state IS NOT NULL) a ON true
LEFT JOIN slackwater_resources_handler h ON h.name = t.handler
WHERE t.id >= (lpad(to_hex(((extract(epoch FROM clock_timestamp()) - %s) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
ORDER BY t.id DESC LIMIT %s
"""  # noqa: S608 - texts of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """One tenant's waits in seconds, as things are and as they would be."""

    tenant_id: int
    tasks: int
    mean: tuple[float, float]
    p95: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Both runs of the hour."""

    tasks: int
    left_out: int
    """Tasks about whose run time nothing is known."""
    capped: bool
    waits: list[Waits]


def preview(change: Callable[[], object], cell: str) -> Preview:
    """Replay the last hour of a cell without the change and with it; the change is taken back again.

    ``Conflict`` when nothing ran, or no node is at work.
    """
    settings = replace(conf().scheduler, cell=cell)
    recorded = fetch_all(HOUR, (HOUR_S, MOST))
    before = _replay(settings, recorded)
    with transaction.atomic():
        change()
        after = _replay(settings, recorded)
        transaction.set_rollback(True)
    tenants = [
        Waits(
            tenant_id=tenant, tasks=len(waits), mean=(_mean(waits), _mean(after[tenant])),
            p95=(_p95(waits), _p95(after[tenant])),
        )
        for tenant, waits in before.items()
    ]  # fmt: skip
    told = sum(each.tasks for each in tenants)
    return Preview(
        tasks=told, left_out=len(recorded) - told, capped=len(recorded) == MOST,
        waits=sorted(tenants, key=lambda each: (-each.tasks, each.tenant_id)),
    )  # fmt: skip


def _replay(settings: SchedulerConf, recorded: Any) -> dict[int, list[float]]:
    """The waits of each tenant's tasks under what the database says now."""
    borrowed: Any = Borrowed()
    store = PgRoundStore(settings, "preview", borrowed)
    snapshot = store.view(0)
    if not snapshot.nodes:
        raise Conflict("no node is at work, so there is nothing to replay the hour on")
    jobs = _jobs(store, recorded)
    if not jobs:
        raise Conflict("nothing ran within the last hour")
    tenants = {i: replace(view, in_flight=0, used=(), used_slots_milli={}) for i, view in snapshot.tenants.items()}
    order = store.chosen().order
    engine = Engine(
        Trace(name="the last hour", jobs=jobs), Present(live=snapshot.nodes), share=store.share(), conf=settings,
        order=order_policy("fifo") if hasattr(order, "quantum_us") else order, tenants=tenants,
    )  # fmt: skip
    run = engine.run(time.perf_counter)
    waits: dict[int, list[float]] = {}
    for job, started in zip(jobs, run.started_us, strict=True):
        if started >= 0:
            waits.setdefault(job.tenant, []).append((started - job.arrived_us) / 1e6)
    return waits


def _jobs(store: PgRoundStore, recorded: Any) -> list[Job]:
    """The recorded tasks of this cell whose run time is known, by arrival."""
    lines = {
        (info.tenant_id, int(info.category), info.tier_id): info
        for info in reversed(list(store.reference.lines.values()))
        if info.cell == store.conf.cell
    }
    times = store.reference.run_times
    known = []
    for *row, ran_s, tolerance_ms, keys in recorded:
        usual = times.of(row[0], keys)
        mean_us = usual.mean_us if usual is not None else None
        run_us = mean_us if ran_s is None else ran_s * 1e6
        if run_us is not None and (row[0], row[1], row[2]) in lines:
            known.append((*row, run_us, mean_us, tolerance_ms * 1000))
    known.sort(key=lambda row: row[7])
    jobs: list[Job] = []
    for tenant, category, tier, priority, kind, handler, alone, at, run_us, mean_us, tolerance_us in known:
        info = lines[tenant, category, tier]
        jobs.append(Job(
            len(jobs), int((at - known[0][7]) * 1e6), max(1, int(run_us)), tenant=tenant, vector=info.vector,
            category=Category(category), priority=priority, expected_us=mean_us,
            pool=store.pool_of(info), kind=store.kind_of(kind, handler, by_itself=alone), labels=info.labels,
            tolerance_us=tolerance_us,
        ))  # fmt: skip
    return jobs


def _mean(waits: list[float]) -> float:
    return sum(waits) / len(waits) if waits else 0.0


def _p95(waits: list[float]) -> float:
    return sorted(waits)[int(len(waits) * 0.95)] if waits else 0.0
