"""One contract for every share policy, with its shortest useful configuration."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import MILLI, Plan, PoolView, Reason, Snapshot, TenantView, WorkKind
from scheduler_ext.policies.base import Chooser
from scheduler_ext.policies.registry import SHARE_POLICIES, share_policy
from scheduler_ext.round.prioritizer import prioritize
from tests.support.deciding import line, many, node, snapshot, task

OPEN = SchedulerConf(delayable_permille=1000, peak_permille=1000)
NAMES = sorted(SHARE_POLICIES)


def decide(view: Snapshot, name: str, conf: SchedulerConf = OPEN, **parameters: Any) -> Plan:
    return prioritize(view, conf, share_policy(name, parameters))


def drain(chooser: Chooser) -> list[str]:
    """Accept everything; the order in which it came."""
    order = []
    while (picked := chooser.pick()) is not None:
        chooser.accept(*picked, MILLI)
        order.append(picked[1].task_id)
    return order


@pytest.mark.parametrize("name", NAMES)
class TestContract:
    def test_nothing_to_choose(self, name: str) -> None:
        chooser = share_policy(name).start(snapshot([line(1, [])], [node(1)]))
        assert chooser.pick() is None
        assert chooser.pick() is None

    def test_everything_comes_once_and_lines_keep_their_order(self, name: str) -> None:
        lines = [many(number, 5, category=Category(1 + number % 4)) for number in range(1, 6)]
        order = drain(share_policy(name).start(snapshot(lines, [node(1)])))
        assert sorted(order) == sorted(task.task_id for each in lines for task in each.heads)
        for number in range(1, 6):
            own = [task_id for task_id in order if task_id.startswith(f"{number}-")]
            assert own == sorted(own)

    def test_picking_again_without_an_answer_gives_the_same(self, name: str) -> None:
        chooser = share_policy(name).start(snapshot([many(1, 2), many(2, 2)], [node(1)]))
        assert chooser.pick() == chooser.pick()

    def test_a_rejected_task_is_not_offered_again_but_its_line_goes_on(self, name: str) -> None:
        chooser = share_policy(name).start(snapshot([many(1, 3)], [node(1)]))
        picked = chooser.pick()
        assert picked is not None
        chooser.reject(*picked, Reason.NO_SLOT)
        assert drain(chooser) == ["1-0001", "1-0002"]

    def test_reasons_take_with_them_what_they_cover(self, name: str) -> None:
        lines = [
            many(1, 2, category=Category.URGENT),
            many(2, 2, tenant=1, category=Category.DELAYABLE),
            many(3, 2, tenant=3, category=Category.DELAYABLE),
        ]
        left_by = {
            Reason.PAUSED: {"2-0000", "2-0001", "3-0000", "3-0001"},
            Reason.TENANT_IN_FLIGHT: {"3-0000", "3-0001"},
            Reason.PEAK: {"2-0000", "2-0001", "3-0000", "3-0001"},
        }
        for reason, rest in left_by.items():
            chooser = share_policy(name).start(snapshot(lines, [node(1)]))
            picked = chooser.pick()
            assert picked is not None
            assert picked[1].task_id == "1-0000"
            chooser.reject(*picked, reason)
            assert set(drain(chooser)) == rest, reason

    def test_categories_come_in_their_order_within_a_share(self, name: str) -> None:
        lines = [many(number, 2, category=category) for number, category in enumerate(reversed(Category), 1)]
        order = drain(share_policy(name).start(snapshot(lines, [node(1, 8)])))
        assert [task_id[0] for task_id in order] == list("44332211")
        alone = [many(number, 2, tenant=1, category=category) for number, category in enumerate(reversed(Category), 1)]
        assert [task_id[0] for task_id in drain(share_policy(name).start(snapshot(alone, [node(1)])))] == list(
            "44332211"
        )

    def test_beyond_a_share_who_holds_least_is_next_whatever_the_category(self, name: str) -> None:
        lines = [many(1, 8, category=Category.URGENT), many(2, 8, category=Category.OFFPEAK)]
        order = drain(share_policy(name).start(snapshot(lines, [node(1, 6)])))
        assert [task_id[0] for task_id in order][:10] == list("1112221212")

    def test_of_those_who_hold_alike_the_one_served_least_lately_is_next(self, name: str) -> None:
        past = {"tenant 1": 3.0, "tenant 2": 1.0, "tenant 4": 2.0}
        view = replace(snapshot([many(number, 9) for number in range(1, 5)], [node(1)]), past_use=past)
        order = [task_id[0] for task_id in drain(share_policy(name).start(view))]
        assert order[:8] == list("32413241")

    def test_equal_weights_get_equal_turns(self, name: str) -> None:
        lines = [many(number, 40) for number in range(1, 5)]
        got = Counter(decision.line_id for decision in decide(snapshot(lines, [node(1, 20)]), name).decisions)
        assert set(got.values()) == {5}

    def test_weights_of_plans_count(self, name: str) -> None:
        tenants = [TenantView(tenant_id=1, weight=4), TenantView(tenant_id=2, weight=1)]
        plan = decide(snapshot([many(1, 40), many(2, 40)], [node(1, 20)], tenants), name)
        assert Counter(decision.line_id for decision in plan.decisions) == {1: 16, 2: 4}

    def test_what_is_held_counts(self, name: str) -> None:
        tenants = [TenantView(tenant_id=1, used_slots_milli={WorkKind.PROCESS: 4000}), TenantView(tenant_id=2)]
        plan = decide(snapshot([many(1, 40), many(2, 40)], [node(1, 6)], tenants), name)
        assert Counter(decision.line_id for decision in plan.decisions) == {1: 1, 2: 5}

    def test_past_use_counts_if_it_is_remembered(self, name: str) -> None:
        view = replace(snapshot([many(1, 40), many(2, 40)], [node(1, 10)]), past_use={"tenant 1": 40.0})
        got = Counter(decision.line_id for decision in decide(view, name).decisions)
        remembered = Counter(decision.line_id for decision in decide(view, name, memory_s=100).decisions)
        assert (got, remembered) == ({1: 5, 2: 5}, {1: 3, 2: 7})

    def test_guaranteed_first(self, name: str) -> None:
        lines = [many(1, 3, category=Category.URGENT), many(2, 3, category=Category.DELAYABLE)]
        tenants = [TenantView(tenant_id=2, guaranteed_permille=250)]
        plan = decide(snapshot(lines, [node(1, 4)], tenants), name)
        assert [decision.line_id for decision in plan.decisions] == [2, 1, 1, 2], "then each to its half"

    def test_a_line_that_cannot_use_what_is_left_holds_up_nobody(self, name: str) -> None:
        lines = [many(1, 3, vector=(900, 0, 0, 0, 0, 0)), many(2, 3, vector=(100, 0, 0, 0, 0, 0))]
        plan = decide(snapshot(lines, [node(1, 9, capacity=(1000, 1, 1, 1, 1, 1))]), name)
        assert [decision.line_id for decision in plan.decisions][:2] == [1, 2]

    def test_a_negative_memory_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            share_policy(name, {"memory_s": -1})
        assert caught.value.field == "share_policy.memory_s"

    def test_choosing_a_hundred_of_eight_thousand_is_quick(self, name: str) -> None:
        lines = [many(number, 8, category=Category(1 + number % 4)) for number in range(1, 1001)]
        view = snapshot(lines, [node(number, 8) for number in range(1, 21)])
        best = min(self._seconds(view, name) for _ in range(4))
        assert best < 0.25, f"{best * 1000:.1f} ms; to look through all eight thousand for each would take seconds"

    def _seconds(self, view: Snapshot, name: str) -> float:
        policy, conf = share_policy(name), SchedulerConf(round_limit=100, delayable_permille=1000)
        begin = time.process_time()
        plan = prioritize(view, conf, policy)
        assert len(plan.decisions) == 100
        return time.process_time() - begin


CELL = node(1, 100, capacity=(18_000, 36_000, 0, 0, 0, 0))
CPU_HEAVY = (6000, 2000, 0, 0, 0, 0)
MEMORY_HEAVY = (2000, 8000, 0, 0, 0, 0)


def test_dominant_resource_fairness_gives_three_and_two() -> None:
    """18 CPU and 36 GB, tasks of (2 CPU, 8 GB) and (6 CPU, 2 GB): 3 and 2 tasks, 2/3 each."""
    lines = [many(1, 9, vector=MEMORY_HEAVY), many(2, 9, vector=CPU_HEAVY)]
    plan = decide(snapshot(lines, [CELL]), "dominant_resource")
    assert Counter(decision.line_id for decision in plan.decisions) == {1: 3, 2: 2}


def test_dominant_resource_fairness_by_weight() -> None:
    tenants = [TenantView(tenant_id=1, weight=3), TenantView(tenant_id=2, weight=1)]
    box = node(1, 400, capacity=(100_000, 100_000, 0, 0, 0, 0))
    lines = [many(1, 99, vector=(1000, 100, 0, 0, 0, 0)), many(2, 99, vector=(1000, 100, 0, 0, 0, 0))]
    got = Counter(d.line_id for d in decide(snapshot(lines, [box], tenants), "dominant_resource").decisions)
    assert got == {1: 75, 2: 25}


def test_dominant_resource_fairness_over_pools_before_tenants() -> None:
    box = node(1, 400, capacity=(12_000, 12_000, 0, 0, 0, 0))
    need = (1000, 100, 0, 0, 0, 0)
    lines = [many(number, 20, vector=need, pool="many") for number in (1, 2, 3)]
    lines.append(many(4, 20, vector=need, pool="one"))
    got = Counter(d.line_id for d in decide(snapshot(lines, [box]), "dominant_resource").decisions)
    assert got == {1: 2, 2: 2, 3: 2, 4: 6}
    weighed = decide(snapshot(lines, [box]), "dominant_resource", pools={"many": {"weight": 3}})
    assert Counter(d.line_id for d in weighed.decisions) == {1: 3, 2: 3, 3: 3, 4: 3}


def test_capacity_queues_of_80_and_20() -> None:
    queues = {"prod": {"guaranteed": 80}, "dev": {"guaranteed": 20}}
    lines = [many(1, 40, pool="prod"), many(2, 40, pool="dev")]
    plan = decide(snapshot(lines, [node(1, 10)]), "capacity", queues=queues)
    assert Counter(decision.line_id for decision in plan.decisions) == {1: 8, 2: 2}


def test_idle_share_is_lent_up_to_the_maximum_and_no_further() -> None:
    queues = {"prod": {"guaranteed": 80}, "dev": {"guaranteed": 20, "maximum": 50}}
    lines = [many(1, 1, pool="prod"), many(2, 40, pool="dev")]
    plan = decide(snapshot(lines, [node(1, 10)]), "capacity", queues=queues)
    assert Counter(decision.line_id for decision in plan.decisions) == {1: 1, 2: 5}
    assert set(plan.left.values()) == {Reason.HARD_SHARE}


def test_lent_share_comes_back_first() -> None:
    queues = {"prod": {"guaranteed": 80}, "dev": {"guaranteed": 20}}
    lines = [many(1, 40, pool="prod"), many(2, 40, pool="dev")]
    held = {"dev": PoolView(used_slots_milli={WorkKind.PROCESS: 6000}), "prod": PoolView()}
    plan = decide(snapshot(lines, [node(1, 4)], pools=held), "capacity", queues=queues)
    assert Counter(decision.line_id for decision in plan.decisions) == {1: 4}


def test_maxima_hold_at_every_level() -> None:
    queues = {
        "org": {"guaranteed": 50, "maximum": 60},
        "org/a": {"guaranteed": 50},
        "org/b": {"guaranteed": 50, "maximum": 50},
    }
    lines = [many(1, 40, pool="org/a"), many(2, 40, pool="org/b")]
    plan = decide(snapshot(lines, [node(1, 10)]), "capacity", queues=queues)
    assert Counter(decision.line_id for decision in plan.decisions) == {1: 3, 2: 3}
    plan = decide(snapshot(lines[1:], [node(1, 10)]), "capacity", queues=queues)
    assert len(plan.decisions) == 3


def test_fair_pools_of_50_and_50_whatever_they_hand_in() -> None:
    pools = {"left": {"weight": 1}, "right": {"weight": 1}}
    lines = [many(number, 40, pool="left") for number in (1, 2, 3)] + [many(4, 40, pool="right")]
    got = Counter(d.line_id for d in decide(snapshot(lines, [node(1, 12)]), "fair", pools=pools).decisions)
    assert got == {1: 2, 2: 2, 3: 2, 4: 6}


def test_a_minimum_share_comes_before_weights() -> None:
    pools = {"small": {"weight": 1, "guaranteed": 50}, "big": {"weight": 9}}
    lines = [many(1, 40, pool="small"), many(2, 40, pool="big")]
    got = Counter(d.line_id for d in decide(snapshot(lines, [node(1, 10)]), "fair", pools=pools).decisions)
    assert got == {1: 5, 2: 5}


@pytest.mark.parametrize(("inside", "first"), [("fifo", ["1-0000", "1-0001"]), ("fair", ["1-0000", "2-0000"])])
def test_a_pool_is_fifo_or_fair_inside(inside: str, first: list[str]) -> None:
    early = line(1, [task("1-0000", 1), task("1-0001", 1, rank=(0, 1))], pool="team")
    late = line(2, [task("2-0000", 2, rank=(0, 5))], pool="team")
    plan = decide(snapshot([early, late], [node(1, 2)]), "fair", pools={"team": {"inside": inside}})
    assert [decision.task_id for decision in plan.decisions] == first


def test_a_pool_with_pools_in_it_may_have_lines_of_its_own() -> None:
    lines = [many(1, 3, pool="org"), many(2, 3, pool="org/team"), many(3, 3)]
    for name in NAMES:
        plan = decide(snapshot(lines, [node(1, 20)]), name)
        assert len(plan.decisions) == 9, name


@pytest.mark.parametrize(
    ("name", "parameters", "field"),
    [
        ("capacity", {"queues": {"a": {"guaranteed": 60}, "b": {"guaranteed": 50}}}, "queues"),
        ("capacity", {"queues": {"a": {"guaranteed": 60, "maximum": 50}}}, "queues.a"),
        ("capacity", {"queues": {"a": {"inside": "fifo"}}}, "queues.a.inside"),
        ("capacity", {"queues": {"a//b": {}}}, "queues"),
        ("capacity", {"queues": {"a": 3}}, "queues.a"),
        ("capacity", {"queues": 3}, "queues"),
        ("fair", {"pools": {"a": {"weight": 0}}}, "pools.a.weight"),
        ("fair", {"pools": {"a": {"weight": True}}}, "pools.a.weight"),
        ("fair", {"pools": {"a": {"inside": "lifo"}}}, "pools.a.inside"),
        ("fair", {"starvation_s": -1}, "starvation_s"),
        ("dominant_resource", {"pools": {"a": {"guaranteed": 1}}}, "pools.a.guaranteed"),
    ],
)
def test_wrong_configuration_names_its_place(name: str, parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        share_policy(name, parameters)
    assert caught.value.field == f"share_policy.{field}"
