"""Trials: what an operator does to a platform under load, judged as the faults of the torture are."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from slackwater.settings.environment import ROOT
from tests.lab.torture.clients import Client
from tests.lab.torture.cluster import Cluster, Member
from tests.lab.torture.run import Options, Result, Torture

LOOK_S = 0.05
START_S = 120.0


class Trial(Torture):
    """A run with something else in the place of faults."""

    def __init__(
        self, cluster: Cluster, folder: Path, options: Options, act: Callable[[Trial], None],
        say: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """``act`` is what is done while the work flows."""
        self.clients: list[Client] = []
        self.act = act
        super().__init__(cluster, folder, options, say)

    def client(self) -> Client:
        """A client, of which the trial knows."""
        self.clients.append(super().client())
        return self.clients[-1]

    def _faults(self, check: Callable[[], None]) -> list[Any]:
        self.act(self)
        self.goes_on()
        return []

    def goes_on(self) -> None:
        """A task that is handed in now succeeds."""
        if self.mend(None, set()) is None:
            raise AssertionError("no task succeeds any more")

    def replace(self, members: Iterable[Member]) -> None:
        """Have some processes end in their order and others begin with the environment as it is now."""
        before = {}
        for member in members:
            before[member.name] = (member, member.pid, member.log.stat().st_size)
            member.expected = True
            os.kill(member.pid, signal.SIGTERM)
        give_up = time.monotonic() + START_S
        for member, pid, size in before.values():
            while member.pid in (0, pid) or not self._is_ready(member, size):
                if time.monotonic() > give_up:
                    raise AssertionError(f"{member.name} did not come back: {member.log.read_text()[-2000:]}")
                time.sleep(LOOK_S)

    def replace_all(self) -> None:
        """All processes, so that one of each kind is always there."""
        for number in ("1", "2"):
            self.replace([one for one in self.cluster.members if one.name.endswith(number)])

    def _is_ready(self, member: Member, size: int) -> bool:
        if member.role == "worker":
            with member.log.open(errors="replace") as log:
                log.seek(size)
                return "@torture ready" in log.read()
        if member.role != "submitter":
            return True
        port = self.cluster.ports[int(member.name.rpartition("-")[2]) - 1]
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
            return True
        return False

    @contextlib.contextmanager
    def reading(self, seconds: float) -> Iterator[None]:
        """Somebody who has read the ledger, and keeps the transaction open for so long."""
        with psycopg.connect(self.cluster.postgres.url) as connection:
            connection.execute("SELECT count(*) FROM slackwater_tasks_task, slackwater_tasks_livetask")
            timer = threading.Timer(seconds, connection.close)
            timer.start()
            try:
                yield
            finally:
                timer.cancel()

    def logs(self) -> str:
        """What all processes have said."""
        return "".join(member.log.read_text(errors="replace") for member in self.cluster.members)

    def command(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A management command, whatever comes of it."""
        return subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments], env={**self.cluster.env, **env}, cwd=ROOT,
            capture_output=True, text=True, check=False,
        )  # fmt: skip


def attempt(folder: Path, act: Callable[[Trial], None], *, conf: dict[str, float] | None = None, **options: Any) -> Result:
    """Run a trial on a platform of its own; what came of it."""
    asked = Options(**{"tasks": 200, "faults": 8, "seed": 1, **options})
    with Cluster(folder, nodes=2, concurrency=2, conf=conf or {}) as cluster:
        return Trial(cluster, folder, asked, act).run()
