"""What the tasks of a run write of themselves, outside of the platform: the witness its ledger is judged by.

One file, appended to with single short writes: ``WHAT TASK FENCE PID TIME``. WHAT is B (begun), S (a step on the way)
or E (ended well); of a task that saves checkpoints also R with the number of the step it goes on from, and C with the
number of a step that is saved. TIME is the system's monotonic clock in seconds, which all processes of a machine share.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

FILE = "record"
EFFECTS = "effects"
GUARDED = "guarded"
"""Folder of what holders of a mutex key act upon: a file for each key, a line for each act it was asked for."""


class Witness:
    """One process's way to write the record."""

    def __init__(self, folder: Path) -> None:
        """Open it for appending."""
        self._fd = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: str, task_id: str, fence: int) -> None:
        """Append one line in one write."""
        line = f"{what} {task_id} {fence} {os.getpid()} {time.monotonic():.6f}\n"
        os.write(self._fd, line.encode())


@dataclass(slots=True)
class Life:
    """One attempt as it was seen from inside."""

    task_id: str
    fence: int
    began: float = 0.0
    begun: int = 0
    last: float = 0.0
    ended: bool = False
    pids: set[int] = field(default_factory=set)
    resumed: int | None = None
    """Of a task with checkpoints: the step it went on from; 0: it found nothing."""
    saved: int = 0
    """The last step whose checkpoint it was told is stored."""

    def overlaps(self, other: Life) -> bool:
        """Both were seen acting after the other had begun."""
        return self.began < other.last and other.began < self.last


def read(folder: Path) -> dict[str, list[Life]]:
    """The lives of each task, in order of their fences."""
    lives: dict[tuple[str, int], Life] = {}
    path = folder / FILE
    for line in path.read_text().splitlines() if path.exists() else []:
        what, task_id, fence, pid, at = line.split()
        life = lives.setdefault((task_id, int(fence)), Life(task_id, int(fence)))
        if what == "B":
            life.began = life.began or float(at)
            life.begun += 1
        elif what[0] == "R":
            life.resumed = int(what[1:])
        elif what[0] == "C":
            life.saved = int(what[1:])
        life.ended = life.ended or what == "E"
        life.last = max(life.last, float(at))
        life.pids.add(int(pid))
    by_task: dict[str, list[Life]] = defaultdict(list)
    for life in sorted(lives.values(), key=lambda one: one.fence):
        by_task[life.task_id].append(life)
    return dict(by_task)


def do_outside(folder: Path, key: str) -> None:
    """An effect in the world outside: a line in a file of its own."""
    fd = os.open(folder / EFFECTS / key, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, b"done\n")
    finally:
        os.close(fd)


def done_outside(folder: Path, key: str) -> int:
    """How often that effect has happened."""
    path = folder / EFFECTS / key
    return path.read_text().count("\n") if path.exists() else 0


@dataclass(frozen=True, slots=True)
class Act:
    """What a holder of a key asked the key's receiver for."""

    task_id: str
    fence: int
    """Number of the hold."""
    taken: bool
    """False: refused, for a later holder had acted before."""


def act(folder: Path, key: str, fence: int, task_id: str) -> bool:
    """Act upon what a key guards, as a receiver that checks the fence: it keeps the highest, and refuses lower ones.

    Each line is ``HIGHEST TAKEN FENCE TASK``; one act at a time, by a lock of the file.
    """
    fd = os.open(folder / GUARDED / key, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        last = os.pread(fd, 256, max(0, size - 256)).decode().splitlines()
        highest = int(last[-1].split()[0]) if last else 0
        taken = fence >= highest
        os.write(fd, f"{max(highest, fence)} {int(taken)} {fence} {task_id}\n".encode())
        return taken
    finally:
        os.close(fd)


def acts(folder: Path) -> dict[str, list[Act]]:
    """What each receiver was asked for, in order."""
    found: dict[str, list[Act]] = {}
    for path in (folder / GUARDED).iterdir():
        rows = [line.split() for line in path.read_text().splitlines()]
        found[path.name] = [Act(task_id, int(fence), taken == "1") for _, taken, fence, task_id in rows]
    return found
