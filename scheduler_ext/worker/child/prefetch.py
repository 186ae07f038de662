"""Starting ahead: while a child runs one batch, a thread of it takes and starts the next."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler_ext.core.work import Started
from scheduler_ext.ports import WorkStore
from scheduler_ext.worker.journal import Slot

AHEAD_S = 0.01
"""How long before the expected end of a batch the next one is started: about as long as that takes on a busy machine.

Sooner would lay more tasks behind a long one, and before urgent ones."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that is started in the ledger and noted in the journal; none of it has run."""

    slot: Slot
    node_id: int
    started: Sequence[Started]
    waiting: int
    """Claims that were left in the queues."""


class Ahead:
    """A thread with a connection of its own. At the most one batch is ahead."""

    def __init__(self, store: WorkStore, begin: Callable[[WorkStore], Begun | None]) -> None:
        """``begin`` takes one batch and starts it through ``store``; ``None`` when there is none."""
        self.store = store
        self.pending = False
        """A batch was asked for that is not fetched yet."""
        self._begin = begin
        self._wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._begun: queue.SimpleQueue[Begun | BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="ahead", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        self.pending = True
        self._wanted.put(None)

    def fetch(self) -> Begun | None:
        """The batch that was asked for; waits until it is started. Raises what its start raised."""
        begun = self._begun.get()
        self.pending = False
        if isinstance(begun, BaseException):
            raise begun
        return begun

    def _main(self) -> None:
        while True:
            self._wanted.get()
            try:
                begun: Begun | BaseException | None = self._begin(self.store)
            except BaseException as error:  # noqa: BLE001 - raised where the batch is fetched
                begun = error
            self._begun.put(begun)
