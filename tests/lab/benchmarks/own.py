"""The platform itself as a peer. Variants: ``default``; ``coroutine``: the handler is an ``async def``; ``events``: a
listener to task events is connected, as Flower would be; ``says``: each task prints a line; ``deaf``: nothing is caught."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import redis
from django.db import connection

from slackwater.local.components import Layout, celery_command, components
from slackwater_conf import conf
from slackwater_tasks.submission.service import submit, submit_many
from tests.lab.benchmarks import ground, handlers, rest
from tests.lab.benchmarks.peer import Config, Peer
from tests.lab.benchmarks.workloads import BLOCK, WORKLOADS, item

TENANTS = 3
CHUNK = 1000
PARTS = ("dispatcher", "worker-1", "upkeep")
RECORDED = "SELECT sum(unfinished)::bigint FROM slackwater_tenants_currentcounter"
HANDLERS = {"coroutine": "bench.awork", "says": "bench.says"}
"""Those that are not ``bench.work``, by variant."""
ENDED = "SELECT count(*) FROM slackwater_tasks_task WHERE state IN (6, 7)"


class Slackwater(Peer):
    """Dispatcher, upkeep and one worker; no API, beat or Flower unless they are what is measured."""

    packages = ("celery", "psycopg", "redis", "Django")
    durable = True

    def __init__(self, config: Config) -> None:
        """Django has been set up on the run's own servers."""
        super().__init__(config)
        self.workload = WORKLOADS[config.workload]
        self.accepted = 0
        self.handler = HANDLERS.get(config.variant, "bench.work")

    def setup(self) -> None:
        """An empty database with three tenants."""
        ground.prepare()
        self.tenants = ground.tenants(TENANTS)

    def reset(self) -> None:
        """Empty the ledger and Redis, which are this run's own."""
        ground.empty()
        with redis.Redis.from_url(conf().redis_url) as client:
            client.flushdb()
        self.accepted = 0

    def workers(self) -> Mapping[str, list[str]]:
        """The commands that `make up` uses."""
        layout = Layout(host="127.0.0.1", port=0, flower_port=0, workers=1, concurrency=self.config.concurrency)
        known = {c.name: list(c.command) for c in components(layout)}
        commands = {name.removesuffix("-1"): known[name] for name in PARTS}
        if self.config.variant == "events":
            commands["listener"] = list(celery_command("events", "--dump"))
        if self.config.variant == "deaf":
            commands["worker"] = ["env", f"{handlers.DEAF}=1", *commands["worker"]]
        return commands

    def submit(self, number: int) -> None:
        """One task over the Python call."""
        submit(self.tenants[number % TENANTS], item(self.workload, number, handler=self.handler, alone=True))
        self.accepted += 1

    def submit_bulk(self, first: int, end: int) -> None:
        """Chunks, one for each tenant in turn. Graphs only where it holds whole blocks."""
        for start in range(first, end, CHUNK):
            upto = min(end, start + CHUNK)
            whole = start % BLOCK == 0 and upto % BLOCK == 0
            items = [item(self.workload, n, handler=self.handler, alone=not whole) for n in range(start, upto)]
            submit_many(self.tenants[start // CHUNK % TENANTS], items)
            self.accepted += len(items)

    def recorded(self) -> int:
        """By the tenants' counters, which a finish lowers in its own transaction; by the tasks at the end."""
        with connection.cursor() as cur:
            cur.execute(RECORDED)
            unfinished = int(cur.fetchone()[0])
            if unfinished:
                return self.accepted - unfinished
            cur.execute(ENDED)
            return int(cur.fetchone()[0])

    def extra(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        """Submission over REST."""
        return {"submit-rest": lambda: rest.measure(self)}
