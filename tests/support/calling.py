"""Handlers that use Celery's own API, and tell of each run by a line in a file."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from celery import Task, chain, chord, group, shared_task, signals
from celery.exceptions import SoftTimeLimitExceeded

from slackwater import export, handler


def _ran(folder: str, line: str) -> None:
    with Path(folder, "ran").open("a") as file:
        file.write(f"{line}\n")


@handler(name="calls.add")
def add(x: int, y: int) -> int:
    """The sum."""
    return x + y


@handler(name="calls.total")
def total(values: list[int]) -> int:
    """The sum of a list."""
    return sum(values)


@handler(name="calls.note")
def note(folder: str, line: str) -> str:
    """Tell of a run."""
    _ran(folder, line)
    return line


@shared_task(name="calls.plain")
def plain(folder: str, line: str) -> None:
    """An ordinary Celery task."""
    _ran(folder, line)


@handler(name="calls.again", bind=True, max_retries=5)
def again(self: Any, /, folder: str, line: str, times: int = 1, **how: Any) -> str:
    """Ask to be run again so many times."""
    _ran(folder, f"{line} {self.request.retries}")
    if self.request.retries < times:
        error = self.retry(countdown=0.2, **how)
        assert how, "retry() raises unless it is told not to"
        return str(error)
    return "paid"


@handler(name="calls.auto", autoretry_for=(OSError,), retry_kwargs={"countdown": 0.2, "max_retries": 5}, bind=True)
def auto(self: Any, folder: str, line: str) -> str:
    """Fail once."""
    _ran(folder, f"{line} {self.request.retries}")
    if self.request.retries == 0:
        raise OSError("the first time")
    return "paid"


@handler(name="calls.fewer", bind=True, max_retries=5)
def fewer(self: Any, folder: str, left: int) -> str:
    """Run again with other arguments until nothing is left."""
    _ran(folder, f"left {left}")
    if left:
        raise self.retry(args=[folder], kwargs={"left": left - 1}, countdown=0.1)
    return "none left"


@handler(name="calls.never", max_retries=0)
def never(folder: str) -> None:
    """Fail, and never be run again."""
    _ran(folder, "never")
    raise ValueError("no")


@shared_task(name="inner.nests", bind=True)
def nests(self: Any, folder: str, fail: bool = False) -> dict[str, Any]:
    """Submit work, in every way Celery has."""
    _ran(folder, "nests")
    pair: Any = group(add.s(1, 1), add.s(2, 2))
    found = {
        "delay": add.delay(5, 1).id,
        "countdown": add.apply_async((5, 2), countdown=0.1).id,
        "by_name": self.app.send_task("calls.add", (5, 3)).id,
        "signature": add.s(5, 4).delay().id,
        "chain": chain(add.s(1, 2), add.s(10)).delay().id,
        "chord": chord([add.s(1, 2), add.s(3, 4)])(total.s()).id,
        "group": [one.id for one in pair.delay().results],
    }
    plain.delay(folder, "plain")
    if fail and self.request.retries == 0:
        raise self.retry(exc=RuntimeError("after all was submitted"), countdown=0.1)
    return found


export(nests, name="calls.nests")


@shared_task(name="calls.once")
def once(folder: str) -> None:
    """Fail: Celery would not run it again."""
    _ran(folder, "once")
    raise ValueError("no")


@shared_task(name="calls.soft", bind=True, soft_time_limit=1, max_retries=1)
def soft(self: Any, at: datetime, prices: list[Decimal]) -> dict[str, Any]:
    """Wait until the soft limit is told; the values come as they were handed in."""
    self.update_state(state="PROGRESS", meta={"done": 1})
    try:
        time.sleep(60)
    except SoftTimeLimitExceeded:
        if self.request.retries < 2:
            raise self.retry(max_retries=2, countdown=0.1) from None
    return {"at": at, "sum": sum(prices), "headers": self.request.headers}


class Hooked(Task):
    """Tells how its runs ended."""

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Tell of a failure."""
        _ran(args[0], f"{args[1]} {type(exc).__name__} {self.request.id == task_id}")


@shared_task(name="calls.deaf", base=Hooked, time_limit=1)
def deaf(folder: str, line: str) -> None:
    """Hear of no interruption: only its process's end ends it."""
    _ran(folder, "deaf")
    if line == "dies":
        os._exit(9)
    while True:
        with suppress(BaseException):
            time.sleep(60)


@signals.task_revoked.connect(sender=deaf)
def revoked(request: Any, terminated: bool, **_: Any) -> None:
    """Tell of a run that was taken back."""
    _ran(request.args[0], f"{request.args[1]} revoked {terminated}")


for carried in (once, soft, deaf):
    export(carried)


@handler(name="calls.becomes", bind=True)
def becomes(self: Any, folder: str, many: bool = False) -> None:
    """Go on as another task."""
    _ran(folder, "becomes")
    if many:
        self.replace(group(add.s(1, 2), add.s(3, 4)))
    self.replace(again.s(folder, "other"))
