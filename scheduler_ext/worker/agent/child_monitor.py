"""Watches the pool children: caps, cancellations, deaths, and batches held up by one long task."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Changes
from scheduler_ext.ports import WorkStore
from scheduler_ext.worker.agent import settlement
from scheduler_ext.worker.agent.memory_limit import HeldMemory
from scheduler_ext.worker.child import handler_call
from scheduler_ext.worker.child.claims import Claim
from scheduler_ext.worker.child.slice import INTERRUPT_SIGNAL
from scheduler_ext.worker.journal import BATCHES, BEGUN, Entry, Journal, Slot

log = logging.getLogger(__name__)

CAP_GRACE_S = 0.25
"""Seconds between the interruption of a handler at its cap and the end of its process."""
HELD_UP_S = 0.25
"""A task that runs longer than this inside a batch no longer keeps the others waiting."""
STOP_WAIT_S = 0.5
BESIDE_GRACE_S = 1.0
"""A task that runs beside others is cancelled by its own child; this much later the child is killed."""
WORDS = {
    **handler_call.WORDS,
    Outcome.YIELDED: "it did not yield in time: it goes on from its last checkpoint",
    Outcome.WORKER_LOST: "its worker process died while it ran",
}


@dataclass(slots=True)
class _Sentence:
    """A task that was asked to end: which one, with which outcome, and when its process is killed."""

    batch: int
    index: int
    outcome: Outcome
    kill_at: float


@dataclass(slots=True)
class Watch:
    """Watches every slot of the journal; each decision about a task is made while its child is stopped."""

    conf: SchedulerConf
    journal: Journal
    store: WorkStore
    publish: Callable[[Changes], None]
    scripts: Mapping[Claim, object]
    """What the agent itself runs."""
    killed: Callable[[str, int, Outcome], None] = lambda *_: None
    """Told of each run that ended with its process: task, tenant, how."""
    asked: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    """Tasks (id, fence) that were asked to end or to yield, with the outcome."""
    used_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    """The run time of earlier turns of tasks that were paused; it counts against their cap."""
    ending: bool = False
    """Whether all that runs is to make room: the node's time to drain is over."""
    _sentences: dict[int, _Sentence] = field(default_factory=dict)
    _relieved: dict[int, int] = field(default_factory=dict)
    _verdicts: dict[int, tuple[int, Outcome]] = field(default_factory=dict)
    """By slot: the pid we killed, and the culprit's outcome."""
    _beside_verdicts: dict[int, tuple[int, tuple[str, int], Outcome]] = field(default_factory=dict)
    _asked: dict[tuple[str, int], float] = field(default_factory=dict)
    """When a task that runs beside others was asked to end."""
    _memory: HeldMemory | None = field(init=False)
    """Set where handlers are held to their tier's memory."""

    def __post_init__(self) -> None:
        enforced = self.conf.handler_memory == "enforced"
        self._memory = HeldMemory(self.store.memory_mb) if enforced else None

    def look(self) -> None:
        alive: dict[int, bool] = {}
        dead: list[Slot] = []
        for index in range(self.journal.slots):
            slot = self.journal.slot(index)
            pid = slot.pid
            if pid == 0:
                continue
            if pid not in alive:
                alive[pid] = _alive(pid)
            if not alive[pid]:
                dead.append(slot)
            else:
                if slot.is_open:
                    self._look_at(slot)
                if self.journal.beside and index % BATCHES == 0:  # a child's table is that of its first slot
                    self._look_beside(slot)
        # What ended first: to record it waits for a call that recorded it too and began others, which are settled then.
        for slot in sorted(dead, key=lambda slot: not slot.has_ended()):
            self._settle_dead(slot)

    def _look_at(self, slot: Slot) -> None:
        entry = slot.running()
        if entry is None or not entry.began:
            return
        self._end_in_time(slot, entry)
        if time.monotonic() - entry.began > HELD_UP_S:
            if slot.count > 1 and self._relieved.get(slot.index) != slot.batch:
                self._relieve(slot, slot)
            for other in self.journal.siblings(slot):
                if self._relieved.get(other.index) != other.batch and other.ahead():
                    self._relieve(slot, other)

    # -- caps and cancels ---------------------------------------------------------------------------------------------
    def _end_in_time(self, slot: Slot, entry: Entry) -> None:
        index, batch = slot.current, slot.batch
        sentence = self._sentences.get(slot.index)
        if sentence is not None and (sentence.batch, sentence.index) != (batch, index):
            sentence = None
        if sentence is not None and time.monotonic() >= sentence.kill_at:
            self._kill(slot, sentence)
            return
        if sentence is not None and sentence.outcome is not Outcome.YIELDED:
            return
        key = (entry.task_id, entry.fence)
        outcome, used_ms = self.asked.get(key), self.used_ms.get(key, 0)
        if self.ending and outcome is not Outcome.CANCELLED:
            outcome = Outcome.PREEMPTED
        if entry.cap_ms and time.monotonic() - entry.began >= (entry.cap_ms - used_ms) / 1000:
            self._interrupt(slot, batch, index, Outcome.CAP_EXCEEDED, CAP_GRACE_S)
        elif outcome is Outcome.YIELDED and sentence is None:
            self._interrupt(slot, batch, index, outcome, self.conf.yield_grace_s)
        elif outcome is not None and outcome is not Outcome.YIELDED:
            self._interrupt(slot, batch, index, outcome, self.conf.cancel_grace_s)
        elif self._over_memory(slot, entry):
            self._interrupt(slot, batch, index, Outcome.RESOURCE_EXCEEDED, CAP_GRACE_S)

    def _over_memory(self, slot: Slot, entry: Entry) -> bool:
        if self._memory is None:
            return False
        if self.journal.beside and self.journal.table(slot.index - slot.index % BATCHES).holds():
            self._memory.has_company(slot.pid, entry.task_id, entry.fence)
            return False
        unknown: tuple[type[Exception], ...] = (LookupError, *self.store.faults)
        try:
            return self._memory.is_over(slot.pid, entry.task_id, entry.fence, began=entry.began, base_mb=slot.base_mb)
        except unknown as error:  # caps are kept while the ledger is away
            log.debug("the tier of %s is not known: %s", entry.task_id, error)
            return False

    def _interrupt(self, slot: Slot, batch: int, index: int, outcome: Outcome, grace_s: float) -> None:
        with _stopped(slot.pid) as stopped:
            if not stopped or slot.current != index or slot.batch != batch:
                return
            slot.ask_interrupt(index, int(outcome))
            if outcome is not Outcome.YIELDED:  # what saves may need its helpers
                kill_children(slot.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(slot.pid, INTERRUPT_SIGNAL)
        self._sentences[slot.index] = _Sentence(batch, index, outcome, time.monotonic() + grace_s)

    def _kill(self, slot: Slot, sentence: _Sentence) -> None:
        """Kill the child if it still runs that very task: decided while it is stopped, so it cannot have gone on."""
        pid = slot.pid
        with _stopped(pid) as stopped:
            if not stopped or (slot.batch, slot.current) != (sentence.batch, sentence.index):
                return
            self._verdicts[slot.index] = (pid, sentence.outcome)
            kill(pid)

    def end_all(self) -> None:
        """Kill every child that still runs something: what it runs goes back, and spends no attempt."""
        for index in range(self.journal.slots):
            slot = self.journal.slot(index)
            if slot.pid and (slot.is_open or self.journal.table(index).holds()):
                for each in self.journal.slots_of(index // BATCHES):
                    self._verdicts[each.index] = (slot.pid, Outcome.PREEMPTED)
                kill(slot.pid)

    # -- tasks beside one another --------------------------------------------------------------------------------------
    def _look_beside(self, slot: Slot) -> None:
        """Pass cancellations on; a task that does not end when its child cancels it takes the child with it."""
        table, now = self.journal.table(slot.index), time.monotonic()
        self._asked = {key: at for key, at in self._asked.items() if key in self.asked}
        if not self.asked and not table.is_any_over(now - BESIDE_GRACE_S):
            return
        for place, entry in table.entries():
            if entry.state != BEGUN:
                continue
            key = (entry.task_id, entry.fence)
            if self.asked.get(key) is Outcome.CANCELLED and not table.cancelled(place):
                table.cancel(place)
                self._asked[key] = now
            over_cap = now - entry.began - entry.cap_ms / 1000 > BESIDE_GRACE_S
            over_cancel = now - self._asked.get(key, now) > self.conf.cancel_grace_s + BESIDE_GRACE_S
            if over_cap or over_cancel:
                outcome = Outcome.CAP_EXCEEDED if over_cap else Outcome.CANCELLED
                self._beside_verdicts[slot.index] = (slot.pid, key, outcome)
                kill(slot.pid)
                return

    def _settle_beside(self, slot: Slot, *, guilty: bool) -> None:
        """Settle tasks that ran beside one another in a child that died: nobody knows the culprit, so they run alone
        next.

        ``guilty``: another task did, or we did; then they are no suspects.
        """
        table, worker, node_id = self.journal.table(slot.index), self._worker(slot), self.journal.node_id
        taken = settlement.read([entry for _, entry in table.entries()], worker)
        pid, key, outcome = self._beside_verdicts.pop(slot.index, (0, ("", 0), Outcome.WORKER_LOST))
        culprit = next((e for e in taken.begun if pid == slot.pid and (e.task_id, e.fence) == key), None)
        if culprit is None and len(taken.begun) == 1 and not guilty:
            culprit = taken.begun[0]
        others = [(e.task_id, e.fence) for e in taken.begun if e is not culprit]
        unbegun = self._own(taken.unbegun, table=slot.index)
        settled = replace(taken, begun=[culprit] if culprit else [], unbegun=unbegun)
        self._settle(node_id, settled, worker, outcome)
        if others:
            reason = "handed back: its worker process died while it ran beside others"
            alone = culprit is None and not guilty
            self.publish(self.store.hand_back(node_id, others, running=True, reason=reason, alone=alone))
        table.clear()

    # -- batches held up ----------------------------------------------------------------------------------------------
    def _relieve(self, slot: Slot, batch: Slot) -> None:
        """The task that runs in ``slot`` takes long: of a batch that waits behind it, its own or the one started ahead,
        what has finished is recorded, and what has not begun goes back."""
        own = batch is slot
        with _stopped(slot.pid) as stopped:
            if not stopped or slot.running() is None or not (own or batch.ahead()):
                return
            batch.limit = slot.current + 1 if own else 0
            taken = settlement.read(batch.entries(), self._worker(batch))
        self._relieved[batch.index] = batch.batch
        if taken.ended:
            self.publish(self.store.record(self.journal.node_id, taken.ended))
        unbegun = self._own(taken.unbegun, slot=batch.index)
        self.publish(settlement.give_back(self.store, self.journal.node_id, unbegun))

    def _own(self, unbegun: Sequence[Claim], *, slot: int = -1, table: int = -1) -> list[Claim]:
        """Those of a batch that nobody else here holds: a forged Redis item may have queued a claim twice."""
        others = self.journal.claims_of_others(slot=slot, table=table) | set(self.scripts) if unbegun else set()
        return [claim for claim in unbegun if claim not in others]

    # -- deaths -------------------------------------------------------------------------------------------------------
    def _settle_dead(self, slot: Slot) -> None:
        pid = slot.pid
        verdict = self._verdicts.get(slot.index)
        outcome = verdict[1] if verdict is not None and verdict[0] == pid else Outcome.WORKER_LOST
        worker = self._worker(slot)
        taken = settlement.read(slot.entries() if slot.is_open else [], worker)
        if taken.begun or taken.ended or taken.unbegun:
            log.warning(
                "child %s died: %s finished, %s running, %s handed back", pid, len(taken.ended),
                len(taken.begun), len(taken.unbegun),
            )  # fmt: skip
        taken = replace(taken, unbegun=self._own(taken.unbegun, slot=slot.index))
        self._settle(self.journal.node_id, taken, worker, outcome)
        if self.journal.beside:
            self._settle_beside(slot, guilty=bool(taken.begun) or verdict is not None or self._sibling_ran(slot))
        self._verdicts.pop(slot.index, None)
        self._sentences.pop(slot.index, None)
        if self._memory is not None:
            self._memory.forget(pid)
        slot.settle()

    def _settle(self, node_id: int, taken: settlement.Account, worker: str, outcome: Outcome) -> None:
        changes = settlement.settle(self.store, node_id, taken, worker, outcome, WORDS[outcome])
        self.publish(changes)
        for change in changes:
            if taken.begun and change[0] == taken.begun[-1].task_id:
                self.killed(change[0], change[2], outcome)

    @staticmethod
    def _worker(slot: Slot) -> str:
        return f"{slot.index}:{slot.pid}"

    def _sibling_ran(self, slot: Slot) -> bool:
        """Whether another batch of the child had a task running, or that task was ended by us."""
        return any(
            other.running() is not None or other.index in self._verdicts for other in self.journal.siblings(slot)
        )

    def rests(self) -> bool:
        """Whether every child lives and none holds anything, so that a look would change nothing."""
        if self.busy():
            return False
        pids = {self.journal.slot(index).pid for index in range(self.journal.slots)} - {0}
        return all(map(_alive, pids))

    def busy(self) -> int:
        slots = range(self.journal.slots)
        held = {index // BATCHES for index in slots if self.journal.slot(index).is_open}
        if self.journal.beside:
            held |= {index // BATCHES for index in slots[::BATCHES] if self.journal.table(index).holds()}
        return len(held)


def _alive(pid: int) -> bool:
    try:
        return _state(pid) not in ("Z", "X")
    except OSError:
        return False


def _state(pid: int) -> str:
    """The kernel's letter for a process's state; ``OSError`` when it is gone."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[bool]:
    """Stop a process (SIGSTOP) for a few instructions of ours; yields False when that is impossible."""
    held = False
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
        held = _wait_for_stop(pid)
    try:
        yield held
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _wait_for_stop(pid: int) -> bool:
    give_up = time.monotonic() + STOP_WAIT_S
    while time.monotonic() < give_up:
        state = _state(pid)
        if state in ("T", "t"):
            return True
        if state in ("Z", "X"):
            return False
        time.sleep(0.0005)
    return False


def kill(pid: int) -> None:
    """Kill a child with everything it has started."""
    kill_children(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_children(pid: int) -> None:
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
