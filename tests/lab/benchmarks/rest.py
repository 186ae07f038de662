"""Submission over REST: one task a request, several clients at once, a real server."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slackwater.local.servers.folders import free_port
from slackwater_tenants.services import create_api_key
from tests.lab.benchmarks.account import usage
from tests.lab.benchmarks.api_process import start_api, wait_listening
from tests.lab.benchmarks.measure import percentiles
from tests.lab.benchmarks.workloads import item

if TYPE_CHECKING:
    from tests.lab.benchmarks.own import Slackwater

CLIENTS = 8
MOST = 4000
WARM_UP = 80


def measure(peer: Slackwater) -> Mapping[str, Any]:
    """Submit with eight clients over connections kept open; returns fields of the result."""
    count = min(MOST, max(400, peer.config.tasks)) // CLIENTS * CLIENTS
    # Keys of three tenants, as in the other measures; a client keeps to its own.
    keys = [create_api_key(tenant, "bench", ("submit",))[1] for tenant in peer.tenants]
    clients = [keys[n % len(keys)] for n in range(CLIENTS)]
    peer.submit_bulk(0, WARM_UP)  # this process declares its handlers with its first submission
    with _api(peer) as port:
        _submit(peer, port, clients, WARM_UP)
        roots = {**peer.roots(), **{name: process.pid for name, process in peer.processes.items()}}
        before, began = usage(roots), time.monotonic()
        latencies = _submit(peer, port, clients, count)
        took = time.monotonic() - began
        after = usage(roots)
    spent = {name: s - before.by_name.get(name, 0.0) for name, s in after.by_name.items()}
    return {
        "submit_rest_per_s": round(count / took, 1),
        "submit_rest_ms": percentiles(latencies),
        "submit_rest_cpu_s_per_1k": {name: round(s / count * 1000, 3) for name, s in spent.items()},
    }


@contextlib.contextmanager
def _api(peer: Slackwater) -> Iterator[int]:
    """The API's server, as `make up` runs it, on a free port."""
    port = free_port()
    with Path(peer.config.log).open("ab") as log:
        process = start_api(port, env=peer.environment(), stdout=log, stderr=log)
    peer.processes["api"] = process
    try:
        wait_listening(process, port)
        yield port
    finally:
        peer.stop()


def _submit(peer: Slackwater, port: int, keys: list[str], count: int) -> list[float]:
    """Submit ``count`` tasks, each client its part; returns the seconds each request took."""
    latencies: list[list[float]] = [[] for _ in keys]
    failures: list[str] = []
    share = count // len(keys)

    def client(place: int) -> None:
        try:
            _client(peer, port, keys[place], range(place * share, (place + 1) * share), latencies[place])
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            failures.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=client, args=(place,)) for place in range(len(keys))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"{len(failures)} of {len(keys)} clients failed: {failures[0]}")
    return [seconds for one in latencies for seconds in one]


def _client(peer: Slackwater, port: int, key: str, numbers: range, latencies: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    for number in numbers:
        body = json.dumps(item(peer.workload, number, handler=peer.handler, alone=True))
        began = time.monotonic()
        connection.request("POST", "/api/v1/tasks", body, headers)
        response = connection.getresponse()
        answer = response.read()
        latencies.append(time.monotonic() - began)
        if response.status != 201:
            raise RuntimeError(f"{response.status} {answer[:300].decode(errors='replace')}")
    connection.close()
