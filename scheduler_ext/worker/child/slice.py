"""The child's loop: while a token lends it, a pool child takes batches from its node's queues and runs them.

Each batch is noted in the journal, started in one statement, run, and recorded in one statement, with another one maybe.
While one runs, the one before is recorded and the one behind it is started.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import redis
from celery import Celery

from scheduler_ext.conf import LOOKAHEAD_US, SchedulerConf
from scheduler_ext.core.run_times import LEARNT_FROM
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.types import MILLI, PER_CHILD, WorkKind
from scheduler_ext.core.work import Finished, Started
from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.queue_manager import QueueManager
from scheduler_ext.ports import WorkStore
from scheduler_ext.task import handlers, network_ports
from scheduler_ext.task.checkpoints import pausing
from scheduler_ext.task.context import TaskInterrupted
from scheduler_ext.task.output import output
from scheduler_ext.worker.child.claims import Starting
from scheduler_ext.worker.child.concurrent import Beside
from scheduler_ext.worker.child.handler_call import Bodies
from scheduler_ext.worker.child.recorder import Begun, Recorder, record
from scheduler_ext.worker.child.usage_meter import Meter
from scheduler_ext.worker.events import TaskEvents
from scheduler_ext.worker.journal import Journal, Slot, to_unix_s

log = logging.getLogger(__name__)

INTERRUPT_SIGNAL = signal.SIGUSR2
LEARN_EVERY_S = 0.5
LEARN_FIRST_S = 0.05
"""The same while a child has told too few run times of what it runs alone: until enough are known, all of them run alone."""
MOST_TOLD = 10_000
"""So many kinds of tasks a child remembers to have told of."""
LONG_CHECK_S = 0.25
"""How often a child checks, while a task runs, that its node's lease still holds; others get the task a second later.
"""
SLICE_S = 2.0
"""How long a token lends a pool child."""
REST_S = 10.0
"""The same while nothing comes and the worker has nothing else for it: each token costs all of the worker's processes."""
IDLE_BLOCK_S = 1.0
LEAVES_S = 0.005
"""What the tasks of a batch leave behind in so long is too little to count against the next one."""
CROWD_S = 0.02
"""A task for which a child has waited no longer than this may have come with others."""
AHEAD_S = 0.01
"""How long before the expected end of a batch the next one is started: about as long as that takes on a busy machine.

Sooner would lay more tasks behind a long one, and before urgent ones."""


LARGE = 0.75
"""The part of the largest batch of a slice from which on a child goes on with as many."""
ASK_AGAIN_S = 0.05
"""How long a child that might not go on by itself does not ask again."""
WORTH_S = 0.001
"""A batch that is over sooner has nothing started beside it, unless more lies in the queues: the child itself is as quick."""


class Child:
    """One pool child. Made once, after the fork; :meth:`lend` runs a slice."""

    def __init__(self, app: Celery, conf: SchedulerConf, store: WorkStore, redis_url: str, journal: Journal, index: int,
                 hostname: str, further: Callable[[str], WorkStore]) -> None:  # fmt: skip
        """``index`` numbers the child; ``further`` opens the ledger for its threads, by their names."""
        self.conf = conf
        self.store = store
        self.journal = journal
        self.slots = journal.slots_of(index)
        self.slot = self.slots[0]
        self.client = redis_client.connect(redis_url, socket_timeout=10.0, socket_connect_timeout=2.0)
        self.queues = QueueManager(self.client, conf)
        self.bodies = Bodies(app, conf.max_result_bytes, hostname)
        self.recorder = Recorder(further("recorder"), self.slots, TaskEvents(app, hostname), self.queues, self._resume)
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._ahead_store = further("ahead")
        self._next: Future[Begun | None] | None = None
        """The batch started ahead, if any: while one runs, a thread takes and starts the next."""
        self._following: Begun | None = None
        """The task that began as the one before it was recorded, if any."""
        self._coming: deque[Future[Begun | None]] = deque()
        """What begins in the place of batches that are being recorded."""
        self._largest, self._asks = 0, 0.0
        """The largest batch of this slice; and from when on to ask whether to go on: that might not be a moment ago."""
        self.low_water = MILLI * journal.children // 2
        self.low_water_s = LOOKAHEAD_US / 1e6 * journal.children / 2
        """With fewer claims, and less work, than this left in its queues the child asks the dispatcher for more."""
        self._each_s = 0.0
        self._more = True
        """Whether something may lie in the queues: else whatever comes, the next wait takes."""
        self.worker = f"{index}:{os.getpid()}"
        self._samples: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
        self._learnt = time.monotonic()
        self._told: Counter[tuple[int, str]] = Counter()
        self._running: int | None = None
        self._claimed_slot = False
        self.meter = Meter()
        network_ports.configure(conf)
        output.open(partial(further, "output"))
        self.table = journal.table(self.slot.index)
        kinds = sorted({e.kind for e in handlers.exported().values() if e.kind in PER_CHILD})
        self.beside = (
            Beside(conf, journal, self.table, self.bodies, further("beside"), self.queues, TaskEvents(app, hostname),
                   redis_url, kinds, self.worker, self._sample, self.recorder)
            if kinds
            else None
        )  # fmt: skip
        signal.signal(INTERRUPT_SIGNAL, self._on_interrupt)
        signal.signal(signal.SIGALRM, self._on_alarm)

    # -- signals ------------------------------------------------------------------------------------------------------
    def _on_interrupt(self, _signum: int, _frame: Any) -> None:
        """Handle the agent's request to end the running task; a late request, for a task that has ended, is ignored."""
        wanted = self.slot.wanted_interrupt()
        if wanted is not None and self._running is not None and wanted[0] == self._running:
            if wanted[1] == Outcome.YIELDED:
                entry = self.slot.entry(wanted[0])
                pausing.asked = (entry.task_id, entry.fence)
                return
            self.bodies.interrupt = Outcome(wanted[1])
            raise TaskInterrupted

    def _on_alarm(self, _signum: int, _frame: Any) -> None:
        self.journal.stop_without_lease(self.conf.node_lease_s)
        if self._running is not None:
            self.bodies.soft.remind()

    # -- the slice ----------------------------------------------------------------------------------------------------
    def lend(self) -> int:
        """Run batches for one slice; returns the number of tasks run."""
        if not self._claimed_slot and not self._claim_slot():
            return 0
        self.bodies.look()
        self._largest = 0
        ends = (began := time.monotonic()) + SLICE_S
        ran = 0
        while ((left := ends - time.monotonic()) > 0 and not self.journal.draining) or self._has_begun():
            begun = self._next_begun(left)
            if begun is not None:
                ran += self._batch(begun, last=left <= 0)
            elif not ran and not self.journal.wanted:
                ends = min(began + REST_S, max(ends, time.monotonic() + IDLE_BLOCK_S))
            elif time.monotonic() - self._learnt > LEARN_EVERY_S:
                self._learn()
        while self.journal.draining and self._busy():
            time.sleep(0.01)  # the slice is over when all is recorded
        self._learn()
        return ran

    def _has_begun(self) -> bool:
        """Whether something has begun, or may have, that is still to run."""
        return bool(self._next or self._following or self._coming)

    def _next_begun(self, wait_s: float) -> Begun | None:
        """The batch that runs next: what follows or was started ahead, what came in the place of another, or a new one."""
        begun, self._following = self._following, None
        if begun is not None:
            return begun
        if self._next is not None:
            ahead, self._next = self._next, None
            return ahead.result()
        if self._coming:
            begun = self._coming.popleft().result()
            if begun is None:
                self._asks = time.monotonic() + ASK_AGAIN_S
                return None
            self._tell_begun(begun.started)
            return begun
        return self._begin(self.store, min(wait_s, IDLE_BLOCK_S))

    def _shares(self) -> bool:
        """Whether coroutines or threads run beside the task, so that nobody can tell which used what."""
        return self.beside is not None and self.beside.busy()

    def _busy(self) -> bool:
        return not self.recorder.idle() or self._shares()

    def _claim_slot(self) -> bool:
        """Take the journal's slots over once the agent has settled what a predecessor left in them."""
        give_up = time.monotonic() + 5.0
        while any(slot.pid not in (0, os.getpid()) for slot in self.slots):
            if time.monotonic() > give_up:
                log.error("slot %s is still unsettled", self.slot.index)
                return False
            time.sleep(0.01)
        self.table.clear()
        for slot in self.slots:
            slot.settle()
            slot.pid = os.getpid()
        self._claimed_slot = True
        gc.freeze()  # what is loaded stays: no search for garbage need pass through it, nor copy its pages
        if self.beside is not None:
            self.beside.start()
        return True

    def _take(self, wait_s: float) -> tuple[list[tuple[str, int]], int]:
        """Take one batch of claims, waiting a limited time for the first; returns it and how many are left."""
        node_id = self.journal.node_id
        try:
            if self._more or not wait_s:
                claims, left = self.queues.take(node_id, WorkKind.PROCESS)
                self._more = left > 0
                if claims or not wait_s:
                    return claims, left
            claims, left = self.queues.wait(node_id, max(0.05, wait_s), crowd_s=CROWD_S)
            self._more = left > 0
            return claims, left
        except redis.RedisError as error:
            self._more = True
            log.warning("Redis is away: %s", error)
            time.sleep(min(wait_s, 0.2))
            return [], 0

    def _begin(self, store: WorkStore, wait_s: float) -> Begun | None:
        """Take one batch, note it, and start it."""
        node_id = self.journal.node_id
        claims, waiting = self._take(wait_s)
        if not claims:
            return None
        slot = self.recorder.slot()
        slot.open(claims)
        try:
            started = self._start(store, node_id, claims, slot)
        except BaseException:
            self.recorder.give_back(slot)  # what may have been started is found by the agent and handed back
            raise
        if started and len(started) != len(claims):
            slot.narrow([(s.task_id, s.fence) for s in started])
        return self._begun(slot, node_id, started, waiting)

    def _begun(self, slot: Slot, node_id: int, started: Sequence[Started], waiting: int) -> Begun | None:
        """What was started, of which those who follow it are told; ``None`` when that is nothing."""
        if not started:
            self.recorder.give_back(slot)
            return None
        self._tell_begun(started)
        return Begun(slot, node_id, started, waiting)

    def _tell_begun(self, started: Sequence[Started]) -> None:
        if self.journal.watched:
            self.queues.tell([task.begun() for task in started], room=False)

    def _batch(self, begun: Begun, *, last: bool) -> int:
        """Run one batch, and give it to the recorder; unless it is the ``last``, start the next one meanwhile."""
        self.slot, started = begun.slot, begun.started
        batched = len(started) > 1
        few = begun.waiting < self.low_water and begun.waiting * self._each_s < self.low_water_s
        if batched and few and not begun.in_place:
            self.store.tell_room()
        ahead_at = len(started) - 1 - int(AHEAD_S / self._each_s) if self._each_s else 0
        ahead = (
            batched and not last and not self._coming and (begun.waiting > 0 or len(started) * self._each_s > WORTH_S)
        )
        signal.setitimer(signal.ITIMER_REAL, LONG_CHECK_S, LONG_CHECK_S)
        measured = not batched and not self._shares()
        if measured:
            self.meter.begin()
        try:
            ended, recorded = self._run(started, max(0, ahead_at) if ahead else -1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if measured and ended and not self._shares():
            self.meter.end(ended[0])
        if ended:
            self._each_s = (ended[-1].finished_at - ended[0].started_at) / len(ended)
        heard = list(zip(started, ended, strict=False)) if self.journal.listened else []
        new = ended[recorded:] if recorded else ended
        if batched and not last and not recorded and self._may_go_on(begun, ended):
            coming: Future[Begun | None] = Future()
            self._coming.append(coming)
            self.recorder.put(begun.slot, begun.node_id, new, heard, hint=False, goes_on=coming)
        elif batched or last or not self._goes_on(begun, new, heard):
            self.recorder.put(begun.slot, begun.node_id, new, heard, hint=not batched or begun.in_place)
        is_new = not batched and self._told[started[0].tenant_id, started[0].handler] < LEARNT_FROM
        if time.monotonic() - self._learnt > (LEARN_FIRST_S if is_new else LEARN_EVERY_S):
            self._learn()
        return len(started)

    def _goes_on(self, begun: Begun, ended: Sequence[Finished], heard: Sequence[tuple[Started, Finished]]) -> bool:
        """Record a success and begin its only dependant, if it has one and nothing else waits here; False: not recorded.

        Without an answer what may have begun is asked for, before anybody else can release it; then it is recorded again.
        """
        claim = begun.started[0].next_claim()
        if claim is None or not ended or not ended[0].is_plain() or not self._is_free(begun.node_id):
            return False
        node_id, slot = begun.node_id, self.recorder.slot()
        slot.open([claim])
        recorded = False
        try:
            if output.waiting:
                output.flush()
            changes, task = self.store.record_and_follow(node_id, ended[0], claim)
            recorded = True
            self.recorder.tell(begun.slot, changes, heard, hint=task is None)
            started = [task] if task is not None else []
        except Exception as error:  # noqa: BLE001 - the recorder knows what to do about any
            log.warning("recording a task and beginning the next failed, trying again: %s", error)
            try:
                started = self._start(self.store, node_id, [claim], slot, asked=True)
            except BaseException:
                self.recorder.give_back(slot)
                self.recorder.put(begun.slot, node_id, ended, heard, hint=True)
                raise
        self._following = self._begun(slot, node_id, started, 0)
        return recorded

    def _may_go_on(self, begun: Begun, ended: Sequence[Finished]) -> bool:
        """Whether to ask for as many more in the place of a batch: it was a large one that has succeeded, and nothing waits
        here. The room of small ones goes back to rounds, which make large ones of it."""
        if time.monotonic() < self._asks or not self.journal.unheard or len(ended) != len(begun.started):
            return False
        self._largest = max(self._largest, len(ended))
        if len(ended) < LARGE * self._largest:
            return False
        return all(each.is_plain() for each in ended) and self._is_empty(begun.node_id)

    def _resume(self, node_id: int, claims: Sequence[tuple[str, int]], slot: Slot) -> Sequence[Started]:
        """Take over what a call without an answer has begun."""
        started = self._start(self.recorder.store, node_id, claims, slot, asked=True)
        if started and len(started) != len(claims):
            slot.narrow([(task.task_id, task.fence) for task in started])
        return started

    def _is_free(self, node_id: int) -> bool:
        """Whether nothing has been claimed for this child that would wait while it goes on by itself."""
        return self._next is None and not self._coming and self._is_empty(node_id)

    def _is_empty(self, node_id: int) -> bool:
        """Whether nothing lies in the node's queue, and the node goes on."""
        if self.journal.draining or node_id != self.journal.node_id:
            return False
        try:
            return self.queues.is_empty(node_id, WorkKind.PROCESS)
        except redis.RedisError:
            return False

    def _start(self, store: WorkStore, node_id: int, claims: Sequence[tuple[str, int]], slot: Slot, *,
               asked: bool = False) -> list[Started]:  # fmt: skip
        """Start what was taken from the queues; on a new connection if one breaks, as long as the claims last."""
        others = partial(self.journal.claims_of_others, slot=slot.index)
        starting = Starting(store, node_id, claims, WorkKind.PROCESS, others, asked=asked)
        ends, pause = time.monotonic() + self.conf.claim_ttl_s, 0.05
        while True:
            try:
                return starting()
            except store.faults as error:
                if time.monotonic() > ends or self.journal.node_id != node_id:
                    raise
                log.warning("starting %s tasks failed, trying again: %s", len(claims), error)
                time.sleep(pause)
                pause = min(1.0, pause * 2)

    def _run(self, started: Sequence[Started], ahead_at: int) -> tuple[list[Finished], int]:
        """Run a batch; with its task number ``ahead_at`` the next batch is asked for.

        Returns how its tasks have ended, and how many of those ends are recorded, because the journal was full.
        """
        ended: list[Finished] = []
        recorded = 0
        slot, bodies, store, worker, samples = self.slot, self.bodies, self.store, self.worker, self._samples
        now, unix, batched, yielded = time.monotonic, to_unix_s(), len(started) > 1, Outcome.YIELDED
        slot.base_mb, noted = self._base_mb(), now()
        for index, task in enumerate(started):
            began = now()
            if not slot.begin(index, task.cap_ms, began):
                break  # the agent has handed the rest back
            if index == ahead_at and not self.journal.draining:
                self._next = self._ahead.submit(self._begin, self._ahead_store, 0.0)
            self._running = index
            try:
                end = bodies.run(task, store)
            except TaskInterrupted:  # raised in the few instructions around the handler
                end = bodies.interrupted()
            finally:
                self._running = None
            over = now()
            if over - noted > LEAVES_S:
                slot.base_mb, noted = self._base_mb(), over
            ended.append(end.finished(task.task_id, task.fence, began + unix, over + unix, worker))
            if not slot.end(index, over, end.pack()):
                self.queues.tell(record(self.store, self.journal.node_id, ended[recorded:]), room=False)
                recorded = len(ended)
                slot.end(index, over, b"")
            if end.outcome is not yielded and (batched or pausing.resumed != task.task_id):
                samples[task.tenant_id, task.handler].append(over - began)
        return ended, recorded

    def _base_mb(self) -> int:
        """What the child holds beside its next task; -1 where others run beside it, who may leave more."""
        return -1 if self._shares() else self.meter.held_mb()

    # -- learning -----------------------------------------------------------------------------------------------------
    def _sample(self, task: Started, seconds: float) -> None:
        """Note the run time of a coroutine, which reports it from its thread: a lost sample does no harm."""
        self._samples[task.tenant_id, task.handler].append(seconds)

    def _learn(self) -> None:
        self._learnt = time.monotonic()
        if self._samples:
            samples, self._samples = self._samples, defaultdict(list)
            self.store.learn(samples)
            if len(self._told) > MOST_TOLD:
                self._told.clear()
            self._told.update({key: len(seconds) for key, seconds in samples.items()})

    def close(self) -> None:
        self.meter.close()
        self.store.close()
        self.client.close()
