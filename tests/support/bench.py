"""A bench for scripts: each is run at one level of containment."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.work import Finished, ScriptWork, Started
from scheduler_ext.sandbox.base import Level
from scheduler_ext.sandbox.pool import SlotPool
from scheduler_ext.worker.agent.scripts import ScriptRun

CONF = SchedulerConf(script_processes=64, script_output_bytes=4 << 20, cancel_grace_s=0.5)


def work(**changes: Any) -> ScriptWork:
    base = ScriptWork(content=b"", folder="", trusted=False, vector=(1_000, 128, 32, 0, 0, 0))
    return dataclasses.replace(base, **changes)


class Bench:
    """Runs scripts at one level."""

    def __init__(self, pool: SlotPool, root: Path) -> None:
        self.pool = pool
        self.root = root

    def prepare(self, script: str, cap_ms: int = 10_000, kwargs: Any = None, **changes: Any) -> ScriptRun:
        task = Started("an-id", 1, 1, "", "", "", [1], kwargs or {}, cap_ms, 1, "")
        trusted = self.pool.level == Level.PROCESS
        changed = work(**{"trusted": trusted, "content": script.encode(), **changes})
        return ScriptRun(self.pool.conf, task, changed, self.pool, self.root, {"up": 2})

    def run(self, script: str, **options: Any) -> tuple[Finished, str]:
        run = self.prepare(script, **options)
        finished = asyncio.run(run.run())
        return finished, run.said["stdout"] + run.said["stderr"]
