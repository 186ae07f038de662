"""When nodes go on by themselves: with short tasks of a few lines that a round serves by turns, and nothing else waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler_ext.conf import BATCH_US, SHORT_US, SchedulerConf
from scheduler_ext.core.types import Behind, Grant, Kept, Plan, Reason, Snapshot, TenantView, WorkKind
from scheduler_ext.policies.registry import SHARE_POLICIES
from scheduler_ext.round.grants import DEEP, FULL, IN_HAND, MOST, SHARP, all_served, grants, in_hand
from scheduler_ext.round.prioritizer import prioritize
from tests.support.deciding import SMALL, line, many, node, snapshot, task

CONF = SchedulerConf(delayable_permille=1000)
SHORT = 100
SLOTS = 2
BATCH = FULL // IN_HAND // 2
"""Of such short tasks, each of which takes two thousandths of a slot."""


def decided(seen: Snapshot, conf: SchedulerConf = CONF) -> Plan:
    return prioritize(seen, conf, SHARE_POLICIES["dominant_resource"]())


def given(seen: Snapshot, *before: Grant, trusted: bool = False, conf: SchedulerConf = CONF) -> list[tuple[int, int]]:
    """Which node goes on with which line."""
    found = grants(seen, decided(seen, conf), conf, before, trusted=trusted)
    return [(each.node_id, each.line_id) for each in found]


def deep(*numbers: int, count: int = 2 * DEEP, expected_us: int = SHORT, **changes: Any) -> Snapshot:
    lines = [many(number, count, expected_us=expected_us) for number in numbers]
    return snapshot(lines, [node(1, SLOTS)], **changes)


def grant(number: int, node_id: int = 1) -> Grant:
    return Grant(
        node_id=node_id, line_id=number, handler_id=1, kind=WorkKind.PROCESS, slot_milli=2, batch=256, in_hand=1024
    )


def holding(number: int, milli: int) -> TenantView:
    """A tenant whose tasks hold so many thousandths of slots."""
    return TenantView(tenant_id=number, in_flight=milli, used=tuple(milli * each for each in SMALL),
                      used_slots_milli={WorkKind.PROCESS: milli})  # fmt: skip


def test_a_node_goes_on_with_the_only_line_that_waits() -> None:
    (found,) = grants(deep(1), decided(deep(1)), CONF, ())
    assert (found.node_id, found.line_id, found.handler_id, found.slot_milli) == (1, 1, 1, 2)
    assert (found.batch, found.in_hand) == (BATCH, IN_HAND * BATCH * SLOTS)
    (found,) = grants(shorter := deep(1, expected_us=20), decided(shorter), CONF, ())
    assert (found.batch, found.in_hand) == (CONF.batch_max, IN_HAND * CONF.batch_max * SLOTS)


def test_tasks_that_make_no_batches_go_through_rounds() -> None:
    (found,) = grants(pairs := deep(1, expected_us=14_960), decided(pairs), CONF, ())
    assert (found.batch, found.in_hand) == (2, IN_HAND * 2 * SLOTS)
    assert given(deep(1, expected_us=14_961)) == [], "two of them are more than three eighths of a slot"
    assert given(deep(1), conf=replace(CONF, batch_max=2)) == [(1, 1)], "as large as may be"
    assert given(deep(1), conf=replace(CONF, batch_max=1)) == []


def test_few_tasks_are_left_to_rounds_but_do_not_end_what_there_is() -> None:
    few = deep(1, count=DEEP - 1)
    full = replace(few, nodes=(node(1, SLOTS, batch_count=800, batch_milli=1600, batch_peak=SMALL),))
    assert given(few) == given(full) == []
    assert given(full, grant(1)) == [(1, 1)]
    assert given(snapshot([], [node(1)]), grant(1)) == [], "nothing waits any more"


def test_where_nodes_have_room_for_all_that_waits_it_ends() -> None:
    """What comes after a burst has room given ahead, as before it."""
    for held, waiting, holds in (
        (0, 1, False),
        (3 * BATCH, BATCH, False),
        (3 * BATCH, BATCH + 1, True),
        (4 * BATCH, 1, True),
    ):
        seen = replace(
            deep(1, count=waiting), nodes=(node(1, SLOTS, batch_count=held, batch_milli=held, batch_peak=SMALL),)
        )
        assert bool(given(seen, grant(1))) == holds, (held, waiting)


def test_only_nodes_that_were_given_some_of_them_go_on() -> None:
    other = node(2, handlers=frozenset({2}))
    assert given(replace(deep(1), nodes=(node(1, SLOTS), other))) == [(1, 1)]
    assert given(deep(1), grant(1, node_id=7)) == [(1, 1)], "the other is gone"


def test_lines_that_are_served_by_turns_are_gone_on_with_together() -> None:
    assert given(deep(1, 2, 3)) == [(1, 1), (1, 2), (1, 3)]
    few = [many(number, DEEP // 2, expected_us=SHORT) for number in range(1, MOST + 2)]
    assert len(given(snapshot(few[:MOST], [node(1, SLOTS)]))) == MOST
    assert given(snapshot(few, [node(1, SLOTS)])) == []


def test_a_line_that_is_behind_ends_it() -> None:
    """The first tenant holds most of the node: all that a round can start is the other's."""
    seen = deep(1, 2, tenants=[holding(1, 1700)])
    full = replace(seen, nodes=(node(1, SLOTS, batch_milli=1700, batch_count=850, batch_peak=SMALL),))
    plan = decided(full)
    assert {each.line_id for each in plan.decisions} == {2}
    assert not all_served(full, plan)
    assert given(full) == given(full, grant(1), trusted=True) == []


def test_a_few_tasks_of_each_do_not_tell_whether_one_is_behind() -> None:
    full = node(1, SLOTS, batch_count=800, batch_milli=900, batch_peak=SMALL)
    seen = replace(deep(1, 2, count=8, tenants=[holding(1, 898), holding(2, 2)]), nodes=(full,))
    assert {each.line_id for each in decided(seen).decisions} == {1, 2}
    assert not all_served(seen, decided(seen)), "the second had no more"
    assert given(seen, grant(1), grant(2)) == []
    assert given(seen, grant(1), grant(2), trusted=True) == [(1, 1), (1, 2)], "a round before looked at more"
    assert given(seen, grant(1), trusted=True) == [], "the second is new"


def test_a_line_that_has_nothing_of_what_is_in_hand_ends_it() -> None:
    """As many begin as ended, so it would get nothing, whatever a round says of the room that is left for others."""
    full = node(1, SLOTS, batch_count=800, batch_milli=900, batch_peak=SMALL)
    for count in (8, DEEP):
        seen = replace(deep(1, 2, count=count, tenants=[holding(1, 900)]), nodes=(full,))
        assert {each.line_id for each in decided(seen).decisions} == {1, 2}
        assert given(seen, grant(1), trusted=True) == given(seen, grant(1), grant(2), trusted=True) == []


def test_one_tenants_lines_must_have_been_gone_on_with() -> None:
    """What each of them holds is not known."""
    full = node(1, SLOTS, batch_count=800, batch_milli=900, batch_peak=SMALL)
    lines = [replace(many(number, DEEP, expected_us=SHORT), tenant_id=1) for number in (1, 2)]
    seen = snapshot(lines, [full], [holding(1, 900)])
    assert given(seen, grant(1), grant(2), trusted=True) == [(1, 1), (1, 2)]
    assert given(seen, grant(1), trusted=True) == []


def test_several_lines_have_enough_of_each_in_hand_for_their_shares() -> None:
    for expected_us, lines, holds in (
        (10_000, 1, True),
        (10_000, 2, False),
        (1_000, 2, True),
        (1_000, 5, True),
        (1_000, 6, False),
    ):
        found = given(deep(*range(1, lines + 1), expected_us=expected_us, count=DEEP))
        assert bool(found) == holds, (expected_us, lines)
        assert not holds or IN_HAND * BATCH_US // expected_us * SLOTS >= SHARP * lines or lines == 1


def test_lines_whose_tasks_run_much_longer_than_others_go_through_rounds() -> None:
    """A child takes as much work as makes a batch, so there would be none left for another one."""
    for other_us, holds in ((2_000, True), (2_500, False), (400, False)):
        lines = [many(1, DEEP, expected_us=1_000), many(2, DEEP, expected_us=other_us)]
        assert bool(given(snapshot(lines, [node(1, 2 * SLOTS)]))) == holds, other_us


def test_so_many_wait_as_nodes_have_in_hand_four_times() -> None:
    """A round looks at few tasks where they find little room."""
    for count, holds in ((31, False), (32, True)):
        assert bool(given(deep(1, expected_us=10_000, count=count))) == holds


def test_a_run_time_that_is_learnt_anew_changes_a_grant_only_if_it_is_another() -> None:
    (found,) = grants(seen := deep(1, expected_us=10_000), decided(seen), CONF, ())
    for expected_us, milli in ((10_080, 125), (10_900, 125), (11_100, 139), (9_920, 124)):
        seen = deep(1, expected_us=expected_us)
        (again,) = grants(seen, decided(seen), CONF, (found,))
        assert (found.slot_milli, again.slot_milli) == (125, milli)


@pytest.mark.parametrize(
    "tasks",
    [
        {"alone": True},
        {"mutex_key": "1:key"},
        {"rates": (1,)},
        {"avoid_node": 1},
        {"expected_us": None},
        {"expected_us": SHORT_US + 1},
        {"handler_id": 2},
        {"handler_id": None, "kind": WorkKind.SCRIPT},
        {"kind": WorkKind.COROUTINE},
    ],
)
def test_what_a_round_must_look_at_ends_it(tasks: dict[str, Any]) -> None:
    heads = [task(f"{n}", expected_us=SHORT) for n in range(DEEP)]
    assert given(snapshot([line(1, heads)], [node(1, SLOTS)])) == [(1, 1)]
    heads[3] = task("other", **{"expected_us": SHORT, **tasks})
    assert given(snapshot([line(1, heads)], [node(1, SLOTS)]), grant(1)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"behind": (Behind(pool="", weight=1, tenants=1),)},
        {"kept": Kept(task_id="large", line_id=9)},
    ],
)
def test_what_room_is_kept_for_ends_it(changes: dict[str, Any]) -> None:
    assert given(replace(deep(1), **changes), grant(1)) == []


def beside(*numbers: int, count: int = 2 * DEEP, running: int = 0, slots: int = 512, **changes: Any) -> Snapshot:
    """Lines of coroutines, and a node that runs them side by side."""
    lines = [many(number, count, kind=WorkKind.COROUTINE, **changes) for number in numbers]
    return snapshot(lines, [node(1, slots={WorkKind.COROUTINE: slots}, exclusive_count={WorkKind.COROUTINE: running})])


@pytest.mark.parametrize("expected_us", [None, 10, 30_000_000])
def test_coroutines_are_gone_on_with_however_long_they_take(expected_us: int | None) -> None:
    seen = beside(1, expected_us=expected_us)
    (found,) = grants(seen, decided(seen), CONF, ())
    assert (found.kind, found.slot_milli, found.batch, found.in_hand) == (WorkKind.COROUTINE, 1000, 1, 512)
    assert given(beside(1, 2, expected_us=expected_us)) == [(1, 1), (1, 2)]
    assert given(beside(1, expected_us=expected_us), conf=replace(CONF, batch_max=1)) == [(1, 1)], (
        "they make no batches"
    )


@pytest.mark.parametrize("ceiling", [1000, 950, 500, 333])
def test_coroutines_keep_as_many_slots_as_rounds_would_fill(ceiling: int) -> None:
    conf = SchedulerConf(delayable_permille=ceiling)
    seen = beside(1, running=100)
    plan = decided(seen, conf)
    granted = grants(seen, plan, conf, ())
    assert in_hand(seen, plan, granted) is plan
    full = 100 + len(plan.decisions)
    assert (full - 1) * 1000 < ceiling * 512 <= full * 1000
    for running, holds in ((full, True), (full + 1, False)):
        if running <= 512:
            seen = beside(1, running=running)
            assert (grants(seen, decided(seen, conf), conf, granted) == granted) == holds


def test_each_kind_lacks_what_it_lacks() -> None:
    lines = [many(1, 2 * DEEP, expected_us=SHORT), many(2, 2 * DEEP, kind=WorkKind.COROUTINE)]
    holds: dict[str, Any] = {
        "batch_count": 700,
        "batch_milli": 1400,
        "batch_peak": SMALL,
        "exclusive_count": {WorkKind.COROUTINE: 30},
    }
    one = node(1, slots={WorkKind.PROCESS: SLOTS, WorkKind.COROUTINE: 32}, **holds)
    seen = snapshot(lines, [one], [TenantView(tenant_id=n, weight=1) for n in (1, 2)])
    both = [
        grant(1),
        Grant(node_id=1, line_id=2, handler_id=1, kind=WorkKind.COROUTINE, slot_milli=1000, batch=1, in_hand=31),
    ]
    both[0] = replace(both[0], batch=BATCH, in_hand=IN_HAND * BATCH * SLOTS)
    assert Grant.lacking(seen.nodes, both) == {(1, WorkKind.PROCESS): 0, (1, WorkKind.COROUTINE): 1}
    plan = decided(seen)
    assert {each.kind for each in plan.decisions} == {WorkKind.PROCESS, WorkKind.COROUTINE}
    assert [each.kind for each in in_hand(seen, plan, both).decisions] == [WorkKind.COROUTINE]


def test_threads_are_left_to_rounds() -> None:
    """A child runs eight: there is nothing to be saved."""
    seen = snapshot([many(1, DEEP, kind=WorkKind.THREAD)], [node(1, slots={WorkKind.THREAD: 16})])
    assert decided(seen).decisions
    assert given(seen) == []


def test_rates_of_other_tasks_change_nothing() -> None:
    """Those that count for a task are told with it."""
    assert given(replace(deep(1), rates_left={7: 0})) == [(1, 1)]


@pytest.mark.parametrize("changes", [{"late": True}, {"paused": True}])
def test_a_line_that_is_late_or_paused_is_left_to_rounds(changes: dict[str, Any]) -> None:
    seen = snapshot([many(1, DEEP, expected_us=SHORT, **changes)], [node(1, SLOTS)])
    assert given(seen, grant(1)) == []


def test_a_tenant_at_its_limit_ends_it() -> None:
    limited = TenantView(tenant_id=1, max_in_flight=5, in_flight=5)
    assert set(decided(deep(1, tenants=[limited])).left.values()) >= {Reason.TENANT_IN_FLIGHT}
    assert given(deep(1, tenants=[limited]), grant(1)) == []


def test_what_is_in_use_stays_below_the_ceiling() -> None:
    conf = SchedulerConf(delayable_permille=400)
    used = node(1, SLOTS, batch_milli=700, batch_count=350, batch_peak=SMALL)
    assert given(replace(deep(1), nodes=(used,)), grant(1), conf=conf) == [(1, 1)]
    above = replace(used, batch_milli=900)
    assert given(replace(deep(1), nodes=(above,)), grant(1), conf=conf) == [], "the ceiling fell meanwhile"


def test_a_node_that_goes_on_is_given_whole_batches_until_it_has_two_for_each_child() -> None:
    seen, conf = deep(1), replace(CONF, batch_max=64)
    plan = decided(seen, conf)
    granted = grants(seen, plan, conf, ())
    assert len(plan.decisions) > IN_HAND * 64 * SLOTS
    taken = in_hand(seen, plan, granted)
    assert taken.decisions == plan.decisions[: IN_HAND * 64 * SLOTS]
    assert (plan.more, taken.more) == (True, False)
    for held, lacks in ((0, 256), (1, 192), (64, 192), (129, 64), (193, 0), (500, 0)):
        holds = replace(seen, nodes=(node(1, SLOTS, batch_count=held, batch_milli=held),))
        assert len(in_hand(holds, decided(holds, conf), granted).decisions) == lacks
    assert in_hand(seen, plan, ()) is plan
    elsewhere = in_hand(seen, plan, [grant(1, node_id=2)])
    assert elsewhere is plan, "what goes to others is theirs"
