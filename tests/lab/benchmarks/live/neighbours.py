"""How much longer a tenant's scripts run while hostile ones of another tenant run in the slot beside them.

Scripts are run as a node's agent runs them, at every level this machine offers, each with control groups and without.
Three times are compared: alone; beside a script that only burns the processor its tier gives it, which shows what the
machine itself costs whoever shares it; and beside each hostile script in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import ScriptWork, Started
from scheduler_ext.sandbox import detect
from scheduler_ext.sandbox.base import Level
from scheduler_ext.sandbox.pool import SlotPool
from scheduler_ext.worker.agent.scripts import ScriptRun
from tests.lab.benchmarks.live.parts import tell
from tests.lab.benchmarks.measure import percentiles
from tests.lab.benchmarks.peer import report
from tests.lab.sandbox_score import hostile
from tests.lab.sandbox_score.targets import Targets, targets

CHANGE = 10.0
WARM_UP = 5
PAUSE_S = 0.02
CAP_MS = 30_000
PEACEFUL = hostile.Hostile(
    name="peaceful",
    content=b"#!/bin/sh\nwhile :; do :; done\n",
    attack="",
    expect="cap",
    escapes_plainly=False,
)
"""Nothing hostile: it uses all of the processor that its tier gives it, until its cap."""
WORK = """#!/usr/bin/python3
import os
x = 1
for _ in range({steps}):
    x = (x * 1103515245 + 12345) & 0x7FFFFFFF
with open("scratch", "wb") as file:
    file.write(os.urandom(1 << 16))
with open("scratch", "rb") as file:
    print(len(file.read()), x)
"""
SAMPLE_STEPS = 200_000


def run(samples: int, work_ms: int, rounds: int, scripts: int, groups: Sequence[int]) -> None:
    """``samples`` runs of about ``work_ms`` alone and as many beside a peaceful one, then all that fit beside each
    of the hostile scripts (the first ``scripts``; 0: all); ``rounds`` times, a line for each level.
    """
    attacks = hostile.load()[: scripts or None]
    work = WORK.format(steps=_steps(work_ms)).encode()
    offered = asyncio.run(detect.try_all(hostile.settings(Level.PROCESS)))
    for one in offered:
        if not one.works or not one.level.contains_untrusted:
            continue
        for grouped in groups if one.groups else [0]:
            _level(one.level, bool(grouped), attacks, work, samples, rounds)


def _steps(work_ms: int) -> int:
    """How many steps of the loop take so long here when nothing else runs."""
    best = float("inf")
    for _ in range(5):
        began, x = time.perf_counter(), 1
        for _ in range(SAMPLE_STEPS):
            x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        best = min(best, time.perf_counter() - began)
    return max(1, int(SAMPLE_STEPS * work_ms / 1000 / best))


def _level(
    level: Level, grouped: bool, attacks: Sequence[hostile.Hostile], work: bytes, samples: int, rounds: int
) -> None:
    conf = hostile.settings(level)
    pools = [SlotPool(conf, groups=grouped) for _ in range(2)]
    try:
        for pool in pools:
            pool.probe()
        with tempfile.TemporaryDirectory(prefix="slackwater-near-") as folder:
            roots = [Path(folder, name) for name in ("quiet", "hostile")]
            Path(folder).chmod(0o711)
            for root in roots:
                root.mkdir(mode=0o711)
            side = _Side(f"{level}{'' if grouped else ' without control groups'}", pools, roots, work, attacks)
            asyncio.run(side.play(samples, rounds))
    finally:
        for pool in pools:
            pool.close()
    side.report(samples, rounds)


@dataclass(slots=True)
class _Side:
    """One level: a quiet tenant's slot and a hostile one's, in one process as in a node's agent."""

    name: str
    pools: Sequence[SlotPool]
    roots: Sequence[Path]
    work: bytes
    attacks: Sequence[hostile.Hostile]
    alone: list[float] = field(default_factory=list)
    peaceful: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    by_attack: dict[str, list[float]] = field(default_factory=dict)
    failed: int = 0
    escaped: dict[str, str] = field(default_factory=dict)

    async def play(self, samples: int, rounds: int) -> None:
        """Measure, the three kinds in turn so that a change of the machine's own pace meets all of them."""
        async with targets() as against:
            for _ in range(WARM_UP):
                await self._once()
            for turn in range(rounds):
                for n in range(samples):
                    tell(f"{self.name}, alone", turn * samples + n, rounds * samples)
                    self.alone.append(await self._once())
                await self._peaceful(samples, against)
                for n, attack in enumerate(self.attacks):
                    tell(f"{self.name}, beside {attack.name}", n, len(self.attacks))
                    await self._beside(attack, against)

    async def _peaceful(self, samples: int, against: Targets) -> None:
        before = len(self.peaceful)
        while len(self.peaceful) - before < samples:
            tell(f"{self.name}, beside a peaceful one", len(self.peaceful) - before, samples)
            self.peaceful += (await self._while(lambda: self._attack(PEACEFUL, against)))[:samples]

    async def _beside(self, attack: hostile.Hostile, against: Targets) -> None:
        times = await self._while(lambda: self._attack(attack, against))
        self.beside += times
        self.by_attack.setdefault(attack.name, []).extend(times)

    async def _attack(self, attack: hostile.Hostile, against: Targets) -> None:
        verdict = await hostile.attack(self.pools[1], attack, against, self.roots[1])
        if not verdict.contained:
            self.escaped[attack.name] = verdict.why

    async def _while(self, other: Callable[[], Awaitable[None]]) -> list[float]:
        """Run times of those that began while the other script ran; of a short one at least one."""
        running = asyncio.ensure_future(other())
        times: list[float] = []
        try:
            await asyncio.sleep(PAUSE_S)
            while not running.done() or not times:
                times.append(await self._once())
        finally:
            if not running.done():
                running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        return times

    async def _once(self) -> float:
        task = Started(str(uuid.uuid4()), 1, 2, "", "", "", [], {}, CAP_MS, 1, "quiet")
        script = ScriptWork(content=self.work, folder="", trusted=False, vector=hostile.VECTOR)
        run = ScriptRun(self.pools[0].conf, task, script, self.pools[0], self.roots[0], {})
        began = time.monotonic()
        finished = await run.run()
        took = time.monotonic() - began
        self.failed += finished.outcome is not Outcome.SUCCEEDED
        return took

    def report(self, samples: int, rounds: int) -> None:
        """Say what was found."""
        alone, peaceful, beside = map(percentiles, (self.alone, self.peaceful, self.beside))
        change, against_peaceful = (round((beside["p95"] / other["p95"] - 1) * 100, 1) for other in (alone, peaceful))
        medians = {name: sorted(times)[len(times) // 2] for name, times in self.by_attack.items()}
        worst = max(medians, key=lambda name: medians[name])
        report(
            "RESULT", level=self.name, samples=samples, rounds=rounds, scripts=len(self.attacks), alone_ms=alone,
            peaceful_ms=peaceful, beside_ms=beside, change_percent=change, against_peaceful_percent=against_peaceful,
            worst_script=worst, worst_median_ms=round(medians[worst] * 1000, 1), failed=self.failed,
            escaped=self.escaped,
            verdict={
                f"{self.name}: all contained, no neighbour failed": not self.escaped and not self.failed,
                f"{self.name}: p95 of the neighbours' run time changes by less than {CHANGE:g} %":
                abs(change) < CHANGE,
                f"{self.name}: … of that beside a peaceful script by less than {CHANGE:g} %":
                against_peaceful < CHANGE,
            },
        )  # fmt: skip
