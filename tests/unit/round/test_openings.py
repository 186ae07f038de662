"""What a round gives ahead: to what came lately, within half of the room, the limits, and nobody's way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler_ext.conf import LOOKAHEAD_US, SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import CLIENT, MILLI, NodeView, Opening, QueueName, Snapshot, TenantView, WorkKind
from scheduler_ext.policies.registry import SHARE_POLICIES
from scheduler_ext.round.openings import in_the_way, lacking, openings
from scheduler_ext.round.prioritizer import prioritize
from tests.support.deciding import line, many, node, snapshot, task

CONF = SchedulerConf()
SHORT_US = 100


def given(number: int, places: int, milli: int = MILLI, *, at: int = 1) -> Opening:
    return Opening(
        line_id=number, handler_id=1, alone=False, node_id=at, kind=WorkKind.PROCESS, queue=QueueName.DELAYABLE,
        slot_milli=milli, expected_us=0 if milli == MILLI else SHORT_US, places=places, given=places,
    )  # fmt: skip


def came(number: int, **changes: Any) -> Any:
    """A line of which a task came lately."""
    of_task = {name: changes.pop(name) for name in ("expected_us", "kind", "alone") if name in changes}
    return line(number, [task("", number, **of_task)], **changes)


def decided(seen: Snapshot, share: str = "dominant_resource") -> list[Opening]:
    policy = SHARE_POLICIES[share]()
    return openings(seen, prioritize(seen, CONF, policy), CONF, policy)


def idle(recent: Sequence[Any], nodes: Sequence[NodeView] = (), tenants: Sequence[TenantView] = (),
         **changes: Any) -> Snapshot:  # fmt: skip
    known = [*tenants, *(TenantView(tenant_id=each.tenant_id) for each in recent
                         if each.tenant_id not in {one.tenant_id for one in tenants})]  # fmt: skip
    return snapshot([], nodes or [node(1)], known, recent=tuple(recent), **changes)


def test_a_whole_slot_is_given_where_two_are_free_and_the_other_is_kept() -> None:
    (opening,) = decided(idle([came(1)]))
    assert (opening.key, opening.node_id, opening.places, opening.slot_milli) == ((1, 1, False), 1, 1, MILLI)
    assert (opening.expected_us, opening.queue) == (0, QueueName.DELAYABLE)


def test_short_tasks_get_half_of_what_the_slots_hold_ahead() -> None:
    (opening,) = decided(idle([came(1, expected_us=SHORT_US)], [node(1, 1)]))
    milli = -(-MILLI * SHORT_US // LOOKAHEAD_US)
    assert (opening.slot_milli, opening.expected_us) == (milli, SHORT_US)
    assert 0 < opening.places * milli <= MILLI // 2 + MILLI // 2, "a slot at least"
    both = decided(idle([came(1, expected_us=SHORT_US), came(2, expected_us=SHORT_US)], [node(1, 4)]))
    assert [each.line_id for each in both] == [1, 2]
    assert sum(each.places for each in both) * milli <= 2 * MILLI


def test_short_tasks_that_run_alone_get_as_much_and_are_taken_by_themselves() -> None:
    (opening,) = decided(idle([came(1, expected_us=SHORT_US, alone=True)], [node(1, 1)]))
    (batched,) = decided(idle([came(1, expected_us=SHORT_US)], [node(1, 1)]))
    assert (opening.key, opening.expected_us) == ((1, 1, True), 0)
    assert (opening.slot_milli, opening.places) == (batched.slot_milli, batched.places)


def test_the_last_free_slot_is_given_too() -> None:
    seen = idle([came(1)], [node(1, exclusive_count={WorkKind.PROCESS: 1})])
    assert [each.places for each in decided(seen)] == [1]
    assert decided(idle([came(1)], [node(1, exclusive_count={WorkKind.PROCESS: 2})])) == []


def test_coroutines_get_half_of_their_slots() -> None:
    seen = idle([came(1, kind=WorkKind.COROUTINE)], [node(1, slots={WorkKind.PROCESS: 1, WorkKind.COROUTINE: 128})])
    (opening,) = decided(seen)
    assert (opening.kind, opening.places) == (WorkKind.COROUTINE, 64)


@pytest.mark.parametrize(
    "what",
    [
        idle([came(1, paused=True)]),
        idle([came(1)], tenants=[TenantView(tenant_id=1, paused=True)]),
        idle([came(1)], tenants=[TenantView(tenant_id=1, in_flight=3, max_in_flight=3)]),
        idle([came(1)], tenants=[TenantView(tenant_id=1, maximum_permille=500)]),
        idle([came(1, pool="research")]),
        idle([came(1, category=Category.OFFPEAK)]),
        idle([came(1, category=Category.PERIODIC)]),
        idle([came(1)], [node(1, handlers=frozenset({2}))]),
        idle([came(1)], [node(1, 20, exclusive_count={WorkKind.PROCESS: 19})]),
    ],
    ids=["line paused", "tenant paused", "in flight", "maximum", "pool", "off-peak", "periodic", "handler", "ceiling"],
)
def test_nothing_is_given_that_a_round_would_not_start_or_does_not_count(what: Snapshot) -> None:
    assert decided(what) == []


def test_a_clients_pool_is_no_reason() -> None:
    assert decided(idle([came(1, pool=f"{CLIENT}acme")]))


def test_an_example_of_many_short_tasks_counts_as_one_only_where_every_child_may_run_one() -> None:
    short, roomy = came(1, expected_us=SHORT_US), node(1, 4)
    assert decided(idle([short], [roomy]))[0].places > 8
    tight = node(1, 4, capacity=tuple(2 * each for each in short.vector))
    (opening,) = decided(idle([short], [tight]))
    assert opening.places <= 8, "one for each example"


def test_no_more_than_a_tenant_may_have_in_flight() -> None:
    limited = TenantView(tenant_id=1, in_flight=1, max_in_flight=4)
    found = decided(
        idle([came(1, expected_us=SHORT_US), came(2, tenant=1, expected_us=SHORT_US)], [node(1, 8)], [limited])
    )
    assert sum(each.places for each in found) == 3


def test_what_is_given_is_widened_only_when_half_is_left_and_only_at_its_node() -> None:
    recent = [came(1, expected_us=SHORT_US)]
    nodes = [node(1, 2, batch_milli=200, batch_count=100)]
    full = given(1, 100, 2)
    assert decided(idle(recent, nodes, openings=(full,))) == []
    half = Opening(**{**{name: getattr(full, name) for name in full.__slots__}, "places": 50})
    (more,) = decided(idle(recent, nodes, openings=(half,)))
    assert (more.places + half.places) * 2 <= MILLI
    elsewhere = Opening(**{**{name: getattr(half, name) for name in half.__slots__}, "node_id": 2})
    assert decided(idle(recent, nodes, openings=(elsewhere,))) == [replace(elsewhere, places=0)], (
        "looked at anew at a half"
    )
    assert decided(idle(recent, nodes, openings=(replace(elsewhere, given=50),))) == []


def test_what_is_given_stays_as_large_as_what_is_there_so_that_it_can_be_added() -> None:
    half = replace(given(1, 50, 2), given=100, expected_us=2 * SHORT_US)
    (more,) = decided(idle([came(1, expected_us=SHORT_US // 2)], [node(1, 2)], openings=(half,)))
    assert (more.slot_milli, more.expected_us) == (2, 2 * SHORT_US), "a round that adds another size adds nothing"
    (longer,) = decided(idle([came(1, expected_us=4 * SHORT_US)], [node(1, 2)], openings=(half,)))
    assert longer.slot_milli > 2, "never less than it takes"


def test_nothing_is_given_in_a_round_of_many_or_while_something_waits_for_room() -> None:
    assert decided(snapshot([many(1, 65)], [node(1, 200)], recent=(came(1),))) == [], "they come in crowds"
    assert decided(snapshot([many(1, 9)], [node(1, 2, exclusive_count={WorkKind.PROCESS: 2})], recent=(came(1),))) == []
    parked = snapshot([many(2, 1, paused=True)], [node(1)], [TenantView(tenant_id=1)], recent=(came(1),))
    assert decided(parked), "what cannot run anyway is in nobody's way"


def test_what_a_round_claims_is_counted_before_it_gives_ahead() -> None:
    (opening,) = decided(snapshot([many(1, 2)], [node(1, 4)], recent=(came(1),)))
    assert opening.places == 1, "half of the two slots left"
    limited = TenantView(tenant_id=1, max_in_flight=2)
    assert decided(snapshot([many(1, 2)], [node(1, 8)], [limited], recent=(came(1),))) == []


def test_openings_are_in_the_way_of_what_they_keep_from_starting() -> None:
    policy = SHARE_POLICIES["dominant_resource"]()

    def blocked(seen: Snapshot) -> bool:
        return in_the_way(seen, prioritize(seen, CONF, policy), CONF)

    taken = node(1, 1, exclusive_count={WorkKind.PROCESS: 1})  # by the opening
    urgent = many(2, 1, category=Category.URGENT)
    assert blocked(snapshot([urgent], [taken], openings=(given(1, 1),), recent=(came(1),)))
    assert not blocked(snapshot([urgent], [taken], recent=(came(1),))), "without one it is another's"
    assert not blocked(snapshot([], [taken], [TenantView(tenant_id=1)], openings=(given(1, 1),), recent=(came(1),)))
    limited = TenantView(tenant_id=1, in_flight=2, max_in_flight=2)
    own = snapshot([many(1, 1)], [node(1, 4)], [limited], openings=(given(1, 1),), recent=(came(1),))
    other = snapshot([many(1, 1)], [node(1, 4)], [limited], openings=(given(2, 1),), recent=(came(2),))
    assert (blocked(own), blocked(other)) == (True, False)


def test_openings_of_delayable_work_end_where_its_ceiling_is_reached_without_them() -> None:
    policy = SHARE_POLICIES["dominant_resource"]()
    busy = node(1, 20, exclusive_count={WorkKind.PROCESS: 20})
    seen = snapshot([], [busy], [TenantView(tenant_id=1)], openings=(given(1, 1),), recent=(came(1),))
    assert in_the_way(seen, prioritize(seen, CONF, policy), CONF)
    urgent = snapshot([], [busy], [TenantView(tenant_id=1)], openings=(given(1, 1),),
                      recent=(came(1, category=Category.URGENT),))  # fmt: skip
    assert not in_the_way(urgent, prioritize(urgent, CONF, policy), CONF)


def test_what_has_no_opening_is_known() -> None:
    seen = idle([came(1), came(2)], openings=(given(1, 1),))
    assert lacking(seen, [])
    assert not lacking(seen, [given(2, 1)])


@pytest.mark.parametrize("share", sorted(SHARE_POLICIES))
def test_every_share_policy_decides_on_examples(share: str) -> None:
    assert decided(idle([came(1), came(2)], [node(1, 4)]), share)
