"""The recorder: while a child runs one batch, a thread records the one before it in the ledger."""

from __future__ import annotations

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from scheduler_ext.core.work import Changes, Finished, Started
from scheduler_ext.dispatch.queue_manager import QueueManager
from scheduler_ext.ports import WorkStore
from scheduler_ext.task.output import output
from scheduler_ext.worker.events import TaskEvents
from scheduler_ext.worker.journal import Slot

log = logging.getLogger(__name__)


def record(store: WorkStore, node_id: int, ended: Sequence[Finished]) -> Changes:
    """Record, waiting while the database is away: the journal keeps the account meanwhile."""
    pause = 0.1
    while ended:
        try:
            if output.waiting:  # whoever sees the end finds all that was written before it
                output.flush()
            return store.record(node_id, ended)
        except store.faults as error:
            log.warning("recording %s tasks failed, trying again: %s", len(ended), error)
            time.sleep(pause)
            pause = min(2.0, pause * 2)
    return []


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that is started in the ledger and noted in the journal; none of it has run."""

    slot: Slot
    node_id: int
    started: Sequence[Started]
    waiting: int
    """Claims that were left in the queues."""
    in_place: bool = False
    """It began in the place of a batch that this child had run: the node goes on by itself."""


Resume = Callable[[int, Sequence[tuple[str, int]], Slot], Sequence[Started]]
"""Asks for what a call without an answer has begun: of a node, of these claims, noted in that slot."""


class Noting(Protocol):
    """Where the journal notes what begins in the place of what ran beside the child's batches."""

    def note(self, claims: Sequence[tuple[str, int]]) -> None:
        """Note what is about to begin."""

    def resume(self) -> Sequence[Started]:
        """Ask for what a call without an answer has begun of it."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """One that has run."""

    slot: Slot
    node_id: int
    ended: Sequence[Finished]
    heard: Sequence[tuple[Started, Finished]]
    hint: bool
    next: Future[Begun | None] | None = field(default=None, compare=False)
    """Who waits for what begins in its place, if anybody does."""

    def goes_with(self, other: _Batch) -> bool:
        """Whether one statement may record both: only what is plain costs no more for it."""
        if self.next is not None or other.next is not None:
            return False
        return self.node_id == other.node_id and all(each.is_plain() for each in (*self.ended, *other.ended))


class Recorder:
    """A thread with a connection of its own, which also keeps the child's free slots.

    Plain successes that came while it recorded are recorded by one statement.
    """

    def __init__(self, store: WorkStore, slots: Sequence[Slot], events: TaskEvents, queues: QueueManager,
                 resume: Resume) -> None:  # fmt: skip
        self.store = store
        self.resume = resume
        self.events = events
        self.queues = queues
        self._slots = len(slots)
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in slots:
            self._free.put(slot)
        self._ran: deque[_Batch] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recorder")

    def slot(self) -> Slot:
        """A free slot of the journal; waits until a batch is recorded if there is none."""
        return self._free.get()

    def give_back(self, slot: Slot) -> None:
        """Give the slot of a batch that came to nothing back."""
        slot.close()
        self._free.put(slot)

    def put(self, slot: Slot, node_id: int, ended: Sequence[Finished], heard: Sequence[tuple[Started, Finished]], *,
            hint: bool, goes_on: Future[Begun | None] | None = None) -> None:  # fmt: skip
        """Have a finished batch recorded; its ``slot`` of the journal is free again afterwards.

        ``heard`` is what a listener to events is told; ``hint``: tell the dispatcher that there is room. ``goes_on``: is
        given what the node may begin in its place by itself, or ``None``.
        """
        self._ran.append(_Batch(slot, node_id, ended, heard, hint, goes_on))
        self._thread.submit(self._record)

    def beside(self, node_id: int, ended: Sequence[Finished],
               goes_on: Noting | None = None) -> Future[tuple[Changes, Sequence[Started]]]:  # fmt: skip
        """Have recorded what ran beside the child's batches; what it changed is for the caller to tell.

        ``goes_on``: notes what the node begins by itself in the place of plain successes, which is returned.
        """
        return self._thread.submit(self._beside, node_id, ended, goes_on)

    def _beside(self, node_id: int, ended: Sequence[Finished],
                goes_on: Noting | None) -> tuple[Changes, Sequence[Started]]:  # fmt: skip
        if goes_on is None:
            return self._each(node_id, ended), []
        plain = [each for each in ended if each.is_plain()]
        others = self._each(node_id, [each for each in ended if not each.is_plain()])
        changes, started = self._begun_for(node_id, plain, goes_on.note, self._each)
        if started is None:
            try:
                started = goes_on.resume()
            except Exception:
                log.exception("what has begun in the place of others is not known")
                started = []
        return others + changes, started

    def _each(self, node_id: int, ended: Sequence[Finished]) -> Changes:
        """Record them; what is wrong with one costs no other its end, as with batches."""
        try:
            return record(self.store, node_id, ended)
        except Exception:
            if len(ended) > 1:
                return [change for each in ended for change in self._each(node_id, [each])]
            log.exception("the end of %s could not be recorded", ended[0].task_id)
            return []

    def _begun_for(self, node_id: int, ended: Sequence[Finished], note: Callable[[Sequence[tuple[str, int]]], None],
                   record_only: Callable[[int, Sequence[Finished]], Changes],
                   ) -> tuple[Changes, Sequence[Started] | None]:  # fmt: skip
        """Record plain successes, and what begins in their place; ``None``: that is not known, and is to be asked for."""
        try:
            if output.waiting:
                output.flush()
            changes, started = self.store.record_and_go_on(node_id, ended, note)
        except Exception as error:  # noqa: BLE001 - below they are recorded by themselves, which knows what to do about any
            log.warning("recording %s tasks and going on failed, trying again: %s", len(ended), error)
            # This waits for whatever of that call still goes on, so that behind it what has begun is known.
            return record_only(node_id, ended), None
        return changes, started

    def tell(self, slot: Slot, changes: Changes, heard: Sequence[tuple[Started, Finished]], *, hint: bool) -> None:
        """Give back the slot of a batch that its child has recorded by itself, and have told what that changed."""
        self.give_back(slot)
        if changes or hint or heard:
            self._thread.submit(self._tell, changes, heard, hint=hint)

    def idle(self) -> bool:
        """True when everything is recorded."""
        return self._free.qsize() == self._slots

    def _record(self) -> None:
        batches: list[_Batch] = []
        while self._ran and (not batches or self._ran[0].goes_with(batches[0])):
            batches.append(self._ran.popleft())
        if not batches:
            return  # recorded with those before
        first, begun = batches[0], None
        if first.next is None:
            changes = self._recorded(batches)
        else:
            try:
                changes, begun = self._gone_on(first)
            finally:
                first.next.set_result(begun)
        for batch in batches:
            self.give_back(batch.slot)
        heard = [each for batch in batches for each in batch.heard]
        self._tell(changes, heard, hint=any(batch.hint for batch in batches))

    def _tell(self, changes: Changes, heard: Sequence[tuple[Started, Finished]], *, hint: bool) -> None:
        try:
            if changes or hint:
                self.queues.tell(changes, room=hint)
            for task, finished in heard:
                self.events.add(task, finished)
            self.events.send()
        except Exception:
            log.exception("what a batch has changed could not be told")

    def _gone_on(self, batch: _Batch) -> tuple[Changes, Begun | None]:
        """Record a batch, and begin as much in its place if this node may; without a free slot it is recorded alone."""
        node_id, begun = batch.node_id, None
        try:
            slot = self._free.get_nowait()
        except queue.Empty:
            return self._recorded([batch]), None
        changes, started = self._begun_for(node_id, batch.ended, slot.open, lambda *_: self._recorded([batch]))
        if started is None:
            begun = self._resumed(slot, node_id)
        else:
            begun = Begun(slot, node_id, started, 0, in_place=True) if started else None
            if len(started) < len(batch.ended):
                self.store.tell_room()
        if begun is None:
            self.give_back(slot)
        return changes, begun

    def _resumed(self, slot: Slot, node_id: int) -> Begun | None:
        """What a call without an answer has begun. Where that cannot be told, the agent finds it and hands it back."""
        if not slot.is_open:
            return None
        try:
            started = self.resume(node_id, [(entry.task_id, entry.fence) for entry in slot.entries()], slot)
        except Exception:
            log.exception("what has begun in the place of a batch is not known")
            return None
        return Begun(slot, node_id, started, 0, in_place=True) if started else None

    def _recorded(self, batches: Sequence[_Batch]) -> Changes:
        ended = [finished for batch in batches for finished in batch.ended]
        try:
            return record(self.store, batches[0].node_id, ended)
        except Exception:
            if len(batches) > 1:
                # What is wrong with one is no reason to lose the ends of others. Those that were recorded before the fault
                # are not told of again: their dependants are upkeep's then.
                return [change for batch in batches for change in self._recorded([batch])]
            # What the ledger refuses for good cannot be helped here; the agent finds it and hands it back.
            log.exception("a batch of %s could not be recorded", len(ended))
            return []
