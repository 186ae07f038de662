"""Labels bind: what requires them runs where they are, what prefers them runs there first, and nobody waits for either."""

from __future__ import annotations

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.labels import Labels, labels_of, with_names
from scheduler_ext.core.types import LineView, NodeView, Plan, Reason
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.round.prioritizer import prioritize
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.generator import generate
from scheduler_ext.simulation.model import Run
from tests.support.deciding import many, node, snapshot


def asks(*require: str, prefer: tuple[str, ...] = ()) -> Labels | None:
    return labels_of(require, prefer)


def has(number: int, *labels: str, process: int = 2) -> NodeView:
    return node(number, process, labels=with_names(labels))


def decide(lines: list[LineView], nodes: list[NodeView]) -> Plan:
    return prioritize(snapshot(lines, nodes), SchedulerConf(), share_policy("dominant_resource"))


def places(plan: Plan) -> dict[str, int]:
    return {decision.task_id: decision.node_id for decision in plan.decisions}


@pytest.mark.parametrize("run_us", [None, 2_000], ids=["whole slots", "shared slots"])
def test_work_runs_only_where_all_labels_are_and_a_bare_name_takes_any_value(run_us: int | None) -> None:
    nodes = [has(1), has(2, "gpu=h100"), has(3, "gpu=a100", "zone=eu")]
    lines = [
        many(1, 1, labels=asks("gpu=a100", "zone=eu"), expected_us=run_us),
        many(2, 1, labels=asks("gpu=h100"), expected_us=run_us),
        many(3, 1, labels=asks("zone"), expected_us=run_us),
        many(4, 1, labels=asks("gpu=h100", "zone=eu"), expected_us=run_us),
    ]
    plan = decide(lines, nodes)
    assert places(plan) == {"1-0000": 3, "2-0000": 2, "3-0000": 3}
    assert plan.left == {"4-0000": Reason.NO_LABELS}  # each label is somewhere, and nowhere both


def test_a_full_node_stops_only_what_needs_its_labels() -> None:
    lines = [many(1, 4, labels=asks("gpu")), many(2, 2, labels=asks("ssd")), many(3, 3)]
    plan = decide(lines, [has(1, "gpu"), has(2, "ssd"), has(3)])
    assert {task for task in places(plan) if task[0] == "2"} == {"2-0000", "2-0001"}
    assert len(places(plan)) == 6
    assert {at for task, at in places(plan).items() if task[0] == "1"} == {1}
    assert {plan.left[f"1-000{n}"] for n in (2, 3)} <= {Reason.NO_SLOT, Reason.POSITION}


def test_what_is_preferred_comes_first_and_the_rest_after_it() -> None:
    nodes = [has(1), has(2, "ssd", process=1), has(3, "ssd", "zone=eu", process=1)]
    plan = decide([many(1, 4, labels=asks(prefer=("ssd", "zone=eu")))], nodes)
    assert [places(plan)[f"1-000{n}"] for n in range(4)] == [3, 2, 1, 1]
    # A node that is required is never left for one that is only preferred.
    plan = decide([many(1, 3, labels=asks("ssd", prefer=("fast",)))], [has(1, "fast"), *nodes[1:]])
    assert sorted(places(plan).values()) == [2, 3]
    assert plan.left == {"1-0002": Reason.NO_SLOT}


def test_a_node_too_small_is_told_apart_from_one_without_the_label() -> None:
    small = node(1, labels=frozenset({"gpu"}), capacity=(10, 10, 0, 0, 0, 0))
    assert decide([many(1, 1, labels=asks("gpu"))], [small, has(2)]).left == {"1-0000": Reason.NEVER_FITS}
    other = node(1, labels=frozenset({"gpu"}), handlers=frozenset({9}))
    assert decide([many(1, 1, labels=asks("gpu"))], [other]).left == {"1-0000": Reason.NO_NODE}


def simulated(**cell: object) -> Run:
    one = {"arrivals": {"process": "fixed", "every_s": 0, "count": 6}, "run_s": {"value": 10}}
    tenants = [{"name": "a", **one, "require_labels": ["gpu"]}, {"name": "b", **one},
               {"name": "c", **one, "prefer_labels": ["gpu"]}]  # fmt: skip
    trace, made = generate({"cell": {"nodes": 3, "slots": 2, **cell}, "tenants": tenants})
    return Engine(trace, made, order=order_policy("fifo"), share=share_policy("dominant_resource")).run(lambda: 0.0)


def test_the_simulator_places_by_labels_too() -> None:
    run = simulated(labels=[["gpu=a100"]])
    assert run.unplaced == {}
    starts = [
        sorted(at for job, at in zip(run.trace.jobs, run.started_us, strict=True) if job.tenant == n) for n in range(3)
    ]
    assert all(starts[0].count(at) <= 2 for at in starts[0])  # two slots have what it requires
    assert starts[1][-1] <= 20_000_000  # what asks for nothing is not kept waiting by it
    assert max(run.ended_us) <= 60_000_000
    lost = simulated()
    assert set(lost.unplaced.values()) == {Reason.NO_LABELS.value}
    assert len(lost.unplaced) == 6
    with pytest.raises(InvalidInput, match="NAME=VALUE"):
        simulated(labels=[["a b"]])


@pytest.mark.parametrize("run_us", [None, 2_000], ids=["whole slots", "shared slots"])
def test_a_reserved_node_takes_only_what_requires_one_of_its_labels(run_us: int | None) -> None:
    lines = [
        many(1, 1, labels=asks("gpu"), expected_us=run_us),
        many(2, 1, labels=asks(prefer=("gpu",)), expected_us=run_us),
        many(3, 1, expected_us=run_us),
    ]
    shut = has(1, "gpu=a100", "reserved")
    plan = decide(lines, [shut])
    assert places(plan) == {"1-0000": 1}
    assert plan.left == {"2-0000": Reason.NO_LABELS, "3-0000": Reason.NO_LABELS}
    assert places(decide(lines, [shut, has(2)])) == {"1-0000": 1, "2-0000": 2, "3-0000": 2}


def test_a_reserved_node_stays_free_in_the_simulator() -> None:
    run = simulated(labels=[["gpu", "reserved"]])
    asking = sorted(at for job, at in zip(run.trace.jobs, run.started_us, strict=True) if job.tenant == 0)
    assert asking[1] == 0, "both slots are free for what requires the label"
    assert sum(at == 0 for at in run.started_us) == 6, "all else has the four others"
    assert max(run.started_us) <= 30_000_000
