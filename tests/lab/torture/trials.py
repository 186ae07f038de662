"""Trials: what an operator does to a platform under load, judged as the faults of the torture are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psycopg

from slackwater.settings.place import ROOT
from tests.lab.torture.clients import Client
from tests.lab.torture.cluster import Cluster, Member
from tests.lab.torture.run import Options, Result, Torture

LOOK_S = 0.05
START_S = 240.0
PATIENCE = 5
"""So often what a fault of the torture may take: a machine that is busy with more than this takes longer."""


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
        """A task that is submitted now succeeds."""
        if all(self.mend(None, set()) is None for _ in range(PATIENCE)):
            raise AssertionError("no task succeeds any more")

    def stop_schedules(self) -> None:
        """No task comes of itself any more."""
        while self._scheduled:
            self._stop_schedules()

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
        return self.cluster.answers(self.cluster.ports[int(member.name.rpartition("-")[2]) - 1])

    def migrate(self, target: str, **env: str) -> str:
        """Bring the ledger's schema to a migration, with somebody's open transaction in the way; what it said."""
        command = [sys.executable, str(ROOT / "manage.py"), "migrate", "slackwater_tasks", target]
        said = ""
        with (
            psycopg.connect(self.cluster.postgres.url) as reader,
            subprocess.Popen(command, env={**self.cluster.env, **env}, cwd=ROOT, stderr=subprocess.PIPE, text=True,
                             stdout=subprocess.DEVNULL) as process,
        ):  # fmt: skip
            reader.execute("SELECT count(*) FROM slackwater_tasks_task, slackwater_tasks_livetask")
            for line in process.stderr or ():
                said += line
                if "trying again" in line:
                    reader.rollback()
        if process.returncode:
            raise AssertionError(said)
        return said

    def logs(self) -> str:
        """What all processes have said."""
        return "".join(member.log.read_text(errors="replace") for member in self.cluster.members)


def attempt(
    folder: Path, act: Callable[[Trial], None], *, conf: dict[str, float] | None = None, **options: Any
) -> Result:
    """Run a trial on a platform of its own; what came of it."""
    asked = Options(**{"tasks": 200, "faults": 8, "seed": 1, **options})
    with Cluster(folder, nodes=2, concurrency=2, conf=conf or {}) as cluster:
        return Trial(cluster, folder, asked, act).run()
