"""Measures what a handler used, if its task ran alone in its child and long enough for the figures to be its own.

Sources: getrusage(2), with the children that ended; proc(5): ``/proc/self/clear_refs`` (writing 5 sets the peak of
resident memory back to what it is now), ``VmHWM`` in ``status``, ``write_bytes`` in ``io``, resident pages in ``statm``.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from scheduler_ext.core.work import Finished
from scheduler_ext.sandbox.keeper.process_tree import PAGE

MIN_RUN_S: Final = 0.25
"""Shorter tasks are not measured: the figures would be those of the child's own work."""
MIB: Final = 1 << 20
_RESET: Final = b"5"


class Meter:
    """The account of one child. Between :meth:`begin` and :meth:`end` it runs one task and nothing beside it."""

    def __init__(self) -> None:
        """Make it in the child itself."""
        self._reset, self._io = _open("clear_refs", os.O_WRONLY), _open("io", os.O_RDONLY)
        self._statm = _open("statm", os.O_RDONLY)
        self._cpu = 0.0
        self._written: int | None = None

    def held_mb(self) -> int:
        """MiB of memory that this process holds now, -1 if the kernel does not tell; takes about two microseconds."""
        if self._statm < 0:
            return -1
        try:
            return int(os.pread(self._statm, 128, 0).split()[1]) * PAGE >> 20
        except (OSError, ValueError, IndexError):  # a handler has closed what is not its own
            return -1

    def begin(self) -> None:
        """Begin to count; takes a few microseconds, since it comes before every task that runs alone."""
        if self._reset >= 0:
            try:
                os.pwrite(self._reset, _RESET, 0)
            except OSError:  # a kernel without it: then memory is not told
                os.close(self._reset)
                self._reset = -1
        self._written = self._write_bytes()
        self._cpu = _cpu_s()

    def end(self, finished: Finished) -> None:
        """Put into ``finished`` what was used: processor time, peak of memory, and bytes written to disks.

        Memory is all that the child held, the interpreter included. What was written is the most that the task can
        have taken on a disk: space that was given back, or written twice, is in it.
        """
        if finished.finished_at - finished.started_at < MIN_RUN_S:
            return
        finished.cpu_ms = max(0, round((_cpu_s() - self._cpu) * 1000))
        if self._reset >= 0:
            peak_kb = _field(Path("/proc/self/status").read_text(), "VmHWM")
            finished.peak_memory_mb = -(-peak_kb // 1024) if peak_kb is not None else None
        written = self._write_bytes()
        if written is not None and self._written is not None:
            finished.peak_disk_mb = -(-max(0, written - self._written) // MIB)

    def close(self) -> None:
        for handle in (self._reset, self._io, self._statm):
            if handle >= 0:
                os.close(handle)
        self._reset = self._io = self._statm = -1

    def _write_bytes(self) -> int | None:
        return _field(os.pread(self._io, 512, 0).decode(), "write_bytes") if self._io >= 0 else None


def _open(name: str, flags: int) -> int:
    """Open a file of this process's own account; -1 where the kernel keeps none."""
    try:
        return os.open(f"/proc/self/{name}", flags | os.O_CLOEXEC)
    except OSError:
        return -1


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _field(text: str, name: str) -> int | None:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    return None
