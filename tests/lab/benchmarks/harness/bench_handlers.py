"""Handlers of the peer script: the bodies that every peer of the comparison runs."""

from __future__ import annotations

from common import awork, work  # type: ignore[import-not-found]  # the harness puts its module on the path

from scheduler_ext.task.handlers import handler


@handler(name="bench.work", idempotent=True)
def bench_work(i: int, ms: float = 0) -> None:
    """Note the start, sleep, note the end."""
    work(i, ms)


@handler(name="bench.awork", idempotent=True)
async def bench_awork(i: int, ms: float = 0) -> None:
    """The same as a coroutine."""
    await awork(i, ms)
