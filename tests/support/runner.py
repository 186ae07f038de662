"""A runner on an engine of the developer's, for tests that need one; without an engine they are skipped."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.runner.engine import Engine
from tests.support.processes import ManagedProcess
from tests.support.waiting import wait_until

HOST = os.environ.get("SLACKWATER_TEST_DOCKER_HOST", "")
IMAGE = os.environ.get("SLACKWATER_TEST_DOCKER_IMAGE", "python:3.13-slim-bookworm")
NETWORK = "bridge"


class Runner:
    """A real runner in a process of its own."""

    def __init__(self, *arguments: str, listen: str = "") -> None:
        self.name = f"slackwater-test-{secrets.token_hex(4)}"
        self._folder = tempfile.TemporaryDirectory(prefix="slackwater-runner-")
        folder = Path(self._folder.name)
        self.address = listen or f"unix:{folder / 'socket'}"
        self.token = folder / "token"
        self.token.write_text(secrets.token_hex(16))
        self.arguments = [
            "--listen", self.address, "--token-file", str(self.token), "--engine", HOST, "--image", IMAGE,
            "--name", self.name, *arguments,
        ]  # fmt: skip
        self.process: ManagedProcess
        self.start()

    def start(self) -> None:
        """Start it (again)."""
        self.process = ManagedProcess(
            [sys.executable, "-W", "ignore", "-m", "scheduler_ext.runner", *self.arguments], name="runner"
        )
        wait_until(
            lambda: "the runner serves" in self.process.output or not self.process.is_running(),
            message="the runner serves",
        )
        assert self.process.is_running(), self.process.output

    def conf(self, **changes: Any) -> SchedulerConf:
        """Settings of a worker that uses it."""
        return SchedulerConf(
            **{
                "runner": self.address,
                "runner_token_file": str(self.token),
                "sandbox": "container",
                **changes,
            }
        )

    def containers(self) -> list[dict[str, Any]]:
        """All of its containers, whatever they are doing."""
        filters = json.dumps({"label": [f"slackwater.runner={self.name}"]})
        found = asyncio.run(Engine(HOST).ask("GET", "/containers/json", all=1, filters=filters))
        assert isinstance(found, list)
        return found

    def gateway(self) -> str:
        """The address of this machine in the network of scripts that are granted one."""
        seen = asyncio.run(Engine(HOST).ask("GET", f"/networks/{NETWORK}"))
        return str(ipaddress.ip_network(seen["IPAM"]["Config"][0]["Subnet"])[1])

    def close(self) -> None:
        """End it, and see that it leaves nothing."""
        if self.process.is_running():
            self.process.send(signal.SIGTERM)
            wait_until(lambda: not self.process.is_running(), timeout=30, message="the runner ends")
        self.process.end()
        left = self.containers()
        self._folder.cleanup()
        assert left == [], "the runner leaves containers behind"


def skip_without_engine() -> None:
    """Skip the test where no engine is named."""
    if not HOST:
        pytest.skip("no container engine: SLACKWATER_TEST_DOCKER_HOST is not set (unix:///var/run/docker.sock)")


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """One for all tests of a session."""
    skip_without_engine()
    with contextlib.closing(Runner("--network", NETWORK)) as made:
        yield made
