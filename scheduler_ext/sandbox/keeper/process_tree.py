"""Finds, measures and ends the processes below a keeper. It adopts orphans, so no process escapes."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path
from typing import Final

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TICKS: Final = os.sysconf("SC_CLK_TCK")
_BY_CHILDREN: Final = Path("/proc/self/task", str(os.getpid()), "children").exists()


def children(pid: int) -> list[int]:
    """The direct children of a process, of all its threads."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - only the names, thousands of times
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def _all_parents() -> dict[int, list[int]]:
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
                parents.setdefault(int(parent), []).append(int(name))
    return parents


def below(pid: int, leave: frozenset[int] = frozenset()) -> list[int]:
    """All descendants of ``pid``, without ``leave`` and its descendants."""
    parents = None if _BY_CHILDREN else _all_parents()
    found: list[int] = []
    todo = [pid]
    while todo:
        current = todo.pop()
        for child in children(current) if parents is None else parents.get(current, []):
            if child not in leave:
                found.append(child)
                todo.append(child)
    return found


def memory_mb(pids: list[int], limit_mb: int) -> int:
    """MiB they hold together; shared pages count once when it matters."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    if total >> 20 <= limit_mb:
        return total >> 20
    shared = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    shared += int(line.split()[1]) * 1024
    return (shared or total) >> 20


def cpu_s(pids: list[int]) -> float:
    """CPU seconds they have spent, including children they have waited for."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS


def threads(pids: list[int]) -> int:
    """Threads they have together; a process has at least one."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += Path(f"/proc/{pid}/task").stat().st_nlink - 2
    return total


def threads_of_user(uid: int) -> int:
    """Threads of a user on this machine: what RLIMIT_NPROC counts."""
    total = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if name.isdigit() and Path("/proc", name).stat().st_uid == uid:
                total += Path("/proc", name, "task").stat().st_nlink - 2
    return total


def kill(pids: list[int]) -> None:
    """Stop them from forking, then kill them."""
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def kill_user(uid: int) -> None:
    """Kill all processes of a slot's user at once, faster than a fork bomb grows. Only for a user of its own."""
    helper = os.fork()
    if helper == 0:
        with contextlib.suppress(OSError):
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.waitpid(helper, 0)
