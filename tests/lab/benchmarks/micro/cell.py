"""A cell by hand: one dispatcher's parts and one node, in this process, on the real ledger and Redis."""

from __future__ import annotations

import socket
import uuid
from dataclasses import replace
from typing import Any

from django.db import connection

import tests.lab.benchmarks.handlers  # noqa: F401 - registers what is submitted
from scheduler_ext.core.types import WorkKind
from scheduler_ext.core.work import NodeSpec
from scheduler_ext.dispatch.queue_manager import QueueManager
from scheduler_ext.task import handlers
from slackwater.wiring import engine
from slackwater_resources.models import Handler
from slackwater_resources.registry import PgNodeStore
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.runtime.work_store import PgWorkStore
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.micro.meter import Meter

HOLDER = "bench"
HANDLER = "bench.nothing"
ROOMY = (10_000_000, 10_000_000, 10_000_000, 10_000_000, 1_000_000_000, 1_000_000)
LEARN = """
INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at)
SELECT id, %s, 1000, 5, now() FROM slackwater_tenants_tenant ON CONFLICT DO NOTHING
"""


class Cell:
    """Made on an empty database; leads at once."""

    def __init__(self, *, slots: int, **conf: Any) -> None:
        """A node with that many process slots and room for all; ``conf`` overrides the scheduler's settings."""
        ground.prepare()
        made = engine()
        self.conf = replace(made.conf, **conf)
        made.redis_client().flushdb()
        self.queues = QueueManager(made.redis_client(), self.conf)
        self.rounds = PgRoundStore(self.conf, HOLDER)
        self.work = PgWorkStore(self.conf, "bench")
        nodes = PgNodeStore(self.conf, Database("bench nodes"))
        exports = {HANDLER: handlers.exported()[HANDLER]}
        spec = NodeSpec(
            name="bench", hostname=socket.gethostname(), incarnation=str(uuid.uuid4()), cell=self.conf.cell,
            capacity=ROOMY, slots={WorkKind.PROCESS: slots}, labels=(), sandbox="process",
        )  # fmt: skip
        self.node_id = nodes.register(spec, exports)
        nodes.activate(self.node_id)
        nodes.close()
        self.handler_id = Handler.objects.get(name=HANDLER).pk
        self.epoch = self.rounds.lead(HOLDER).epoch

    def meter(self) -> Meter:
        """A meter of this process's sessions and of Redis."""
        backends = [store.db.conn.info.backend_pid for store in (self.rounds, self.work)]
        connection.ensure_connection()
        backends.append(connection.connection.info.backend_pid)
        said: Any = self.queues.client.info("server")
        return Meter(*backends, redis=int(said["process_id"]))

    def learn(self) -> None:
        """All tenants' tasks are known to be short, so that they may share a slot."""
        with connection.cursor() as cur:
            cur.execute(LEARN, (HANDLER,))
        self.rounds.reference.read_at = float("-inf")
