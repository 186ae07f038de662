"""The arithmetic of rates; what the kernel makes of them is in tests/integration/sandbox/test_containment.py."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from scheduler_ext.sandbox.keeper.io_limits import DiskRate

VERSION_1 = "8:0 Read {r}\n8:0 Write {w}\n8:0 Sync 9\n8:0 Total {t}\n8:16 Total 5000\nTotal {all}\n"
VERSION_2 = "8:16 rbytes=9 wbytes=9 rios=5000 wios=0 dios=0\n8:0 rbytes=4096 wbytes=9 rios={r} wios={w} dios=7\n"


class Disk:
    """The files of a group, and a clock."""

    def __init__(self, folder: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.layout, self.now = folder / "count", layout, 100.0
        self.freeze = folder / "cgroup.freeze"
        self.done(0, 0)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.rate = DiskRate(self.count, self.freeze, "8:0")

    def done(self, reads: int, writes: int) -> None:
        total = reads + writes
        self.count.write_text(self.layout.format(r=reads, w=writes, t=total, all=total + 5000))

    def look(self, after: float) -> bool:
        self.now += after
        self.rate.look()
        return self.frozen

    @property
    def frozen(self) -> bool:
        return {"0": False, "1": True}[self.freeze.read_text()]


@pytest.fixture(params=[VERSION_1, VERSION_2], ids=["v1", "v2"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, request.param, monkeypatch)


def test_what_is_ahead_of_its_rate_is_frozen_until_it_is_not(disk: Disk) -> None:
    disk.done(500, 500)  # of the script before
    disk.rate.limit(100)
    disk.done(550, 650)
    assert not disk.look(0.1), "200 operations are the two seconds it may be ahead"
    disk.done(550, 700)
    assert disk.look(0.0)
    assert disk.look(1.0), "still 1.5 s ahead"
    assert not disk.look(0.6)


def test_who_keeps_to_the_rate_is_never_frozen_and_idle_time_is_not_saved_up(disk: Disk) -> None:
    disk.rate.limit(100)
    for n in range(1, 101):
        disk.done(5 * n, 5 * n)
        assert not disk.look(0.1)
    assert not disk.look(3600.0)
    disk.done(750, 510)
    assert disk.look(0.1), "260 operations at once, however long it did nothing"


def test_who_is_told_to_end_is_thawed_and_not_frozen_again(disk: Disk) -> None:
    disk.rate.limit(1)
    disk.done(100, 0)
    assert disk.look(0.1)
    disk.rate.lift()
    assert not disk.frozen
    disk.done(900, 0)
    assert not disk.look(0.1)
    disk.rate.limit(0)
    disk.done(5000, 0)
    assert not disk.look(0.1), "a tier without a rate has none"
