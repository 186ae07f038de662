"""Scripts of two tenants that both have the network, at the same time: neither hears of the other, nor of the node."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scheduler_ext.core.states import Outcome
from scheduler_ext.sandbox.base import Level
from tests.support.bench import Bench

pytestmark = pytest.mark.usefixtures("folder")

HOST = """#!/usr/bin/python3
import os, select, socket
tcp = socket.create_server(("0.0.0.0", 0))
try:
    six = socket.create_server(("::1", 0), family=socket.AF_INET6)
except OSError:  # this machine has none
    six = tcp
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("0.0.0.0", 0))
if not os.fork():
    for port in (tcp.getsockname()[1],):
        socket.create_connection(("127.0.0.1", port), 5).sendall(b"mine")
    os._exit(0)
mine = tcp.accept()[0].recv(100)
print(tcp.getsockname()[1], six.getsockname()[1], udp.getsockname()[1], flush=True)
heard = []
while True:
    for one in select.select([tcp, six, udp], [], [])[0]:
        said = one.recv(100) if one is udp else b"a connection"
        print("HEARD", said, flush=True)
"""
GUEST = """#!/usr/bin/python3
import json, os, socket
told = json.load(open(os.environ["SLACKWATER_INPUTS"]))["kwargs"]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for host, port in told["udp"]:
    udp.sendto(b"from another tenant", (host, port))
for host, port in told["tcp"]:
    try:
        link = socket.create_connection((host, port), 2)
        link.sendall(b"from another tenant")
        link.settimeout(2)
        print("REACHED", host, port, link.recv(100))
    except OSError as error:
        print("refused", host, port, error)
own = socket.create_server(("127.0.0.1", 0))
link = socket.create_connection(own.getsockname(), 5)
print("its own is there")
closed = own.getsockname()[1]
link.close(); own.close()
try:
    socket.create_connection(("127.0.0.1", closed), 5)
except ConnectionRefusedError:
    print("and what is closed says so")
"""


@contextmanager
def serving() -> Iterator[int]:
    """A server of the node's own."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    with server.accept()[0] as link:
                        link.sendall(b"hello")
                except OSError:
                    return

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def addresses() -> list[str]:
    """This machine's own, as far as a connection tells."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))
        except OSError:
            return ["127.0.0.1"]
        return ["127.0.0.1", "127.0.0.2", asked.getsockname()[0]]


async def side_by_side(bench: Bench, server: int) -> tuple[str, str]:
    """What the host and the guest say, both of which run."""
    host = bench.prepare(HOST, cap_ms=600_000, network=True)
    job = asyncio.ensure_future(host.run())
    try:
        while len(ports := host.said["stdout"].split()) < 3:
            assert not job.done(), host.said["stderr"]
            await asyncio.sleep(0.02)
        tcp, six, udp = map(int, ports[:3])
        told: dict[str, Any] = {
            "tcp": [*((one, tcp) for one in addresses()), ("::1", six), ("127.0.0.1", server)],
            "udp": [(one, udp) for one in addresses()],
        }
        guest = bench.prepare(GUEST, cap_ms=120_000, network=True, kwargs=told)
        finished = await guest.run()
        said = guest.said["stdout"] + guest.said["stderr"]
        assert finished.outcome is Outcome.SUCCEEDED, said
        await asyncio.sleep(0.1)  # what was sent is here by now; that nothing came is not waited for
        return host.said["stdout"], said
    finally:
        host.stop(Outcome.CANCELLED)
        await job


def test_the_network_leads_neither_to_another_script_nor_to_the_node(bench: Bench) -> None:
    if bench.pool.level in (Level.PROCESS, Level.CONTAINER):
        pytest.skip("nobody is kept from anything here, or each has a loopback of its own")
    if "bandwidth" not in bench.pool.enforced:
        pytest.skip("no program of the kernel's can be put at a control group here")
    with serving() as server:
        heard, said = asyncio.run(asyncio.wait_for(side_by_side(bench, server), 300))
    assert "HEARD" not in heard
    assert "REACHED" not in said
    assert said.count("refused") == len(addresses()) + 2
    assert "its own is there" in said
    assert "and what is closed says so" in said
