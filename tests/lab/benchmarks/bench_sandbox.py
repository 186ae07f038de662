"""What a sandbox costs a script: ``python -m tests.lab.benchmarks.bench_sandbox [RUNS]``. No test: figures for a reader.

For each level that works here, the time from the order to the end of ``exit 0``, beside a bare process started and
waited for the same way. The levels take turns, so that the machine's other work meets them alike. ``RUNNER TOKEN_FILE``
after RUNS: containers too, by that runner; a pause before each lets it make the next one ready, as between scripts that
are a little apart, and ``container cold`` is one that nobody had made ready.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.sandbox import detect
from scheduler_ext.sandbox.base import Level, Limits, Order
from scheduler_ext.sandbox.detect import AnySlot

LIMITS = Limits(cpu_milli=1_000, memory_mb=256, disk_mb=64, cap_ms=10_000)
READY_S = 2.0
ORDER = Order(script=b"#!/bin/sh\nexit 0\n", inputs=b"{}", env={"PATH": "/usr/bin:/bin"}, limits=LIMITS)


async def bare(script: Path, out: int) -> float:
    """A process without any sandbox."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(script, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out)
    await process.wait()
    return (time.perf_counter() - began) * 1000


async def boxed(slot: AnySlot, out: int) -> float:
    """The same in a slot."""
    began = time.perf_counter()
    ended = await slot.run(ORDER, out, out)
    assert ended.code == 0, ended
    return (time.perf_counter() - began) * 1000


async def cold(conf: SchedulerConf, out: int) -> float:
    """In a container by a slot that is connected, and has run nothing: it is created, started and waited for."""
    slot = detect.slot(Level.CONTAINER, "", conf)
    await slot.start()
    spent = await boxed(slot, out)
    slot.close()
    return spent


def prepared(folder: str) -> Path:
    """The bare script, where every slot's user gets through."""
    Path(folder).chmod(0o711)
    script = Path(folder, "script")
    script.write_bytes(ORDER.script)
    script.chmod(0o755)
    return script


async def measure(runs: int, conf: SchedulerConf) -> dict[str, list[float]]:
    """Milliseconds by level."""
    found = await detect.try_all(conf)
    times: dict[str, list[float]] = {"bare": []}
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "wb") as null:  # noqa: PTH123, ASYNC230
        script = prepared(folder)
        slots = {one.level: detect.slot(one.level, f"{folder}/{one.level}", conf) for one in found if one.works}
        for _ in range(runs):
            times["bare"].append(await bare(script, null.fileno()))
            for level, slot in slots.items():
                if level is Level.CONTAINER:
                    times.setdefault("container cold", []).append(await cold(conf, null.fileno()))
                    await asyncio.sleep(READY_S)
                times.setdefault(level, []).append(await boxed(slot, null.fileno()))
        for slot in slots.values():
            slot.close()
    return {name: values[1:] for name, values in times.items()}


def main() -> None:
    """Print the table."""
    runs, *runner = sys.argv[1:] or ["60"]
    conf = SchedulerConf(runner=runner[0], runner_token_file=runner[1]) if runner else SchedulerConf()
    times = asyncio.run(measure(int(runs), conf))
    base = statistics.median(times["bare"])
    print(f"{'level':15} {'median':>8} {'p95':>8} {'over bare':>10}  ms")  # noqa: T201
    for name, values in times.items():
        middle, p95 = statistics.median(values), statistics.quantiles(values, n=20)[-1]
        print(f"{name:15} {middle:8.1f} {p95:8.1f} {middle - base:10.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
