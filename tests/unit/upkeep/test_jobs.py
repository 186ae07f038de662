"""Jobs of upkeep: each in its interval, sooner where there is more, and none kept from running by another's fault."""

from __future__ import annotations

import logging

import pytest

from scheduler_ext.upkeep import RETRY_S, Job, Upkeep


class Broken(Exception):
    """The database is away."""


def upkeep(*counts: int, full: int | None = None, every_s: float = 60.0) -> tuple[Upkeep, list[int]]:
    """One job that changes so many rows each time, and what is left of its counts."""
    left = list(counts)
    return Upkeep([Job(name="j", every_s=every_s, run=lambda: left.pop(0), full=full)], (Broken,)), left


def test_a_job_runs_in_its_interval() -> None:
    jobs, left = upkeep(5, 6)
    assert (jobs.run_due(), jobs.run_due()) == ({"j": 5}, {})
    assert left == [6]
    assert jobs.pause_s() > 50


def test_a_full_batch_is_followed_by_another_soon() -> None:
    jobs, left = upkeep(1000, 1000, 999, 1, full=1000)
    for expected in (1000, 1000, 999):
        jobs._due["j"] = 0.0
        assert jobs.run_due() == {"j": expected}
        assert (jobs.pause_s() <= RETRY_S) == (expected == 1000)
    assert left == [1]


def test_a_job_that_is_due_more_often_than_that_stays_so() -> None:
    jobs, _ = upkeep(9, full=9, every_s=0.05)
    jobs.run_due()
    assert jobs.pause_s() <= 0.05


def test_a_fault_of_one_does_not_keep_the_others() -> None:
    def fail() -> int:
        raise Broken("away")

    jobs = Upkeep([Job(name="a", every_s=60, run=fail), Job(name="b", every_s=60, run=lambda: 1)], (Broken,))
    assert jobs.run_due() == {"b": 1}


def test_a_job_rests_while_what_it_is_over_is_not_there() -> None:
    there: list[str] = []
    ran: list[int] = []

    def run() -> int:
        ran.append(1)
        return 0

    job = Job(name="j", every_s=60, run=run, over=("tasks", "pauses"))
    jobs = Upkeep([job], (Broken,), lambda: there)
    for present, times in (([], 1), ([], 1), (["maps"], 1), (["pauses"], 2)):
        there[:] = present
        jobs._due["j"] = 0.0
        jobs.run_due()
        assert len(ran) == times
    jobs._due["j"] = jobs._rested["j"] = 0.0
    there.clear()
    jobs.run_due()
    assert len(ran) == 3, "it looks all the same, only seldom"


def test_where_nobody_can_tell_what_is_there_every_job_runs() -> None:
    def fail() -> list[str]:
        raise Broken("away")

    jobs = Upkeep([Job(name="j", every_s=60, run=lambda: 1, over=("tasks",))], (Broken,), fail)
    for _ in range(2):
        jobs._due["j"] = 0.0
        assert jobs.run_due() == {"j": 1}


def test_what_is_ordinary_is_told_to_who_debugs_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="scheduler_ext.upkeep")
    jobs = [Job(name="look", every_s=60, run=lambda: 1, ordinary=True), Job(name="mend", every_s=60, run=lambda: 2)]
    Upkeep(jobs, (Broken,)).run_due()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "look: 1"), ("INFO", "mend: 2"),
    ]  # fmt: skip
