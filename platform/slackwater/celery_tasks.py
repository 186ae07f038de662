"""Small handlers for the demo, for imported workflows and for the benchmarks; exported where the settings say so."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from scheduler_ext.core.types import WorkKind
from scheduler_ext.task.context import current
from scheduler_ext.task.handlers import handler
from slackwater_conf import conf

if conf().demo_handlers:

    @handler(name="demo.noop", idempotent=True)
    def noop() -> None:
        """Do nothing."""

    @handler(name="demo.echo", idempotent=True)
    def echo(value: Any = None, **named: Any) -> Any:
        """Return what was given."""
        return named or value

    @handler(name="demo.add", idempotent=True)
    def add(x: float, y: float) -> float:
        """Return the sum of two numbers."""
        return x + y

    @handler(name="demo.sleep", idempotent=True)
    def sleep(seconds: float, **_: Any) -> float:
        """Hold the slot for that many seconds; returns them."""
        time.sleep(seconds)
        return seconds

    @handler(name="demo.nap", idempotent=True)
    async def nap(seconds: float) -> float:
        """Wait for that many seconds as a coroutine: no slot of a process is held; returns them."""
        await asyncio.sleep(seconds)
        return seconds

    @handler(name="demo.doze", kind=WorkKind.THREAD, idempotent=True)
    def doze(seconds: float) -> float:
        """Wait for that many seconds in a thread, in steps that can be interrupted; returns them."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(0.01, left))
        return seconds

    @handler(name="demo.spin", idempotent=True)
    def spin(seconds: float) -> int:
        """Keep a processor busy for that many seconds; returns the rounds turned."""
        rounds, ends = 0, time.monotonic() + seconds
        while time.monotonic() < ends:
            rounds += 1
        return rounds

    @handler(name="demo.fail")
    def fail(message: str = "told to fail", times: int | None = None) -> int:
        """Raise an error, for the first ``times`` attempts only where that is given; returns the attempt's number."""
        attempt = current().attempt
        if times is None or attempt <= times:
            raise RuntimeError(message)
        return attempt

    @handler(name="demo.count", idempotent=True, checkpoints=True)
    def count(to: int, each_s: float = 0.05) -> dict[str, int]:
        """Count, ``each_s`` seconds a step, saving each step; returns where its last turn began and how far it came."""
        task = current()
        began = at = int(task.checkpoint.load() or 0)
        while at < to:
            time.sleep(each_s)
            at += 1
            task.checkpoint.save(at)
            if task.should_yield() and at < to:
                task.yield_now()
        return {"from": began, "to": at}

    @handler(name="demo.gather", idempotent=True)
    def gather() -> dict[str, Any]:
        """Return the results of the tasks it depends on, by name."""
        return current().upstream()
