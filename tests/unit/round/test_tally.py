"""What a round could claim and did, told by plan and node; and how a cell stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.labels import labels_of
from scheduler_ext.core.types import PoolView, TenantView, WorkKind
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.round.prioritizer import prioritize
from scheduler_ext.round.standing import jain, standing
from scheduler_ext.round.tally import WHY, Tally
from tests.support.deciding import ROOMY, line, many, node, snapshot, task

CONF = SchedulerConf()


def test_each_plan_and_node_says_why_no_more_was_claimed() -> None:
    large = replace(many(2, 2), vector=(3000, 0, 0, 0, 0, 0))
    paused = replace(many(3, 2), paused=True)
    nodes = [node(n, 2 * n, capacity=(cpu, *ROOMY[1:])) for n, cpu in ((1, 3000), (2, 2000))]
    view = snapshot([large, paused], nodes)
    plan, tally = prioritize(view, CONF, share_policy("equal")), Tally(CONF)
    tally.count(view, plan, plan.decisions)
    told = tally.take({2: "basic", 3: "pro"})
    by_plan = {row["plan"]: (row["claimed"], row["left"]) for row in told["plans"]}
    assert by_plan == {"basic": (1, {"no_resource": 1}), "pro": (0, {"paused": 2})}
    why = {row["node"]: (row["could"], row["took"], row["claimed"], row["why"]) for row in told["nodes"]}
    assert why == {"n1": (2, 1, 1, "no_resource"), "n2": (4, 0, 0, "paused")}
    assert all(row[3] in WHY for row in why.values())
    assert tally.take({}) == {}, "nothing has been counted since"


def test_a_node_that_goes_on_by_itself_is_said_to() -> None:
    view = snapshot([many(1, 300, expected_us=100)], [node(1, 1), node(2, 1)])
    plan, tally = prioritize(view, CONF, share_policy("equal")), Tally(CONF)
    tally.count(view, replace(plan, going_on=frozenset({1})), [])
    assert {row["node"]: row["why"] for row in tally.take({})["nodes"]} == {"n1": "goes_on", "n2": "no_work"}
    assert "goes_on" in WHY


def test_slots_of_nodes_without_the_required_labels_are_no_missing_resource() -> None:
    asking = many(1, 3, labels=labels_of(["gpu"], []))
    nodes = [node(1, 2), node(2, 1, labels=frozenset({"gpu", "reserved"})), node(3, 2, labels=frozenset({"reserved"}))]
    view = snapshot([asking], nodes)
    plan, tally = prioritize(view, CONF, share_policy("equal")), Tally(CONF)
    tally.count(view, plan, plan.decisions)
    told = tally.take({1: "pro"})
    assert told["plans"] == [{"plan": "pro", "claimed": 1, "left": {"no_slot": 2}}]
    assert {row["node"]: row["why"] for row in told["nodes"]} == {"n1": "no_work", "n2": "no_slot", "n3": "no_work"}
    assert {row["node"]: row["could"] for row in told["nodes"]} == {"n1": 0, "n2": 1, "n3": 0}
    assert told["could"] == 1, "slots of nodes without the labels are free for nobody"


def test_the_busiest_round_is_told_of_and_one_that_was_full_says_so() -> None:
    conf = SchedulerConf.from_mapping({"round_limit": 2})
    tally = Tally(conf)
    for tasks in (0, 5, 1):
        view = snapshot([many(1, tasks)], [node(1, 8)])
        plan = prioritize(view, conf, share_policy("equal"))
        tally.count(view, plan, plan.decisions)
    told = tally.take({1: "free"})
    assert (told["rounds"], told["claims"], told["claimed"], told["could"]) == (3, 3, 2, 8)
    assert told["plans"][0]["left"] == {"round_full": 3}
    assert told["nodes"][0]["why"] == "round_full"


def test_shares_are_parts_of_the_cell_pool_by_pool() -> None:
    held = {WorkKind.PROCESS: 2000}
    tenants = {1: TenantView(tenant_id=1, weight=3, used_slots_milli=held), 2: TenantView(tenant_id=2),
               3: TenantView(tenant_id=3, used_slots_milli=held), 4: TenantView(tenant_id=4, paused=True)}  # fmt: skip
    lines = [many(2, 1), line(4, [task("p", 4)]), *(replace(many(number, 1), pool="org") for number in (3,))]
    view = replace(
        snapshot(lines, [node(1, 8)]), tenants=tenants,
        pools={"org": PoolView(used_slots_milli=held, tenants={3: (held, ())})},
    )  # fmt: skip
    found = standing(view, share_policy("fair"))
    told = {number: (each.held, round(each.entitled, 3), each.waits) for number, each in found.tenants.items()}
    assert told == {1: (0.25, 0.6, False), 2: (0, 0.2, True), 3: (0.25, 0.2, True)}
    assert found.jain == pytest.approx(0.5)
    assert jain([]) == jain([0.0]) == jain([2.0, 2.0]) == 1
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
