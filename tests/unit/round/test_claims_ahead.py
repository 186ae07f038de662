"""One more task for a node that is full of tasks over soon: within every limit, and passing nothing."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import MILLI, LineView, NodeView, Plan, QueueName, Reason, TenantView, WorkKind
from scheduler_ext.core.types import Opening as Given
from scheduler_ext.policies.registry import SHARE_POLICIES
from scheduler_ext.round.claims_ahead import SOON_US, places
from scheduler_ext.round.prioritizer import prioritize
from tests.support.deciding import SMALL, line, many, node, snapshot, task

SOON = SOON_US // 2


def decided(lines: list[LineView], nodes: list[NodeView], tenants: tuple[TenantView, ...] = (), **changes: Any) -> Plan:
    return prioritize(
        snapshot(lines, nodes, tenants, **changes), SchedulerConf(), SHARE_POLICIES["dominant_resource"]()
    )


def full(number: int = 1, slots: int = 2, **changes: Any) -> NodeView:
    """A node whose slots all run tasks that are over soon."""
    values: dict[str, Any] = {
        "exclusive_count": {WorkKind.PROCESS: slots}, "exclusive_used": tuple(slots * each for each in SMALL),
        "passing": slots, "least": SMALL,
    }  # fmt: skip
    return node(number, slots, **{**values, **changes})


def soon(number: int, count: int = 9, **changes: Any) -> LineView:
    return many(number, count, **{"expected_us": SOON, **changes})


def test_the_next_task_is_claimed_for_a_full_node_and_one_only() -> None:
    plan = decided([soon(1)], [full()])
    assert [(d.task_id, d.node_id, d.exclusive) for d in plan.decisions] == [("1-0000", 1, True)]
    assert plan.left["1-0001"] is Reason.NO_SLOT
    assert decided([soon(1)], [full(ahead=1)]).decisions == ()


def test_the_last_slot_and_what_follows_it_are_claimed_in_one_round() -> None:
    half = full(exclusive_count={WorkKind.PROCESS: 1}, exclusive_used=SMALL, passing=1)
    assert len(decided([soon(1)], [half]).decisions) == 2
    idle = node(1)
    assert len(decided([soon(1)], [idle]).decisions) == 3, "what it claimed itself is over soon"
    assert len(decided([soon(1, expected_us=SOON_US + 1)], [idle]).decisions) == 2


def test_of_four_over_soon_one_is_followed() -> None:
    assert [places(passing, 0) for passing in (0, 1, 4, 7, 8, 20)] == [0, 1, 1, 1, 2, 5]
    assert len(decided([soon(1)], [full(slots=8)]).decisions) == 2


@pytest.mark.parametrize(
    "changes",
    [{"expected_us": SOON_US + 1}, {"expected_us": None}, {"alone": True}, {"mutex_key": "k"}, {"vector": (101, 64, 0, 0, 0, 0)}],
    ids=["longer", "unknown", "alone", "a key", "takes more"],
)  # fmt: skip
def test_what_may_not_follow_is_not_passed_either(changes: dict[str, Any]) -> None:
    first = soon(1, 1, category=Category.URGENT, **changes)
    assert decided([first, soon(2)], [full()]).decisions == ()


def test_a_task_with_a_rate_does_not_follow() -> None:
    limited = line(1, [task("a", expected_us=SOON, rates=(7,))])
    assert decided([limited], [full()], rates_left={7: 1}).decisions == ()


def test_nothing_follows_what_runs_long_or_nothing_is_known_of() -> None:
    assert decided([soon(1)], [full(passing=0)]).decisions == ()


def test_it_takes_no_more_than_the_smallest_that_may_end() -> None:
    smaller = (100, 32, 0, 0, 0, 0)
    assert decided([soon(1)], [full(least=smaller)]).decisions == ()
    claimed_now = full(exclusive_count={WorkKind.PROCESS: 1}, exclusive_used=SMALL, passing=1)
    small_first = [soon(1, 1, vector=smaller, category=Category.URGENT), soon(2)]
    assert len(decided(small_first, [claimed_now]).decisions) == 1, "what this round placed may end first"


def test_limits_hold_as_if_one_had_ended() -> None:
    spent = TenantView(tenant_id=1, in_flight=2, max_in_flight=2)
    assert decided([soon(1)], [full()], (spent,)).decisions == ()
    at_most = TenantView(tenant_id=1, in_flight=1, maximum_permille=500, used_slots_milli={WorkKind.PROCESS: MILLI})
    assert decided([soon(1)], [full()], (at_most,)).decisions == ()
    assert len(decided([soon(1)], [full()]).decisions) == 1, "one of two slots is below 95 %"
    assert decided([soon(1)], [full(slots=40)]).decisions == (), "39 of 40 are not"
    assert len(decided([soon(1, category=Category.URGENT)], [full(slots=40)]).decisions) == 9
    assert decided([soon(1, paused=True)], [full()]).decisions == ()


def test_only_a_node_that_may_run_it_gets_it() -> None:
    assert decided([soon(1)], [full(handlers=frozenset({2}))]).decisions == ()
    assert [d.node_id for d in decided([soon(1)], [full(1, handlers=frozenset({2})), full(2)]).decisions] == [2]
    avoiding = line(1, [task("a", expected_us=SOON, avoid_node=1)])
    assert [d.node_id for d in decided([avoiding], [full(1), full(2)]).decisions] == [2]


def test_room_given_ahead_goes_first() -> None:
    given = Given(
        line_id=1, handler_id=1, alone=False, node_id=1, kind=WorkKind.PROCESS, queue=QueueName.DELAYABLE,
        slot_milli=MILLI, expected_us=0, places=1, given=1,
    )  # fmt: skip
    assert decided([soon(1)], [full()], openings=(given,)).decisions == ()


def test_a_free_slot_elsewhere_is_waited_for_by_nobody() -> None:
    plan = decided([soon(1)], [full(1), node(2)])
    assert [d.node_id for d in plan.decisions] == [2, 2, 1, 2], "two slots, then one each to follow"
