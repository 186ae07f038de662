"""A plan's rate limit under many clients at once: how many are accepted, and how soon the others are refused."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from slackwater.local.process import stop
from slackwater.local.servers.folders import free_port
from slackwater_tasks.models import Task
from slackwater_tenants.models import CurrentCounter, Plan, Tenant
from slackwater_tenants.services import create_api_key
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.api_process import START_S, start_api, wait_listening
from tests.lab.benchmarks.measure import percentiles
from tests.lab.benchmarks.micro.cell import HANDLER, Cell
from tests.lab.benchmarks.micro.rounds import tell
from tests.lab.benchmarks.peer import report

PER_HOUR = 1
"""So slow that nothing is given back while it is measured."""
PATH = "/api/v1/tasks"


@dataclass(slots=True)
class Answers:
    """What the clients were told."""

    accepted: list[tuple[float, float]] = field(default_factory=list)
    """When each was asked and answered, in seconds of one clock."""
    refused: list[tuple[float, float]] = field(default_factory=list)
    server_ms: list[float] = field(default_factory=list)
    """How long the submitter says it had each refused request, from its coming in to its answer."""
    faults: list[str] = field(default_factory=list)

    @property
    def refusals(self) -> list[float]:
        """Seconds each refusal took, as its client sees it."""
        return [end - began for began, end in self.refused]

    @property
    def once_certain(self) -> list[float]:
        """Seconds each refusal took from when it was asked for and had become certain: the limit's last was answered.

        Before that nobody can know that a request will be refused, whoever asks.
        """
        full = max((end for _, end in self.accepted), default=0.0)
        return [max(0.0, end - max(began, full)) for began, end in self.refused]

    def add(self, status: int, asked: tuple[float, float], headers: http.client.HTTPMessage, body: bytes) -> None:
        """Note one answer; a refusal without Retry-After is a fault."""
        if status == 201:
            self.accepted.append(asked)
        elif status == 429 and headers.get("Retry-After"):
            self.refused.append(asked)
            self.server_ms.append(float(headers.get("Server-Timing", "").rpartition("=")[2]))
        else:
            self.faults.append(f"{status} {body[:200].decode(errors='replace')}")


@contextlib.contextmanager
def submitters(count: int) -> Iterator[list[int]]:
    """That many API servers as `make up` runs them, each a process of its own; their ports."""
    running: list[subprocess.Popen[bytes]] = []
    ports = []
    try:
        for _ in range(count):
            port = free_port()
            running.append(start_api(port, env=os.environ, stdout=subprocess.DEVNULL))
            ports.append(port)
        for process, port in zip(running, ports, strict=True):
            wait_listening(process, port)
        yield ports
    finally:
        stop(running, timeout=60)


def _open(port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    return connection


class Crowd:
    """Clients, each with a connection of its own, kept open."""

    def __init__(self, ports: list[int], clients: int, key: str) -> None:
        self.connections = [_open(ports[n % len(ports)]) for n in range(clients)]
        self.speak_for(key)

    def speak_for(self, key: str) -> None:
        """Use this key from now on."""
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, each: int, over_s: float) -> Answers:
        """Every client submits ``each`` tasks, evenly over ``over_s`` seconds, or all at once for 0."""
        answers, barrier = Answers(), threading.Barrier(len(self.connections))

        def client(place: int) -> None:
            try:
                barrier.wait(START_S)
                began = time.monotonic()
                for turn in range(each):
                    # Each at its own moment of the turn, so that they do not come as one wave.
                    at = began + over_s * (turn + place / len(self.connections)) / each
                    time.sleep(max(0.0, at - time.monotonic()))
                    self._submit(place, answers)
            except (OSError, http.client.HTTPException, threading.BrokenBarrierError) as error:
                answers.faults.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=client, args=(n,)) for n in range(len(self.connections))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def _submit(self, place: int, answers: Answers) -> None:
        connection = self.connections[place]
        began = time.perf_counter()
        connection.request("POST", PATH, json.dumps({"handler": HANDLER}), self.headers)
        response = connection.getresponse()
        body = response.read()
        answers.add(response.status, (began, time.perf_counter()), response.headers, body)

    def close(self) -> None:
        """Close the connections."""
        for connection in self.connections:
            connection.close()


def _server(answers: Answers) -> dict[str, float] | None:
    return percentiles([ms / 1000 for ms in answers.server_ms]) if answers.server_ms else None


def run(clients: int, processes: int, limit: int, each: int, seconds: int, warm: int) -> None:
    """All clients at once, then each ``each`` times more over ``seconds``, when only refusals are left to give.

    Before that each submits ``warm`` times for another tenant without limits: submitters have been at work as a rule,
    and what their first requests have to make ready once is no part of a refusal.
    """
    Cell(slots=1)
    tenant, other = ground.tenants(2)
    slow = Plan.objects.get(pk=tenant.plan_id)
    slow.pk, slow.slug, slow.tasks_per_hour, slow.burst = None, "bench-limited", PER_HOUR, limit
    slow.save(force_insert=True)
    Tenant.objects.filter(pk=tenant.pk).update(plan=slow)
    key = create_api_key(tenant, "bench", ("submit",))[1]
    free = create_api_key(other, "bench", ("submit",))[1]
    tell("starting", 0, processes)
    with submitters(processes) as ports:
        crowd = Crowd(ports, clients, free)
        before = crowd.ask(warm, 0.0)
        crowd.speak_for(key)
        tell("submitting at once", 0, clients)
        rush = crowd.ask(1, 0.0)
        tell("submitting on", 0, clients * each)
        after = crowd.ask(each, float(seconds))
        crowd.close()
    if faults := before.faults + rush.faults + after.faults:
        raise RuntimeError(f"{len(faults)} answers were neither 201 nor 429 with Retry-After: {faults[0]}")
    accepted = len(rush.accepted) + len(after.accepted)
    stored = Task._plain.filter(tenant=tenant).count()
    counted = CurrentCounter.objects.get(tenant=tenant).unfinished
    report(
        "RESULT", clients=clients, processes=processes, limit=limit, accepted=accepted, stored=stored,
        refused=len(rush.refused) + len(after.refused), exact=accepted == stored == counted == min(limit, clients),
        accepting_ms=round(1000 * (max(e for _, e in rush.accepted) - min(b for b, _ in rush.accepted)), 1),
        rush_ms=percentiles(rush.refusals) if rush.refused else None,
        certain_ms=percentiles(rush.once_certain) if rush.refused else None,
        rush_server_ms=_server(rush), refusal_ms=percentiles(after.refusals), server_ms=_server(after),
    )  # fmt: skip
