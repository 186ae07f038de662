"""The timing channel: shared memory in which each task's function notes when it began and when it ended.

It costs well below a microsecond and is the same for every peer, so neither "start latency" nor "finished" depends on
what a peer says about itself.
"""

from __future__ import annotations

import asyncio
import mmap
import time
from pathlib import Path

CHANNEL_FILE = "timing"
"""Its name in the data folder of a run."""
SLOT_BYTES = 16  # begun and ended, in seconds of CLOCK_MONOTONIC, which all processes of a machine share


class Channel:
    """Two times a task, by the task's number."""

    def __init__(self, path: Path) -> None:
        """Open the file that :meth:`create` has made."""
        with path.open("r+b") as file:
            self.times = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")

    @classmethod
    def create(cls, path: Path, slots: int) -> Channel:
        """Make it anew, all zero; the file is sparse."""
        with path.open("wb") as file:
            file.truncate(slots * SLOT_BYTES)
        return cls(path)

    @property
    def slots(self) -> int:
        """How many tasks it has room for."""
        return len(self.times) // 2

    def begun(self, number: int) -> float:
        """When the task's function began; 0 before that."""
        return self.times[2 * number]

    def ended(self, number: int) -> float:
        """When it ended; 0 before that."""
        return self.times[2 * number + 1]

    def work(self, number: int, ms: float = 0) -> None:
        """What a task's function does: note the time, sleep, note the time."""
        self.times[2 * number] = time.monotonic()
        if ms:
            time.sleep(ms / 1000)
        self.times[2 * number + 1] = time.monotonic()

    async def awork(self, number: int, ms: float = 0) -> None:
        """The same as a coroutine."""
        self.times[2 * number] = time.monotonic()
        if ms:
            await asyncio.sleep(ms / 1000)
        self.times[2 * number + 1] = time.monotonic()
