"""Moves checkpoints of scripts between sandbox and ledger, on a thread of its own because they may be large."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import InvalidInput, Unavailable
from scheduler_ext.core.work import File, Format, ScriptWork, Started
from scheduler_ext.ports import WorkStore
from scheduler_ext.sandbox.base import Saves
from scheduler_ext.sandbox.keeper.checkpoint_folder import files_of
from scheduler_ext.task.checkpoints import CheckpointTooLarge
from scheduler_ext.task.effects import AttemptReplaced

log = logging.getLogger(__name__)

T = TypeVar("T")
PAUSE_S = 0.5
"""Seconds between attempts while the ledger is away."""


class Saving:
    """Loads and keeps the checkpoints of a node's scripts."""

    def __init__(self, conf: SchedulerConf, work: WorkStore) -> None:
        self.conf = conf
        self.work = work
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")

    async def of(self, task: Started, work: ScriptWork) -> Saves:
        """Where a started script resumes, and how what it saves is kept."""
        saved = await self._do(lambda: self.work.backend(task).load_checkpoint())

        async def keep(content: bytes) -> None:
            try:
                await self._do(lambda: self.work.backend(task).save_checkpoint(Format.FOLDER, content))
            except AttemptReplaced:
                log.info("task %s is no longer this node's: its checkpoint is not kept", task.task_id)
            except CheckpointTooLarge as error:
                await refuse(str(error))

        async def refuse(reason: str) -> None:
            await self._do(lambda: self.work.backend(task).note_checkpoint(f"its checkpoint is not kept: {reason}"))

        return Saves(
            keep=keep, refuse=refuse, content=saved.content if saved is not None else None,
            every_s=self.conf.checkpoint_every_s, most_bytes=work.max_checkpoint_bytes,
        )  # fmt: skip

    async def artifacts(self, task: Started, packed: bytes) -> str:
        """Keep the artifacts a script left in its folder; returns why they are not kept, or nothing."""
        files = [File(name=name, content=content) for name, content in files_of(packed)]
        try:
            await self._do(lambda: self.work.backend(task).save_artifacts(files))
        except (InvalidInput, AttemptReplaced, Unavailable) as error:
            return f"its artifacts are not kept: {error}"
        return ""

    async def _do(self, function: Callable[[], T]) -> T:
        """Make a call on the thread; repeat it while the ledger is away."""
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, function)
            except self.work.faults as error:
                log.warning("the database is away: %s", error)
                await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
