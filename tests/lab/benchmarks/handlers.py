"""Handlers of the benchmarks: they note when they ran, and nothing else. Never exported by a platform in use."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Final

from scheduler_ext.task import capture
from scheduler_ext.task.handlers import handler
from slackwater_conf import conf
from tests.lab.benchmarks.channel import CHANNEL_FILE, Channel

DEAF: Final = "BENCH_DEAF"
"""Set for workers that catch nothing of what handlers print, so that its cost shows beside them."""
if os.environ.get(DEAF):
    capture.install = lambda: None
TICK_S: Final = 0.1


@cache
def channel() -> Channel:
    """The timing channel of this run, in the run's own data folder."""
    return Channel(Path(conf().var) / CHANNEL_FILE)


@handler(name="bench.work", idempotent=True)
def work(number: int, ms: float = 0) -> None:
    """Note the start, sleep, note the end."""
    channel().work(number, ms)


@handler(name="bench.awork", idempotent=True)
async def awork(number: int, ms: float = 0) -> None:
    """The same as a coroutine."""
    await channel().awork(number, ms)


@handler(name="bench.says", idempotent=True)
def says(number: int, ms: float = 0) -> None:
    """The same, and print a line."""
    sys.stdout.write(f"number {number} is done\n")
    channel().work(number, ms)


@handler(name="bench.fail", idempotent=True)
def fail(number: int, ms: float = 0) -> None:
    """Note both times, then fail."""
    channel().work(number, ms)
    raise RuntimeError("this task was meant to fail")


@handler(name="bench.writes", idempotent=True)
async def writes(number: int, ms: float) -> None:
    """For so many whole seconds, ten times in each, print as many lines as there are milliseconds beside them."""
    times, (seconds, lines) = channel().times, divmod(int(ms), 1000)
    times[2 * number] = time.monotonic()
    for tick in range(round(seconds / TICK_S)):
        for line in range(lines):
            print(f"line {tick}.{line} of {number} with what a line of a log usually has")  # noqa: T201
        await asyncio.sleep(max(0.0, times[2 * number] + (tick + 1) * TICK_S - time.monotonic()))
    times[2 * number + 1] = time.monotonic()


@handler(name="bench.nothing", idempotent=True)
def nothing() -> None:
    """Do nothing at all: what is left is the platform's own cost."""
