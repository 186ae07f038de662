"""Named scenarios that others have published, for comparison with their numbers."""

from __future__ import annotations

from typing import Any, Final

from scheduler_ext.simulation.generator import generate
from scheduler_ext.simulation.model import Cell, Trace

QUOTA_COHORTS: Final = 5
QUOTA_LINES: Final = 6
QUOTA_UNITS: Final = 20
"""Units one line is guaranteed; a cohort's lines may lend each other all of theirs."""
CLASSES: Final = (
    # tasks, units, run seconds, priority, seconds between arrivals
    (350, 1, 0.2, 50, 0.1),
    (100, 5, 0.5, 100, 0.5),
    (50, 20, 1.0, 200, 1.2),
)


def quota() -> tuple[Trace, Cell, dict[str, Any]]:
    """The multi-tenant benchmark published with Kueue: trace, cell, and the parameters of the capacity policy."""
    tenants: list[dict[str, Any]] = []
    queues: dict[str, Any] = {}
    for cohort in range(QUOTA_COHORTS):
        queues[f"cohort{cohort}"] = {"guaranteed": 100 / QUOTA_COHORTS, "maximum": 100 / QUOTA_COHORTS}
        for line in range(QUOTA_LINES):
            pool = f"cohort{cohort}/line{line}"
            queues[pool] = {"guaranteed": 100 / QUOTA_LINES}
            tenants.extend(
                {
                    "name": pool,
                    "pool": pool,
                    "priority": priority,
                    "arrivals": {"process": "fixed", "every_s": every, "count": count, "start_s": every},
                    "run_s": {"distribution": "constant", "value": run},
                    "vector": {"cpu_milli": units * 1000},
                }
                for count, units, run, priority, every in CLASSES
            )
    trace, _ = generate({"tenants": tenants}, name="quota")
    units = QUOTA_COHORTS * QUOTA_LINES * QUOTA_UNITS
    return trace, Cell(nodes=1, slots=units), {"queues": queues}
