"""Recorded workflows in the ledger: submitted as one graph, and reported on from their attempts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from scheduler_ext.core.states import TaskState
from slackwater_resources.models import Handler
from slackwater_tasks.models import Attempt, Dependency, LiveTask, Task
from slackwater_tasks.read.workflow_report import TaskRun, measure, percentile
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import furnish
from tests.support.hand_worker import HandWorker
from tests.unit.submission.test_wfformat import RECORDED, document

pytestmark = pytest.mark.django_db


@pytest.fixture
def demo() -> Tenant:
    """The tenant that imports, and the handler it imports to."""
    furnish()
    Handler.objects.get_or_create(name="demo.sleep")
    return create_tenant("demo", "Demo")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The diamond as a file."""
    path = tmp_path / "diamond.json"
    path.write_text(json.dumps(document()))
    return path


def command(name: str, *args: Any, **options: Any) -> str:
    out = StringIO()
    call_command(name, *map(str, args), stdout=out, **options)
    return out.getvalue()


def imported(path: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Task]]:
    said = json.loads(command("import_workflow", path, json=True, **options))
    rows = Task.objects.unscoped().filter(workflow_id=said["id"]).select_related("tier")  # the test is no tenant
    return said, {task.name: task for task in rows}


def reported(workflow_id: str, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("workflow_report", workflow_id, json=True, **options))
    return found


def run_all(worker: HandWorker, tasks: dict[str, Task]) -> None:
    for names in ("a", "b", "c", "d"):
        worker.run(*[tasks[name].pk for name in names], took_s=0.001)


def test_a_file_becomes_one_workflow(demo: Tenant, file: Path) -> None:
    said, tasks = imported(file, time_scale=0.1)
    assert (said["tasks"], said["edges"], said["name"]) == (4, 4, "diamond x 0.1")
    assert said["tiers"] == {"basic": 2, "regular": 1, "premium": 1}
    assert said["too_large"] == {"c": 9216}
    assert {name: task.tier.slug for name, task in tasks.items()} == {
        "a": "basic", "b": "regular", "c": "premium", "d": "basic"
    }  # fmt: skip
    assert {name: task.kwargs["seconds"] for name, task in tasks.items()} == {
        "a": 1.0,
        "b": 0.45,
        "c": 0,
        "d": 0.1,
    }
    assert {name: task.priority for name, task in tasks.items()} == {"a": 20, "b": 0, "c": 1000, "d": 0}
    names = {task.pk: name for name, task in tasks.items()}
    edges = Dependency.objects.filter(child__in=names).values_list("parent_id", "child_id")
    assert {(names[parent], names[child]) for parent, child in edges} == {
        ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")
    }  # fmt: skip
    assert {row.state for row in LiveTask.objects.unscoped().filter(pk__in=names)} == {
        TaskState.READY, TaskState.BLOCKED
    }  # fmt: skip


def test_only_tiers_of_the_plan_are_picked(demo: Tenant, file: Path) -> None:
    demo.plan.tiers = ["basic"]
    demo.plan.save()
    said, _ = imported(file)
    assert said["tiers"] == {"basic": 4}
    assert set(said["too_large"]) == {"b", "c"}


def test_people_are_told_what_fits_no_tier(demo: Tenant, file: Path) -> None:
    said = command("import_workflow", file)
    assert "4 tasks, 4 edges" in said
    assert "larger than the largest tier, run in it all the same: c (9216 MiB)" in said


def test_the_report_of_a_run(demo: Tenant, file: Path) -> None:
    said, tasks = imported(file, time_scale=0.001)
    waiting = reported(said["id"])
    assert (waiting["unfinished"], waiting["makespan_s"], waiting["ratio"]) == (4, None, None)
    run_all(HandWorker(), tasks)
    report = reported(said["id"])
    assert (report["tasks"], report["edges"], report["violations"], report["unfinished"]) == (4, 4, 0, 0)
    assert report["states"] == {"succeeded": 4}
    assert report["slots"] == 4
    assert report["critical_path_s"] == pytest.approx(0.0155)
    assert report["work_s"] == pytest.approx(0.0155)
    assert report["bound_s"] == pytest.approx(0.0155)
    assert report["ratio"] == pytest.approx(report["makespan_s"] / 0.0155, rel=1e-3)
    assert reported(said["id"], slots=1)["slots"] == 1
    text = command("workflow_report", said["id"])
    assert "order violations         0" in text


def test_a_child_that_began_too_early_is_found(demo: Tenant, file: Path) -> None:
    said, tasks = imported(file, time_scale=0.001)
    run_all(HandWorker(), tasks)
    parent = Attempt.objects.unscoped().get(task=tasks["b"])  # the test is no tenant
    with connection.cursor() as cursor:
        early = parent.finished_at - timedelta(microseconds=1)
        cursor.execute("UPDATE slackwater_tasks_attempt SET started_at = %s WHERE task_id = %s", [early, tasks["d"].pk])
    report = reported(said["id"])
    assert "b -> d" in report["violating"]
    assert report["violations"] == len(report["violating"])
    assert "b -> d" in command("workflow_report", said["id"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        (json.dumps(document(schemaVersion="1.3")), "schemaVersion: must be '1.5', not '1.3'"),
        (json.dumps(document(workflow={})), "workflow.specification: is missing"),
    ],
)
def test_a_file_that_is_none_is_refused(demo: Tenant, file: Path, content: str, message: str) -> None:
    file.write_text(content)
    with pytest.raises(CommandError, match=message):
        command("import_workflow", file)
    assert Task.objects.unscoped().count() == 0


def test_what_cannot_be_is_refused(demo: Tenant, file: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot read"):
        command("import_workflow", tmp_path / "nothing.json")
    with pytest.raises(CommandError, match="there is no tenant 'nobody'"):
        command("import_workflow", file, tenant="nobody")
    with pytest.raises(CommandError, match="time_scale: must be a number greater than 0"):
        command("import_workflow", file, time_scale=0)
    with pytest.raises(CommandError, match="is no id"):
        command("workflow_report", "seven")
    with pytest.raises(CommandError, match="there is no workflow"):
        command("workflow_report", uuid4())
    demo.plan.max_dag_tasks = 3
    demo.plan.save()
    with pytest.raises(CommandError, match="3"):
        command("import_workflow", file)
    assert Task.objects.unscoped().count() == 0


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"the recorded workflows are not at {RECORDED}")
@pytest.mark.parametrize(("name", "tasks", "edges"), [("montage", 58, 114), ("1000genome-chameleon-22ch", 902, 1166)])
def test_recorded_workflows_are_stored_whole(demo: Tenant, name: str, tasks: int, edges: int) -> None:
    (path,) = RECORDED.glob(f"{name}-*.json")
    said, rows = imported(path, time_scale=0.01)
    assert (said["tasks"], said["edges"], len(rows)) == (tasks, edges, tasks)
    assert Dependency.objects.filter(child__workflow_id=said["id"]).count() == edges


# -- the figures, without a database ------------------------------------------------------------------------------
BEGAN = datetime(2030, 1, 1, tzinfo=UTC)


def run(name: str, started_s: float | None, ended_s: float | None, work_s: float = 1.0, **more: Any) -> TaskRun:
    state = TaskState.SUCCEEDED if ended_s is not None else TaskState.RUNNING
    return TaskRun(
        id=UUID(int=ord(name)), name=name, state=more.get("state", state), may_start_at=BEGAN, work_s=work_s,
        started_at=None if started_s is None else BEGAN + timedelta(seconds=started_s),
        ended_at=None if ended_s is None else BEGAN + timedelta(seconds=ended_s),
    )  # fmt: skip


def figures(tasks: list[TaskRun], edges: str, slots: int = 2) -> Any:
    pairs = [(UUID(int=ord(edge[0])), UUID(int=ord(edge[1]))) for edge in edges.split()]
    return measure(UUID(int=0), "w", tasks, pairs, submitted_at=BEGAN, slots=slots)


def test_the_bound_is_the_larger_of_path_and_work() -> None:
    tasks = [run("a", 0, 1), run("b", 0, 1), run("c", 1, 2), run("d", 1, 2)]
    wide = figures(tasks, "ac")
    assert (wide.critical_path_s, wide.work_s, wide.bound_s, wide.makespan_s, wide.ratio) == (2, 4, 2, 2, 1)
    assert figures(tasks, "", slots=1).bound_s == 4
    assert figures(tasks, "", slots=4).bound_s == 1
    assert figures(tasks, "", slots=0).bound_s is None


def test_a_start_delay_counts_from_when_nothing_held_the_task_back() -> None:
    report = figures([run("a", 0.25, 1), run("b", 2, 3), run("c", None, None)], "ab bc")
    assert (report.delay_mean_s, report.delay_max_s, report.unfinished) == (0.625, 1.0, 1)
    assert (report.makespan_s, report.ratio) == (None, None)


def test_starting_before_an_unfinished_parent_is_a_violation() -> None:
    assert figures([run("a", 0, None), run("b", 1, 2)], "ab").violating == ("a -> b",)
    assert figures([run("a", 0, 1), run("b", 1, 2)], "ab").violations == 0


@pytest.mark.parametrize(("values", "expected"), [([], None), ([7.0], 7.0), ([float(n) for n in range(1, 101)], 95.0)])
def test_percentile_by_nearest_rank(values: list[float], expected: float | None) -> None:
    assert percentile(values, 95) == expected
