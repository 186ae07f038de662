"""The two protocols of deciding: the order inside a line, and the share between lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from scheduler_ext.core.types import MILLI, LineView, Reason, Snapshot, TaskView


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInput:
    """What an order policy may look at. Times are microseconds since the Unix epoch, durations microseconds."""

    arrived_us: int
    """When the task was submitted; for a member of a workflow, when the workflow was."""
    latest_start_us: int | None
    expected_us: int | None
    """The learnt run time, if there is one."""
    cap_us: int
    priority: int = 0
    level: int = 0
    """Turns or levels used so far: the cycle of round robin, the level of a feedback queue."""
    path_us: int = 0
    """In a graph: the longest path from its start to the graph's end; 0 for a task without a graph."""
    work_us: int | None = None
    """All work of its graph."""


LINE_REASONS: Final = frozenset({Reason.PAUSED})
"""Reasons for which a rejected task takes the rest of its line with it, for this round."""
TENANT_REASONS: Final = frozenset({Reason.TENANT_IN_FLIGHT, Reason.HARD_SHARE})
"""Reasons that hold for all lines of its tenant."""
CATEGORY_REASONS: Final = frozenset({Reason.PEAK})
"""Reasons that hold for all of its category and kind. Any other reason holds for the one task."""


class OrderPolicy(Protocol):
    """Gives a task its place in its line.

    One that shares time also has ``quantum_us(level)``, how long a slice of a task at a level is: a task that has used
    up its slice waits again at the next level. Where newcomers begin at the level that their line serves, and not at
    level 0, it has ``level_of(rank)``: the level of a task at that place.
    """

    @property
    def name(self) -> str:
        """Its name in the registry."""

    def rank(self, task: RankInput) -> tuple[int, int]:
        """The place (group, number), smaller first. The group fits 32 bits, the number 63; ties end by task id."""


class Chooser(Protocol):
    """One round's choice between lines; each answer changes what it asks next."""

    def pick(self) -> tuple[LineView, TaskView] | None:
        """The next task to try, or ``None`` when nothing is left."""

    def accept(self, line: LineView, task: TaskView, milli: int = MILLI) -> None:
        """Take note: the task just picked was placed; it takes ``milli`` thousandths of a slot."""

    def following(self, line: LineView) -> Sequence[TaskView]:
        """The tasks of the line just served that are picked next, one after the other, while each is accepted."""

    def accept_next(self, line: LineView, task: TaskView, milli: int, tasks: int) -> None:
        """Take note: so many more tasks of the line just served, all like ``task``, were placed."""

    def reject(self, line: LineView, task: TaskView, reason: Reason) -> None:
        """Take note: the task just picked stays. The chooser goes on with what could still start."""

    def take(self, line: LineView, task: TaskView) -> None:
        """Take note: a task that waits in this line was placed out of turn, in a slot of its own."""

    def account_at_top(self, line: LineView) -> str:
        """The name of the tenant, or of the top-level pool, that this line belongs to."""

    def refusal(self, line: LineView, task: TaskView, milli: int) -> Reason | None:
        """Why the share alone forbids the task just picked (a maximum is used up), or ``None``."""


class SharePolicy(Protocol):
    """Decides which line is served next."""

    @property
    def name(self) -> str:
        """Its name in the registry."""

    def start(self, snapshot: Snapshot) -> Chooser:
        """Begin a round over ``snapshot``."""
