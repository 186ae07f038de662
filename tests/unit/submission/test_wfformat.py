"""Reading recorded workflows: what a file says is kept, and what is wrong with it is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.core.errors import DependencyCycle, InvalidInput
from scheduler_ext.core.wfformat import read_workflow
from slackwater_tasks.submission.workflow_import import TierMemory, plan_import

RECORDED = Path(__file__).resolve().parents[4] / "shared" / "data" / "workflows"
TIERS = [TierMemory(slug="large", memory_mb=1024), TierMemory(slug="small", memory_mb=256)]


def document(**changes: Any) -> dict[str, Any]:
    """A diamond in WfFormat 1.5: a, then b and c, then d."""
    specification = [
        {"name": "a", "id": "a1", "parents": [], "children": ["b1", "c1"]},
        {"name": "b", "id": "b1", "parents": ["a1"], "children": ["d1"]},
        {"name": "c", "id": "c1", "parents": ["a1"], "children": ["d1"]},
        {"name": "d", "id": "d1", "parents": ["b1", "c1"], "children": []},
    ]
    runs = [
        {"id": "a1", "runtimeInSeconds": 10, "memoryInBytes": 200 << 20, "priority": 20},
        {
            "id": "b1",
            "runtimeInSeconds": 4.5,
            "memoryInBytes": (256 << 20) + 1,
            "command": {"program": "bake"},
        },
        {"id": "c1", "runtimeInSeconds": 0, "memoryInBytes": 9 << 30, "priority": 4000},
        {"id": "d1", "runtimeInSeconds": 1},
    ]
    return {
        "name": "diamond",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": specification},
            "execution": {"makespanInSeconds": 16, "tasks": runs},
        },
        **changes,
    }


def tasks_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = data["workflow"]["specification"]["tasks"]
    return found


def runs_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = data["workflow"]["execution"]["tasks"]
    return found


def read(data: Any) -> Any:
    return read_workflow(json.dumps(data))


def fault(data: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read(data)
    return caught.value


def test_what_a_file_says_is_kept() -> None:
    found = read(document())
    assert (found.name, found.edges, found.makespan_s) == ("diamond", 4, 16.0)
    assert [task.id for task in found.tasks] == ["a1", "b1", "c1", "d1"]
    assert [task.runtime_s for task in found.tasks] == [10.0, 4.5, 0.0, 1.0]
    assert [task.memory_mb for task in found.tasks] == [200, 257, 9216, None]
    assert [task.priority for task in found.tasks] == [20, 0, 1000, 0]
    assert [task.parents for task in found.tasks] == [(), ("a1",), ("a1",), ("b1", "c1")]
    assert found.dag().critical_length([task.runtime_s for task in found.tasks]) == 15.5


def test_an_edge_told_by_one_side_only_counts_once_all_the_same() -> None:
    data = document()
    for task in tasks_of(data):
        del task["parents"]
    assert [task.parents for task in read(data).tasks] == [(), ("a1",), ("a1",), ("b1", "c1")]


def test_a_plan_scales_times_and_picks_the_smallest_tier_that_fits() -> None:
    plan = plan_import(read(document()), scale=0.1, tiers=TIERS)
    tasks = {task["name"]: task for task in plan.workflow["tasks"]}
    assert {name: task["kwargs"] for name, task in tasks.items()} == {
        "a": {"seconds": 1.0}, "b": {"seconds": 0.45}, "c": {"seconds": 0.0}, "d": {"seconds": 0.1}
    }  # fmt: skip
    assert {name: task["tier"] for name, task in tasks.items()} == {
        "a": "small", "b": "large", "c": "large", "d": "small"
    }  # fmt: skip
    assert plan.tiers == {"small": 2, "large": 2}
    assert plan.too_large == {"c": 9216}
    assert tasks["d"]["depends_on"] == ["b", "c"]
    assert tasks["c"]["priority"] == 1000
    assert tasks["b"]["tags"] == ["recorded", "diamond", "bake"]
    assert all(task["execution_cap_s"] > 3 * task["kwargs"]["seconds"] for task in tasks.values())


def test_ids_stand_in_where_names_repeat() -> None:
    data = document()
    tasks_of(data)[2]["name"] = "b"
    plan = plan_import(read(data), scale=1, tiers=TIERS)
    assert [task["name"] for task in plan.workflow["tasks"]] == ["a1", "b1", "c1", "d1"]
    assert plan.workflow["tasks"][3]["depends_on"] == ["b1", "c1"]


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(scale: float) -> None:
    with pytest.raises(InvalidInput, match="greater than 0"):
        plan_import(read(document()), scale=scale, tiers=TIERS)


def test_text_that_is_no_json() -> None:
    with pytest.raises(InvalidInput, match="is not JSON"):
        read_workflow("<xml/>")


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        ([], None, "must be an object"),
        (document(schemaVersion="1.4"), "schemaVersion", "must be '1.5', not '1.4'"),
        (document(workflow={}), "workflow.specification", "is missing"),
        (document(workflow={"specification": {"tasks": []}}), "workflow.execution", "is missing"),
        (
            document(workflow={"specification": {"tasks": []}, "execution": {"tasks": []}}),
            "workflow.specification.tasks",
            "must not be empty",
        ),
    ],
)
def test_a_document_of_another_shape(data: Any, field: str | None, message: str) -> None:
    error = fault(data)
    assert (error.field, error.message) == (field, message)


@pytest.mark.parametrize("kind", ["parents", "children"])
def test_an_unknown_relative_is_named(kind: str) -> None:
    data = document()
    tasks_of(data)[1][kind] = ["zz"]
    error = fault(data)
    assert error.field == f"workflow.specification.tasks[1].{kind}[0]"
    assert "'zz'" in error.message


def test_two_tasks_with_one_id() -> None:
    data = document()
    tasks_of(data)[3]["id"] = "a1"
    assert fault(data).field == "workflow.specification.tasks[3].id"


def test_a_task_that_never_ran() -> None:
    data = document()
    runs_of(data).pop()
    error = fault(data)
    assert error.field == "workflow.specification.tasks[3].id"
    assert "'d1'" in error.message


@pytest.mark.parametrize("value", [-1, "5", None, True, [1]])
def test_a_run_time_that_is_none(value: Any) -> None:
    data = document()
    runs_of(data)[1]["runtimeInSeconds"] = value
    assert fault(data).field == "workflow.execution.tasks[1].runtimeInSeconds"


def test_a_cycle_is_named() -> None:
    data = document()
    tasks_of(data)[0]["parents"] = ["d1"]
    with pytest.raises(DependencyCycle, match="a1"):
        read(data)


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"the recorded workflows are not at {RECORDED}")
@pytest.mark.parametrize(
    ("name", "tasks", "edges", "critical_s"),
    [
        ("1000genome-chameleon-22ch-250k-001", 902, 1166, 313.98),
        ("1000genome-chameleon-2ch-100k-001", 52, 76, 204.686),
        ("bacass-dirt02-001", 11, 14, 2150.0),
        ("blast-chameleon-small-001", 43, 120, 10.413171),
        ("epigenomics-chameleon-hep-1seq-100k-001", 41, 48, 104.822),
        ("montage-chameleon-2mass-005d-001", 58, 114, 21.385),
    ],
)
def test_recorded_files(name: str, tasks: int, edges: int, critical_s: float) -> None:
    found = read_workflow((RECORDED / f"{name}.json").read_text())
    assert (len(found.tasks), found.edges) == (tasks, edges)
    length = found.dag().critical_length([task.runtime_s for task in found.tasks])
    assert length == pytest.approx(critical_s)
