"""What is measured: a peer, by the handful of things that differ between task queues.

A peer's process imports this from an environment of its own: here is nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Tell = Callable[[str, int, int], None]
"""Says how far a run is: the phase, how many are done, of how many."""
STOP_S = 20.0
SHIM = Path(__file__).resolve().parents[3] / "platform" / "slackwater" / "local" / "shim.py"
"""The program that ties a process to its parent's life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One run: what is measured of which peer, and where."""

    peer: str
    variant: str = "default"
    workload: str = "noop"
    tasks: int = 1000
    ms: float = 0
    """How long a task sleeps."""
    concurrency: int = 2
    measures: tuple[str, ...] = ("e2e", "submit", "idle", "load50", "memory")
    database_url: str = ""
    redis_url: str = ""
    servers: Mapping[str, int] = field(default_factory=dict)
    """Processes of the servers, by name."""
    channel: str = ""
    """Path of the timing channel."""
    log: str = os.devnull
    """Where the workers' output goes."""
    timeout: float = 240.0
    """Seconds that a workload may take."""
    idle_samples: int = 100
    """Lone tasks measured for the latency when idle."""
    load_rate: float = 0
    """Tasks a second for the latency under load; 0: half of what the peer has just reached."""

    @classmethod
    def from_json(cls, text: str) -> Config:
        """The inverse of :meth:`to_json`."""
        values = json.loads(text)
        return cls(**{**values, "measures": tuple(values["measures"])})

    def to_json(self) -> str:
        """As it is handed to a peer's process."""
        return json.dumps(asdict(self))


class Peer(ABC):
    """A task queue under measurement. It runs in the producer's process; its workers are processes of their own."""

    packages: tuple[str, ...] = ()
    """Whose versions are reported."""
    durable = False
    """Every task is a row in PostgreSQL before it runs."""

    def __init__(self, config: Config) -> None:
        """``config`` says which variant, where the servers are, and where the time is noted."""
        self.config = config
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def setup(self) -> None:
        """Prepare empty servers."""

    @abstractmethod
    def reset(self) -> None:
        """Forget every task; no worker runs then."""

    @abstractmethod
    def workers(self) -> Mapping[str, list[str]]:
        """The commands of its processes, by name."""

    @abstractmethod
    def submit(self, number: int) -> None:
        """Submit one task."""

    def submit_bulk(self, first: int, end: int) -> None:
        """Submit tasks ``first`` to ``end - 1`` in the cheapest way the peer offers."""
        for number in range(first, end):
            self.submit(number)

    def recorded(self) -> int | None:
        """How many tasks its own records call finished; ``None`` when it keeps none."""
        return None

    def extra(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        """Measures only this peer has, by name; each returns fields of the result. They run before the workers."""
        return {}

    def teardown(self) -> None:  # noqa: B027 - most have nothing to close
        """Close what is open."""

    # -- its processes ------------------------------------------------------------------------------------------------
    def environment(self) -> dict[str, str]:
        """The environment of its processes."""
        return dict(os.environ)

    def start(self) -> None:
        """Start its processes."""
        tie = [sys.executable, "-I", "-S", str(SHIM), str(int(signal.SIGTERM)), str(os.getpid()), "self", "--"]
        with Path(self.config.log).open("ab") as log:
            for name, command in self.workers().items():
                self.processes[name] = subprocess.Popen(
                    [*tie, *command], env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip

    def stop(self) -> None:
        """Ask them to end, kill what does not."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.processes = {}

    def roots(self) -> dict[str, int]:
        """Everything whose cost counts: this process, the servers, the peer's own processes."""
        own = {name: process.pid for name, process in self.processes.items()}
        return {"producer": os.getpid(), **self.config.servers, **own}

    def versions(self) -> str:
        """What is measured, for the record."""
        return " ".join(f"{name} {importlib.metadata.version(name)}" for name in self.packages)


def report(kind: str, **fields: Any) -> None:
    """Tell whoever started this process: a line of output, its first word the kind."""
    sys.stdout.write(f"{kind} {json.dumps(fields)}\n")
    sys.stdout.flush()
