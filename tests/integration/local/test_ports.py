"""Ports of platforms that start at the same moment on one machine, before any of their processes listens."""

from __future__ import annotations

import multiprocessing
import signal
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from slackwater.local.ports import Port
from slackwater.local.servers import ServerError
from slackwater.local.servers.folders import free_port
from slackwater.local.supervisor import UpOptions, with_ports


def options(var: Path, port: int) -> UpOptions:
    var.mkdir()
    return UpOptions(
        host="127.0.0.1", port=port, workers=1, concurrency=1, var=var, database_url="", redis_url="", public_url=""
    )


def test_two_platforms_that_start_at_once_have_ports_of_their_own(tmp_path: Path) -> None:
    port = free_port()
    one, other = options(tmp_path / "one", port), options(tmp_path / "other", port)
    with with_ports(one) as first:
        assert first.port == port
        with with_ports(other) as second:
            assert len({first.port, second.port, first.flower_port, second.flower_port}) == 4
        with (
            pytest.raises(ServerError, match=f"port {port} of 127.0.0.1 cannot be used"),
            with_ports(replace(other, insists=True)),
        ):
            pass
    with with_ports(replace(other, insists=True)) as later:
        assert later.port == port


def test_a_port_of_a_platform_that_was_killed_is_free(tmp_path: Path) -> None:
    number = free_port()
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    holder = context.Process(target=_hold, args=(number, sending))
    holder.start()
    assert receiving.recv() == "held"
    with pytest.raises(OSError, match="in use"):
        Port("127.0.0.1", number)
    holder.kill()
    holder.join()
    Port("127.0.0.1", number).close()


def _hold(number: int, said: Connection) -> None:
    port = Port("127.0.0.1", number)
    said.send("held")
    signal.pause()
    port.close()
