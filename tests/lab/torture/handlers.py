"""The tasks of a torture run. Each writes to the record what it does; workers import this module for the run only."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from psycopg import Error as DatabaseError

from scheduler_ext.task.context import TaskContext, current
from scheduler_ext.task.handlers import handler
from tests.lab.torture.record import Witness, act, do_outside, done_outside

STEP_S = 0.05
TABLE = "torture_effect"


@cache
def _witness(folder: str) -> Witness:
    return Witness(Path(folder))


def _note(folder: str, what: str) -> None:
    task = current()
    _witness(folder).note(what, task.task_id, task.fence)


def _steps(folder: str, seconds: float) -> None:
    """Work for that long, and be seen at it."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(STEP_S)
        _note(folder, "S")


@handler(name="torture.short", idempotent=True)
def short(folder: str) -> None:
    """Begin and end."""
    _note(folder, "B")
    _note(folder, "E")


@handler(name="torture.long", idempotent=True)
def long(folder: str, seconds: float) -> float:
    """Work for that many seconds."""
    _note(folder, "B")
    _steps(folder, seconds)
    _note(folder, "E")
    return seconds


@handler(name="torture.steps", idempotent=True, checkpoints=True)
def steps(folder: str, seconds: float) -> int:
    """Work for that many seconds in steps, each saved, and make room when asked to."""
    _note(folder, "B")
    task = current()
    at = int((task.checkpoint.load() or {"at": 0})["at"])
    _note(folder, f"R{at}")
    while at < seconds / STEP_S:
        time.sleep(STEP_S)
        at += 1
        task.checkpoint.save({"at": at})
        _note(folder, f"C{at}")
        if task.should_yield():
            task.yield_now()
    _note(folder, "E")
    return at


@handler(name="torture.flaky")
def flaky(folder: str, times: int) -> int:
    """Fail at the first ``times`` attempts."""
    _note(folder, "B")
    attempt = current().attempt
    if attempt <= times:
        raise RuntimeError(f"told to fail {times} times")
    _note(folder, "E")
    return attempt


@handler(name="torture.endless")
def endless(folder: str) -> None:
    """Work until the execution cap ends it."""
    _note(folder, "B")
    _steps(folder, 3600.0)


@handler(name="torture.exclusive")
def exclusive(folder: str, seconds: float) -> None:
    """Work for that many seconds under a mutex key."""
    long.run(folder, seconds)


@handler(name="torture.guarded", idempotent=True)
def guarded(folder: str, key: str, seconds: float) -> None:
    """Act for that many seconds upon what a mutex key guards, until it is refused there."""
    _note(folder, "B")
    task = current()
    fence = _hold(task)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(STEP_S)
        _note(folder, "S")
        if not act(Path(folder), key, fence, task.task_id):
            raise RuntimeError("a later holder has acted: this one was replaced")
    _note(folder, "E")


def _hold(task: TaskContext) -> int:
    """The number of the hold; asked again while the ledger is away."""
    while True:
        try:
            fence = task.mutex_fence
        except DatabaseError:
            time.sleep(4 * STEP_S)
        else:
            if fence is None:
                raise RuntimeError("its claim is lost")
            return fence


@handler(name="torture.inside")
def inside(folder: str, key: str) -> None:
    """An effect in the platform's own database, once."""
    _note(folder, "B")
    task = current()
    with task.once(key) as effect:
        if effect.first:
            effect.connection.execute(
                f"INSERT INTO {TABLE} (key, task_id, fence) VALUES (%s, %s, %s)",
                (key, task.task_id, task.fence),
            )
    _note(folder, "E")


@handler(name="torture.outside")
def outside(folder: str, key: str) -> None:
    """An effect outside of it, once."""
    _note(folder, "B")
    place = Path(folder)
    with current().once(key, outside=True, verify=lambda: bool(done_outside(place, key))) as effect:
        if effect.first:
            do_outside(place, key)
    _note(folder, "E")
