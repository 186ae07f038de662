"""A run task by task and tenant by tenant, as tables and as JSON. Times are seconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduler_ext.simulation.model import Run
from scheduler_ext.simulation.report import MICRO, Columns, aligned, dominant, measure


def tasks(run: Run) -> list[dict[str, Any]]:
    """Each task with its first start, its end, the time between in which it did not run, and its turns if it had
    several.
    """
    turns: dict[int, list[tuple[float, float]]] = {}
    for index, start, end in run.segments:
        turns.setdefault(index, []).append((start / MICRO, end / MICRO))
    rows = []
    for job, start, end in zip(run.trace.jobs, run.started_us, run.ended_us, strict=True):
        began = end - job.run_us if job.index in turns else start
        rows.append(
            {
                "task": job.task_id,
                "tenant": tenant_name(run, job.tenant),
                "arrived_s": job.arrived_us / MICRO,
                "started_s": start / MICRO if start >= 0 else None,
                "ended_s": end / MICRO if end >= 0 else None,
                "waited_s": (began - job.arrived_us) / MICRO if end >= 0 else None,
                "turns_s": sorted(turns.get(job.index, [])),
            }
        )
    return rows


def tenants(run: Run) -> list[dict[str, Any]]:
    """Each tenant with its tasks and the most of the cell it held at one time: tasks, and dominant share."""
    columns = Columns(run)
    rows = []
    for tenant in np.unique(columns.tenant):
        mine, spans = columns.tenant == tenant, columns.span_tenant == tenant
        starts = np.sort(columns.span_start[spans])
        ends = np.sort(columns.span_end[spans])
        began = np.arange(1, len(starts) + 1)
        rows.append(
            {
                "tenant": tenant_name(run, int(tenant)),
                "tasks": int(mine.sum()),
                "at_once": int((began - np.searchsorted(ends, starts, side="right")).max()),
                "dominant_share": float(dominant(columns, spans, starts).max()),
                "end_mean_s": float(columns.ended[mine].mean()),
            }
        )
    return rows


def tenant_name(run: Run, tenant: int) -> str:
    return run.trace.tenants.get(tenant, f"tenant {tenant}")


def told(run: Run) -> str:
    """Both as tables for people, followed by the means."""
    rows = [("task", "tenant", "arrives", "starts", "ends", "waits", "turns")]
    for row in tasks(run):
        turns = " ".join(f"{start:g}-{end:g}" for start, end in row["turns_s"])
        times = (row[name] for name in ("arrived_s", "started_s", "ended_s", "waited_s"))
        rows.append((row["task"], row["tenant"], *("never" if at is None else f"{at:g}" for at in times), turns))
    shares = [("tenant", "tasks", "at once", "dominant share", "mean completion")]
    shares += [
        (row["tenant"], str(row["tasks"]), str(row["at_once"]), f"{row['dominant_share']:.3f}",
         f"{row['end_mean_s']:.2f}")
        for row in tenants(run)
    ]  # fmt: skip
    found = measure(run)
    means = (
        f"mean completion {found.end_mean_s:.2f} s after the beginning, {found.completion_mean_s:.2f} s after arrival;"
        f" mean wait {found.wait_mean_s:.2f} s"
    )
    return f"{run.label}\n{aligned(rows)}\n\n{aligned(shares)}\n{means}\n"
