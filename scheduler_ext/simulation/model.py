"""What a simulation works on: jobs, the cell they run in, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, ClassVar

from scheduler_ext.core.labels import Labels, with_names
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import LineView, NodeView, TenantView, Vector, WorkKind

ONE_CPU: Vector = (1000, 0, 0, 0, 0, 0)


@dataclass(slots=True, eq=False)
class Job:
    """One task of a trace. It has the attributes of a ``TaskView`` that deciding reads, and changes as it runs.

    Times are whole microseconds since the trace began.
    """

    handler_id: ClassVar[int | None] = None
    avoid_node: ClassVar[int | None] = None
    fence: ClassVar[int] = 0

    index: int
    arrived_us: int
    run_us: int
    _: KW_ONLY
    tenant: int = 0
    vector: Vector = ONE_CPU
    category: Category = Category.DELAYABLE
    priority: int = 0
    expected_us: int | None = None
    tolerance_us: InitVar[int | None] = None
    mutex_key: str | None = None
    mutex_limit: int = 1
    parents: Sequence[int] = ()
    workflow: int | None = None
    """Which one it belongs to; without it, what is connected counts as one."""
    pool: str = ""
    kind: WorkKind = WorkKind.PROCESS
    handler: str = ""
    """The key of its run time among those of its tenant."""
    labels: Labels | None = None
    name: InitVar[str] = ""
    idempotent: bool = True
    rates: tuple[int, ...] = ()
    task_id: str = field(init=False)
    submitted_at: float = field(init=False)
    remaining_us: int = field(init=False)
    latest_start_us: int | None = field(default=None, init=False)
    latest_start: float | None = field(default=None, init=False)
    turn_us: int = field(default=0, init=False)
    cap_us: int = field(default=0, init=False)
    long_us: int = field(default=0, init=False)
    level: int = field(default=0, init=False)
    path_us: int = field(default=0, init=False)
    work_us: int | None = field(default=None, init=False)
    rank: tuple[int, int] = field(default=(0, 0), init=False)
    line: LineView = field(init=False)
    """Set by :func:`~scheduler_ext.simulation.layout.lines_of`."""
    node: Any = field(default=None, init=False)
    ends_at: float | None = field(default=None, init=False)

    def __post_init__(self, tolerance_us: int | None, name: str) -> None:
        self.task_id = name or str(self.index)
        self.submitted_at = self.arrived_us / 1e6
        self.remaining_us = self.run_us
        if tolerance_us is not None:
            self.latest_start_us = self.arrived_us + tolerance_us
            self.latest_start = self.latest_start_us / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """An execution rate: the most starts in any time frame of its length."""

    starts: int
    per_us: int
    used_us: tuple[int, ...] = ()
    """How long before the run's beginning each start was that still counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Work over time."""

    name: str
    jobs: list[Job]
    """In order of arrival; ``jobs[i].index == i``."""
    tenants: Mapping[int, str] = field(default_factory=dict)
    """Names of the tenants."""
    weights: Mapping[int, int] = field(default_factory=dict)
    """Weights of tenants; a tenant without an entry has 1."""
    shares: Mapping[int, int] = field(default_factory=dict)
    """Weights of the workflows that are members of their tenant's share."""
    begins_at: float = 0.0
    """The moment the trace begins (Unix seconds): windows go by the time of day."""
    ceiling_windows: str = ""
    """Windows by time of day with other ceilings, written as in the setting of that name."""
    limits: Mapping[int, RateLimit] = field(default_factory=dict)
    """Execution rates by the ids that jobs name."""
    requested: bool = True
    """Whether its jobs' ``expected_us`` was known beforehand; a log without requests has the real run times there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The cell: equal nodes that differ only in labels. A slot runs one task at a time."""

    nodes: int = 1
    slots: int = 2
    """Process slots of one node."""
    others: Mapping[WorkKind, int] = field(default_factory=dict)
    """Its slots of other kinds."""
    labels: tuple[tuple[str, ...], ...] = ()
    """The labels of the first nodes; further nodes have none."""
    capacity: Vector | None = None
    """The capacity of one node; by default one CPU per slot and plenty of everything else."""

    def views(self) -> tuple[NodeView, ...]:
        """The nodes as a round sees them."""
        plenty = 1_000_000_000
        capacity = self.capacity or (1000 * self.slots, plenty, plenty, plenty, plenty, plenty)
        return tuple(
            NodeView(
                node_id=number, name=f"node{number}", capacity=capacity,
                slots={WorkKind.PROCESS: self.slots, **self.others},
                labels=with_names(self.labels[number - 1] if number <= len(self.labels) else ()),
            )
            for number in range(1, self.nodes + 1)
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The outcome of a trace under one pair of policies."""

    label: str
    trace: Trace
    cell: Cell
    started_us: Sequence[int]
    """The first start of each job; -1 for one that never started."""
    ended_us: Sequence[int]
    preemptions: int
    decisions: int
    seconds: float
    """The real time the run took."""
    segments: Sequence[tuple[int, int, int]] = ()
    """With time slices: (job, start, end) of each slice."""
    unplaced: Mapping[int, str] = field(default_factory=dict)
    """Jobs that could never run, or never go on, with the reason."""
    backfilled: int = 0
    """Starts beside room that was kept for another."""
    tenants: Mapping[int, TenantView] = field(default_factory=dict)
