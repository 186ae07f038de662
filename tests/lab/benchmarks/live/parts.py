"""The processes of a scenario's platform: dispatcher, upkeep and workers as `make up` starts them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

from slackwater.local.components import Component, Layout, components
from slackwater.local.process import start, stop
from slackwater_conf import conf
from tests.lab.benchmarks.peer import report

START_S = 90.0
STOP_S = 45.0
READY = "SELECT count(*) FROM slackwater_resources_node WHERE state = 'active'"
LEFT_OUT = ("api", "beat", "flower")


def tell(phase: str, done: int, of: int) -> None:
    """Say how far it is."""
    report("PROGRESS", phase=phase, done=done, of=of)


def wait(done: Callable[[], bool], seconds: float, every_s: float = 0.2) -> bool:
    """Ask until it is so; False when it took longer."""
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            return False
        time.sleep(every_s)
    return True


def number(sql: str) -> int:
    """The one number that a query answers."""
    with connection.cursor() as cur:
        cur.execute(sql)
        return int(cur.fetchone()[0])


class Parts:
    """Processes by name; one that was killed can be started again as a supervisor would."""

    def __init__(self, *, workers: int, children: int, env: Mapping[str, str] | None = None) -> None:
        """``env`` is added to the environment of all."""
        layout = Layout(host="127.0.0.1", port=0, flower_port=0, workers=workers, concurrency=children)
        known = components(layout)
        self.workers = workers
        self.known: dict[str, Component] = {part.name: part for part in known if part.name not in LEFT_OUT}
        self.log = Path(conf().var) / "scenario.log"
        self._env = dict(env or {})
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Those that run, by name."""
        return {name: process.pid for name, process in self._running.items() if process.poll() is None}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start everything and wait for the workers, and end it."""
        try:
            for name in self.known:
                self.start(name)
            tell("starting", 0, self.workers)
            if not wait(lambda: number(READY) >= self.workers, START_S):
                raise RuntimeError(f"the workers did not start; see {self.log}")
            yield
        finally:
            self.stop()

    def start(self, name: str) -> None:
        """Start one part."""
        part = self.known[name]
        env = {**os.environ, **part.env, **self._env}
        with self.log.open("ab") as log:
            self._running[name] = start(part.command, env=env, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """End one part as a lost machine ends: without a word, and what it started with it; then start it anew."""
        process = self._running[name]
        process.kill()
        process.wait()
        self.start(name)

    def stop(self) -> None:
        """Ask all to end, and end those that do not in time."""
        stop(self._running.values(), timeout=STOP_S)
