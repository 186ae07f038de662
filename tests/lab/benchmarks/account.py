"""The account of processor time and memory over process trees, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
AGENT = b"worker.agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Processor seconds by process name, and of the whole machine, since boot."""

    by_name: Mapping[str, float]
    machine: float

    @property
    def total(self) -> float:
        """Over all processes of the trees."""
        return sum(self.by_name.values())


def usage(roots: Mapping[str, int]) -> Usage:
    """What the trees below ``roots`` (name -> pid) have used, with what they have reaped."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for name, pid in _members(roots):
        fields = _stat(pid)
        if fields is not None:
            seconds[name] += sum(map(int, fields[11:15])) * TICK_S
    return Usage(by_name=dict(seconds), machine=_machine())


def memory_mb(roots: Mapping[str, int]) -> dict[str, list[float]]:
    """Memory of each process in MiB, by name; pages shared by several count for each in equal parts."""
    return _by_name(roots, ("Pss",))


def own_memory_mb(roots: Mapping[str, int]) -> dict[str, list[float]]:
    """The same without shared memory, which has a fixed size and only fills: PostgreSQL's buffers, journals."""
    return _by_name(roots, ("Pss_Anon", "Pss_File"))


def _by_name(roots: Mapping[str, int], fields: Collection[str]) -> dict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for name, pid in _members(roots):
        size = _rollup_kb(pid, fields)
        if size is not None:
            found[name].append(round(size / 1024, 1))
    return {name: sorted(sizes, reverse=True) for name, sizes in found.items()}


def members(roots: Mapping[str, int]) -> list[int]:
    """Every process of the trees."""
    return [pid for _, pid in _members(roots)]


def private_mb(pid: int) -> float:
    """What a process has that no other shares, in MiB; 0 for one that is gone."""
    return (_rollup_kb(pid, ("Private_Clean", "Private_Dirty")) or 0) / 1024


def reaped_s(pid: int) -> float:
    """Processor seconds of the children that a process has seen end."""
    fields = _stat(pid)
    return sum(map(int, fields[13:15])) * TICK_S if fields else 0.0


def cpu_clock(pid: int) -> int:
    """The id of the processor clock of a process, for ``time.clock_gettime``: exact to the nanosecond."""
    return ((~pid) << 3) | 2  # as clock_getcpuclockid(3) has it


def parent_of(pid: int) -> int:
    """The parent's pid; 0 when there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def name_of(pid: int) -> str:
    """The kernel's name of a process; empty when there is none, or none of ours."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def load1() -> float:
    """The machine's load over the last minute."""
    return os.getloadavg()[0]


def _members(roots: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Every process of the trees once, with its name: the root's, `… child`, or `… agent`."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            children[int(fields[1])].append(int(entry.name))
    taken = set(roots.values())
    for name, root in roots.items():
        yield name, root
        todo = list(children[root])
        while todo:
            pid = todo.pop()
            if pid in taken:
                continue
            taken.add(pid)
            yield f"{name} {_part(pid)}", pid
            todo += children[pid]


def _part(pid: int) -> str:
    try:
        return "agent" if AGENT in Path(f"/proc/{pid}/cmdline").read_bytes() else "child"
    except OSError:
        return "child"


def _stat(pid: int) -> list[str] | None:
    """The fields after the name, which may hold anything: state, parent, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rfind(")") + 2 :].split()


def _machine() -> float:
    first = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = list(map(int, first))
    return (sum(ticks[:8]) - ticks[3] - ticks[4]) * TICK_S  # all but idle and waiting for the disk


def _rollup_kb(pid: int, fields: Collection[str]) -> int | None:
    """The sum of some fields of the kernel's account of a process's memory; ``None`` for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.partition(":")[0] in fields]
    return sum(found) if found else None
