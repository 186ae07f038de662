"""The comparison's workers: the same tasks on Celery as it comes, with the broker and the results on Redis.

Nothing is configured but where Redis is (Celery reads that from its environment itself) and what a task itself says:
its retries and its time limit. What Celery does not have (keys, effects once) is left out, or done plainly by the task.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

from celery import Celery, Task

from tests.lab.torture.record import Witness, do_outside

app = Celery("plain")
STEP_S = 0.05


@cache
def _witness(folder: str) -> Witness:
    return Witness(Path(folder))


class Run:
    """One run of a task in the record; runs have no fences here, so each is told by the time it began."""

    def __init__(self, folder: str, task_id: str) -> None:
        self._folder, self._task_id, self._began = folder, task_id, time.monotonic_ns()
        self._note("B")

    def _note(self, what: str) -> None:
        _witness(self._folder).note(what, self._task_id, self._began)

    def steps(self, seconds: float) -> None:
        """Work for that long, and be seen at it."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(STEP_S)
            self._note("S")

    def end(self) -> None:
        """It ended well."""
        self._note("E")


@app.task(bind=True, name="plain.long")
def long(self: Task[Any, Any], folder: str, seconds: float) -> float:
    """Work for that many seconds; none: begin and end."""
    run = Run(folder, str(self.request.id))
    run.steps(seconds)
    run.end()
    return seconds


@app.task(bind=True, name="plain.flaky")
def flaky(self: Task[Any, Any], folder: str, times: int, total_attempts: int) -> int:
    """Fail at the first ``times`` attempts."""
    run = Run(folder, str(self.request.id))
    attempt = int(self.request.retries) + 1
    if attempt <= times:
        error = RuntimeError(f"told to fail {times} times")
        raise self.retry(exc=error, countdown=1, max_retries=total_attempts - 1)
    run.end()
    return attempt


@app.task(bind=True, name="plain.effect")
def effect(self: Task[Any, Any], folder: str, key: str) -> None:
    """An effect outside."""
    run = Run(folder, str(self.request.id))
    do_outside(Path(folder), key)
    run.end()


@app.task(bind=True, name="plain.join")
def join(self: Task[Any, Any], results: Any, folder: str, seconds: float) -> None:
    """The last task of a graph; takes the results of those it needs, as a chord's body does."""
    run = Run(folder, str(self.request.id))
    run.steps(seconds)
    run.end()
