"""The frozen values that deciding works on: what a round sees, and what it decides.

Times are seconds of the database's clock as floats (Unix epoch); expected run times are whole microseconds; a
resource vector is a tuple of whole numbers in the order of :data:`scheduler_ext.core.resources.DIMENSIONS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from scheduler_ext.core.labels import Labels
from scheduler_ext.core.states import Category

Vector = tuple[int, ...]

MAX_SCRIPT_BYTES = 1_048_576
"""Where a script is kept: stored, or in a tenant's own folder."""

LATE_GROUP = -(2**31)
"""The group in the rank of a task whose latest start has passed; no order policy gives it."""
MILLI = 1000
"""A slot (one task at a time) is counted in thousandths, so that many short tasks can share one."""


class WorkKind(StrEnum):
    """What runs a task on a node; each kind has slots of its own."""

    PROCESS = "process"
    """A handler in a pool child, one at a time per child."""
    THREAD = "thread"
    COROUTINE = "coroutine"
    SCRIPT = "script"
    """A process of the node's agent."""


PROCESS: Final = WorkKind.PROCESS
"""Named by itself for what runs once for each task: Python 3.11 looks a member up on its class ten times as slowly."""

PER_CHILD = {WorkKind.COROUTINE: 512, WorkKind.THREAD: 8}
"""How many tasks of these kinds one pool child runs at once.

Together they take the tier's vector once: each takes its part.
"""

Slots = Mapping[WorkKind, int]
"""Thousandths of slots by kind. The kinds are counted apart: work of one cannot use a slot of another."""
NO_SLOTS: Slots = {}


def add_slots(left: Slots, right: Slots, sign: int = 1) -> Slots:
    """Sum, or with ``sign`` -1 the difference, kind by kind."""
    if not right:
        return left
    if not left and sign > 0:
        return right
    return {kind: left.get(kind, 0) + sign * right.get(kind, 0) for kind in left.keys() | right.keys()}


class QueueName(StrEnum):
    """The three Redis queues of a node, served in this order."""

    URGENT = "urgent"
    DELAYABLE = "delayable"
    OFFPEAK = "offpeak"


class Reason(StrEnum):
    """Why a task that could run was left waiting by a round."""

    NO_NODE = "no node is registered that advertises this handler or kind"
    NO_LABELS = "no registered node that could run it has the labels it requires"
    NEVER_FITS = "its tier is larger than every registered node"
    NO_SLOT = "every fitting node is busy"
    PEAK = "utilization is above its category's ceiling"
    TENANT_IN_FLIGHT = "the tenant's limit of tasks in flight is reached"
    HARD_SHARE = "the line's maximum share is used up"
    MUTEX = "another task holds its mutex key"
    RATE = "its execution rate is used up for this time frame"
    PAUSED = "its tenant, line or handler is paused"
    SHARE = "other lines are served first"
    POSITION = "tasks of its own line come first"
    RESERVED = "the room is reserved for a larger task that waits longer"


@dataclass(slots=True)
class TaskView:
    """A ready task, as far as deciding needs it.

    Never changed; but a frozen one would take three times as long to make, and one made by keywords twice as long. Every
    round makes many.
    """

    task_id: str
    line_id: int
    fence: int
    """The fence of its last claim; the next claim gets ``fence + 1``."""
    rank: tuple[int, int]
    """Place in the line, smaller first: (group, number)."""
    kind: WorkKind = WorkKind.PROCESS
    handler_id: int | None = None
    """``None`` for a script."""
    priority: int = 0
    submitted_at: float = 0.0
    latest_start: float | None = None
    expected_us: int | None = None
    """Expected run time learnt from history; ``None`` while nothing is learnt."""
    long_us: int = 0
    """The run time that nine in ten of its runs do not exceed, or its cap; 0: not looked up."""
    alone: bool = False
    """Must not share a batch (a single attempt allowed, or suspected of killing its worker). One that is known to be short
    shares a slot all the same: what lies in a node's queue has not begun."""
    mutex_key: str | None = None
    mutex_limit: int = 1
    avoid_node: int | None = None
    """The node its last attempt failed on, or its claim was taken back from; another one is preferred."""
    rates: tuple[int, ...] = ()
    """Ids of the rate limits that its start counts against."""


CLIENT = "client "
"""The prefix of the name of the pool that one client's tenants share by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineView:
    """The head of one line: the ready tasks of one (tenant, category, tier), best rank first."""

    line_id: int
    tenant_id: int
    category: Category
    tier_id: int
    vector: Vector
    """What one task of the line needs."""
    heads: tuple[TaskView, ...]
    pool: str = ""
    """Path of the pool or capacity queue it belongs to, ``/``-separated; empty: its tenant's own."""
    paused: bool = False
    labels: Labels | None = None
    """The labels its tasks require or prefer; ``None`` for most lines: none."""
    late: bool = False
    """Its tasks are past their latest start: within their tenant's share they start before all others, urgent ones
    too.
    """
    kind: WorkKind = WorkKind.PROCESS
    """In a simulated run: the slot that each of its tasks takes."""
    workflow: str = ""
    """The workflow that is a member of its tenant's share, by itself; empty: all else of the tenant's."""
    weight: int = 1
    """The weight of that workflow beside the others and beside all else of its tenant's, which has 1."""

    @property
    def precedence(self) -> int:
        """The order in which categories are served, smaller first."""
        return 0 if self.late else int(self.category)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """A tenant with its plan's numbers and what it uses now."""

    tenant_id: int
    weight: int = 1
    in_flight: int = 0
    max_in_flight: int | None = None
    guaranteed_permille: int = 0
    """The share of the cell, in thousandths, that it gets before others get more than theirs."""
    maximum_permille: int = 1000
    used: Vector = ()
    """Resources held by its tasks in flight."""
    used_slots_milli: Slots = field(default_factory=dict)
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """What the tasks in flight of one pool or capacity queue (a leaf of the tree) hold."""

    used: Vector = ()
    used_slots_milli: Slots = field(default_factory=dict)
    tenants: Mapping[int, tuple[Slots, Vector]] = field(default_factory=dict)
    """What each tenant holds of this: thousandths of slots, and resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """When a task that holds a whole slot is expected to free it (at the latest at its cap)."""

    at: float
    kind: WorkKind
    vector: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A live node and what is in flight on it."""

    node_id: int
    name: str
    capacity: Vector
    slots: Mapping[WorkKind, int]
    """How many tasks of each kind it runs at once."""
    handlers: frozenset[int] = frozenset()
    labels: frozenset[str] = frozenset()
    """Its labels, and the bare names of those with a value."""
    exclusive_used: Vector = ()
    """Sum of the vectors of tasks in flight that hold a slot of their own."""
    batch_peak: Vector = ()
    """Component-wise maximum of the vectors of the short tasks in flight, which share slots."""
    exclusive_count: Mapping[WorkKind, int] = field(default_factory=dict)
    batch_milli: int = 0
    """Thousandths of process slots taken by short tasks in flight."""
    batch_count: int = 0
    ends: tuple[RunEnd, ...] = ()
    """When exclusive tasks in flight are expected to end, for reservations; those not listed are unknown."""
    passing: int = 0
    """How many of the exclusive tasks that hold process slots are over soon."""
    ahead: int = 0
    """Tasks claimed ahead, for when one of those ends; they are not counted elsewhere here."""
    least: Vector = ()
    """Component-wise minimum of the vectors of the exclusive tasks that hold process slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one round hands to the next about the task that room is kept for."""

    task_id: str = ""
    """The account that room is kept for until its task starts; empty: none."""
    line_id: int = 0
    """The line of that task."""
    barred: bool = False
    """It is above its category's ceiling: room is kept for it once it is not."""
    turns: Mapping[str, float] = field(default_factory=dict)
    """When room was last kept for each tenant, or top-level pool, in the last hour."""


NOBODY = Kept()


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """Tenants that hold nothing, and whose work waits only in lines that a round does not look at."""

    pool: str
    """Their pool, as a :class:`LineView` names it."""
    weight: int
    """What each of them weighs; a client with several tenants counts as one."""
    tenants: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The frozen view one round decides on."""

    now: float
    cell: str
    nodes: tuple[NodeView, ...]
    tenants: Mapping[int, TenantView]
    lines: tuple[LineView, ...]
    mutex_held: Mapping[str, int] = field(default_factory=dict)
    """Live holders by mutex key (scoped ``tenant_id:key``)."""
    pools: Mapping[str, PoolView] = field(default_factory=dict)
    """What each leaf pool holds, by its path; pools not listed hold nothing."""
    rates_left: Mapping[int, int] = field(default_factory=dict)
    """Starts that each rate limit still allows now, by its id."""
    past_use: Mapping[str, float] = field(default_factory=dict)
    """Past use, which decays, in cell-seconds, by ``tenant ID``, ``pool PATH`` and ``workflow TENANT ID``."""
    workflows: Mapping[str, Mapping[int, Mapping[str, tuple[Slots, Vector]]]] = field(default_factory=dict)
    """By pool and, in it, by tenant: what each workflow with a share of its own holds, and by the empty name all else.

    Only of tenants that have such workflows.
    """
    kept: Kept = NOBODY
    behind: tuple[Behind, ...] = ()
    """Who waits in lines that are not among these, where so many are active that a round looks at some of them."""
    openings: tuple[Opening, ...] = ()
    """Room given ahead; the nodes, and the limits of tenants, count it as taken."""
    recent: tuple[LineView, ...] = ()
    """Lines of which tasks came lately, the latest first; of each handler one task as an example."""


@dataclass(slots=True)
class Decision:
    """One claim: this task, on this node, through this queue. Never changed, like a :class:`TaskView`."""

    task_id: str
    line_id: int
    node_id: int
    kind: WorkKind
    queue: QueueName
    fence: int
    """The fence the task has now; committing raises it by one."""
    expected_us: int
    """Its expected run time in the batch it joins; 0: not learnt."""
    exclusive: bool
    handler_id: int | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Room at a node that is decided on ahead, for the next tasks of a line and handler: whoever stores one claims it."""

    line_id: int
    handler_id: int
    alone: bool
    node_id: int
    kind: WorkKind
    queue: QueueName
    slot_milli: int
    """Thousandths of a slot that each task takes."""
    expected_us: int
    """The expected run time of each; 0: a child takes each by itself."""
    places: int
    """So many tasks may come."""
    given: int = 0
    """The places there were when it was last widened."""

    @property
    def key(self) -> tuple[int, int, bool]:
        """What it is for."""
        return self.line_id, self.handler_id, self.alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A node goes on with a line's tasks of one handler by itself, in the room of those that end there."""

    node_id: int
    line_id: int
    handler_id: int
    kind: WorkKind
    slot_milli: int
    """Thousandths of a slot that each task takes."""
    batch: int
    """The most tasks of a batch; 1 for those that run side by side."""
    in_hand: int
    """So many tasks of this kind it should have in hand, of all lines it goes on with."""

    def lacks(self, node: NodeView) -> int:
        """How many more it should be given, in whole batches: what is small goes on as small as it is."""
        held = node.batch_count if self.kind is PROCESS else node.exclusive_count.get(self.kind, 0)
        return max(0, self.in_hand - held) // self.batch * self.batch

    @staticmethod
    def lacking(nodes: Iterable[NodeView], granted: Iterable[Grant]) -> dict[tuple[int, WorkKind], int]:
        """How many more tasks of each kind each node that goes on by itself should be given."""
        views = {node.node_id: node for node in nodes}
        return {(each.node_id, each.kind): each.lacks(views[each.node_id]) for each in granted if each.node_id in views}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one round decided."""

    decisions: tuple[Decision, ...]
    left: Mapping[str, Reason]
    """Nominated tasks that were left waiting, each with its reason, by task id."""
    utilization_permille: int
    more: bool = False
    """Room is left, and tasks further down the lines may fill it."""
    excludes: bool = False
    """One of the claimed tasks holds a mutex key."""
    wants_ends: bool = False
    """A task has waited long enough for a node to be kept for it, so the next round needs to know when running tasks
    end.
    """
    kept: Kept = NOBODY
    going_on: frozenset[int] = frozenset()
    """The ids of the nodes that go on by themselves with what waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What a round did, for logs, metrics and tests."""

    nominated: int = 0
    decided: int = 0
    claimed: int = 0
    woken: int = 0
    promoted: int = 0
    returned: int = 0
    """Claims taken back because Redis had been emptied."""
    left: Mapping[str, Reason] = field(default_factory=dict)
    utilization_permille: int = 0
    again: bool = False
    """More may start now: the next round looks further down the lines."""
    seconds: float = 0.0
