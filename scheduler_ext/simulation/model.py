"""What a simulation works on: jobs, the cell they run in, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from scheduler_ext.core.states import Category
from scheduler_ext.core.types import LineView, NodeView, TenantView, Vector, WorkKind

ONE_CPU: Vector = (1000, 0, 0, 0, 0, 0)


class Job:
    """One task of a trace. It has the attributes of a ``TaskView`` that deciding looks at, and changes as
    it runs.

    Times are whole microseconds since the trace began.
    """

    __slots__ = (
        "arrived_us",
        "cap_us",
        "category",
        "ends_at",
        "expected_us",
        "idempotent",
        "index",
        "latest_start",
        "latest_start_us",
        "level",
        "line",
        "mutex_key",
        "node",
        "parents",
        "pool",
        "priority",
        "rank",
        "rates",
        "remaining_us",
        "run_us",
        "submitted_at",
        "task_id",
        "tenant",
        "turn_us",
        "vector",
    )

    kind: ClassVar[WorkKind] = WorkKind.PROCESS
    handler_id: ClassVar[int | None] = None
    alone: ClassVar[bool] = True
    mutex_limit: ClassVar[int] = 1
    avoid_node: ClassVar[int | None] = None
    fence: ClassVar[int] = 0

    def __init__(
        self,
        index: int,
        arrived_us: int,
        run_us: int,
        *,
        tenant: int = 0,
        vector: Vector = ONE_CPU,
        category: Category = Category.DELAYABLE,
        priority: int = 0,
        expected_us: int | None = None,
        tolerance_us: int | None = None,
        mutex_key: str | None = None,
        parents: Sequence[int] = (),
        pool: str = "",
        name: str = "",
        idempotent: bool = True,
        rates: tuple[int, ...] = (),
    ) -> None:
        self.index = index
        self.task_id = name or str(index)
        self.arrived_us = arrived_us
        self.submitted_at = arrived_us / 1e6
        self.run_us = run_us
        self.remaining_us = run_us
        self.turn_us = 0
        self.tenant = tenant
        self.vector = vector
        self.category = category
        self.priority = priority
        self.expected_us = expected_us
        self.cap_us = 0
        self.latest_start_us = None if tolerance_us is None else arrived_us + tolerance_us
        self.latest_start = None if self.latest_start_us is None else self.latest_start_us / 1e6
        self.mutex_key = mutex_key
        self.parents = tuple(parents)
        self.pool = pool
        self.idempotent = idempotent
        self.rates = rates
        self.level = 0
        self.rank: tuple[int, int] = (0, 0)
        self.line: LineView | None = None
        self.node: Any = None
        self.ends_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """At most so many starts in any time frame of that length."""

    starts: int
    per_us: int
    used_us: tuple[int, ...] = ()
    """How long ago each start was that counts against it when the run begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Work over time."""

    name: str
    jobs: list[Job]
    """In order of arrival; ``jobs[i].index == i``."""
    tenants: Mapping[int, str] = field(default_factory=dict)
    """Names of the tenants."""
    weights: Mapping[int, int] = field(default_factory=dict)
    """Weights of tenants; those not named have 1."""
    begins_at: float = 0.0
    """The moment it begins (Unix seconds): windows go by the time of day."""
    ceiling_windows: str = ""
    """Windows by time of day in which other ceilings hold, as the setting of that name has them."""
    limits: Mapping[int, RateLimit] = field(default_factory=dict)
    """Execution rates by the ids that jobs name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Equal nodes. A slot runs one task at a time."""

    nodes: int = 1
    slots: int = 2
    capacity: Vector | None = None
    """Of one node; by default a CPU for each slot and plenty of everything else."""

    def views(self) -> tuple[NodeView, ...]:
        """The nodes as a round sees them."""
        plenty = 1_000_000_000
        capacity = self.capacity or (1000 * self.slots, plenty, plenty, plenty, plenty, plenty)
        return tuple(
            NodeView(node_id=number, name=f"node{number}", capacity=capacity, slots={WorkKind.PROCESS: self.slots})
            for number in range(1, self.nodes + 1)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What became of a trace under one pair of policies."""

    label: str
    trace: Trace
    cell: Cell
    started_us: Sequence[int]
    """First start of each job; -1 for one that never started."""
    ended_us: Sequence[int]
    preemptions: int
    decisions: int
    seconds: float
    """Real time it took."""
    segments: Sequence[tuple[int, int, int]] = ()
    """With time slices: (job, start, end) of each slice."""
    unplaced: Mapping[int, str] = field(default_factory=dict)
    """Jobs that could never run, with the reason."""
    tenants: Mapping[int, TenantView] = field(default_factory=dict)
