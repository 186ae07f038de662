"""Control groups of a slot, where this process may make them: version 1, version 2 (delegated), or none.

A slot keeps its groups from script to script: making and removing them, and moving a process in, costs up to ten
milliseconds, so the next script's process is moved in ahead of time.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from scheduler_ext.sandbox.base import Limits
from scheduler_ext.sandbox.keeper.io_limits import DiskRate, NetworkRate, device_of

MIB: Final = 1024 * 1024
PERIOD_US: Final = 100_000
SPARE_PROCESSES: Final = 4
"""Processes that the sandbox itself needs beside the script's."""
_NAME: Final = re.compile(r"slackwater-(\d+)$")
_NEEDED: Final = ("memory", "pids", "cpu")
REREAD_PAGES: Final = 8192
"""So many pages read again, with no memory left for files, show that a script cannot go on; the kernel would let it try."""
Rate = TypeVar("Rate", DiskRate, NetworkRate)


class Groups:
    """The groups of one slot. Best effort, except for the limits: those raise ``OSError``."""

    kind = ""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = dict(folders)
        self.disk: DiskRate | None = None
        self.network: NetworkRate | None = None
        self._kills = self._refusals = self._reread = self._most = 0
        self._cpu = 0.0

    def enter(self) -> None:
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text("0")

    def limit(self, limits: Limits, memory_mb: int) -> None:
        """Set the next script's limits; ``memory_mb`` includes a work folder in memory."""

    def pace(self, limits: Limits, *, apart: bool = False) -> None:
        """Set the next script's rates, where that is possible; ``apart``: on the loopback."""
        if self.disk is not None:
            self.disk.limit(limits.iops)
        if self.network is not None:
            self.network.limit(limits.bandwidth_kbps, apart=apart)

    def look(self) -> None:
        """Enforce its disk rate."""
        if self.disk is not None:
            self.disk.look()

    def lift(self) -> None:
        """Stop enforcing its rate: it is being ended."""
        if self.disk is not None:
            self.disk.lift()

    def begin(self) -> None:
        """Remember the counters: what they add from now on is the script's."""
        self._kills, self._refusals = self._counts()
        _, self._reread = self._held()
        self._cpu = self._cpu_total()

    def exceeded(self) -> str:
        """``memory`` or ``processes`` when that was exceeded since ``begin``."""
        kills, refusals = self._counts()
        if kills > self._kills or self._starves():
            return "memory"
        return "processes" if refusals > self._refusals else ""

    def _starves(self) -> bool:
        """Whether what it holds leaves no room for its own program, which it reads again and again."""
        held, reread = self._held()
        return held > self._most - self._most // 32 and reread - self._reread > REREAD_PAGES

    def memory_mb(self) -> int | None:
        """MiB its processes hold now, without files; ``None`` if unknown."""
        return None

    def cpu_s(self) -> float | None:
        """CPU seconds spent since ``begin``; ``None`` if they are not counted."""
        return None

    def after(self) -> None:
        """Forget what the last script left in the cache."""

    def remove(self) -> None:
        """Remove the groups."""
        for folder in set(self.folders.values()):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _counts(self) -> tuple[int, int]:
        return 0, 0

    def _held(self) -> tuple[int, int]:
        """Bytes of memory that cannot be dropped, files in memory among them, and pages of files read again so far."""
        return 0, 0

    def _cpu_total(self) -> float:
        return 0.0


class GroupsV1(Groups):
    """Version 1: a hierarchy for each controller."""

    kind = "v1"

    def limit(self, limits: Limits, memory_mb: int) -> None:
        self._most = memory_mb * MIB
        memory, value = self.folders["memory"], str(self._most)
        swap = memory / "memory.memsw.limit_in_bytes"
        if swap.exists():
            swap.write_text("-1")
        (memory / "memory.limit_in_bytes").write_text(value)
        if swap.exists():
            swap.write_text(value)
        (self.folders["pids"] / "pids.max").write_text(str(limits.processes + SPARE_PROCESSES))
        if "cpu" in self.folders:
            (self.folders["cpu"] / "cpu.cfs_quota_us").write_text(str(max(1_000, limits.cpu_milli * 100)))

    def memory_mb(self) -> int | None:
        """The ``rss`` of its processes."""
        return _field(self.folders["memory"] / "memory.stat", "total_rss") >> 20

    def cpu_s(self) -> float | None:
        """The CPU time that ``cpuacct`` has counted."""
        return self._cpu_total() - self._cpu if "cpuacct" in self.folders else None

    def after(self) -> None:
        """Drop the cache it filled."""
        with contextlib.suppress(OSError):
            (self.folders["memory"] / "memory.force_empty").write_text("1")

    def _held(self) -> tuple[int, int]:
        stat = self.folders["memory"] / "memory.stat"
        rss, shared, reread = _fields(stat, "total_rss", "total_shmem", "total_workingset_refault_file")
        return rss + shared, reread

    def _counts(self) -> tuple[int, int]:
        kills = _field(self.folders["memory"] / "memory.oom_control", "oom_kill")
        return kills, _field(self.folders["pids"] / "pids.events", "max")

    def _cpu_total(self) -> float:
        folder = self.folders.get("cpuacct")
        return int((folder / "cpuacct.usage").read_text()) / 1e9 if folder else 0.0


class GroupsV2(Groups):
    """Version 2: the single hierarchy, below a folder that was delegated to this user."""

    kind = "v2"

    @property
    def _folder(self) -> Path:
        return self.folders["memory"]

    def limit(self, limits: Limits, memory_mb: int) -> None:
        """Memory without swap, processes, CPU time a period; memory kills the whole group."""
        self._most = memory_mb * MIB
        (self._folder / "memory.max").write_text(str(self._most))
        with contextlib.suppress(OSError):
            (self._folder / "memory.swap.max").write_text("0")
            (self._folder / "memory.oom.group").write_text("1")
        (self._folder / "pids.max").write_text(str(limits.processes + SPARE_PROCESSES))
        with contextlib.suppress(OSError):
            quota = max(1_000, limits.cpu_milli * PERIOD_US // 1000)
            (self._folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")

    def memory_mb(self) -> int | None:
        """The anonymous memory of its processes."""
        return _field(self._folder / "memory.stat", "anon") >> 20

    def _held(self) -> tuple[int, int]:
        own, shared, reread = _fields(self._folder / "memory.stat", "anon", "shmem", "workingset_refault_file")
        return own + shared, reread

    def _counts(self) -> tuple[int, int]:
        kills = _field(self._folder / "memory.events", "oom_kill")
        return kills, _field(self._folder / "pids.events", "max")

    def cpu_s(self) -> float | None:
        """The CPU time in the group's ``cpu.stat``."""
        return self._cpu_total() - self._cpu

    def _cpu_total(self) -> float:
        return _field(self._folder / "cpu.stat", "usage_usec") / 1e6


def _field(path: Path, name: str) -> int:
    return _fields(path, name)[0]


def _fields(path: Path, *names: str) -> list[int]:
    """The numbers that stand behind these names; 0 where the kernel does not count it."""
    found = dict(line.split(" ", 1) for line in path.read_text().splitlines() if " " in line)
    return [int(found.get(name, 0)) for name in names]


def make(root: str, wanted: bool = True) -> Groups:
    """Groups for this process's slot, below its own; without any where none can be made. ``root``: its folder."""
    if wanted:
        own = _own()
        for build in (_version_1, _version_2):
            with contextlib.suppress(OSError, KeyError):
                return build(own, root)
    return Groups({})


def _own() -> dict[str, str]:
    """Controller -> this process's group; the empty name is version 2's."""
    groups = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def _version_1(own: dict[str, str], root: str) -> Groups:
    folders = {}
    for controller in (*_NEEDED, *(("cpuacct",) if "cpuacct" in own else ())):
        folders[controller] = _place(controller, own)
    groups = _tried(GroupsV1(folders))
    # Beside them there may be a hierarchy of version 2 that has no controllers. It is taken to freeze: what the freezer
    # of version 1 has frozen cannot be killed.
    own = {**own, "unified": own.get("", "")}
    groups.disk = _beside(groups, ("blkio", "unified"), own, lambda one, two: _disk_v1(one, two, root))
    groups.network = _beside(groups, ("unified",), own, NetworkRate)
    return groups


def _place(hierarchy: str, own: Mapping[str, str]) -> Path:
    """Where this slot's group of a hierarchy is to be made; ``OSError`` or ``KeyError`` without such a hierarchy."""
    parent = Path("/sys/fs/cgroup", hierarchy, own[hierarchy].lstrip("/"))
    if not (parent / "cgroup.procs").exists():
        raise OSError(f"no {hierarchy} groups")
    sweep(parent)
    return parent / f"slackwater-{os.getpid()}"


def _disk_v1(blkio: Path, unified: Path, root: str) -> DiskRate:
    device = device_of(root)
    # The kernel begins to count when a limit is set for the first time, none too.
    (blkio / "blkio.throttle.read_iops_device").write_text(f"{device} 0")
    return DiskRate(blkio / "blkio.throttle.io_serviced", unified / "cgroup.freeze", device)


def _beside(
    groups: Groups, hierarchies: tuple[str, ...], own: Mapping[str, str], make: Callable[..., Rate]
) -> Rate | None:
    """A rate in one more group of each of these hierarchies, where it can be made."""
    made = {}
    try:
        for hierarchy in hierarchies:
            made[hierarchy] = _place(hierarchy, own)
            made[hierarchy].mkdir(exist_ok=True)
        rate = make(*made.values())
    except (OSError, KeyError):
        for hierarchy in made.keys() - groups.folders:
            with contextlib.suppress(OSError):
                made[hierarchy].rmdir()
        return None
    groups.folders |= made
    return rate


def _version_2(own: dict[str, str], root: str) -> Groups:
    folder = Path("/sys/fs/cgroup", own[""].lstrip("/"))
    # A group that holds processes cannot hand controllers on: where a service is delegated, its main processes
    # stand in a group of their own and the slots beside it.
    for parent in (folder, folder.parent):
        with contextlib.suppress(OSError):
            sweep(parent)
            (parent / "cgroup.subtree_control").write_text("+memory +pids +cpu")
            made = parent / f"slackwater-{os.getpid()}"
            groups = _tried(GroupsV2(dict.fromkeys(_NEEDED, made)))
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text("+io")
                groups.disk = DiskRate(made / "io.stat", made / "cgroup.freeze", device_of(root))
            with contextlib.suppress(OSError):
                groups.network = NetworkRate(made)
            return groups
    raise OSError("no delegated group")


def _tried(groups: Groups) -> Groups:
    try:
        for folder in set(groups.folders.values()):
            folder.mkdir(exist_ok=True)
        groups.limit(Limits(cpu_milli=1000, memory_mb=64, disk_mb=1, cap_ms=1000), 64)
        groups.begin()
        groups.memory_mb()
    except OSError:
        groups.remove()
        raise
    return groups


def sweep(parent: Path) -> None:
    """Remove groups whose keeper died without doing so."""
    for folder in parent.glob("slackwater-*"):
        named = _NAME.search(folder.name)
        if named and not Path("/proc", named[1]).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
