"""Tasks side by side in one child: coroutines in an event loop, and threads.

A thread of the child runs the loop. It takes as many claims as it has places, starts them in one statement, refills
singly as they end, and records what has ended in batches; where its node may go on by itself, as many more begin in the
place of those. Each task has a cap and can be cancelled by itself; what does not end then takes the child with it, which is
why only idempotent handlers may share one this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis
import redis.asyncio

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.types import PER_CHILD, WorkKind
from scheduler_ext.core.work import Changes, Finished, Started
from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.queue_manager import QueueManager
from scheduler_ext.ports import WorkStore
from scheduler_ext.task.context import TaskInterrupted
from scheduler_ext.worker.child.claims import Starting
from scheduler_ext.worker.child.handler_call import WORDS, Bodies, End
from scheduler_ext.worker.child.recorder import Recorder
from scheduler_ext.worker.events import TaskEvents
from scheduler_ext.worker.journal import Journal, Table, to_unix_s

log = logging.getLogger(__name__)

WATCH_S = 0.05
GATHER_S = 0.002
"""Tasks that end within this many seconds of one another are recorded together."""
IDLE_S = 5.0
MANY = 8
"""So many plain successes of coroutines that are recorded together ask for as many more in their place."""
ASK_AGAIN_S = 0.05
"""How long a child whose node might not go on by itself does not ask again."""


@dataclass(slots=True)
class _Running:
    """A task that runs here."""

    task: Started
    kind: WorkKind
    place: int
    deadline: float
    job: asyncio.Task[None] | None = None
    thread: int | None = None
    outcome: Outcome | None = None


class Beside:
    """The loop of one child. :meth:`start` once; it lives as long as the child."""

    def __init__(self, conf: SchedulerConf, journal: Journal, table: Table, bodies: Bodies, store: WorkStore,
                 queues: QueueManager, events: TaskEvents, redis_url: str, kinds: Sequence[WorkKind], worker: str,
                 sample: Callable[[Started, float], None], recorder: Recorder) -> None:  # fmt: skip
        """``kinds``: those of which this process exports handlers. ``sample`` gets each run time.

        ``store`` is for starts and for what tasks ask; the ``recorder``'s thread records meanwhile.
        """
        self.conf = conf
        self.journal = journal
        self.table = table
        self.bodies = bodies
        self.store = store
        self.queues = queues
        self.events = events
        self.redis_url = redis_url
        self.kinds = tuple(kinds)
        self.worker = worker
        self.sample = sample
        self.recorder = recorder
        self.running: dict[int, _Running] = {}
        self._ended: list[tuple[_Running, Finished]] = []
        self._recorded: list[tuple[_Running, Finished]] = []
        """What is being recorded."""
        self._recording: tuple[_Places | None, Future[tuple[Changes, Sequence[Started]]]] | None = None
        """Where what begins in their place is noted, and what comes of it: for the next loop too, if this one fails."""
        self._asks = 0.0
        """From when on to ask for more in the place of others."""
        self._ledger = ThreadPoolExecutor(1, thread_name_prefix="beside-ledger")
        self._threads = ThreadPoolExecutor(PER_CHILD[WorkKind.THREAD], thread_name_prefix="beside-task")
        self._thread = threading.Thread(target=self._main, name="beside", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def busy(self) -> bool:
        """True while something runs or is not recorded yet."""
        return bool(self.running or self._ended or self._recorded)

    def _main(self) -> None:
        while True:
            try:
                asyncio.run(self._run())
            except Exception:
                log.exception("the loop of tasks beside one another failed and starts again")
                time.sleep(1.0)

    async def _run(self) -> None:
        self._some_ended, self._some_run = asyncio.Event(), asyncio.Event()
        self._room = {kind: asyncio.Event() for kind in self.kinds}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._record_loop())
            group.create_task(self._watch())
            for kind in self.kinds:
                group.create_task(self._take_loop(kind))

    async def _in_ledger(self, function: Any, *args: Any) -> Any:
        """Make a ledger call on its own thread; repeat it while the database is away."""
        pause = 0.1
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._ledger, lambda: function(*args))
            except self.store.faults as error:
                log.warning("the database is away: %s", error)
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)

    # -- taking -------------------------------------------------------------------------------------------------------
    def _free(self, kind: WorkKind) -> int:
        ended = (entry for entry, _ in (*self._ended, *self._recorded))
        used = sum(1 for entry in (*self.running.values(), *ended) if entry.kind is kind)
        return min(PER_CHILD[kind] - used, len(self.table.free))

    async def _take_loop(self, kind: WorkKind) -> None:
        client = redis_client.connect_async(self.redis_url, socket_timeout=2 * IDLE_S, socket_connect_timeout=2.0)
        while True:
            if self.journal.draining or (free := self._free(kind)) <= 0:
                self._room[kind].clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(WATCH_S):
                        await self._room[kind].wait()
                continue
            node_id = self.journal.node_id
            try:
                claims = await self.queues.wait_beside(client, node_id, kind, most=free, wait_s=IDLE_S)
            except (redis.RedisError, OSError) as error:
                log.warning("Redis is away: %s", error)
                await asyncio.sleep(1.0)
                continue
            if claims and not self.journal.draining:  # else they are handed back with all that has not begun
                await self._begin(node_id, kind, claims)

    async def _begin(self, node_id: int, kind: WorkKind, claims: Sequence[tuple[str, int]]) -> None:
        noted = _Places(self, node_id, kind)
        noted.note(claims)
        await self._run_all(noted, await self._in_ledger(noted.starting(self.store)))

    async def _run_all(self, noted: _Places, started: Sequence[Started]) -> None:
        """Run what has begun of what is noted; the rest was cancelled or claimed anew meanwhile."""
        places, kind = noted.places, noted.kind
        for task in started:
            place = places.pop((task.task_id, task.fence))
            entry = _Running(task, kind, place, time.monotonic() + task.cap_ms / 1000)
            self.running[place] = entry
            self._some_run.set()
            self.table.begin(place, task.cap_ms, time.monotonic())
            if kind is WorkKind.COROUTINE:
                entry.job = asyncio.create_task(self._coroutine(entry))
            else:
                self._threads.submit(self._threaded, entry, asyncio.get_running_loop())
        if started and self.journal.watched:
            await asyncio.to_thread(self.queues.tell, [task.begun() for task in started], room=False)
        for place in places.values():
            self.table.release(place)

    # -- running ------------------------------------------------------------------------------------------------------
    async def _coroutine(self, entry: _Running) -> None:
        began = time.monotonic()
        try:
            end = await self.bodies.run_coroutine(entry.task, self.store)
        except asyncio.CancelledError:
            end = End(Outcome.CANCELLED, error=WORDS[Outcome.CANCELLED])
        self._done(entry, began, end)

    def _threaded(self, entry: _Running, loop: asyncio.AbstractEventLoop) -> None:
        began = time.monotonic()
        entry.thread = threading.get_ident()
        try:
            end = self.bodies.run_in_thread(entry.task, self.store)
        except TaskInterrupted:
            end = End(Outcome.CANCELLED, error=WORDS[Outcome.CANCELLED])
        finally:
            entry.thread = None
        loop.call_soon_threadsafe(self._done, entry, began, end)

    def _done(self, entry: _Running, began: float, end: End) -> None:
        if entry.outcome is not None and end.outcome is not Outcome.SUCCEEDED:
            end = End(entry.outcome, error=WORDS[entry.outcome])
        now, unix = time.monotonic(), to_unix_s()
        self.table.end(entry.place, now, end.pack())
        finished = end.finished(entry.task.task_id, entry.task.fence, began + unix, now + unix, self.worker)
        self.running.pop(entry.place, None)
        self._ended.append((entry, finished))
        self.sample(entry.task, now - began)
        if self.journal.listened:
            self.events.add(entry.task, finished)
        self._some_ended.set()

    # -- recording ----------------------------------------------------------------------------------------------------
    async def _record_loop(self) -> None:
        if self._ended:  # of a loop that failed
            self._some_ended.set()
        while True:
            if self._recording is None:
                await self._some_ended.wait()
                await asyncio.sleep(GATHER_S)
                self._some_ended.clear()
                self._recorded, self._ended = self._ended, []
                if not self._recorded:
                    continue
                node_id, ended = self.journal.node_id, [finished for _, finished in self._recorded]
                noted = self._may_go_on(node_id)
                self._recording = noted, self.recorder.beside(node_id, ended, noted)
            noted, recording = self._recording
            try:
                changes, started = await asyncio.shield(asyncio.wrap_future(recording))
            except Exception:  # to record them again is safe
                self._recorded, self._ended, self._recording = [], self._recorded + self._ended, None
                raise
            self._recording, room = None, len(started) < len(self._recorded)
            for entry, _ in self._recorded:
                self.table.release(entry.place)
            self._recorded = []
            if noted is not None:
                if not started:
                    self._asks = time.monotonic() + ASK_AGAIN_S
                await self._run_all(noted, started)
            for each in self._room.values():
                each.set()
            await asyncio.to_thread(self._tell, changes, room=room)

    def _may_go_on(self, node_id: int) -> _Places | None:
        """Where to note what begins in the place of what is recorded; ``None`` where that is not asked for."""
        if time.monotonic() < self._asks or self.journal.draining or not self.journal.unheard:
            return None
        plain = sum(entry.kind is WorkKind.COROUTINE and finished.is_plain() for entry, finished in self._recorded)
        return _Places(self, node_id, WorkKind.COROUTINE) if plain >= MANY else None

    def _tell(self, changes: Changes, *, room: bool) -> None:
        try:
            if changes or room:
                self.queues.tell(changes, room=room)
            self.events.send()
        except Exception:  # the loop, and all that runs in it, is worth more
            log.exception("what has ended could not be told")

    # -- caps and cancels ---------------------------------------------------------------------------------------------
    async def _watch(self) -> None:
        """Enforce each task's cap and cancellation; the agent kills the child if one does not end then."""
        while True:
            if not self.running:
                self._some_run.clear()
                await self._some_run.wait()
            await asyncio.sleep(WATCH_S)
            if self.running:
                self.journal.stop_without_lease(self.conf.node_lease_s)
            now = time.monotonic()
            for entry in list(self.running.values()):
                if entry.outcome is not None:
                    continue
                if now >= entry.deadline:
                    self._end(entry, Outcome.CAP_EXCEEDED)
                elif self.table.cancelled(entry.place):
                    self._end(entry, Outcome.CANCELLED)

    def _end(self, entry: _Running, outcome: Outcome) -> None:
        entry.outcome = outcome
        if entry.job is not None:
            entry.job.cancel()
        elif entry.thread is not None:
            # The only way to interrupt a thread: an exception at its next instruction of Python.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(entry.thread), ctypes.py_object(TaskInterrupted))


class _Places:
    """Places of the table where claims are noted before they begin."""

    def __init__(self, beside: Beside, node_id: int, kind: WorkKind) -> None:
        self.beside = beside
        self.node_id = node_id
        self.kind = kind
        self.places: dict[tuple[str, int], int] = {}

    def note(self, claims: Sequence[tuple[str, int]]) -> None:
        table = self.beside.table
        self.places.update({(task_id, fence): table.note(task_id, fence) for task_id, fence in claims})

    def starting(self, store: WorkStore, *, asked: bool = False) -> Starting:
        """The start of what is noted."""
        others = partial(self.beside.journal.claims_of_others, table=self.beside.table.index)
        return Starting(store, self.node_id, list(self.places), self.kind, others, asked=asked)

    def resume(self) -> Sequence[Started]:
        return self.starting(self.beside.recorder.store, asked=True)() if self.places else []
