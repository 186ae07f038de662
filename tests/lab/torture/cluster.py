"""A whole platform for a run: servers and processes in a folder of its own; what ends is started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from slackwater.local.process import kill_group, run, start
from slackwater.local.servers import EmbeddedPostgres, EmbeddedRedis, socket_folder
from slackwater.local.servers.folders import free_port
from slackwater.settings.place import ROOT
from tests.lab.torture.clocks import Clocks
from tests.lab.torture.links import SERVERS, Links

LOOK_S = 0.1
BACK_OFF_S = 0.5
FAST: Mapping[str, float] = {
    "node_lease_s": 3.0, "node_renew_s": 0.5, "leader_lease_s": 3.0, "leader_renew_s": 0.5, "claim_ttl_s": 3.0,
    "retry_base_s": 0.1, "cancel_grace_s": 0.5,
}  # fmt: skip
"""Short leases, so that a run sees many of them end."""


@dataclass(slots=True)
class Member:
    """One process of the platform, kept running."""

    role: str
    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    """What its command runs under: the network it lives in."""
    link: int = 0
    """Number of its link; 0: none."""
    group: bool = False
    """Its children hold what its successor needs (a port), so they end with it."""
    process: subprocess.Popen[bytes] | None = None
    ended_at: float = 0.0
    expected: bool = False
    """Its end is our doing."""
    log: Path = Path()

    @property
    def pid(self) -> int:
        """The present process; 0 when there is none."""
        return self.process.pid if self.process is not None and self.process.poll() is None else 0

    def family(self) -> list[psutil.Process]:
        """It and all that descends from it."""
        try:
            parent = psutil.Process(self.pid)
            return [parent, *parent.children(recursive=True)] if self.pid else []
        except psutil.NoSuchProcess:
            return []

    def agent(self) -> psutil.Process | None:
        """A worker's agent."""
        return next((p for p in self.family()[1:] if "worker.agent" in _command(p)), None)

    def pool(self) -> list[psutil.Process]:
        """A worker's pool children."""
        return [p for p in self.family()[1:] if "celery" in _command(p) and _parent(p) == self.pid]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0


class Cluster:
    """Servers and members; a context manager that ends them all."""

    def __init__(
        self, folder: Path, *, nodes: int, concurrency: int, conf: Mapping[str, float],
        links: bool = False, clocks: bool = False,
    ) -> None:  # fmt: skip
        """``folder`` takes all data and logs; ``conf`` overrides the scheduler's settings.

        ``links``: each worker is a host of its own; the thread must have left the machine's network. ``clocks``: each
        process has a wall clock that can be set.
        """
        self.folder = folder
        run = socket_folder(folder)
        self.postgres = EmbeddedPostgres(folder / "postgres", run)
        self.redis = EmbeddedRedis(folder / "redis", run)
        self.conf = {**FAST, **conf}
        self.links = Links() if links else None
        self.clocks = Clocks(folder) if clocks else None
        self.ports = [free_port() for _ in range(2)]
        self.members: list[Member] = []
        self.crashes: Counter[str] = Counter()
        self.env: dict[str, str] = {}
        self._operator = ""
        self._layout = (nodes, concurrency)
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Start the servers, migrate, then start all members."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self.close()

    def _start(self) -> None:
        self._start_servers()
        self.env = {
            **os.environ,
            "SLACKWATER_DATABASE_URL": self.postgres.url, "SLACKWATER_REDIS_URL": self.redis.url,
            "SLACKWATER_VAR": str(self.folder), "SLACKWATER_SCHEDULER": json.dumps(self.conf),
            "SLACKWATER_HANDLERS": "tests.lab.torture.handlers",
            "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded", "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}:{ROOT / 'apps'}",
        }  # fmt: skip
        self.manage("create_demo", "--migrate")
        self.members = self._make_members()
        for member in self.members:
            if self.links and member.role == "worker":
                self._give_link(member, self.links)
            self.launch(member)
        self._keeper.start()

    def _make_members(self) -> list[Member]:
        return _members(self.ports, *self._layout)

    def _start_servers(self) -> None:
        if self.links:
            self.redis.address = self.postgres.address = SERVERS
        if self.clocks:
            self.redis.process.env |= self.clocks.env("redis")
            self.postgres.process.env |= self.clocks.env("postgresql")
        self.postgres.start()
        self.redis.start()

    def _give_link(self, member: Member, links: Links) -> None:
        member.link = int(member.name.rpartition("-")[2])
        member.prefix = tuple(links.join(member.link))
        member.env = {
            **member.env, "SLACKWATER_DATABASE_URL": self.postgres.url_at(SERVERS),
            "SLACKWATER_REDIS_URL": self.redis.url_at(SERVERS),
        }  # fmt: skip

    def manage(self, *arguments: str) -> str:
        """Run a management command to its end; ``RuntimeError`` with its output when it fails."""
        done = run([sys.executable, str(ROOT / "manage.py"), *arguments], env=self.env, cwd=ROOT)
        if done.returncode:
            raise RuntimeError(f"{arguments[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def operator_key(self) -> str:
        """A key that operates nodes, made on first use."""
        if not self._operator:
            made = self.manage("create_api_key", "demo", "--scope", "read", "--scope", "operate", "--json")
            self._operator = str(json.loads(made)["key"])
        return self._operator

    def key(self) -> str:
        """The demo tenant's API key."""
        for line in (self.folder / "demo.env").read_text().splitlines():
            if line.startswith("SLACKWATER_KEY="):
                return line.partition("=")[2]
        raise RuntimeError("the demo tenant has no key")

    # -- members ------------------------------------------------------------------------------------------------------
    def launch(self, member: Member) -> None:
        """Start a member's process."""
        member.log = self.folder / f"{member.name}.log"
        clock = self.clocks.env(member.name) if self.clocks else {}
        command = [*member.prefix, *member.command]
        with member.log.open("ab") as log:
            member.process = start(
                command, stdout=log, stderr=log, env={**self.env, **member.env, **clock}, cwd=ROOT,
                death_signal=signal.SIGKILL,
            )  # fmt: skip
        member.ended_at, member.expected = 0.0, False

    def add_worker(self) -> Member:
        """Start one more worker."""
        nodes = 1 + sum(1 for member in self.members if member.role == "worker")
        member = [one for one in _members(self.ports, nodes, self._layout[1]) if one.role == "worker"][-1]
        with self._lock:
            if self.links:
                self._give_link(member, self.links)
            self.launch(member)
            self.members.append(member)
        return member

    def dismiss(self, member: Member) -> None:
        """Tell a member to end, and start no other for it."""
        with self._lock:
            self.members.remove(member)
        os.kill(member.pid, signal.SIGTERM)
        if member.process is not None:
            member.process.wait()

    def of(self, role: str) -> list[Member]:
        """The living members of a role."""
        return [member for member in self.members if member.role == role and member.pid]

    def _keep(self) -> None:
        while not self._stopping.wait(LOOK_S):
            with self._lock:
                for member in self.members:
                    self._look_at(member)

    def _look_at(self, member: Member) -> None:
        if member.process is None or member.process.poll() is None:
            return
        if not member.ended_at:
            member.ended_at = time.monotonic()
            if not member.expected:
                self.crashes[f"{member.name} (exit code {member.process.returncode})"] += 1
            if member.group:
                kill_group(member.process.pid)
        if time.monotonic() - member.ended_at >= BACK_OFF_S:
            self.launch(member)

    def answers(self, port: int) -> bool:
        """Whether the submitter at this port serves requests."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
            return True
        return False

    def close(self) -> None:
        """End all members and both servers."""
        self._stopping.set()
        with self._lock:
            families = [process for member in self.members for process in member.family()]
            for process in families:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            for member in self.members:
                if member.process is not None:
                    member.process.wait()
        if self.links:
            self.links.close()
        self.redis.stop()
        self.postgres.stop()


def _members(ports: Sequence[int], nodes: int, concurrency: int) -> list[Member]:
    python, manage = sys.executable, str(ROOT / "manage.py")
    celery = (python, "-W", "ignore", "-m", "celery", "--quiet", "-A", "slackwater")
    granian = (
        python,
        "-m",
        "granian",
        "--interface",
        "asginl",
        "--workers",
        "1",
        "--no-ws",
        "--log-level",
        "warning",
    )
    options = ("-c", str(concurrency), "--without-gossip", "--without-mingle", "-l", "INFO")
    members = [Member("dispatcher", f"dispatcher-{n}", (python, manage, "run_dispatcher")) for n in range(1, 3)]
    members += [Member("upkeep", f"upkeep-{n}", (python, manage, "run_upkeep")) for n in range(1, 3)]
    members += [Member("beat", f"beat-{n}", (*celery, "beat", "--pidfile=", "-l", "INFO")) for n in range(1, 3)]
    members += [
        Member("submitter", f"submitter-{n}", (*granian, "--host", "127.0.0.1", "--port", str(port),
               "slackwater.asgi:application"), group=True)
        for n, port in enumerate(ports, 1)
    ]  # fmt: skip
    members += [
        Member("worker", f"worker-{n}", (*celery, "worker", "-n", f"w{n}@torture", *options))
        for n in range(1, nodes + 1)
    ]
    return members
