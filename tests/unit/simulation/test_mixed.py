"""What meets in one run: slices, run times that are learnt, execution rates, and room kept for what waits longest."""

from __future__ import annotations

from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.types import Reason, Vector, WorkKind
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.learning import Learning
from scheduler_ext.simulation.model import Cell, Job, RateLimit, Run, Trace

SECOND = 1_000_000
SMALL: Vector = (1000, 0, 0, 0, 0, 0)
LARGE: Vector = (2000, 0, 0, 0, 0, 0)
TWO = Cell(nodes=1, slots=2, capacity=LARGE)
"""Two small jobs run at once, or one large one."""
PATIENT = SchedulerConf(reserve_after_s=0, delayable_permille=1000)


def run(trace: Trace, cell: Cell, order: str, *, learns: bool = False, share: str = "equal", **parameters: Any) -> Run:
    engine = Engine(
        trace, cell, order=order_policy(order), share=share_policy(share, parameters), conf=PATIENT,
        learning=Learning(trace) if learns else None,
    )  # fmt: skip
    return engine.run(lambda: 0.0)


def test_a_task_whose_slice_is_over_outruns_no_expectation_until_it_runs_again() -> None:
    """Room is looked for whenever something ends, and by then the first job's expected second has long passed."""
    jobs = [
        Job(0, 0, 300 * SECOND, expected_us=SECOND, vector=LARGE),
        Job(1, 0, 300 * SECOND, expected_us=SECOND, vector=SMALL),
    ]
    cell = Cell(nodes=1, slots=1, capacity=(2000, 0, 0, 0, 0, 0))
    found = run(Trace(name="slices", jobs=jobs), cell, "round_robin", learns=True)
    assert max(found.ended_us) == 600 * SECOND
    assert found.preemptions > 0


def test_room_stays_kept_for_a_task_that_moves_to_another_line() -> None:
    """The large job waits from 1 s; once room is kept for it (5 s) it becomes urgent, then late, and starts at 10 s."""
    jobs = [
        Job(0, 0, 10 * SECOND, vector=SMALL),
        Job(1, 0, 5 * SECOND, vector=SMALL),
        Job(2, SECOND, SECOND, vector=LARGE, tolerance_us=8 * SECOND),
        Job(3, 2 * SECOND, SECOND, vector=SMALL),
    ]
    found = run(Trace(name="moves", jobs=jobs), TWO, "fifo")
    assert found.started_us[2] == 10 * SECOND


def test_no_room_is_kept_for_a_task_that_is_parked() -> None:
    """One start in ten seconds: at 10 s the second job goes on, held by a mutex key; the third is parked until 45 s."""
    jobs = [
        Job(0, 0, SECOND, vector=SMALL, rates=(1,)),
        Job(1, SECOND, SECOND, vector=LARGE, rates=(1,), mutex_key="k"),
        Job(2, SECOND, SECOND, vector=LARGE, rates=(1,)),
        Job(3, 2 * SECOND, 33 * SECOND, vector=SMALL, mutex_key="k"),
        *(Job(4 + n, (2 + n) * SECOND, SECOND, vector=SMALL, tenant=1) for n in range(20)),
    ]
    limits = {1: RateLimit(starts=1, per_us=10 * SECOND)}
    found = run(Trace(name="parked", jobs=jobs, limits=limits), TWO, "fifo")
    assert [found.started_us[index] for index in range(4)] == [0, 35 * SECOND, 45 * SECOND, 2 * SECOND]


def test_what_goes_on_after_its_rate_is_once_more_what_room_may_be_kept_for() -> None:
    """A stream of small jobs would take the slot beside the first one again and again."""
    jobs = [
        Job(0, 0, 5 * SECOND, vector=SMALL, rates=(1,)),
        Job(1, SECOND, SECOND, vector=LARGE, rates=(1,)),
        *(Job(2 + n, SECOND + n * SECOND // 2, SECOND, vector=SMALL, tenant=1) for n in range(80)),
    ]
    limits = {1: RateLimit(starts=1, per_us=10 * SECOND)}
    found = run(Trace(name="goes on", jobs=jobs, limits=limits), TWO, "shortest_first")
    assert found.started_us[1] < 15 * SECOND


def test_what_no_maximum_ever_lets_start_is_reported() -> None:
    """Four tenths of two slots hold no task of this pool; its children never become ready."""
    jobs = [Job(0, 0, SECOND, pool="small"), Job(1, 0, SECOND, parents=(0,), pool="small"), Job(2, 0, SECOND)]
    found = run(
        Trace(name="small", jobs=jobs), TWO, "fifo", share="capacity", queues={"small": {"maximum": 40}}
    )  # fmt: skip
    assert list(found.ended_us) == [-1, -1, SECOND]
    assert found.unplaced == {0: Reason.HARD_SHARE.value}


def test_what_can_never_go_on_after_its_turn_is_reported() -> None:
    """The pool lends half of its guarantee: beside its own task the other one may take the slot, and alone never again."""
    jobs = [
        Job(0, 0, 3 * SECOND // 2, pool="a", kind=WorkKind.THREAD, vector=SMALL),
        Job(1, SECOND // 2, 5 * SECOND, vector=SMALL),
        Job(2, SECOND // 2, SECOND, parents=(1,), vector=SMALL),
    ]
    cell = Cell(nodes=1, slots=1, others={WorkKind.THREAD: 4}, capacity=LARGE)
    queues = {"a": {"guaranteed": 40, "lends": 50}}
    found = run(Trace(name="turns", jobs=jobs), cell, "round_robin", share="capacity", queues=queues)
    assert (found.started_us[1], list(found.ended_us)) == (SECOND // 2, [3 * SECOND // 2, -1, -1])
    assert found.unplaced == {1: Reason.HARD_SHARE.value}
