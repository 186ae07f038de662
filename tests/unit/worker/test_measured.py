"""What a lone handler used, by the kernel's account of its process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished
from scheduler_ext.worker.child.usage_meter import MIN_RUN_S, Meter

BURN = "import time\nwhile time.process_time() < {}: pass"


@pytest.fixture
def meter() -> Iterator[Meter]:
    made = Meter()
    yield made
    made.close()


def ended(seconds: float = 1.0) -> Finished:
    return Finished("t", 1, Outcome.SUCCEEDED, 100.0, 100.0 + seconds)


def burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_processor_time_is_that_of_the_task_and_of_the_children_it_waited_for(meter: Meter) -> None:
    burn(0.2)  # before
    meter.begin()
    burn(0.1)
    subprocess.run([sys.executable, "-I", "-S", "-c", BURN.format(0.2)], check=True)
    meter.end(found := ended())
    assert found.cpu_ms is not None
    assert 280 <= found.cpu_ms < 450


def test_the_peak_of_memory_is_that_of_the_task_alone(meter: Meter) -> None:
    before = bytearray(os.urandom(1 << 20)) * 150
    del before  # the peak of the process so far
    meter.begin()
    meter.end(small := ended())
    meter.begin()
    held = bytearray(os.urandom(1 << 20)) * 100
    del held
    meter.end(large := ended())
    if small.peak_memory_mb is None:
        pytest.skip("this kernel does not set the peak back")
    assert large.peak_memory_mb is not None
    assert 90 <= large.peak_memory_mb - small.peak_memory_mb <= 130


def test_what_was_written_to_a_disk_is_counted(meter: Meter, tmp_path: Path) -> None:
    meter.begin()
    with (tmp_path / "file").open("wb") as file:
        file.write(os.urandom(3 << 20))
        file.flush()
        os.fsync(file.fileno())
    meter.end(found := ended())
    if not found.peak_disk_mb:
        pytest.skip("the kernel keeps no such account of this file system")
    assert 3 <= found.peak_disk_mb <= 4


def test_of_short_tasks_nothing_is_told(meter: Meter) -> None:
    meter.begin()
    meter.end(found := ended(MIN_RUN_S - 0.01))
    assert (found.cpu_ms, found.peak_memory_mb, found.peak_disk_mb) == (None, None, None)
