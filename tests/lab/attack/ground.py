"""What is attacked: the whole platform as ``manage.py up`` runs it, in a folder of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import redis

from slackwater.settings.place import ROOT
from tests.support.processes import ManagedProcess, manage, running
from tests.support.waiting import wait_until

START_S = 120.0
STOP_S = 60.0
ENDED = re.compile(r"^\S+ up +\| (\S+ ended \([^)]*\))", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True)
class Ground:
    """A running platform, with all that an attacker on the machine, the network or in Redis may know of it."""

    var: Path
    process: ManagedProcess
    _ends: int = 0

    @property
    def printed(self) -> str:
        """All that ``up`` has said."""
        return self.process.output

    @property
    def url(self) -> str:
        """Where the API listens."""
        return self.row("Admin").removesuffix("/admin/")

    @property
    def flower(self) -> str:
        """Where Flower listens."""
        return self.row("Flower").rstrip("/")

    @property
    def witness(self) -> Path:
        """The file in which the handlers of :mod:`tests.lab.attack.prey` note that they ran."""
        return self.var / "ran"

    def row(self, name: str) -> str:
        """An address in the table that ``up`` prints."""
        found = re.search(rf"^  {name} +(\S+)", self.printed, re.MULTILINE)
        if found is None:
            raise LookupError(f"up has printed no line {name!r}")
        return found[1]

    def setting(self, name: str) -> str:
        """A value of ``var/demo.env`` (``SLACKWATER_KEY``) or ``var/servers.json`` (``SLACKWATER_REDIS_URL`` …)."""
        lines = (self.var / "demo.env").read_text().splitlines()
        demo = dict(line.split("=", 1) for line in lines if line.startswith("SLACKWATER_"))
        servers: dict[str, str] = json.loads((self.var / "servers.json").read_text())
        return demo.get(name) or servers[name]

    def redis(self) -> redis.Redis:
        """Redis as its owner has it."""
        return redis.Redis.from_url(self.setting("SLACKWATER_REDIS_URL"))

    def ask(self, path: str, method: str = "GET", *, body: bytes | None = None, headers: Mapping[str, str] | None = None,
            base: str = "", key: bool = False, timeout: float = 30.0) -> Answer:  # fmt: skip
        """Ask the API (or what listens at ``base``); ``key``: with the demo tenant's key."""
        parts = urlsplit(base or self.url)
        given = {"Authorization": f"Bearer {self.setting('SLACKWATER_KEY')}"} if key else {}
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path, body, {**given, **(headers or {})})
            answer = connection.getresponse()
            return Answer(status=answer.status, headers=dict(answer.getheaders()), body=answer.read())

    def fallen(self) -> list[str]:
        """The parts that ended since this was asked last."""
        found = ENDED.findall(self.printed)
        new, self._ends = found[self._ends :], len(found)
        return new


@contextlib.contextmanager
def platform() -> Iterator[Ground]:
    """Run it for the length of a ``with``; its servers, keys and passwords are of this run only."""
    with tempfile.TemporaryDirectory(prefix="slackwater-attack-") as folder:
        var = Path(folder) / "var"
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLACKWATER_", "DJANGO_", "PYTEST_"))
        }
        env = {
            **kept,
            "SLACKWATER_VAR": str(var), "SLACKWATER_PORT": "0", "SLACKWATER_HANDLERS": "tests.lab.attack.prey",
            "ATTACK_WITNESS": str(var / "ran"), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        command = ["env", "-i", *(f"{name}={value}" for name, value in env.items()), *manage("up")]
        with running(command, name="up") as process:
            process.wait_for("Slackwater is up", timeout=START_S)
            made = Ground(var=var, process=process)
            wait_until(lambda: _listens(made.flower), timeout=START_S, message="Flower listens")
            yield made
            process.send(signal.SIGTERM)
            process.wait(STOP_S)


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1.0):
            return True
    except OSError:
        return False
