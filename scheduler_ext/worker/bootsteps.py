"""Celery bootsteps: the node (journal, registration, agent) and the tokens that keep its children lent.

A worker of ours is an ordinary Celery worker with these two steps. Celery brings the pool, the remote control, the
events and the supervision of children; the ledger decides what they run.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import time
import uuid
from typing import Any

from celery import bootsteps
from celery.concurrency import prefork
from celery.worker import state

from scheduler_ext import forking
from scheduler_ext.core.errors import first_line
from scheduler_ext.core.types import PER_CHILD, WorkKind
from scheduler_ext.core.work import Export, NodeSpec
from scheduler_ext.dispatch.keys import KILLED_TASK, SLICE_TASK, token_queue
from scheduler_ext.dispatch.node_cleanup import forget_token_queues
from scheduler_ext.task import handlers
from scheduler_ext.worker import execution, process_state
from scheduler_ext.worker.agent.agent import LOST_NODE
from scheduler_ext.worker.agent.process import AgentProcess
from scheduler_ext.worker.consumer import OpenConsumer
from scheduler_ext.worker.journal import BATCHES, Journal

log = logging.getLogger(__name__)

AGENT_CHECK_S = 1.0
REGISTER_AGAIN_S = 1.0
"""While the ledger is away."""
TOKEN_CHECK_S = 1.0
AHEAD = 2
"""Tokens for each child: one that lends it, one that waits in the worker, so that no time passes between slices."""
AGENT_END_S = 10.0
"""Seconds added to the time to drain and to end what has not ended, for settling the accounts."""


def is_usable(worker: Any) -> bool:
    """Whether a worker can be a node."""
    transport = worker.app.connection_for_write().transport
    return issubclass(worker.pool_cls, prefork.TaskPool) and transport.driver_type == "redis"


class NodeStep(bootsteps.StartStopStep):
    """Registers the node before the children are forked, and keeps its agent running."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        """Make the journal: steps are made before any is started, so the children inherit it."""
        super().__init__(worker, **kwargs)
        self.engine = process_state.engine()
        self.agent: AgentProcess | None = None
        self.stopping = False
        self.slots = int(worker.concurrency or 1)
        self.script_slots = self.slots if self.engine.script_slots is None else self.engine.script_slots
        self.journal = Journal(BATCHES * self.slots)
        self.killed, self._killed_fd = os.pipe()
        for fd in (self.killed, self._killed_fd):
            os.set_blocking(fd, False)
        self.hostname = str(worker.hostname)
        worker.slackwater = self
        process_state.adopt(self.journal, self.hostname)
        if SLICE_TASK not in worker.app.tasks:
            execution.install(worker.app)
        forking.share()

    def include_if(self, worker: Any) -> bool:
        """Check the worker's kind: only forked children run durable tasks, and tokens travel through Redis alone."""
        usable = is_usable(worker)
        if not usable:
            log.error("this worker runs no durable tasks: it needs the pool prefork and a broker of Redis")
        return usable

    def create(self, worker: Any) -> Any:
        """Register the node, and wait for that as for a broker; nothing of ours is started by Celery itself."""
        while not self.register():
            time.sleep(REGISTER_AGAIN_S)
        return self

    def register(self) -> bool:
        """Register a new incarnation and tell the children its id; False while the ledger is away."""
        handlers.export_declared(self.engine.app)
        offered = {name: e for name, e in handlers.exported().items() if e.task in self.engine.app.tasks}
        spec = NodeSpec(
            name=self.hostname, hostname=socket.gethostname(), incarnation=str(uuid.uuid4()),
            cell=self.engine.conf.cell,
            capacity=self.engine.capacity(),
            slots=self.slots_by_kind(offered),
            labels=self.engine.labels, sandbox=self.engine.sandbox().level,
            enforced=self.engine.sandbox().enforced,
        )  # fmt: skip
        store = self.engine.node_store()
        try:
            node_id = store.register(spec, offered)
        except store.faults as error:
            log.warning("the node could not be registered, trying again: %s", first_line(error))
            return False
        finally:
            store.close()
        self.journal.lease_deadline = time.monotonic() + self.engine.conf.node_lease_s
        self.journal.agent_beat = time.monotonic()
        self.journal.draining = self.journal.activated = False
        self.journal.node_id = node_id
        log.info("registered as node %s, %s handlers", node_id, len(offered))
        return True

    def slots_by_kind(self, offered: dict[str, Export]) -> dict[WorkKind, int]:
        """Slots of each kind; kinds that share a child only where such a handler is exported."""
        slots = {WorkKind.PROCESS: self.slots, WorkKind.SCRIPT: self.script_slots}
        for kind in {export.kind for export in offered.values()} & set(PER_CHILD):
            slots[kind] = PER_CHILD[kind] * self.slots
            self.journal.beside = True
        return slots

    def start(self, worker: Any) -> None:
        self.launch()
        worker.timer.call_repeatedly(AGENT_CHECK_S, self.check, (worker,))

    def launch(self) -> None:
        """Start the agent; it holds the journal by descriptor and dies with this process."""
        self.agent = AgentProcess({
            "factory": self.engine.factory, "slots": self.journal.slots, "journal_fd": self.journal.fd,
            "node_id": self.journal.node_id, "hostname": self.hostname,
            "script_slots": self.script_slots, "master_pid": os.getpid(), "killed_fd": self._killed_fd,
        })  # fmt: skip

    def check(self, worker: Any) -> None:
        """Pass on which runs were killed; restart an agent that ended, after the loss of the node registered anew."""
        self._pass_on(worker)
        if self.stopping or self.agent is None or self.agent.poll() is None:
            return
        if self.agent.returncode == LOST_NODE:
            old = token_queue(self.journal.node_id)
            if not self.register():
                return
            consumer = worker.consumer
            if consumer is not None:
                consumer.cancel_task_queue(old)
                listen(consumer, self.journal.node_id)
        else:
            log.error("the agent ended with %s and is started again", self.agent.returncode)
        self.launch()

    def _pass_on(self, worker: Any) -> None:
        """A child tells hooks and receivers of the runs that ended with another child."""
        try:
            lines = os.read(self.killed, 1 << 16).decode().splitlines()
        except BlockingIOError:
            return
        try:
            with worker.app.connection_for_write() as connection:
                for line in lines:
                    arguments = (self.journal.node_id, *json.loads(line))
                    worker.app.send_task(KILLED_TASK, arguments, connection=connection)
        except (OSError, *worker.app.connection_for_write().transport.connection_errors) as error:
            log.warning("killed runs are told to nobody: %s", error)

    def stop(self, parent: Any) -> None:
        """Drain: the children take no more, the agent hands back what has not begun."""
        self.stopping = self.journal.draining = True
        if self.agent is None:
            return
        self.agent.send_signal(signal.SIGTERM)
        conf = self.engine.conf
        longest = conf.drain_grace_s + conf.cancel_grace_s + AGENT_END_S
        try:
            self.agent.wait(longest)
        except TimeoutError:
            log.error("the agent did not end in %s s", longest)  # noqa: TRY400 - its trace tells nothing
            self.agent.send_signal(signal.SIGKILL)
            self.agent.wait(longest)
        forget_token_queues(parent.app, [self.journal.node_id])

    close = terminate = stop
    """Drain when the worker closes, too; what cannot be finished is handed back."""


class TokenStep(bootsteps.StartStopStep):
    """Consumes the node's token queue and tops it up: every child is lent, and a lost token costs a second."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        """Begin to consume; called for each connection to the broker."""
        super().__init__(consumer, **kwargs)
        self._entry: Any = None
        self._connection: Any = None
        """For the tokens alone, and kept: opening one each second was most of what a resting worker did."""

    def include_if(self, consumer: Any) -> bool:
        """Whether the worker is a node."""
        return is_usable(consumer.controller)

    def start(self, consumer: Any) -> None:
        node = consumer.controller.slackwater
        listen(consumer, node.journal.node_id)
        self.top_up(consumer)
        self._entry = consumer.timer.call_repeatedly(TOKEN_CHECK_S, self.top_up, (consumer,))

    def top_up(self, consumer: Any) -> None:
        """Publish as many tokens as children are not lent, less those already in the queue."""
        node = consumer.controller.slackwater
        if node.journal.draining:
            return
        queue = token_queue(node.journal.node_id)
        lent = sum(1 for request in state.reserved_requests if request.name == SLICE_TASK)
        # A team's own worker may hold back messages that it has not read, for as long as its tokens wait.
        node.journal.wanted = isinstance(consumer, OpenConsumer) or lent < len(state.reserved_requests)
        if lent >= AHEAD * node.slots:
            return
        try:
            if self._connection is None:
                self._connection = consumer.app.connection_for_write()
            waiting = self._connection.default_channel.client.llen(queue)
            for _ in range(AHEAD * node.slots - lent - waiting):
                consumer.app.send_task(SLICE_TASK, (node.journal.node_id,), connection=self._connection)
        except consumer.connection_errors as error:
            log.debug("tokens not topped up: %s", error)
            self._disconnect(consumer)

    def _disconnect(self, consumer: Any) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError, *consumer.connection_errors):
                connection.close()

    def info(self, consumer: Any) -> Any:
        """The part of ``celery inspect stats`` that is ours."""
        return {
            "slackwater": {"node": consumer.controller.slackwater.journal.node_id, "refused": dict(consumer.refused)}
        }

    def stop(self, consumer: Any) -> None:
        if self._entry is not None:
            self._entry.cancel()
        self._disconnect(consumer)


def listen(consumer: Any, node_id: int) -> None:
    name = token_queue(node_id)
    consumer.add_task_queue(name, routing_key=name)
