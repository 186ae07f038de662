"""Imports a recorded workflow: the submission that spends each task's recorded run time in a slot of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.wfformat import RecordedWorkflow

TAG_LENGTH = 63
CAP_FACTOR = 3
CAP_EXTRA_S = 60.0
"""Execution cap of an imported task: its run time, three times, and a minute: the machine may be busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierMemory:
    """A tier to choose from, with its memory."""

    slug: str
    memory_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What is passed to the submission service, and what the reader of the report should know."""

    workflow: dict[str, Any]
    tiers: dict[str, int]
    """How many tasks each tier got."""
    too_large: dict[str, int] = field(default_factory=dict)
    """Tasks whose recorded memory no tier offers, with that memory in MiB."""


def plan_import(recorded: RecordedWorkflow, *, scale: float, tiers: Sequence[TierMemory], name: str = "",
                handler: str = "demo.sleep") -> ImportPlan:  # fmt: skip
    """A submission that spends each task's recorded run time times ``scale`` (greater than 0) in a slot of its own."""
    if not (scale > 0 and math.isfinite(scale)):
        raise InvalidInput("must be a number greater than 0", field="time_scale")
    if not tiers:
        raise InvalidInput("the plan allows no tier", field="tier")
    by_memory = sorted(tiers, key=lambda tier: (tier.memory_mb, tier.slug))
    names = [task.name for task in recorded.tasks]
    # A name that two tasks share cannot say which one is needed; ids are unique.
    chosen = {task.id: task.name if len(set(names)) == len(names) else task.id for task in recorded.tasks}
    counts: dict[str, int] = {}
    too_large: dict[str, int] = {}
    tasks = []
    for task in recorded.tasks:
        needed = task.memory_mb or 0
        # The smallest that fits (of all, where no memory was recorded), else the largest.
        tier = next((each for each in by_memory if each.memory_mb >= needed), by_memory[-1])
        counts[tier.slug] = counts.get(tier.slug, 0) + 1
        if tier.memory_mb < needed:
            too_large[chosen[task.id]] = needed
        seconds = round(task.runtime_s * scale, 6)
        tasks.append(
            {
                "name": chosen[task.id],
                "handler": handler,
                "kwargs": {"seconds": seconds},
                "depends_on": [chosen[parent] for parent in task.parents],
                "tier": tier.slug,
                "priority": task.priority,
                "execution_cap_s": math.ceil(CAP_FACTOR * seconds + CAP_EXTRA_S),
                "tags": _tags("recorded", recorded.name, task.program),
            }
        )
    workflow = {"name": name or f"{recorded.name} x {scale:g}", "tasks": tasks}
    return ImportPlan(workflow=workflow, tiers=counts, too_large=too_large)


def _tags(*words: str) -> list[str]:
    return list(dict.fromkeys(word[:TAG_LENGTH] for word in words if word))
