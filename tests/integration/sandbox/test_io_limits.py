"""What a script may read, write and send in a second, held to its tier."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from scheduler_ext.core.states import Outcome
from tests.support.bench import Bench

pytestmark = pytest.mark.usefixtures("folder")


def needs(bench: Bench, what: str) -> None:
    if what not in bench.pool.enforced:
        pytest.skip(f"this machine's {bench.pool.level} level does not hold scripts to their {what}")


WRITES = """#!/usr/bin/python3
import os, time
file = os.open("x", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
began = time.monotonic()
for _ in range(2000):
    os.pwrite(file, b"x" * 4096, 0)
print(time.monotonic() - began)
"""


def test_a_disk_does_no_more_operations_a_second_than_the_tier_has(bench: Bench) -> None:
    needs(bench, "iops")
    finished, output = bench.run(WRITES, cap_ms=60_000, vector=(1_000, 128, 300, 500, 0, 0))
    assert finished.outcome is Outcome.SUCCEEDED, output
    # A write is one operation at least; those of two seconds are let through at once.
    assert float(output) > 2_000 / 500 - 2.1


def test_what_is_frozen_for_its_disk_can_be_ended(bench: Bench) -> None:
    needs(bench, "iops")
    began = time.monotonic()
    finished, output = bench.run(WRITES, cap_ms=1_500, vector=(1_000, 128, 300, 100, 0, 0))
    assert (finished.outcome, output) == (Outcome.CAP_EXCEEDED, "")
    assert time.monotonic() - began < 15.0  # 2,000 writes at 100 a second are 20 seconds and more
    again, output = bench.run("echo fine", vector=(1_000, 128, 300, 1, 0, 0))
    assert (again.outcome, output) == (Outcome.SUCCEEDED, "fine\n")


def test_the_network_carries_no_more_than_the_tier_has(bench: Bench) -> None:
    """Between two processes of the script's own: what lies outside of it on this machine it does not reach."""
    needs(bench, "bandwidth")
    script = (
        "#!/usr/bin/python3\nimport os, socket, sys, time\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "link = socket.create_connection(server.getsockname(), 5)\n"
        "began, size = time.monotonic(), 0\n"
        "if not os.fork():\n"
        "    link.sendall(bytes(1_000_000))\n"
        "    os._exit(0)\n"
        "link.close()\n"
        "heard = server.accept()[0]\n"
        "heard.settimeout(30)\n"
        "while more := heard.recv(65536): size += len(more)\n"
        "print(size, time.monotonic() - began)\n"
    )

    def tried(kbps: int) -> tuple[int, float]:
        finished, output = bench.run(script, cap_ms=60_000, network=True, vector=(1_000, 128, 32, 0, kbps, 0))
        assert finished.outcome is Outcome.SUCCEEDED, output
        size, took = output.split()
        return int(size), float(took)

    size, took = tried(4_000)
    assert size == 1_000_000
    assert took > 8_000 / 4_000 * 0.7  # a burst of 200 ms is let through
    _, quick = tried(1_000_000)
    assert quick < took


def test_what_a_killed_keeper_left_frozen_is_ended_too(bench: Bench) -> None:
    needs(bench, "iops")
    run = bench.prepare(WRITES, vector=(1_000, 128, 300, 1, 0, 0))

    def frozen(keeper: int) -> bool:
        with contextlib.suppress(OSError):  # other slots' groups come and go meanwhile
            events = Path("/sys/fs/cgroup").rglob(f"slackwater-{keeper}/cgroup.events")
            return any("frozen 1" in one.read_text() for one in events)
        return False

    async def killed() -> list[psutil.Process]:
        job = asyncio.ensure_future(run.run())
        while run.runner is None or run.runner.process is None:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        keeper = run.runner.process.pid  # type: ignore[attr-defined]
        while not frozen(keeper):
            await asyncio.sleep(0.01)
        below = psutil.Process(keeper).children(recursive=True)
        os.kill(keeper, signal.SIGKILL)
        await job
        return below

    left = asyncio.run(asyncio.wait_for(killed(), 20))
    assert left
    assert bench.run("echo again")[1] == "again\n"
    assert psutil.wait_procs(left, timeout=10)[1] == []
