"""What the tasks of a run are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CATEGORIES = ("urgent", "delayable", "offpeak")
BLOCK = 10
"""In the mixed workload each ten tasks in a row hold one small graph and some loose tasks."""
FAILS_EACH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A kind of work, by name."""

    name: str
    ms: float = 0
    mixed: bool = False
    said: str = ""


WORKLOADS: Mapping[str, Workload] = {
    w.name: w
    for w in (
        Workload(name="noop", said="a function that does nothing; three tenants"),
        Workload(name="sleep10ms", ms=10, said="a function that sleeps 10 ms; three tenants"),
        Workload(
            name="mixed",
            mixed=True,
            said="three tenants, three categories, a graph of five among each ten tasks, 1 % failures",
        ),
    )
}


def item(workload: Workload, number: int, *, handler: str = "bench.work", alone: bool = False) -> dict[str, Any]:
    """A task as it is submitted; ``alone``: without the edges of the mixed workload."""
    if not workload.mixed:
        return {"handler": handler, "args": [number, workload.ms]}
    fields: dict[str, Any] = {"handler": handler, "args": [number, 0], "category": CATEGORIES[number % 3]}
    place = number % BLOCK
    if number % FAILS_EACH == FAILS_EACH - 1:
        fields.update(handler="bench.fail", total_attempts=1)
    if not alone and place <= 4:
        # One first, three after it, one when all three are done: 0 -> 1, 2, 3 -> 4.
        fields["name"] = f"n{number}"
        if 1 <= place <= 3:
            fields["depends_on"] = [f"n{number - place}"]
        elif place == 4:
            fields["depends_on"] = [f"n{number - back}" for back in (3, 2, 1)]
    return fields
