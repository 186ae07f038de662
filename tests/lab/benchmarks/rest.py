"""Submission over REST: one task a request, several clients at once, a real server."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
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
SERVERS = 2
PACED_S = 5.0
MOST = 4000
WARM_UP = 80
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n(?:.*\r\n)*?\r\n", re.IGNORECASE)


def measure(peer: Slackwater) -> Mapping[str, Any]:
    """Submit with eight clients over connections kept open; returns fields of the result."""
    count = min(MOST, max(400, peer.config.tasks)) // CLIENTS * CLIENTS
    # Keys of three tenants, as in the other measures; a client keeps to its own.
    keys = [create_api_key(tenant, "bench", ("submit",))[1] for tenant in peer.tenants]
    clients = [keys[n % len(keys)] for n in range(CLIENTS)]
    peer.submit_bulk(0, WARM_UP)  # this process declares its handlers with its first submission
    with _servers(peer) as ports:
        _submit(peer, ports, clients, WARM_UP)
        roots = {**peer.roots(), **{name: process.pid for name, process in peer.processes.items()}}
        before, began = usage(roots), time.monotonic()
        latencies = _submit(peer, ports, clients, count)
        took = time.monotonic() - began
        after = usage(roots)
        rate = count / took / 2
        paced = _submit(peer, ports, clients, int(rate * PACED_S) // CLIENTS * CLIENTS, rate)
    spent = {name: s - before.by_name.get(name, 0.0) for name, s in after.by_name.items()}
    return {
        "submit_rest_per_s": round(count / took, 1),
        "submit_rest_ms": percentiles(latencies),
        "submit_rest_half_ms": {**percentiles(paced), "rate": round(rate)},
        "submit_rest_cpu_s_per_1k": {name: round(s / count * 1000, 3) for name, s in spent.items()},
    }


@contextlib.contextmanager
def _servers(peer: Slackwater) -> Iterator[list[int]]:
    """Two of the API's servers, each as `make up` runs it, on free ports; a client keeps to one, as behind a balancer."""
    ports = []
    try:
        for number in range(1, SERVERS + 1):
            ports.append(free_port())
            with Path(peer.config.log).open("ab") as log:
                process = start_api(ports[-1], env=peer.environment(), stdout=log, stderr=log)
            peer.processes[f"api {number}"] = process
            wait_listening(process, ports[-1])
        yield ports
    finally:
        peer.stop()


def _submit(peer: Slackwater, ports: list[int], keys: list[str], count: int, rate: float = 0.0) -> list[float]:
    """Submit ``count`` tasks, each by the client that is free first; returns the seconds each request took.

    ``rate``: so many a second, at random moments, and the time counts from that moment; else as fast as they can.
    """
    latencies: list[float] = []
    failures: list[str] = []
    due = _moments(count, rate) if rate else [0.0] * count
    orders = iter(enumerate(due))  # each is taken by one thread: an iterator of C code gives up no lock in between

    def client(place: int) -> None:
        try:
            _client(peer, ports[place % len(ports)], keys[place], orders, latencies)
        except (OSError, RuntimeError) as error:
            failures.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=client, args=(place,)) for place in range(len(keys))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"{len(failures)} of {len(keys)} clients failed: {failures[0]}")
    return latencies


def _moments(count: int, rate: float) -> list[float]:
    """When the requests are due, by the monotonic clock."""
    chance, due = random.Random(1), time.monotonic()
    return [due := due + chance.expovariate(rate) for _ in range(count)]


def _client(peer: Slackwater, port: int, key: str, orders: Iterator[tuple[int, float]], latencies: list[float]) -> None:
    """Send one request after the other. A library's client costs a third of what the server does, on the same cores."""
    head = f"POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: "
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, due in orders:
            body = json.dumps(item(peer.workload, number, handler=peer.handler, alone=True))
            request = f"{head}{len(body)}\r\n\r\n{body}".encode()
            time.sleep(max(0.0, due - time.monotonic()))
            began = due or time.monotonic()
            connection.sendall(request)
            answer = _answer(connection)
            latencies.append(time.monotonic() - began)
            if not answer.startswith(b"HTTP/1.1 201 "):
                raise RuntimeError(answer[:500].decode(errors="replace"))


def _answer(connection: socket.socket) -> bytes:
    """The whole answer: its head says how long its body is."""
    answer = b""
    while not (found := LENGTH.search(answer)) or len(answer) < found.end() + int(found[1]):
        if not (more := connection.recv(65_536)):
            raise OSError("the server ended the connection")
        answer += more
    return answer
