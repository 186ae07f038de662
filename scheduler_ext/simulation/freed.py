"""Room of ended jobs in a simulated run: what the ledger does not have back yet, and what it got back last."""

from __future__ import annotations

from scheduler_ext.core.labels import Labels
from scheduler_ext.core.resources import fits
from scheduler_ext.core.types import LineView, Vector, WorkKind
from scheduler_ext.round.node_account import Node
from scheduler_ext.round.placement import Ledger


class Freed:
    """The freed room of one run."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.over: list[tuple[Node, LineView, float | None]] = []
        """Ended jobs whose room the ledger does not have back: their node, their line, and when they should have ended."""
        self._nodes: list[Node] = []

    def give_back(self) -> None:
        """Let the ledger have it all back."""
        ledger = self._ledger
        for node, line, ends_at in self.over:
            ledger.release_exclusive(node, ledger.shape(line.vector, line.kind, None, line.labels), ends_at)
            self._nodes.append(node)
        self.over.clear()

    def has_room(self, vector: Vector, kind: WorkKind, labels: Labels | None) -> bool:
        """Whether what was given back since :meth:`forget` has room for such a job."""
        shape = self._ledger.shape(vector, kind, None, labels)
        needed, among = shape.vector, shape.among
        return any(
            node.room(kind) > 0 and fits(needed, node.free) and (among is None or node.index in among)
            for node in self._nodes
        )

    def forget(self) -> None:
        """All that waits was tried on it."""
        self._nodes.clear()
