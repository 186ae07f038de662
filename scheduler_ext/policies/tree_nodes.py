"""The nodes of the tree of lines: a line with the position reached in it, and a branch with its heap."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final

from scheduler_ext.core.types import LineView, TaskView
from scheduler_ext.policies.accounts import Account

_STALE: Final = 64
"""A heap is cleaned when it holds this many more entries than twice its children."""
_TRIM: Final = 512
"""A line drops its served tasks from the front when there are more than this."""

Clock = Callable[[], int]
"""Numbers entries, so that two of them never tie."""
Place = tuple[tuple[int, int], int, float, int]
"""A task's place among all: its rank, then its priority (negative), submission and line; no two tie."""


class Line:
    """A line and the place reached in it."""

    __slots__ = ("alone", "at", "entry", "heads", "leaf", "skipped", "top", "view")

    def __init__(self, view: LineView, leaf: Branch) -> None:
        self.view = view
        self.leaf = leaf
        self.alone: tuple[Any, int] = (None, 0)
        """A kind of its tasks, and the share that one of them takes if nothing else is held."""
        self.top = leaf.top.account
        """The account of its tenant, or of the top-level pool."""
        self.heads: list[TaskView] = list(view.heads)
        self.at = 0
        self.skipped: list[TaskView] = []
        """Tasks passed over since the line was last reopened."""
        self.entry: Any = None

    def make_entry(self) -> Any:
        """Its present entry in the heap of its leaf: the rank of the task in front, then the tie-break."""
        task = self.heads[self.at]
        # As place_of() has it; this is done for every task.
        entry = self.entry = ((task.rank, -task.priority, task.submitted_at, self.view.line_id), self)
        return entry

    def advance(self, tasks: int = 1) -> None:
        """Go on to the next task, or beyond so many; the line is in front in its leaf.

        Its accounts have just been charged, so the entries of the leaf and of what is above are renewed anyway.
        """
        self.at += tasks
        if self.at < len(self.heads):
            heapreplace(self.leaf.heap, self.make_entry())
            if self.at > _TRIM and self.at * 2 > len(self.heads):
                keep = len(self.skipped)
                del self.heads[: self.at - keep]
                self.at = keep
        else:
            self.entry = None
            heappop(self.leaf.heap)

    def skip(self) -> None:
        """The same where the task in front was not placed."""
        self.advance()
        self.leaf.touch()

    def drop(self) -> None:
        """Close the line for the rest of the round."""
        self.entry = None
        self.leaf.touch()


class Branch:
    """One account in one category: children, or for a leaf lines, in a heap."""

    __slots__ = ("account", "below", "category", "entry", "heap", "leaf", "seen", "top", "up")

    def __init__(self, account: Account, up: Branch | None, category: int, *, leaf: bool) -> None:
        self.account = account
        self.up = up
        self.top: Branch = self if up is None or up.up is None else up.top
        """The branch below the root in which it stands."""
        self.category = category
        self.below = 0
        """The number of its children; the heap may hold some more than once, all but one entry outdated."""
        self.leaf = leaf
        self.heap: list[Any] = []
        self.entry: Any = None
        self.seen = -1

    def stands_alone(self, roots: Iterable[Branch]) -> bool:
        """Whether nothing waits in these trees but one line of this leaf."""
        each = self
        while len(each.heap) == 1:
            if each.up is None:
                return all(root is each or not root.heap for root in roots)
            each = each.up
        return False

    def enter(self, line: Line) -> None:
        """Put a line's front task in order in this leaf."""
        if len(self.heap) > _STALE + 2 * self.below:
            self.heap[:] = [entry for entry in self.heap if entry[1].entry is entry]
            heapify(self.heap)
        heappush(self.heap, line.make_entry())

    def front_line(self) -> Line | None:
        """The line of a leaf to serve next; drops outdated entries on the way."""
        heap = self.heap
        while heap:
            entry = heap[0]
            line: Line = entry[1]
            if line.entry is entry:
                return line
            heappop(heap)
        return None

    def front_child(self, closed: set[int], clock: Clock) -> Branch | None:
        """The child to serve next; renews outdated entries on the way."""
        heap = self.heap
        while heap:
            entry = heap[0]
            child: Branch = entry[5]
            if child.entry is not entry:
                heappop(heap)
            elif not child.heap or child.category in closed:
                child.entry = None
                heappop(heap)
            elif child.seen == child.account.version:
                return child
            elif (renewed := child.make_entry(clock)) is None:
                heappop(heap)
            else:
                heapreplace(heap, renewed)
        return None

    def make_entry(self, clock: Clock) -> Any:
        """Its present place in the heap above; ``None`` for a leaf in which nothing is left.

        Where two hold alike, a leaf goes by its front task, and what has children by an account-wide place that
        stays the same through a round: whichever tree of whichever vectors it is asked in, the answer is the same.
        """
        account = self.account
        if self.leaf:
            front = self.heap[0] if self.heap else None
            if front is None or front[1].entry is not front:  # out of date
                line = self.front_line()
                front = line.entry if line is not None else None
            if front is None:
                self.entry = None
                return None
            place = front[0]
        else:
            place = account.place
        self.seen = account.version
        stage = self.top is self and account.share >= account.floor
        self.entry = (stage, account.key, account.tie, place, clock(), self)
        return self.entry

    def leave(self) -> None:
        """Take it out of the heap above, where it is in front: nothing is left in it."""
        assert self.up is not None
        self.entry = None
        heappop(self.up.heap)

    def push(self, clock: Clock) -> None:
        """Renew its entry in the heap above."""
        up = self.up
        if up is None or not self.heap:
            return
        if len(up.heap) > _STALE + 2 * up.below:
            up.heap[:] = [entry for entry in up.heap if entry[5].entry is entry]
            heapify(up.heap)
        entry = self.make_entry(clock)
        if entry is not None:
            heappush(up.heap, entry)

    def touch(self) -> None:
        """Note that its front has changed: its entries above are renewed when they come to the front."""
        each: Branch | None = self
        while each is not None:
            each.seen = -1
            each = each.up


def place_of(task: TaskView, line_id: int) -> Place:
    """The place of a task among those of all lines."""
    return (task.rank, -task.priority, task.submitted_at, line_id)
