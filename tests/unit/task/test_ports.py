"""Ports of tasks: no two tasks of a machine hold the same, and an end of whatever kind gives them back."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.work import Started
from scheduler_ext.task import network_ports
from scheduler_ext.task.network_ports import NoPorts, take

TAKER = """
import sys
from scheduler_ext.conf import SchedulerConf
from scheduler_ext.task.network_ports import take
held = take(SchedulerConf(ports_from=int(sys.argv[1]), ports_count=4), 2)
print(*held.ports, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def conf() -> SchedulerConf:
    """Four ports that are free now, below those the kernel gives out by itself."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first = next(
        first for first in range(lowest - 4 * random.Random(os.getpid()).randint(1, 1000), 1024, -4) if free(first, 4)
    )
    return SchedulerConf(ports_from=first, ports_count=4)


def free(first: int, count: int) -> bool:
    """Whether nobody has any of them."""
    with contextlib.ExitStack() as held:
        for port, kind in product(range(first, first + count), (socket.SOCK_STREAM, socket.SOCK_DGRAM)):
            probe = held.enter_context(contextlib.closing(socket.socket(socket.AF_INET, kind)))
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def test_two_tasks_never_hold_the_same(conf: SchedulerConf) -> None:
    one, other = take(conf, 2), take(conf, 2)
    assert len({*one.ports, *other.ports}) == 4
    assert all(conf.ports_from <= port < conf.ports_from + 4 for port in (*one.ports, *other.ports))
    with pytest.raises(NoPorts, match=r"1 ports of .* are wanted on this node, 0 are free"):
        take(conf, 1)
    mine = one.ports
    one.release()
    again = take(conf, 2)
    assert again.ports == mine
    for held in (again, other):
        held.release()


def test_a_task_of_another_process_holds_its_own_until_it_dies(conf: SchedulerConf) -> None:
    command = [sys.executable, "-c", TAKER, str(conf.ports_from)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as taker:
        assert taker.stdout is not None
        theirs = {int(port) for port in taker.stdout.readline().split()}
        mine = take(conf, 2)
        assert len(theirs) == 2
        assert not theirs & set(mine.ports)
        with pytest.raises(NoPorts):
            take(conf, 1)
        taker.kill()
        taker.wait()
    freed = take(conf, 2)
    assert set(freed.ports) == theirs
    freed.release()
    mine.release()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_somebody_listens_on_is_passed_over(conf: SchedulerConf, kind: int) -> None:
    with contextlib.closing(socket.socket(socket.AF_INET, kind)) as server:
        server.bind(("127.0.0.1", conf.ports_from))
        held = take(conf, 3)
        assert conf.ports_from not in held.ports
        held.release()
        with pytest.raises(NoPorts):
            take(conf, 4)


def test_none_are_wanted(conf: SchedulerConf) -> None:
    assert take(replace(conf, ports_count=0), 0).ports == ()


@pytest.fixture
def process(conf: SchedulerConf) -> Iterator[None]:
    network_ports.configure(conf)
    yield
    network_ports.configure(SchedulerConf())


@pytest.mark.usefixtures("process")
def test_a_task_keeps_its_ports_until_its_end() -> None:
    asked: list[Any] = []

    def count() -> int:
        asked.append(1)
        return 2

    one, other = (Started(name, 1, 1, "h", "", "", [], {}, 1000, 1, "") for name in ("one", "other"))
    ports = network_ports.of(one, count)
    assert network_ports.of(one, count) == ports
    assert len(asked) == 1, "the ledger is asked once"
    assert not set(network_ports.of(other, count)) & set(ports)
    network_ports.release(one)
    network_ports.release(one)
    third = replace(one, task_id="third")
    assert network_ports.of(third, count) == ports
    for task in (other, third):
        network_ports.release(task)
    assert not network_ports.held


@pytest.mark.parametrize("values", [{"ports_from": 80}, {"ports_from": 60_000, "ports_count": 6_000}])
def test_a_range_that_cannot_be_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="must be at least 1024"):
        SchedulerConf.from_mapping(values)
