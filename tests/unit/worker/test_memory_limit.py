"""Handlers are held to their tier by how much their child has grown since they began."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from scheduler_ext.sandbox.keeper import process_tree
from scheduler_ext.worker.agent.memory_limit import ALL, MIN_RUN_S, HeldMemory
from scheduler_ext.worker.child.usage_meter import Meter

HOLDS = "held = b'x' * (150 << 20); print(flush=True); input()"


@pytest.fixture
def child() -> Iterator[int]:
    """A process that holds 150 MiB before anybody looks at it."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_what_a_task_holds_before_the_first_look_counts(child: int) -> None:
    memory, began = HeldMemory(lambda _: 48), time.monotonic() - MIN_RUN_S
    assert memory.is_over(child, "t", 1, began=began, base_mb=10)


def test_what_the_child_held_before_does_not(child: int) -> None:
    memory, began = HeldMemory(lambda _: 48), time.monotonic() - MIN_RUN_S
    assert not memory.is_over(child, "t", 1, began=began, base_mb=process_tree.memory_mb([child], ALL))


def test_a_short_task_is_not_looked_at(child: int) -> None:
    memory = HeldMemory(lambda _: pytest.fail("nobody need be asked"))
    assert not memory.is_over(child, "t", 1, began=time.monotonic(), base_mb=10)


def test_the_next_task_of_a_child_has_a_base_of_its_own(child: int) -> None:
    memory, began = HeldMemory(lambda _: 48), time.monotonic() - MIN_RUN_S
    assert not memory.is_over(child, "t", 1, began=began, base_mb=160)
    assert memory.is_over(child, "t", 2, began=began, base_mb=10), "it runs again, with another fence"


def test_where_nobody_knows_what_was_there_before_the_first_look_says(child: int) -> None:
    memory, began = HeldMemory(lambda _: 48), time.monotonic() - MIN_RUN_S
    assert not memory.is_over(child, "t", 1, began=began, base_mb=-1)
    assert memory._tasks[child].base_mb >= 150


def test_what_others_leave_that_ran_beside_it_is_not_its_own(child: int) -> None:
    memory, began = HeldMemory(lambda _: 48), time.monotonic() - MIN_RUN_S
    memory.has_company(child, "t", 1)
    assert not memory.is_over(child, "t", 1, began=began, base_mb=10)
    assert memory.is_over(child, "t", 2, began=began, base_mb=10), "the next one had none"


def test_a_process_tells_what_it_holds() -> None:
    meter = Meter()
    before = meter.held_mb()
    assert abs(before - process_tree.memory_mb([os.getpid()], ALL)) <= 2
    held = b"x" * (100 << 20)
    assert meter.held_mb() - before >= len(held) - 1 >> 20
    os.close(meter._statm)
    assert meter.held_mb() == -1, "a handler has closed what is not its own"
    meter._statm = -1
    assert meter.held_mb() == -1
    meter.close()
