"""Starting a batch of claims, also over a connection that breaks meanwhile: who popped them is the only one to know."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_ext.core.work import Started
from scheduler_ext.ports import WorkStore


class Starting:
    """The start of one batch. Call it again after a fault: nothing that it may have started is lost or starts twice."""

    def __init__(self, store: WorkStore, node_id: int, claims: Sequence[tuple[str, int]]) -> None:
        """``claims`` (task id, fence) were taken from the node's queues, and nobody else has them."""
        self.store = store
        self.node_id = node_id
        self.claims = claims
        self._asked = False

    def __call__(self) -> list[Started]:
        """Start them; after a call without an answer, take over what that call had started."""
        again, self._asked = self._asked, True
        return self.store.start(self.node_id, self.claims, again=again)
