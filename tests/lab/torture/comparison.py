"""The workload of a run on Celery with its defaults on Redis, under those of the faults that it has parts for."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import celery.result
from celery import chord, group
from kombu.exceptions import OperationalError

from slackwater.settings.place import ROOT
from tests.lab.torture import faults, record
from tests.lab.torture.clients import Accepted
from tests.lab.torture.cluster import Cluster, Member
from tests.lab.torture.links import SERVERS, Links
from tests.lab.torture.plain import app, effect, flaky, join, long
from tests.lab.torture.record import Life
from tests.lab.torture.run import FAULT_S, Options
from tests.lab.torture.workload import FAILS, Submission, workload

KINDS = (
    "child killed", "child stopped", "worker killed", "worker stopped", "worker drained", "node vanished",
    "Redis restarted", "Redis killed", "Redis away", "Redis emptied", "Redis full",
    *faults.LINKS, "clock of a worker steps", "clock of Redis steps",
)  # fmt: skip
QUIET_S = 30.0
"""When nothing has happened for that long after the last fault, what is open is taken for lost or stuck."""
DRAIN_S = 120.0
TRIES = 40
AGAIN_S = 0.25
LOOK_S = 0.5


class PlainCluster(Cluster):
    """Redis and workers; no PostgreSQL, no platform."""

    def _start(self) -> None:
        if self.links:
            self.redis.address = SERVERS
        if self.clocks:
            self.redis.process.env |= self.clocks.env("redis")
        self.redis.start()
        self.env = self._env(self.redis.url)
        self.members = self._make_members()
        for member in self.members:
            if self.links:
                self._give_link(member, self.links)
            self.launch(member)
        self._keeper.start()

    @staticmethod
    def _env(url: str) -> dict[str, str]:
        return {
            **os.environ, "CELERY_BROKER_URL": url, "CELERY_RESULT_BACKEND": url,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}:{ROOT / 'apps'}",
        }  # fmt: skip

    def _give_link(self, member: Member, links: Links) -> None:
        member.link = int(member.name.rpartition("-")[2])
        member.prefix = tuple(links.join(member.link))
        url = self.redis.url_at(SERVERS)
        member.env = {"CELERY_BROKER_URL": url, "CELERY_RESULT_BACKEND": url}

    def _make_members(self) -> list[Member]:
        nodes, concurrency = self._layout
        worker = (sys.executable, "-W", "ignore", "-m", "celery", "-A", "tests.lab.torture.plain", "worker")
        return [
            Member("worker", f"worker-{n}", (*worker, "-n", f"w{n}@plain", "-c", str(concurrency), "-l", "INFO"))
            for n in range(1, nodes + 1)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The comparison's account, each number counted as for the platform."""

    faults: Mapping[str, int]
    accepted: int
    refused: int
    """Submissions the client could not submit."""
    finished: int
    lost: int
    """Accepted, and neither ended as it must nor about to."""
    twice: int
    """Tasks that ran to their end more than once."""
    effects_doubled: int
    effects_missing: int
    order: int
    mutex: int
    seconds: float


class Comparison:
    """Hands the workload to plain Celery while faults are injected."""

    def __init__(self, cluster: PlainCluster, folder: Path, options: Options, say: Callable[[str], None]) -> None:
        """``folder`` takes the record; ``say`` is told what happens."""
        self.cluster, self.folder, self.options, self.say = cluster, folder, options, say
        self.injector = faults.Injector(cluster, random.Random(options.seed + 1))
        self.accepted: list[Accepted] = []
        self.refused = 0
        (folder / record.EFFECTS).mkdir(parents=True, exist_ok=True)
        app.conf.update(broker_url=cluster.redis.url, result_backend=cluster.redis.url)

    def run(self) -> Row:
        """All of it."""
        began = time.monotonic()
        kinds = self._plan()
        submissions = list(workload(self.options.tasks, self.options.seed, str(self.folder)))
        share = max(1, len(submissions) // max(1, len(kinds)))
        done: Counter[str] = Counter()
        for kind in kinds:
            struck = time.monotonic()
            for submission in submissions[:share]:
                self._hand_in(submission)
            submissions = submissions[share:]
            try:
                victim = self.injector.inject(kind).victim
            except faults.NoVictim:
                continue
            done[kind] += 1
            self.say(f"{kind} ({victim})")
            time.sleep(max(0.0, struck + FAULT_S - time.monotonic()))
        for submission in submissions:
            self._hand_in(submission)
        self._drain()
        return self._count(done, time.monotonic() - began)

    def _plan(self) -> list[str]:
        without = {kind for kind in faults.FAULTS if kind not in KINDS}
        without |= set(() if self.cluster.links else faults.LINKS)
        without |= set(() if self.cluster.clocks else faults.CLOCKS)
        kinds = faults.plan(self.options.faults, random.Random(self.options.seed), without)
        wanted = [kind for kind in self.options.only if kind in KINDS]
        return [wanted[n % len(wanted)] for n in range(self.options.faults)] if wanted else kinds

    def _hand_in(self, submission: Submission) -> None:
        """One after the other; what was not submitted is not counted as accepted."""
        for _ in range(TRIES):
            try:
                self.accepted.append(Accepted(submission, publish(submission)))
                return
            except (OperationalError, OSError):
                time.sleep(AGAIN_S)
            except Exception as error:  # noqa: BLE001 - a full Redis raises an error of the Redis client's own
                self.say(f"submitting: {type(error).__name__}")
                time.sleep(AGAIN_S)
        self.refused += 1

    def _drain(self) -> None:
        give_up = time.monotonic() + DRAIN_S
        path, last, since = self.folder / record.FILE, -1, time.monotonic()
        while time.monotonic() < give_up and time.monotonic() - since < QUIET_S:
            size = path.stat().st_size if path.exists() else 0
            if size != last:
                last, since = size, time.monotonic()
            time.sleep(LOOK_S)

    def _count(self, done: Counter[str], seconds: float) -> Row:
        lives = record.read(self.folder)
        expected = {i: e for a in self.accepted for i, e in zip(a.task_ids, a.submission.expected, strict=True)}
        well = {i: sum(1 for life in lives.get(i, ()) if life.ended) for i in expected}
        failed = {i for i, e in expected.items() if e.ends == FAILS and _state(i) == "FAILURE"}
        finished = sum(1 for i, e in expected.items() if (i in failed if e.ends == FAILS else well[i]))
        effects = [e.effect for e in expected.values() if e.effect]
        times = {key: record.done_outside(self.folder, key) for key in effects}
        return Row(
            faults=dict(done), accepted=len(expected), refused=self.refused, finished=finished,
            lost=len(expected) - finished, twice=sum(1 for n in well.values() if n > 1),
            effects_doubled=sum(1 for n in times.values() if n > 1),
            effects_missing=sum(1 for n in times.values() if n == 0),
            order=_order(self.accepted, lives), mutex=_mutex(self.accepted, lives), seconds=round(seconds, 1),
        )  # fmt: skip


def publish(submission: Submission) -> list[str]:
    """Hand a submission to Celery; the ids of its tasks, in the submission's order."""
    body = submission.body
    if submission.path == "/workflows":
        return _graph(body["tasks"])
    items = body if isinstance(body, list) else [body]
    return [str(_signature(item).apply_async().id) for item in items]


def _signature(item: Mapping[str, Any]) -> Any:
    name, arguments = str(item["handler"]).partition(".")[2], item["args"]
    if name == "flaky":
        return flaky.s(*arguments, item["total_attempts"])
    if name in ("inside", "outside"):
        return effect.s(*arguments)
    if name == "endless":
        return long.signature((arguments[0], 3600.0), {}, time_limit=item["execution_cap_s"])
    return long.s(arguments[0], arguments[-1] if len(arguments) > 1 else 0.0)


def _graph(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """A start, some beside each other, an end: a chain into a chord."""
    parts = [_signature(task).set(immutable=True) for task in tasks[:-1]]
    end = tasks[-1]["args"]
    last = join.s(end[0], end[1] if len(end) > 1 else 0.0)
    for part in (*parts, last):
        part.freeze()
    ids = [str(part.id) for part in (*parts, last)]
    (parts[0] | chord(group(parts[1:]), last)).apply_async()
    return ids


def _state(task_id: str) -> str:
    return str(celery.result.AsyncResult(task_id, app=app).state)


def _order(accepted: Sequence[Accepted], lives: Mapping[str, Sequence[Life]]) -> int:
    found = 0
    for one in accepted:
        for task_id, expects in zip(one.task_ids, one.submission.expected, strict=True):
            for place in expects.parents:
                ends = [life.last for life in lives.get(one.task_ids[place], ()) if life.ended]
                found += any(not ends or life.began < min(ends) for life in lives.get(task_id, ()))
    return found


def _mutex(accepted: Sequence[Accepted], lives: Mapping[str, Sequence[Life]]) -> int:
    held: dict[str, list[Life]] = {}
    for one in accepted:
        for task_id, expects in zip(one.task_ids, one.submission.expected, strict=True):
            if expects.mutex_key:
                held.setdefault(expects.mutex_key, []).extend(lives.get(task_id, ()))
    found = 0
    for runs in held.values():
        for n, life in enumerate(runs):
            found += any(life.overlaps(other) for other in runs[n + 1 :])
    return found


def table(row: Row) -> str:
    """The row, one number a line."""
    rows: list[tuple[str, object]] = [(f"fault: {kind}", n) for kind, n in sorted(row.faults.items())]
    rows += [
        ("faults in all", sum(row.faults.values())), ("accepted", row.accepted), ("not submitted", row.refused),
        ("finished", row.finished), ("lost", row.lost), ("run to the end more than once", row.twice),
        ("effects doubled", row.effects_doubled), ("effects missing", row.effects_missing),
        ("order violations", row.order), ("mutex violations (Celery has no keys)", row.mutex),
        ("seconds in all", row.seconds),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
