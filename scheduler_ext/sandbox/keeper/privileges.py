"""Gives a slot's process a user of its own and its resource limits."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from functools import cache
from pathlib import Path

from scheduler_ext.sandbox.base import Level, Limits
from scheduler_ext.sandbox.keeper import cgroups, process_tree, work_folder

SLOTS = 512
MIB = 1024 * 1024
_NEARBY = 16
_COME_AND_GO = 128
_MOST_THREADS = 1 << 17


def take_uid(base: int) -> tuple[int, int]:
    """A user id that no other slot of this machine has, for RLIMIT_NPROC and signals; held by a lock."""
    folder = Path("/run/slackwater-users")
    folder.mkdir(mode=0o700, exist_ok=True)
    for uid in range(base, base + SLOTS):
        handle = os.open(folder / str(uid), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle, uid
        os.close(handle)
    raise OSError(f"all user ids from {base} to {base + SLOTS - 1} are in use by other slots")


def rlimits(level: Level, limits: Limits, uid: int | None, *, counted: bool) -> dict[str, int]:
    """The resource limits of a script's process. ``counted``: control groups limit memory and processes too."""
    cores = max(1.0, limits.cpu_milli / 1000)
    wanted = {
        "RLIMIT_CORE": 0, "RLIMIT_FSIZE": work_folder.disk_bytes(limits) + 2 * MIB, "RLIMIT_MEMLOCK": 65_536,
        "RLIMIT_MSGQUEUE": 0, "RLIMIT_NOFILE": 1024, "RLIMIT_SIGPENDING": 1024,
        # Beyond what the cap allows: it only ends what nobody watches.
        "RLIMIT_CPU": int(limits.cap_ms / 1000 * cores) + 5,
    }  # fmt: skip
    if not counted:
        wanted["RLIMIT_AS"] = (limits.memory_mb * 4 + 1024) * MIB
    if uid is not None:
        wanted["RLIMIT_NPROC"] = limits.processes + (32 if counted else cgroups.SPARE_PROCESSES)
    elif level is not Level.BUBBLEWRAP and os.getuid() and not (level is Level.CONTAINER and counted):
        there = process_tree.threads_of_user(os.getuid()) + hidden_threads(os.getuid())
        wanted["RLIMIT_NPROC"] = there + limits.processes
    return wanted


@cache
def hidden_threads(uid: int) -> int:
    """How many threads of this user cannot be seen from here: RLIMIT_NPROC counts those in other containers too.

    Found out once by trying, in a process with one thread; it is more than there are, as others come and go.
    """
    seen = process_tree.threads_of_user(uid)
    if _may_fork(seen + _NEARBY):
        return 0
    low, high = seen, _MOST_THREADS
    while high - low > _NEARBY:
        middle = (low + high) // 2
        low, high = (low, middle) if _may_fork(middle) else (middle, high)
    return high - seen + _COME_AND_GO


def _may_fork(limit: int) -> bool:
    """Whether a process of this user may have a child under that RLIMIT_NPROC."""
    tried = os.fork()
    if tried == 0:
        try:
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
            if (child := os.fork()) == 0:
                os._exit(0)
            os.waitpid(child, 0)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(tried, 0)[1]) == 0
