"""A great many tasks in one run while workers are killed all the time: what is on record, and what memory it takes."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import redis
from django.db import connection

import tests.lab.benchmarks.handlers  # noqa: F401 - registers what is submitted
from slackwater_conf import conf
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.models import Tenant
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.account import name_of, own_memory_mb, parent_of
from tests.lab.benchmarks.filling import require_room
from tests.lab.benchmarks.live import ledger
from tests.lab.benchmarks.live.parts import Parts, number, tell
from tests.lab.benchmarks.peer import report

TENANTS = 3
CHUNK = 1000
LOOK_S = 1.0
REST_S = 0.02
STUCK_S = 180.0
ATTEMPTS = 20
"""So many that no task fails for being killed under a worker again and again."""
ROWS_A_TASK = 3
GROWTH = 1.1
PART = 0.9
"""A process's memory in a third: what it was at or below for so much of the time. A worker that has just been started
again does not lower it, a single peak does not raise it."""

AT_WORK = """
SELECT name, extract(epoch FROM started_at)::float8 FROM slackwater_resources_node WHERE state = 'active' ORDER BY started_at
"""

Sample = tuple[float, dict[str, float]]


def run(tasks: int, every_s: int, workers: int, children: int, backlog: int) -> None:
    """``tasks`` no-op tasks, ``backlog`` at most submitted and unfinished; each ``every_s`` a worker is killed.

    The one that has been at work longest: one that still starts has nothing to lose. While none is at work, none is
    killed; ``kills`` says how many were.
    """
    require_room(tasks * ROWS_A_TASK)
    ground.prepare()
    with redis.Redis.from_url(conf().redis_url) as client:
        client.flushdb()
    parts = Parts(workers=workers, children=children)
    with parts.running():
        play = _Play(parts, ground.tenants(TENANTS), tasks, every_s, backlog)
        play.run()
    said = ledger.record(play.handed)
    memory = thirds(play.samples, play.began, play.over)
    worst = max(memory, key=lambda name: memory[name]["ratio"])
    pace = (play.over - play.began) / max(1, play.kills)
    report(
        "RESULT", tasks=tasks, seconds=round(play.over - play.began, 1),
        tasks_per_s=round(said["succeeded"] / (play.over - play.began), 1), kills=play.kills,
        seconds_a_kill=round(pace, 1), **said,
        memory_mb=memory, most_growth=memory[worst]["ratio"], most_growth_of=worst,
        verdict={
            f"{tasks:,} succeeded exactly once on record": said["succeeded"] == said["stored"] == tasks
            and said["lost"] == said["twice"] == said["unfinished"] == 0,
            f"a worker killed every {every_s} s": pace <= 1.5 * every_s,
            f"memory of each process in the last third at most {GROWTH} × the first": memory[worst]["ratio"] <= GROWTH,
        },
    )  # fmt: skip


@dataclass(slots=True)
class _Play:
    """One run: submit, kill, look, each when it is time."""

    parts: Parts
    tenants: Sequence[Tenant]
    tasks: int
    every_s: float
    backlog: int
    handed: int = 0
    kills: int = 0
    began: float = 0.0
    over: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    killed: dict[str, float] = field(default_factory=dict)
    """When each worker was killed last, by the wall clock."""

    def run(self) -> None:
        servers = _servers()
        self.began = moved = killed = time.monotonic()
        done, looked = 0, 0.0
        while done < self.tasks:
            now = time.monotonic()
            if now - killed >= self.every_s and self._kill():
                killed = now
            if now - looked >= LOOK_S:
                looked = now
                self._look(servers)
                tell("no-op tasks", done, self.tasks)
            count = self.handed - number(ledger.UNFINISHED)
            if count > done:
                done, moved = count, now
            elif now - moved > STUCK_S:
                break
            if self.handed < self.tasks and self.handed - done < self.backlog:
                self._hand_in()
            else:
                time.sleep(REST_S)
        self.over = time.monotonic()
        self._look(servers)

    def _look(self, servers: dict[str, int]) -> None:
        roots = {**self.parts.pids, **servers, "producer": os.getpid()}
        self.samples.append((time.monotonic(), _memory(roots)))

    def _hand_in(self) -> None:
        count = min(CHUNK, self.tasks - self.handed)
        tenant = self.tenants[self.handed // CHUNK % len(self.tenants)]
        submit_many(tenant, [{"handler": "bench.nothing", "total_attempts": ATTEMPTS}] * count)
        self.handed += count

    def _kill(self) -> bool:
        with connection.cursor() as cur:
            cur.execute(AT_WORK)
            rows = cur.fetchall()
        for node, since in rows:
            name = "worker-" + node.partition("@")[0].removeprefix("worker")
            if since > self.killed.get(name, 0.0):  # else it is the one that was killed, whose lease still runs
                self.killed[name] = time.time()
                self.parts.kill(name)
                self.kills += 1
                return True
        return False


def thirds(samples: Sequence[Sample], began: float, over: float) -> dict[str, dict[str, float]]:
    """By process name: MiB in the first and in the last third of the run, and their ratio.

    A process with no sample in one of them is left out.
    """
    third = (over - began) / 3
    seen: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for at, sizes in samples:
        for name, size in sizes.items():
            if at < began + third:
                seen[name][0].append(size)
            elif at >= over - third:
                seen[name][1].append(size)
    found = {}
    for name, (first, last) in sorted(seen.items()):
        if first and last:
            a, b = _at_most(first), _at_most(last)
            found[name] = {"first": a, "last": b, "ratio": round(b / a, 3)}
    return found


def _at_most(sizes: Sequence[float]) -> float:
    return sorted(sizes)[min(len(sizes) - 1, int(PART * len(sizes)))]


def _memory(roots: dict[str, int]) -> dict[str, float]:
    """The largest process of each name; workers are one name, for each is killed in its turn."""
    largest: defaultdict[str, float] = defaultdict(float)
    for name, sizes in own_memory_mb(roots).items():
        first, _, rest = name.partition(" ")
        kind = f"worker {rest}".strip() if first.startswith("worker-") else name
        largest[kind] = max(largest[kind], *sizes)
    return dict(largest)


def _servers() -> dict[str, int]:
    """The servers, where they run on this machine."""
    with connection.cursor() as cur:
        cur.execute("SELECT pg_backend_pid()")
        postgres = parent_of(int(cur.fetchone()[0]))
    with redis.Redis.from_url(conf().redis_url) as client:
        emptied = int(client.info("server")["process_id"])
    found = {"postgres": postgres, "redis": emptied}
    return {name: pid for name, pid in found.items() if name_of(pid).startswith((name, "valkey"))}
