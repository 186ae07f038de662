"""One round: what starts, where, and why the rest waits."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import Plan, QueueName, Reason, Snapshot, TenantView, WorkKind
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.round.gate import Gate, short_milli
from scheduler_ext.round.prioritizer import prioritize, queue_of
from tests.support.deciding import ROOMY, line, many, node, snapshot, task

CONF = SchedulerConf()


def decide(view: Snapshot, conf: SchedulerConf = CONF) -> Plan:
    return prioritize(view, conf, share_policy("equal"))


def started(plan: Plan) -> list[str]:
    return [decision.task_id for decision in plan.decisions]


def test_an_empty_cell_decides_nothing() -> None:
    plan = decide(snapshot([], []))
    assert plan.decisions == ()
    assert plan.left == {}
    assert plan.utilization_permille == 0


def test_without_nodes_every_task_says_so() -> None:
    plan = decide(snapshot([many(1, 3)], []))
    assert plan.left == {f"1-{place:04}": Reason.NO_NODE for place in range(3)}


def test_slots_limit_and_the_rest_waits_for_them_in_order() -> None:
    plan = decide(snapshot([many(1, 4)], [node(1, 2)]))
    assert started(plan) == ["1-0000", "1-0001"]
    assert plan.left == {"1-0002": Reason.NO_SLOT, "1-0003": Reason.POSITION}
    assert [d.exclusive for d in plan.decisions] == [True, True]
    assert {d.queue for d in plan.decisions} == {QueueName.DELAYABLE}


def test_the_round_limit_leaves_the_others_to_the_next_round() -> None:
    plan = decide(snapshot([many(1, 3), many(2, 3)], [node(1, 50)]), SchedulerConf(round_limit=2))
    assert started(plan) == ["1-0000", "2-0000"]
    assert plan.left["1-0001"] is Reason.SHARE
    assert plan.left["1-0002"] is Reason.POSITION


def test_categories_in_strict_order() -> None:
    lines = [many(number, 1, category=category) for number, category in enumerate(reversed(Category), start=1)]
    conf = SchedulerConf(peak_permille=1000, delayable_permille=1000)
    assert started(decide(snapshot(lines, [node(1, 3)]), conf)) == ["4-0000", "3-0000", "2-0000"]


def test_a_tenant_below_its_guaranteed_share_comes_first() -> None:
    lines = [many(1, 3, category=Category.URGENT), many(2, 3, category=Category.DELAYABLE)]
    tenants = [TenantView(tenant_id=2, guaranteed_permille=250)]
    assert started(decide(snapshot(lines, [node(1, 4)], tenants)))[:3] == ["2-0000", "1-0000", "1-0001"]


def test_turns_by_weight_count_what_is_already_held() -> None:
    tenants = [TenantView(tenant_id=1, weight=3), TenantView(tenant_id=2, weight=1)]
    plan = decide(snapshot([many(1, 20), many(2, 20)], [node(1, 8)], tenants))
    assert Counter(d.line_id for d in plan.decisions) == {1: 6, 2: 2}
    held = [TenantView(tenant_id=1, used_slots_milli={WorkKind.PROCESS: 4000}), TenantView(tenant_id=2)]
    plan = decide(snapshot([many(1, 20), many(2, 20)], [node(1, 6)], held))
    assert Counter(d.line_id for d in plan.decisions) == {2: 5, 1: 1}


def test_marking_all_work_urgent_wins_no_more_than_its_turn() -> None:
    lines = [many(1, 50, category=Category.URGENT), many(2, 2, category=Category.URGENT)]
    assert Counter(d.line_id for d in decide(snapshot(lines, [node(1, 4)])).decisions) == {1: 2, 2: 2}


def test_ties_end_with_priority_then_age_then_line() -> None:
    lines = [
        line(1, [task("a", 1, submitted_at=1.0)]),
        line(2, [task("b", 2, submitted_at=1.0)]),
        line(3, [task("c", 3, submitted_at=0.5)]),
        line(4, [task("d", 4, submitted_at=9.0, priority=1)]),
    ]
    assert started(decide(snapshot(lines, [node(1, 4)]))) == ["d", "c", "a", "b"]


def test_a_tenants_own_lines_go_by_rank() -> None:
    lines = [
        line(1, [task("late", 1, rank=(0, 9))], tenant=7),
        line(2, [task("early", 2, rank=(0, 3)), task("last", 2, rank=(0, 11))], tenant=7, tier_id=2),
    ]
    assert started(decide(snapshot(lines, [node(1, 4)]))) == ["early", "late", "last"]


def test_a_ceiling_stops_what_is_late_too_and_the_round_ends() -> None:
    full = node(1, 20, exclusive_count={WorkKind.PROCESS: 19}, exclusive_used=(19, 0, 0, 0, 0, 0))
    lines = [many(1, 3, late=True), many(2, 2), many(3, 1, category=Category.URGENT)]
    plan = decide(snapshot(lines, [full]))
    assert started(plan) == ["3-0000"]
    assert {reason for task_id, reason in plan.left.items()} <= {Reason.PEAK, Reason.NO_SLOT, Reason.POSITION}
    roomy = decide(snapshot([many(1, 3, late=True), many(2, 2)], [node(1, 20)]))
    assert started(roomy)[:3] == ["1-0000", "1-0001", "1-0002"]


@pytest.mark.parametrize(("category", "starts"), [(Category.URGENT, 10), (Category.DELAYABLE, 9)])
def test_ceilings_keep_room(category: Category, starts: int) -> None:
    conf = SchedulerConf(delayable_permille=900, peak_permille=500)
    plan = decide(snapshot([many(1, 12, category=category)], [node(1, 10)]), conf)
    assert len(plan.decisions) == starts


def test_off_peak_work_waits_at_peak_unless_its_window_is_open() -> None:
    lines = [many(1, 12, category=Category.OFFPEAK), many(2, 2)]
    conf = SchedulerConf(delayable_permille=1000, peak_permille=500)
    plan = decide(snapshot(lines, [node(1, 10)]), conf)
    assert Counter(d.queue for d in plan.decisions) == {QueueName.DELAYABLE: 2, QueueName.OFFPEAK: 3}
    assert set(plan.left.values()) == {Reason.PEAK}
    plan = decide(snapshot(lines, [node(1, 10)]), replace(conf, ceiling_windows="00:00-24:00 UTC"))
    assert len(plan.decisions) == 10


def test_a_resource_at_its_peak_counts_like_the_slots() -> None:
    conf = SchedulerConf(peak_permille=500)
    lines = [many(1, 9, category=Category.OFFPEAK, vector=(0, 300, 0, 0, 0, 0))]
    plan = decide(snapshot(lines, [node(1, 100, capacity=(9, 1000, 9, 9, 9, 9))]), conf)
    assert len(plan.decisions) == 2
    assert plan.left["1-0002"] is Reason.PEAK


def test_paused_line_and_paused_tenant() -> None:
    lines = [many(1, 2, paused=True), many(2, 2), many(3, 1)]
    plan = decide(snapshot(lines, [node(1, 9)], [TenantView(tenant_id=2, paused=True)]))
    assert started(plan) == ["3-0000"]
    assert set(plan.left.values()) == {Reason.PAUSED}
    assert len(plan.left) == 4


def test_the_tenants_limit_of_tasks_in_flight_spans_its_lines() -> None:
    lines = [many(1, 3, tenant=5), many(2, 3, tenant=5, category=Category.URGENT), many(3, 1)]
    plan = decide(snapshot(lines, [node(1, 9)], [TenantView(tenant_id=5, in_flight=1, max_in_flight=3)]))
    assert started(plan) == ["2-0000", "2-0001", "3-0000"]
    assert set(plan.left.values()) == {Reason.TENANT_IN_FLIGHT}


def test_a_tenants_maximum_share_is_hard() -> None:
    tenants = [TenantView(tenant_id=1, maximum_permille=500, used_slots_milli={WorkKind.PROCESS: 1000})]
    plan = decide(snapshot([many(1, 9)], [node(1, 8)], tenants))
    assert len(plan.decisions) == 3
    assert set(plan.left.values()) == {Reason.HARD_SHARE}


def test_a_maximum_of_less_than_a_slot_is_one_and_that_of_a_client_lets_one_task_in() -> None:
    """A quarter of the two processes of a small machine would hold nothing, for ever."""
    for permille, starts in (250, 1), (0, 0):
        quarter = [TenantView(tenant_id=number, maximum_permille=permille) for number in (1, 2)]
        assert len(decide(snapshot([many(1, 9)], [node(1, 2)], quarter)).decisions) == starts
        both = [many(number, 9, tenant=number, pool="client both") for number in (1, 2)]
        assert len(decide(snapshot(both, [node(1, 2)], quarter)).decisions) == starts


def test_slots_of_another_kind_are_none_that_the_work_could_use() -> None:
    """A worker has as many slots of scripts as of processes: they make no room for handlers, in no figure."""
    both = {WorkKind.PROCESS: 8, WorkKind.SCRIPT: 8, WorkKind.COROUTINE: 1024}
    tenants = [TenantView(tenant_id=1, maximum_permille=250)]
    view = node(1, 8, slots=both)
    scripts = many(2, 9, tenant=1, kind=WorkKind.SCRIPT)
    plan = decide(snapshot([many(1, 9), scripts], [view], tenants))
    assert Counter(d.kind for d in plan.decisions) == {WorkKind.PROCESS: 2, WorkKind.SCRIPT: 2}, "25 % of 8 are 2"
    late = many(1, 1, category=Category.OFFPEAK)
    for used, reason in ({WorkKind.PROCESS: 7}, Reason.PEAK), ({WorkKind.PROCESS: 6, WorkKind.SCRIPT: 6}, None):
        plan = decide(snapshot([late], [node(1, 8, slots=both, exclusive_count=used)]))
        assert plan.utilization_permille == 125 * used[WorkKind.PROCESS]
        assert plan.left.get("1-0000") is reason
    # What takes slots of another kind is judged by those, and passed over by nobody.
    mixed = line(5, [task("busy", 1), task("idle", 2, kind=WorkKind.SCRIPT)], category=Category.OFFPEAK)
    plan = decide(snapshot([mixed, late], [node(1, 8, slots=both, exclusive_count={WorkKind.PROCESS: 7})]))
    assert started(plan) == ["idle"]
    assert plan.left == {"busy": Reason.PEAK, "1-0000": Reason.PEAK}


def test_what_is_paused_lowers_nobodys_fair_share() -> None:
    """Urgent work goes first within a fair share, which is that of those who can run something."""
    mine = [many(1, 8, tenant=1, category=Category.URGENT), many(2, 8, tenant=2)]
    idle = [TenantView(tenant_id=number, paused=True) for number in (3, 4)]
    waits = [many(number, 8, tenant=number) for number in (3, 4)]
    plans = [decide(snapshot([*mine, *more], [node(1, 8)], tenants)) for more, tenants in (((), ()), (waits, idle))]
    assert started(plans[0]) == started(plans[1])


def test_a_mutex_lets_its_number_in_over_all_lines() -> None:
    lines = [many(1, 3, mutex_key="1:db"), many(2, 2, tenant=1, mutex_key="1:db", category=Category.URGENT)]
    plan = decide(snapshot(lines, [node(1, 9)]))
    assert started(plan) == ["2-0000"]
    assert set(plan.left.values()) == {Reason.MUTEX}
    assert started(decide(snapshot(lines, [node(1, 9)], mutex_held={"1:db": 1}))) == []


def test_a_taken_mutex_does_not_hold_up_the_line() -> None:
    tasks = [task("locked", mutex_key="k"), task("free", rank=(0, 1))]
    plan = decide(snapshot([line(1, tasks)], [node(1)], mutex_held={"k": 1}))
    assert started(plan) == ["free"]
    assert plan.left == {"locked": Reason.MUTEX}


def test_a_mutex_of_n() -> None:
    tasks = [task(f"t{place}", rank=(0, place), mutex_key="k", mutex_limit=3) for place in range(5)]
    assert len(decide(snapshot([line(1, tasks)], [node(1, 9)])).decisions) == 3


def test_only_where_the_handler_is_advertised() -> None:
    nodes = [node(1, 4, handlers=frozenset({2})), node(2, 1)]
    plan = decide(snapshot([many(1, 2)], nodes))
    assert [d.node_id for d in plan.decisions] == [2]
    plan = decide(snapshot([line(1, [task("x", handler_id=3)])], nodes))
    assert plan.left == {"x": Reason.NO_NODE}


def test_what_no_node_can_ever_hold_is_named_even_when_all_are_busy() -> None:
    busy = node(1, 1, exclusive_count={WorkKind.PROCESS: 1}, capacity=(1000,) * 6)
    huge = line(1, [task("huge")], vector=(1001, 0, 0, 0, 0, 0))
    plan = decide(snapshot([huge, many(2, 1)], [busy]))
    assert plan.left == {"huge": Reason.NEVER_FITS, "2-0000": Reason.NO_SLOT}


def test_kinds_have_slots_of_their_own() -> None:
    lines = [
        line(1, [task("script", 1, kind=WorkKind.SCRIPT, handler_id=None)]),
        line(2, [task("coroutine", 2, kind=WorkKind.COROUTINE)]),
        line(3, [task("process", 3)]),
    ]
    nodes = [node(1, slots={WorkKind.SCRIPT: 1, WorkKind.PROCESS: 1})]
    plan = decide(snapshot(lines, nodes))
    assert set(started(plan)) == {"script", "process"}
    assert plan.left == {"coroutine": Reason.NO_NODE}


def test_the_smallest_node_that_fits() -> None:
    nodes = [node(1, capacity=(8000, 8000, 0, 0, 0, 0)), node(2, capacity=(1000, 1000, 0, 0, 0, 0))]
    light, heavy = (500, 500, 0, 0, 0, 0), (2000, 500, 0, 0, 0, 0)
    lines = [line(1, [task("light", 1)], vector=light), line(2, [task("heavy", 2)], vector=heavy)]
    plan = decide(snapshot(lines, nodes))
    assert {d.task_id: d.node_id for d in plan.decisions} == {"light": 2, "heavy": 1}


def test_a_retry_prefers_another_node_but_takes_the_same_one_if_it_must() -> None:
    again = line(1, [task("again", avoid_node=1)])
    assert decide(snapshot([again], [node(1), node(2)])).decisions[0].node_id == 2
    assert decide(snapshot([again], [node(1)])).decisions[0].node_id == 1
    quick = line(1, [task("quick", avoid_node=1, expected_us=10)])
    assert decide(snapshot([quick], [node(1), node(2)])).decisions[0].node_id == 2


def test_a_lookahead_of_short_tasks_shares_slots() -> None:
    conf = SchedulerConf(round_limit=3000, delayable_permille=1000)
    plan = decide(snapshot([many(1, 100, expected_us=8000)], [node(1, 2)]), conf)
    assert len(plan.decisions) == 20
    assert not any(d.exclusive for d in plan.decisions)
    tiny = decide(snapshot([many(1, 2500, expected_us=1)], [node(1, 2)]), conf)
    assert len(tiny.decisions) == 2000


def test_what_counts_as_short() -> None:
    assert short_milli(task("x", expected_us=1)) == 1
    assert short_milli(task("x", expected_us=20_000)) == 250
    assert short_milli(task("x", expected_us=401)) == 6
    assert short_milli(task("x", expected_us=401, alone=True)) == 6, "it has no batch, and no need of a whole slot"
    for whole in (
        task("x", expected_us=20_001),
        task("x"),
        task("x", expected_us=1, kind=WorkKind.SCRIPT),
    ):
        assert short_milli(whole) == 0


def test_a_short_task_waits_for_a_whole_slot_only_where_slots_are_not_shared() -> None:
    """As in a simulated run: there room is kept for it, however short it is."""
    short, seen = task("x", expected_us=1), snapshot([many(1, 1)], [node(1, 1)], now=1_000.0)
    found = [Gate(seen, SchedulerConf(), short=shared).has_waited(short) for shared in (True, False)]
    assert found == [False, True]


def test_exclusive_work_leaves_the_room_that_short_tasks_have() -> None:
    shared = node(1, 3, batch_milli=1001, batch_count=9)
    assert len(decide(snapshot([many(1, 5)], [shared])).decisions) == 1
    full = node(1, 3, batch_milli=2001, batch_count=9)
    assert decide(snapshot([many(1, 5)], [full])).decisions == ()


def test_batches_hold_their_largest_vector_once_for_each_child() -> None:
    box = node(1, 4, capacity=(1000, 250, 0, 0, 0, 0))
    wide = many(1, 50, expected_us=800, vector=(10, 100, 0, 0, 0, 0))
    assert len(decide(snapshot([wide], [box])).decisions) == 2
    slim = many(1, 50, expected_us=800, vector=(10, 60, 0, 0, 0, 0))
    assert len(decide(snapshot([slim], [box]), SchedulerConf(delayable_permille=1000)).decisions) == 50


def test_short_tasks_spread_over_equal_nodes() -> None:
    plan = decide(
        snapshot([many(1, 40, expected_us=8000)], [node(1, 2), node(2, 2)]), SchedulerConf(peak_permille=1000)
    )
    assert Counter(d.node_id for d in plan.decisions)[1] == 20


@pytest.mark.parametrize(
    ("latest", "queue"),
    [
        (None, QueueName.OFFPEAK),
        (1010.0, QueueName.DELAYABLE),
        (900.0, QueueName.DELAYABLE),
        (9e9, QueueName.OFFPEAK),
    ],
)
def test_a_periodic_tasks_tolerance_chooses_its_queue(latest: float | None, queue: QueueName) -> None:
    assert queue_of(Category.PERIODIC, task("p", latest_start=latest), 1000.0) is queue


def test_decisions_carry_what_committing_needs() -> None:
    decision = decide(snapshot([line(1, [task("x", fence=7, expected_us=5000)])], [node(3)])).decisions[0]
    assert (decision.fence, decision.expected_us, decision.node_id, decision.kind) == (
        7,
        5000,
        3,
        WorkKind.PROCESS,
    )


def test_utilization_is_of_the_snapshot() -> None:
    plan = decide(snapshot([many(1, 1)], [node(1, 4, exclusive_count={WorkKind.PROCESS: 1})]))
    assert plan.utilization_permille == 250
    big = node(1, 4, exclusive_used=(700_000, 0, 0, 0, 0, 0), exclusive_count={WorkKind.PROCESS: 1}, capacity=ROOMY)
    assert decide(snapshot([many(1, 1)], [big])).utilization_permille == 700


def test_choosing_a_hundred_of_eight_thousand_is_quick() -> None:
    lines = [many(number, 8, category=Category(1 + number % 4)) for number in range(1, 1001)]
    view = snapshot(lines, [node(number, 8) for number in range(1, 21)])
    best = min(_seconds(view, SchedulerConf(round_limit=100)) for _ in range(3))
    assert best < 0.05, f"{best * 1000:.1f} ms"


def _seconds(view: Snapshot, conf: SchedulerConf) -> float:
    begin = time.process_time()
    plan = decide(view, conf)
    assert len(plan.decisions) == 100
    return time.process_time() - begin
