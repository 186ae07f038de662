"""The agent: one process beside each worker. It renews the node's lease, watches the children, and runs scripts.

Forked by the worker's bootstep; it ends when the worker's master does, and then settles what the children left.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import redis
import redis.asyncio

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import first_line
from scheduler_ext.core.run_times import script_keys
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.types import WorkKind
from scheduler_ext.core.work import Changes, Finished
from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.queue_manager import QueueManager, decode
from scheduler_ext.dispatch.refusals import refusals
from scheduler_ext.ports import NodeStore, WorkStore
from scheduler_ext.sandbox.pool import SlotPool
from scheduler_ext.task import references
from scheduler_ext.task.output import output
from scheduler_ext.worker.agent.checkpoint_saver import Saving
from scheduler_ext.worker.agent.child_monitor import Watch, kill
from scheduler_ext.worker.agent.draining import Draining
from scheduler_ext.worker.agent.scripts import ScriptRun
from scheduler_ext.worker.child.claims import Claim, Starting
from scheduler_ext.worker.events import TaskEvents
from scheduler_ext.worker.journal import Journal

log = logging.getLogger(__name__)

POLL_S = 0.04
IDLE_POLL_S = 0.5
"""While nothing runs; what begins meanwhile is looked at that much later."""
BEAT_EVERY_S = 0.2
IDLE_BEAT_S = 1.0
POLL_SCRIPTS_S = 1.0
AWAIT_SCRIPT_S = 5.0
RECONCILE_EVERY_S = 5.0
OWN_PATTERNS = 1
"""Patterns subscribed to while nobody follows events: the workers' own remote control."""
LOST_NODE = 3
"""Exit code: the node was declared lost, and the worker registers anew."""


class Agent:
    """One node's agent. All ledger access is on one thread, in order; the event loop never blocks."""

    def __init__(self, conf: SchedulerConf, journal: Journal, node_id: int, work: WorkStore, nodes: NodeStore,
                 redis_url: str, sandbox: SlotPool, events: TaskEvents, script_slots: int,
                 master_pid: int, killed_fd: int) -> None:  # fmt: skip
        """``killed_fd``: the master reads there of the runs that ended with their process."""
        self.conf = conf
        self.journal = journal
        self.node_id = node_id
        self.work = work
        self.nodes = nodes
        self.redis_url = redis_url
        self.sandbox = sandbox
        refusals.also = journal.refuse
        self.events = events
        self.script_slots = script_slots
        self.master_pid = master_pid
        self.root = Path(tempfile.mkdtemp(prefix=f"slackwater-{node_id}-"))
        client = redis_client.connect(redis_url, socket_timeout=5.0, socket_connect_timeout=1.0)
        self.queues = QueueManager(client, conf)
        self.scripts: dict[tuple[str, int], ScriptRun] = {}
        self.killed_fd = killed_fd
        self.watch = Watch(conf, journal, work, self._publish, self.scripts, self._killed)
        self.script_tasks: set[asyncio.Task[None]] = set()
        self.ledger = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self.saving = Saving(conf, work)
        self.stopping = asyncio.Event()
        self.code = 0
        self.draining = Draining(conf, node_id, work, nodes, self.queues, self.watch, self.scripts, self._ledger,
                                 self._publish)  # fmt: skip
        self._drain: asyncio.Task[None] | None = None
        self._state_changed = asyncio.Event()
        self._unknown: set[tuple[str, int]] = set()
        self._wake = asyncio.Event()

    async def run(self) -> int:
        """Run until told to stop, or the master is gone, or the node was declared lost; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        jobs = [
            asyncio.create_task(job)
            for job in (
                self._beat(),
                self._lease(),
                self._orders(),
                self._look(),
                self._take_scripts(),
                self._listen(),
                self._reconcile(),
            )
        ]
        jobs.append(asyncio.create_task(self._stop()))
        try:
            done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            for job in done:
                if job.exception() is not None:
                    log.error("the agent stops: %s", job.exception(), exc_info=job.exception())
                    self.code = self.code or 1
        finally:
            for job in jobs:
                job.cancel()
            await self._end()
        return self.code

    async def _stop(self) -> None:
        """Drain for good once told to; the lease is renewed meanwhile."""
        await self.stopping.wait()
        self.journal.draining = True
        await self._begin_drain()
        await self.draining.finish()

    async def _ledger(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a ledger call on the ledger's thread; repeat it while the database is away."""
        pause = 0.1
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self.ledger, lambda: function(*args, **kwargs))
            except self.work.faults as error:
                log.warning("the database is away: %s", first_line(error))
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 2)

    # -- lease --------------------------------------------------------------------------------------------------------
    async def _lease(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.journal.activated:
            if not await self._ledger(self.nodes.activate, self.node_id):
                self.code = LOST_NODE
                return
            self.journal.activated = True
        while True:
            asked = time.monotonic()
            try:
                state = await loop.run_in_executor(None, self.nodes.renew, self.node_id, self._stats())
            except self.nodes.faults as error:
                log.warning("lease not renewed: %s", first_line(error))
                await asyncio.sleep(min(0.5, self.conf.node_renew_s))
                continue
            if state is None:
                log.error(
                    "node %s was declared lost: its children are stopped, the worker registers anew", self.node_id
                )
                self.code = LOST_NODE
                return
            # Counted from before the statement: the row cannot end sooner than this.
            self.journal.lease_deadline = asked + self.conf.node_lease_s
            await self._drain_or_resume(drain=state == "draining")
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout(self.conf.node_renew_s):
                    await self._state_changed.wait()
            self._state_changed.clear()

    async def _drain_or_resume(self, *, drain: bool) -> None:
        """Follow an administrator's word on the node; the ledger may take its time, the lease does not wait."""
        if drain == self.journal.draining or self.stopping.is_set():
            return
        self.journal.draining = drain
        if drain:
            self._drain = asyncio.create_task(self._begin_drain())
        else:
            self._wake.set()

    async def _begin_drain(self) -> None:
        await self.draining.begin()
        await self._follow()

    async def _beat(self) -> None:
        """Tell the children, and who keeps scripts, that their agent lives, however long the ledger takes to answer.

        An agent that wakes after all of its machine was stopped for longer than the lease says so only once the lease
        holds again: whichever of them wakes first, no child acts before it has looked, and no script for longer than
        its keeper's next look.
        """
        while True:
            now = time.monotonic()  # once: a stop between a look and the word would be passed over
            if not self.journal.is_forsaken(self.conf.node_lease_s, now):
                self.journal.agent_beat = now
            for run in self.scripts.values():
                self._beat_for(run, now)
            await asyncio.sleep(BEAT_EVERY_S if self.scripts or self.watch.busy() else IDLE_BEAT_S)

    def _beat_for(self, run: ScriptRun, now: float) -> None:
        if self.journal.is_forsaken(self.conf.node_lease_s, now):
            run.abandon()
        else:
            run.beat(now, self.journal.lease_deadline)

    async def _orders(self) -> None:
        """Read what the ledger wants of this node; apart from the lease, which a slow ledger must not cost."""
        while True:
            self.journal.unheard = not await self._ledger(self.work.listened)
            if self.scripts or not self.watch.rests():
                await self._follow()
            if self.journal.draining:
                await self.draining.give_back()
            await asyncio.sleep(self.conf.node_renew_s)

    def _stats(self) -> dict[str, Any]:
        memory = psutil.virtual_memory()
        return {
            "busy": self.watch.busy(), "slots": self.journal.children, "scripts": len(self.scripts),
            "load1": round(os.getloadavg()[0], 2), "memory_used_mb": (memory.total - memory.available) >> 20,
            "refused": self.journal.refused(),
        }  # fmt: skip

    async def _follow(self) -> None:
        """Pass on what is asked of the tasks that run here: to end, to yield, to make room."""
        asked = await self._ledger(self.nodes.asked, self.node_id)
        self.watch.used_ms = {(one.task_id, one.fence): one.used_ms for one in asked}
        self.watch.asked = {(one.task_id, one.fence): one.outcome for one in asked if one.outcome is not None}
        for key in set(self.watch.asked) & set(self.scripts):
            self.scripts[key].stop(self.watch.asked[key])

    # -- children -----------------------------------------------------------------------------------------------------
    async def _look(self) -> None:
        while True:
            if self._is_orphan():
                log.warning("the worker is gone")
                return
            rests = self.watch.rests()
            if not rests:  # else there is nothing to settle, and no thread need be asked
                await self._ledger(self.watch.look)
            await asyncio.sleep(IDLE_POLL_S if rests or not self.watch.busy() else POLL_S)

    def _is_orphan(self) -> bool:
        """Whether the worker is gone: another process is this one's parent then."""
        return os.getppid() != self.master_pid

    async def _reconcile(self) -> None:
        """Hand back what the ledger says runs here and neither journal nor agent knows, twice in a row."""
        while True:
            await asyncio.sleep(RECONCILE_EVERY_S)
            held = await self._ledger(self.work.held, self.node_id)
            unknown = {(task_id, fence) for task_id, fence, state in held if state == 5} - self._held()
            lost = unknown & self._unknown
            self._unknown = unknown - lost
            if lost:
                reason = "handed back: its worker does not know it"
                await self._tell(await self._ledger(
                    self.work.hand_back, self.node_id, sorted(lost), running=True, reason=reason, alone=True
                ))  # fmt: skip

    # -- scripts ------------------------------------------------------------------------------------------------------
    async def _take_scripts(self) -> None:
        client = redis_client.connect_async(
            self.redis_url, socket_timeout=2 * AWAIT_SCRIPT_S, socket_connect_timeout=1.0
        )
        names: Any = list(self.queues.keys.node_claims(self.node_id, WorkKind.SCRIPT))
        waits = False
        while True:
            if len(self.script_tasks) >= self.script_slots or self.journal.draining:
                self._wake.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    async with asyncio.timeout(POLL_SCRIPTS_S):
                        await self._wake.wait()
                continue
            try:
                if waits:
                    found: Any = await client.blpop(names, timeout=AWAIT_SCRIPT_S)
                    claims = decode([found[1]]) if found else []
                else:  # it throws out what is no claim, too
                    claims, _ = await asyncio.to_thread(self.queues.take, self.node_id, WorkKind.SCRIPT, most=1)
                    waits = not claims
            except (redis.RedisError, OSError) as error:
                log.warning("Redis is away: %s", error)
                waits = False
                await asyncio.sleep(POLL_SCRIPTS_S)
                continue
            if claims and not self.journal.draining:  # else it is handed back with all that has not begun
                await self._start_scripts(claims)

    async def _start_scripts(self, claims: Sequence[Claim]) -> None:
        """Start what was taken from the queues."""
        for started in await self._ledger(Starting(self.work, self.node_id, claims, WorkKind.SCRIPT, self._held)):
            if self.journal.watched:
                await self._tell([started.begun()])
            details = await self._ledger(self.work.script, started.task_id)
            upstream = await self._ledger(self.work.upstream, started.task_id)
            known = await self._ledger(self.work.parents, started.task_id) if references.refers(started) else {}
            saves = await self.saving.of(started, details) if details.checkpoints else None
            run = ScriptRun(
                self.conf, started, details, self.sandbox, self.root, upstream, known, saves,
                lease_s=self.conf.node_lease_s,
            )  # fmt: skip
            self._beat_for(run, time.monotonic())
            self.scripts[started.task_id, started.fence] = run
            job = asyncio.create_task(self._run_script(run))
            self.script_tasks.add(job)
            job.add_done_callback(self._script_done)

    def _held(self) -> set[tuple[str, int]]:
        return self.journal.claims_of_others() | set(self.scripts)

    def _script_done(self, job: asyncio.Task[None]) -> None:
        self.script_tasks.discard(job)
        self._wake.set()

    async def _run_script(self, run: ScriptRun) -> None:
        finished = await run.run()
        if run.artifacts is not None:
            unkept = await self.saving.artifacts(run.task, run.artifacts)
            # Who counts on a file must not be told that all went well without it.
            if unkept and finished.outcome is Outcome.SUCCEEDED:
                finished = replace(finished, outcome=Outcome.FAILED, result=None, error=unkept)
        if run.read_sha256:
            await self._ledger(
                self.work.script_read, run.task.task_id, run.task.fence, finished.started_at, run.read_sha256
            )
        await self._record([finished])
        if self.journal.listened:
            self.events.add(run.task, finished)
            await asyncio.to_thread(self.events.send)
        self.scripts.pop((run.task.task_id, run.task.fence), None)
        ran, task = [finished.finished_at - finished.started_at], run.task
        keys = script_keys(task.script_sha256, task.script_path, task.name)
        await self._ledger(self.work.learn, {(task.tenant_id, key): ran for key in keys})

    async def _record(self, finished: list[Finished]) -> None:
        if output.waiting:  # whoever sees the end finds all that was written before it
            with contextlib.suppress(*self.work.faults):  # then the lines come as soon as the ledger is back
                await asyncio.to_thread(output.flush)
        await self._tell(await self._ledger(self.work.record, self.node_id, finished))

    # -- Redis --------------------------------------------------------------------------------------------------------
    async def _listen(self) -> None:
        """Listen for cancellations and queued scripts; without Redis both are found too, only later."""
        while True:
            client = redis_client.connect_async(self.redis_url, socket_connect_timeout=1.0)
            try:
                async with client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(self.queues.keys.control(self.node_id))
                    while True:
                        message = await channel.get_message(timeout=1.0)
                        async with client.pipeline(transaction=False) as asked:
                            asked.pubsub_numpat()
                            asked.exists(self.queues.keys.watched())
                            patterns, watched = await asked.execute()
                        self.journal.listened, self.journal.watched = patterns > OWN_PATTERNS, bool(watched)
                        if message is None:
                            continue
                        if message["data"] == b"cancel":
                            await self._follow()
                        elif message["data"] == b"state":
                            self._state_changed.set()
                        else:
                            self._wake.set()
            except (redis.RedisError, OSError) as error:
                log.debug("not listening: %s", error)
                await asyncio.sleep(1.0)
            finally:
                with contextlib.suppress(redis.RedisError, OSError):
                    await client.aclose()

    async def _tell(self, changes: Changes) -> None:
        """Publish without letting a Redis that hangs hold up the caller."""
        await asyncio.to_thread(self._publish, changes)

    def _publish(self, changes: Changes) -> None:
        """Tell pollers of changes, and the dispatcher of free room."""
        if changes:
            self.queues.tell(changes, room=True)

    def _killed(self, task_id: str, tenant_id: int, outcome: Outcome) -> None:
        """Tell the master; a pipe that is full, or closed, costs the word and not the agent."""
        with contextlib.suppress(OSError):
            os.write(self.killed_fd, f"{json.dumps([task_id, tenant_id, int(outcome)])}\n".encode())

    # -- the end ------------------------------------------------------------------------------------------------------
    async def _end(self) -> None:
        """Settle what the children left, and deregister; without a master, or a lease, the children are ended first.

        A master that died without being told to stop leaves a node that is lost: somebody misses it.
        """
        self.journal.draining = True
        with contextlib.suppress(*self.work.faults, redis.RedisError, asyncio.TimeoutError):
            async with asyncio.timeout(20.0):
                await self._settle()
        await asyncio.to_thread(shutil.rmtree, self.root, ignore_errors=True)
        self.ledger.shutdown(wait=False, cancel_futures=True)
        self.saving.close()

    async def _settle(self) -> None:
        lost = self.code == LOST_NODE
        if not lost:
            await self.draining.begin()
        if lost or self._is_orphan():
            self._kill_children()
        for run in self.scripts.values():
            if lost:
                run.abandon()
            else:
                run.stop(Outcome.PREEMPTED)
        if self.script_tasks:
            await asyncio.wait(self.script_tasks, timeout=self.conf.cancel_grace_s + 2)
        await self._wait_for_children()
        if not lost:
            died = self._is_orphan() and not self.stopping.is_set()
            await self._ledger(self.nodes.leave, self.node_id, lost=died)

    def _kill_children(self) -> None:
        for pid in {self.journal.slot(index).pid for index in range(self.journal.slots)} - {0}:
            kill(pid)

    async def _wait_for_children(self) -> None:
        """Wait until no batch is open; the accounts of dead children are settled on the way."""
        ends = time.monotonic() + 10.0
        while time.monotonic() < ends:
            await self._ledger(self.watch.look)
            if not self.watch.busy():
                return
            await asyncio.sleep(POLL_S)


def main(described: Mapping[str, Any]) -> int:
    """Run from the description that the worker's bootstep gives, to the exit code."""
    module, _, name = described["factory"].partition(":")
    engine = getattr(importlib.import_module(module), name)()
    output.open(partial(engine.work_store, f"agent {described['node_id']} output"))
    journal = Journal(described["slots"], fd=described["journal_fd"])
    agent = Agent(
        engine.conf, journal, described["node_id"], engine.work_store(f"agent {described['node_id']}"),
        engine.node_store(), engine.redis_url, engine.sandbox(),
        TaskEvents(engine.app, described["hostname"]), described["script_slots"], described["master_pid"],
        described["killed_fd"],
    )  # fmt: skip
    return asyncio.run(agent.run())
