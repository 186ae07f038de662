"""Redis in the hands of an attacker: whatever is sent, nothing runs without the ledger, nothing ends, no status is wrong."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
import redis
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from scheduler_ext.core.states import TaskState
from slackwater.local.servers.folders import free_port
from slackwater_resources.models import Node
from slackwater_tenants.services import create_api_key
from tests.e2e.test_told import Follower
from tests.lab.attack.forgeries import FORGERIES, NOTHING, Prey
from tests.support.platform import Platform, agent_of, children_of
from tests.support.processes import ManagedProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

STRIKE_S = 60.0


class Client:
    """A tenant of the API, with a loaded platform and an eye on what it is told."""

    def __init__(self, port: int, key: str) -> None:
        self.url, self.key = f"http://127.0.0.1:{port}", key
        self.stopping = threading.Event()
        self.submitted: list[str] = []
        self.wrong: list[str] = []

    def ask(self, path: str, body: Any = None) -> Any:
        """One request."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=60) as answer:
            return json.load(answer)

    def is_up(self) -> bool:
        """Whether the API answers."""
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{self.url}/healthz", timeout=5)
            return True
        return False

    def load(self) -> None:
        """Submit tasks, one after another."""
        while not self.stopping.wait(0.02):
            made = self.ask("/api/v1/tasks", {"handler": "prey.note", "args": [f"load {len(self.submitted)}"]})
            self.submitted.append(made["id"])

    def look(self, task_id: str, state: str) -> None:
        """Ask how a task stands, in both ways: it is always the same."""
        while not self.stopping.is_set():
            for path in (f"/api/v1/tasks/{task_id}/status", f"/api/v1/tasks/{task_id}?wait=1"):
                if (told := self.ask(path)["state"]) != state:
                    self.wrong.append(f"{path}: {told}")

    def counts(self) -> dict[str, float]:
        """What was refused, by kind."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        found = next(one for one in families if one.name == "slackwater_refused_from_redis")
        return {sample.labels["kind"]: sample.value for sample in found.samples}

    @contextlib.contextmanager
    def busy(self, *looks: tuple[str, str]) -> Iterator[None]:
        """Load, and looks, for the length of a ``with``."""
        jobs = [threading.Thread(target=self.load), *(threading.Thread(target=self.look, args=one) for one in looks)]
        for job in jobs:
            job.start()
        try:
            yield
        finally:
            self.stopping.set()
            for job in jobs:
                job.join()


def doubled(prey: Prey, stopping: threading.Event) -> None:
    """Every claim is there twice, and once where it does not belong."""
    here, there = (prey.key(f"claims:{prey.node}:{kind}:delayable") for kind in ("process", "script"))
    known: set[bytes] = set()  # each once: twice of twice, five hundred times a second, would be a flood
    while not stopping.wait(0.002):
        found: Any = prey.client.lrange(here, 0, -1)
        entries = [entry for entry in found if entry not in known]
        if entries:
            known.update(entries)
            prey.client.rpush(here, *entries)
            prey.client.rpush(there, entries[0])


def processes(*started: ManagedProcess) -> dict[int, float]:
    """All processes of some, with the time they began."""
    workers = [one for one in started if one.name == "w1"]
    pids = {one.pid for one in started} | {agent_of(one).pid for one in workers}
    pids |= {child.pid for one in workers for child in children_of(one)}
    return {pid: psutil.Process(pid).create_time() for pid in pids}


def strike(client: Client, prey: Prey) -> list[tuple[str, str, str]]:
    """Send every forgery; returns what was expected and what was counted of each."""
    table = []
    for name, (expected, send) in FORGERIES.items():
        before = client.counts()
        send(prey)
        got = NOTHING
        if expected != NOTHING:
            with contextlib.suppress(AssertionError):
                wait_until(lambda b=before, e=expected: client.counts()[e] > b[e], timeout=STRIKE_S, interval=0.1)  # type: ignore[misc]
                got = expected
        table.append((name, expected, got))
    return table


def test_redis_need_not_be_trusted(
    platform: Platform, redis_client: redis.Redis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    witness = tmp_path / "ran"
    port = free_port()
    granian = [sys.executable, "-m", "granian", "--interface", "asginl", "--port", str(port), "--no-ws"]
    api = platform.start("api", [*granian, "slackwater.asgi:application"])
    others = [platform.dispatcher(), platform.upkeep(), api]
    worker = platform.worker(SLACKWATER_HANDLERS="tests.lab.attack.prey", ATTACK_WITNESS=str(witness))
    client = Client(port, create_api_key(platform.tenant, "prey", ("read", "submit"))[1])
    wait_until(client.is_up, message="the API answers")
    ended = platform.submit("prey.note", "first")
    assert platform.wait(ended).state == TaskState.SUCCEEDED
    tomorrow = timezone.now() + timedelta(days=1)
    waiting = platform.submit("prey.note", "forged: before its time", start_at=tomorrow.isoformat())
    prey = Prey(
        client=redis_client, node=Node.objects.get().pk, waiting=str(waiting), ended=str(ended),
        tenant=platform.tenant.pk,
    )  # fmt: skip
    follower = Follower(port, "/api/v1/events", client.key)
    before = processes(worker, *others)
    try:
        wait_until(lambda: follower.events("open"), message="the stream has begun")
        with client.busy((str(waiting), "scheduled"), (str(ended), "succeeded")):
            twice = threading.Thread(target=doubled, args=(prey, client.stopping))
            wait_until(lambda: len(client.submitted) > 20, message="there is load")
            table = strike(client, prey)
            twice.start()
            count = len(client.submitted)
            wait_until(lambda: len(client.submitted) > count + 100, message="every claim was there twice")
        twice.join()
        for task_id in client.submitted:
            assert platform.wait(UUID(task_id), timeout=120).state == TaskState.SUCCEEDED
    finally:
        follower.close()
    rows = [f"{name:52} expected {expected:8} got {got}" for name, expected, got in table]
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *rows, ""]))
    assert [row for row in table if row[1] != row[2]] == []
    assert len(table) >= 40
    # 0 runs without the ledger: each task of it once, and nothing else.
    lines = Counter(witness.read_text().splitlines())
    assert lines == Counter(["first", *(f"load {n}" for n in range(len(client.submitted)))])
    # 0 restarts.
    assert processes(worker, *others) == before
    # 0 wrong statuses told.
    assert client.wrong == []
    told = [(row["task_id"], row["state"]) for row in follower.events("task")]
    assert {state for task_id, state in told if task_id == str(ended)} <= {"succeeded"}
    assert not any(task_id == str(waiting) for task_id, _ in told)
    last = dict(told)
    known = set(client.submitted) | {str(ended)}
    assert last.keys() <= known
    assert {last[one] for one in last} <= {"running", "succeeded", "ready"}
    assert len(worker.output) < 2_000_000, "a flood does not fill the log"
