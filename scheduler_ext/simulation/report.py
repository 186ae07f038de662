"""Measures a run: waits, slowdowns, utilization, fairness, shares over time. Times are seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scheduler_ext.core.resources import SIZE
from scheduler_ext.simulation.model import Run

MICRO: Final = 1e6
MIN_RUN_S: Final = 10.0
"""Bounded slowdown counts shorter jobs as this long, as is usual for such logs."""
POINTS: Final = 400
"""Points of a curve over time."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """One run in numbers."""

    label: str
    jobs: int
    ended: int
    unplaced: int
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    wait_max_s: float
    slowdown_mean: float
    """Mean of (wait + run) / max(run, 10 s), at least 1."""
    completion_mean_s: float
    """Mean time from arrival to end."""
    end_mean_s: float
    """Mean moment of the end, counted from the beginning of the trace."""
    makespan_s: float
    """First arrival to last end."""
    utilization: float
    """Part of the cell's dominant resource, or of its slots, used over the makespan."""
    jain: float
    """Jain's index of the tenants' mean speed (run time over time in the system): 1 is even."""
    missed_latest_start: int
    preemptions: int
    backfilled: int
    """Starts beside room that was kept for another."""
    simulated_in_s: float
    jobs_per_second: float


class Columns:
    """A run as arrays: one element for each job that ended."""

    def __init__(self, run: Run) -> None:
        jobs = run.trace.jobs
        ended = np.array(run.ended_us, dtype=np.float64)
        self.kept = ended >= 0
        self.arrived: Floats = np.array([job.arrived_us for job in jobs], dtype=np.float64)[self.kept] / MICRO
        self.started: Floats = np.array(run.started_us, dtype=np.float64)[self.kept] / MICRO
        self.ended: Floats = ended[self.kept] / MICRO
        self.ran: Floats = np.array([job.run_us for job in jobs], dtype=np.float64)[self.kept] / MICRO
        tenants = np.array([job.tenant for job in jobs], dtype=np.int64)
        self.tenant = tenants[self.kept]
        latest = [job.latest_start if job.latest_start is not None else np.inf for job in jobs]
        self.latest: Floats = np.array(latest, dtype=np.float64)[self.kept]
        views = run.cell.views()
        self.kinds = sorted({job.kind for job in jobs})
        """The slots in use; each kind is counted by itself."""
        self.slots = [max(1.0, sum(view.slots.get(kind, 0) for view in views)) for kind in self.kinds]
        capacity = np.array([view.capacity for view in views], dtype=np.float64).sum(axis=0)
        self.capacity: Floats = np.where(capacity > 0, capacity, np.inf)
        if run.segments:
            spans = np.array(run.segments, dtype=np.float64)
            self.span_job = spans[:, 0].astype(np.int64)
            self.span_start: Floats = spans[:, 1] / MICRO
            self.span_end: Floats = spans[:, 2] / MICRO
        else:
            self.span_job = np.flatnonzero(self.kept)
            self.span_start, self.span_end = self.started, self.ended
        vectors = np.array([job.vector for job in jobs], dtype=np.float64).reshape(-1, SIZE)
        self.span_need: Floats = vectors[self.span_job]
        kinds = np.array([self.kinds.index(job.kind) for job in jobs], dtype=np.int64)
        self.span_kind = kinds[self.span_job]
        self.span_tenant = tenants[self.span_job]


def measure(run: Run) -> Measures:
    columns = Columns(run)
    begun = columns.ended - columns.ran if run.segments else columns.started
    waits: Floats = np.maximum(0.0, begun - columns.arrived)
    inside = columns.ended - columns.arrived
    empty = not len(waits)
    makespan = 0.0 if empty else float(columns.ended.max() - columns.arrived.min())
    return Measures(
        label=run.label,
        jobs=len(run.trace.jobs),
        ended=len(waits),
        unplaced=len(run.unplaced),
        wait_mean_s=_mean(waits),
        wait_p50_s=_percentile(waits, 50),
        wait_p95_s=_percentile(waits, 95),
        wait_p99_s=_percentile(waits, 99),
        wait_max_s=0.0 if empty else float(waits.max()),
        slowdown_mean=_mean(np.maximum(1.0, inside / np.maximum(columns.ran, MIN_RUN_S))),
        completion_mean_s=_mean(inside),
        end_mean_s=_mean(columns.ended),
        makespan_s=makespan,
        utilization=_utilization(columns, makespan),
        jain=_jain(columns),
        missed_latest_start=int((columns.started > columns.latest).sum()),
        preemptions=run.preemptions,
        backfilled=run.backfilled,
        simulated_in_s=run.seconds,
        jobs_per_second=len(waits) / run.seconds if run.seconds > 0 else 0.0,
    )


def as_json(runs: Sequence[Measures]) -> list[dict[str, Any]]:
    return [asdict(each) for each in runs]


_COLUMNS: Final = (
    ("mean wait", "wait_mean_s", "{:.2f}"), ("p50", "wait_p50_s", "{:.2f}"), ("p95", "wait_p95_s", "{:.2f}"),
    ("p99", "wait_p99_s", "{:.2f}"), ("slowdown", "slowdown_mean", "{:.2f}"), ("makespan", "makespan_s", "{:.1f}"),
    ("use", "utilization", "{:.1%}"), ("Jain", "jain", "{:.3f}"), ("missed", "missed_latest_start", "{}"),
    ("pre-empted", "preemptions", "{}"), ("backfilled", "backfilled", "{}"),
)  # fmt: skip


def table(runs: Sequence[Measures]) -> str:
    rows = [("policy", *(head for head, _, _ in _COLUMNS))]
    rows += [(each.label, *(shape.format(getattr(each, name)) for _, name, shape in _COLUMNS)) for each in runs]
    return aligned(rows)


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Format rows in columns under their heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


# -- curves --------------------------------------------------------------------------------------------------


def times(run: Run) -> Floats:
    """Evenly spaced points from the first arrival to the last end."""
    columns = Columns(run)
    if not len(columns.ended):
        return np.zeros(1)
    return np.linspace(columns.arrived.min(), columns.ended.max(), POINTS)


def waiting_by_tenant(run: Run, at: Floats) -> dict[int, Floats]:
    """How many jobs of each tenant wait at each time (arrived and not yet started)."""
    columns = Columns(run)
    curves: dict[int, Floats] = {}
    for tenant in np.unique(columns.tenant):
        mine = columns.tenant == tenant
        arrived, started = np.sort(columns.arrived[mine]), np.sort(columns.started[mine])
        curves[int(tenant)] = _count(arrived, at) - _count(started, at)
    return curves


def utilization_over_time(run: Run, at: Floats) -> Floats:
    """Part of the cell in use at each time: the larger of slots and dominant resource."""
    columns = Columns(run)
    return dominant(columns, np.ones(len(columns.span_start), dtype=np.bool_), at)


def shares_over_time(run: Run, at: Floats) -> dict[int, Floats]:
    """The dominant share of each tenant at each time."""
    columns = Columns(run)
    curves: dict[int, Floats] = {}
    for tenant in np.unique(columns.span_tenant):
        curves[int(tenant)] = dominant(columns, columns.span_tenant == tenant, at)
    return curves


def dominant(columns: Columns, mine: npt.NDArray[np.bool_], at: Floats) -> Floats:
    """The larger of slots and dominant resource that some of the spans hold at each time, as a part of the cell."""
    start, end = columns.span_start[mine], columns.span_end[mine]
    share = np.zeros(len(at))
    for kind, slots in enumerate(columns.slots):
        share = np.maximum(share, _held(start, end, (columns.span_kind[mine] == kind) * 1.0, at) / slots)
    for dimension in range(SIZE):
        need = columns.span_need[mine, dimension]
        if need.any():
            share = np.maximum(share, _held(start, end, need, at) / columns.capacity[dimension])
    return share


def _held(start: Floats, end: Floats, amount: Floats, at: Floats) -> Floats:
    """Sum of the amounts of what runs at each time."""
    return _sum_before(start, amount, at) - _sum_before(end, amount, at)


def _sum_before(when: Floats, amount: Floats, at: Floats) -> Floats:
    order = np.argsort(when, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(amount[order])])
    result: Floats = sums[np.searchsorted(when[order], at, side="right")]
    return result


def _count(ordered: Floats, at: Floats) -> Floats:
    return np.searchsorted(ordered, at, side="right").astype(np.float64)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _percentile(values: Floats, part: float) -> float:
    return float(np.percentile(values, part)) if len(values) else 0.0


def _utilization(columns: Columns, makespan: float) -> float:
    if makespan <= 0:
        return 0.0
    spans = columns.span_end - columns.span_start
    used = [float(spans[columns.span_kind == kind].sum()) / slots for kind, slots in enumerate(columns.slots)]
    used += [
        float((spans * columns.span_need[:, dimension]).sum()) / float(columns.capacity[dimension])
        for dimension in range(SIZE)
    ]
    return max(used) / makespan


def _jain(columns: Columns) -> float:
    speeds = []
    for tenant in np.unique(columns.tenant):
        mine = columns.tenant == tenant
        inside = float((columns.ended[mine] - columns.arrived[mine]).sum())
        speeds.append(float(columns.ran[mine].sum()) / inside if inside > 0 else 1.0)
    squares = sum(speed * speed for speed in speeds)
    return sum(speeds) ** 2 / (len(speeds) * squares) if squares else 1.0
