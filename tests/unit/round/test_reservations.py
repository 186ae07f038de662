"""Backfill behind a task that does not fit yet."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.types import NodeView, Plan, Reason, RunEnd, Snapshot, TenantView, WorkKind
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.round.prioritizer import BACKFILL_DEPTH, prioritize
from tests.support.deciding import line, many, node, snapshot, task

OPEN = SchedulerConf(delayable_permille=1000, reserve_after_s=0)
SECOND = 1_000_000


def decide(view: Snapshot, conf: SchedulerConf = OPEN) -> Plan:
    return prioritize(view, conf, share_policy("equal"))


def started(plan: Plan) -> list[str]:
    return [decision.task_id for decision in plan.decisions]


def cpus(count: int) -> tuple[int, ...]:
    return (count * 1000, 0, 0, 0, 0, 0)


def busy_node(**changes: Any) -> NodeView:
    """Four CPUs, three of them held until time 1010."""
    ends = (RunEnd(at=1010.0, kind=WorkKind.PROCESS, vector=cpus(3)),)
    values: dict[str, Any] = {
        "exclusive_used": cpus(3),
        "exclusive_count": {WorkKind.PROCESS: 1},
        "ends": ends,
    }
    return node(1, 4, capacity=cpus(4), **{**values, **changes})


def behind_a_big_one(small_us: int | None, *, big: int = 4, count: int = 1, **changes: Any) -> Plan:
    """A big task first in order, then small ones of one CPU, on the busy node."""
    first = line(1, [task("big", 1)], vector=cpus(big))
    small = [task(f"small{place}", 2, rank=(0, place), expected_us=small_us) for place in range(count)]
    tenants = [TenantView(tenant_id=2, used_slots_milli={WorkKind.PROCESS: 1000})]
    return decide(snapshot([first, line(2, small, vector=cpus(1))], [busy_node(**changes)], tenants))


def test_what_ends_in_time_is_backfilled() -> None:
    plan = behind_a_big_one(9 * SECOND)
    assert started(plan) == ["small0"]
    assert plan.left == {"big": Reason.NO_SLOT}


def test_what_would_delay_the_big_one_waits_and_says_so() -> None:
    for too_long in (11 * SECOND, None):
        plan = behind_a_big_one(too_long)
        assert started(plan) == []
        assert plan.left == {"big": Reason.NO_SLOT, "small0": Reason.RESERVED}


def test_while_room_is_kept_rounds_look_a_little_further_and_not_for_ever() -> None:
    few, many_more = (behind_a_big_one(11 * SECOND, count=count) for count in (BACKFILL_DEPTH, BACKFILL_DEPTH + 1))
    assert (few.more, many_more.more) == (True, False)
    assert set(many_more.left.values()) == {Reason.NO_SLOT, Reason.RESERVED}


def test_what_fits_beside_the_big_one_starts_however_long_it_is() -> None:
    plan = behind_a_big_one(None, big=3, count=3, exclusive_used=cpus(2), ends=_two_cpus_end())
    assert started(plan) == ["small0"]
    assert plan.left["small1"] is Reason.RESERVED


def _two_cpus_end() -> tuple[RunEnd, ...]:
    return (RunEnd(at=1010.0, kind=WorkKind.PROCESS, vector=cpus(2)),)


def test_without_known_ends_the_node_drains_for_the_big_one() -> None:
    assert started(behind_a_big_one(SECOND, ends=(), exclusive_count={WorkKind.PROCESS: 2})) == []


@pytest.mark.parametrize(
    ("waited", "known", "kept"), [(4, True, False), (5, True, True), (49, False, False), (50, False, True)]
)
def test_a_node_is_kept_only_for_what_has_waited(waited: float, known: bool, kept: bool) -> None:
    first = line(1, [task("big", 1, submitted_at=1000.0 - waited)], vector=cpus(4))
    small = line(2, [task("small", 2, submitted_at=1000.0)], vector=cpus(1))
    box = busy_node() if known else busy_node(ends=())
    tenants = [TenantView(tenant_id=2, used_slots_milli={WorkKind.PROCESS: 1000})]
    conf = SchedulerConf(delayable_permille=1000, reserve_after_s=5)
    assert started(decide(snapshot([first, small], [box], tenants), conf)) == ([] if kept else ["small"])


def test_short_tasks_go_on_while_longer_ones_still_stand_in_the_way() -> None:
    assert started(behind_a_big_one(1000)) == ["small0"]


def test_the_other_nodes_stay_open() -> None:
    first = line(1, [task("big", 1)], vector=cpus(4))
    small = line(2, [task("small", 2)], vector=cpus(1))
    other = node(2, 4, capacity=cpus(4), exclusive_used=cpus(3), exclusive_count={WorkKind.PROCESS: 3})
    tenants = [TenantView(tenant_id=2, used_slots_milli={WorkKind.PROCESS: 1000})]
    plan = decide(snapshot([first, small], [busy_node(), other], tenants))
    assert [(d.task_id, d.node_id) for d in plan.decisions] == [("small", 2)]


def test_the_node_that_is_free_soonest_is_kept() -> None:
    late = busy_node()
    soon = NodeView(
        node_id=2,
        name="soon",
        capacity=cpus(4),
        slots={WorkKind.PROCESS: 4},
        handlers=frozenset({1}),
        exclusive_used=cpus(3),
        exclusive_count={WorkKind.PROCESS: 1},
        ends=(RunEnd(at=1002.0, kind=WorkKind.PROCESS, vector=cpus(3)),),
    )
    first = line(1, [task("big", 1)], vector=cpus(4))
    small = line(2, [task("small", 2, expected_us=5 * SECOND)], vector=cpus(1))
    tenants = [TenantView(tenant_id=2, used_slots_milli={WorkKind.PROCESS: 1000})]
    plan = decide(snapshot([first, small], [late, soon], tenants))
    assert [(d.task_id, d.node_id) for d in plan.decisions] == [("small", 1)]


def test_a_stream_of_short_tasks_does_not_keep_a_long_one_out() -> None:
    """The short ones may not refill the slot the long one waits for, so it starts when they have drained."""
    long = line(1, [task("long", 1)])
    short = many(2, 400, expected_us=1000)
    tenants = [TenantView(tenant_id=2, used_slots_milli={WorkKind.PROCESS: 1500})]
    full = node(1, 2, batch_milli=1500, batch_count=60)
    plan = decide(snapshot([long, short], [full], tenants))
    assert plan.decisions == ()
    assert plan.left["long"] is Reason.NO_SLOT
    drained = node(1, 2, batch_milli=900, batch_count=40)
    plan = decide(
        snapshot([long, short], [drained], [TenantView(tenant_id=2, used_slots_milli={WorkKind.PROCESS: 900})])
    )
    assert started(plan)[0] == "long"
    assert len(plan.decisions) > 1


def test_several_big_tasks_each_keep_a_node_but_never_all_for_one() -> None:
    bigs = line(1, [task(f"big{place}", 1, rank=(0, place)) for place in range(9)], vector=cpus(4))
    small = line(2, [task("small", 2)], vector=cpus(1))
    nodes = [
        node(number, 4, capacity=cpus(4), exclusive_used=cpus(3), exclusive_count={WorkKind.PROCESS: 3})
        for number in range(1, 8)
    ]
    plan = decide(snapshot([bigs, small], nodes, [TenantView(tenant_id=2, used_slots_milli={WorkKind.PROCESS: 1000})]))
    assert started(plan) == ["small"]
