"""What a forked process does before it becomes another: its name, its signals, and the files it lets go of."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Collection
from pathlib import Path


def share() -> None:
    """Keep what is imported by now where it is, so that its pages stay common to all that are forked from here."""
    gc.collect()
    gc.freeze()


def show_as(command: str) -> None:
    """Show this command line in the list of processes, as far as the one that stood there was as long."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = command.encode()[: end - start - 1]
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


def reset_signals() -> None:
    """Give every signal that had a handler of Python's its own meaning again."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def let_go(but: Collection[int]) -> None:
    """Let go of every open file but the standard ones and these.

    Nothing stands in their places: what is left of whoever had them closes numbers that mean nothing now.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for path in list(Path("/proc/self/fd").iterdir()):
        number = int(path.name)
        if number > 2 and number not in {nothing, *but} and path.exists():  # not the one of this list itself
            os.dup2(nothing, number, inheritable=False)
    os.close(nothing)
