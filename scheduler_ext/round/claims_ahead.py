"""One more task for a node whose slots are full of tasks that are over soon: it starts when the first of them ends.

Between the end of a task and the start of the next stand its recording, a round and the way to the node, which is a
sixth of a task of fifty milliseconds. So where nothing waits that would go before it, the next task is claimed already.
It passes every limit as if one of those tasks had ended, and takes no more than the smallest of what the node runs. Of
four that are over soon one is followed so: what comes meanwhile waits no longer than those few take. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler_ext.core.resources import fits, least
from scheduler_ext.core.types import Decision, NodeView, Reason, TaskView, Vector, WorkKind
from scheduler_ext.round.node_account import Node, Shape

SOON_US: Final = 100_000
"""A task that is expected to run no longer than this is over soon."""
FOLLOWED: Final = 4
"""Of so many tasks that are over soon one is followed by a task claimed ahead."""
CROWDED: Final = frozenset({Reason.NO_SLOT, Reason.SHARE, Reason.RESERVED})
"""Why a task waits that nothing may pass."""


def is_over_soon(kind: WorkKind, expected_us: int | None) -> bool:
    """Whether a task that holds a process slot of its own gives it back soon."""
    return kind is WorkKind.PROCESS and expected_us is not None and 0 < expected_us <= SOON_US


def places(passing: int, ahead: int) -> int:
    """How many more may be claimed ahead, where so many that are over soon hold a slot, and so many wait for one."""
    return max(1, passing // FOLLOWED) - ahead if passing else 0


def may_follow(task: TaskView) -> bool:
    """Whether a task may be claimed ahead: nothing of it is counted from its claim on, and it is over soon itself."""
    return is_over_soon(task.kind, task.expected_us) and not (task.alone or task.rates or task.mutex_key)


class Following:
    """The nodes on which tasks may be claimed ahead, after all that a round has placed."""

    def __init__(self, views: Iterable[NodeView], nodes: Iterable[Node],
                 placed: Iterable[tuple[Decision, Vector]]) -> None:  # fmt: skip
        """``placed``: the round's claims that take a slot of their own, and what each takes."""
        accounts = {node.node_id: node for node in nodes}
        passing = {view.node_id: view.passing for view in views}
        lowest = {view.node_id: view.least for view in views}
        for decision, vector in placed:
            if decision.kind is WorkKind.PROCESS:
                node_id = decision.node_id
                lowest[node_id] = least(lowest[node_id], vector) if lowest[node_id] else vector
                passing[node_id] += is_over_soon(decision.kind, decision.expected_us)
        self._open: list[tuple[Node, Vector]] = []
        self._left: dict[int, int] = {}
        for view in views:
            node = accounts[view.node_id]
            left = places(passing[view.node_id], view.ahead)
            if (
                left > 0
                and not node.batch_count
                and node.counts.get(WorkKind.PROCESS, 0) >= view.slots.get(WorkKind.PROCESS, 0)
            ):
                self._open.append((node, lowest[view.node_id]))
                self._left[view.node_id] = left

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(self, shape: Shape, avoid: int | None) -> Node | None:
        """A place for a task of this shape; the first node that has one."""
        for node, most in self._open:
            if (
                self._left.get(node.node_id)
                and node.node_id != avoid
                and (shape.handler is None or shape.handler in node.handlers)
                and (shape.among is None or node.index in shape.among)
                and fits(shape.vector, most)
            ):
                self._left[node.node_id] -= 1
                if not self._left[node.node_id]:
                    del self._left[node.node_id]
                return node
        return None
