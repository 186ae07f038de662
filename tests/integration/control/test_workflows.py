"""Workflows that are there already: their graphs, tasks added, cancelled, run again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from scheduler_ext.core.errors import Conflict, DuplicateName, NotFound, TooLarge, UnknownDependency
from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.task.effects import AttemptReplaced
from slackwater_tasks.control import workflows
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.control.workflow_rerun import rerun
from slackwater_tasks.graph import relatives
from slackwater_tasks.ledger import transitions
from slackwater_tasks.models import DeadLetter, Dependency, LiveTask, Task, TaskEvent, Workflow
from slackwater_tasks.read import tasks as reading
from slackwater_tasks.read.workflows import workflow
from slackwater_tasks.submission.service import submit, submit_workflow
from slackwater_tenants.models import CurrentCounter, Tenant
from slackwater_tenants.scoping import tenant_scope
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db


def make(tenant: Tenant, shape: dict[str, list[str]], **fields: dict[str, Any]) -> tuple[UUID, dict[str, UUID]]:
    """A workflow of the given shape: name -> names it needs."""
    tasks = [{"name": n, "handler": HANDLER, "depends_on": p, **fields.get(n, {})} for n, p in shape.items()]
    found = submit_workflow(tenant, {"name": "w", "tasks": tasks})
    assert found.workflow_id is not None
    return found.workflow_id, dict(zip(shape, found.task_ids, strict=True))


def around(tenant: Tenant, task_id: UUID, names: dict[str, UUID]) -> dict[str, Any]:
    """The graph around a task, with names for ids."""
    words = {str(value): key for key, value in names.items()}
    with tenant_scope(tenant.pk):
        found = relatives.graph(task_id)
    return {
        "ancestors": [words[i] for i in found["ancestors"]],
        "descendants": [words[i] for i in found["descendants"]],
        "order": [words[i] for i in found["topological_order"]],
        "critical": [words[i] for i in found["critical_path"]["task_ids"]],
        "depth": found["depth"],
        "expected_s": found["critical_path"]["expected_s"],
    }


DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "c2": ["c"], "d": ["b", "c2"], "alone": []}


def test_the_graph_around_a_task(tenant: Tenant) -> None:
    _, ids = make(tenant, DIAMOND)
    found = around(tenant, ids["c"], ids)
    assert (found["ancestors"], found["descendants"], found["depth"]) == (["a"], ["c2", "d"], 2)
    assert found["order"] == ["a", "c", "c2", "d"]
    assert found["critical"] == ["a", "c", "c2", "d"], "the longer way, while nothing is learnt"
    assert found["expected_s"] is None
    d = around(tenant, ids["d"], ids)
    assert (set(d["ancestors"]), d["descendants"]) == ({"a", "b", "c", "c2"}, [])
    assert d["order"].index("c") < d["order"].index("c2") < d["order"].index("d")
    assert around(tenant, ids["alone"], ids)["order"] == ["alone"]


def test_the_critical_path_goes_by_what_is_learnt(tenant: Tenant) -> None:
    from slackwater_resources.models import Handler

    Handler.objects.get_or_create(name="slow.one")
    with connection.cursor() as cur:
        cur.execute(
            "INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us) "
            "VALUES (%s, 'slow.one', 9, 9e6), (%s, %s, 9, 1e6)",
            (tenant.pk, tenant.pk, HANDLER),
        )
    _, ids = make(tenant, DIAMOND, b={"handler": "slow.one"})
    found = around(tenant, ids["d"], ids)
    assert (found["critical"], found["expected_s"]) == (["a", "b", "d"], 11.0)


def test_a_graph_that_leaves_its_workflow_is_followed_everywhere(tenant: Tenant) -> None:
    _, first = make(tenant, {"a": [], "b": ["a"]})
    assert around(tenant, first["b"], first)["ancestors"] == ["a"]
    _, second = make(tenant, {"x": [str(first["b"])], "y": ["x"]})
    loose = submit(tenant, {"handler": HANDLER, "depends_on": [str(second["y"])]}).task_ids[0]
    names = {**first, **second, "loose": loose}
    assert around(tenant, loose, names)["ancestors"] == ["a", "b", "x", "y"]
    assert around(tenant, first["a"], names)["descendants"] == ["b", "x", "y", "loose"], "a kept graph is not used"


def test_another_tenants_task_has_no_graph(tenant: Tenant) -> None:
    _, ids = make(tenant, {"a": []})
    other = create_tenant("other", "Other")
    with tenant_scope(other.pk), pytest.raises(NotFound):
        relatives.graph(ids["a"])
    with pytest.raises(NotFound):
        workflows.add_tasks(other, Workflow._plain.get().pk, [{"handler": HANDLER, "name": "x"}])
    with pytest.raises(NotFound):
        workflows.cancel_workflow(other, Workflow._plain.get().pk)
    with pytest.raises(NotFound):
        rerun(other, Workflow._plain.get().pk)


def test_tasks_are_added_by_name_and_the_graph_grows(tenant: Tenant) -> None:
    workflow_id, ids = make(tenant, {"a": [], "b": ["a"]})
    around(tenant, ids["a"], ids)
    items = [
        {"name": "c", "handler": HANDLER, "depends_on": ["b"]},
        {"name": "d", "handler": HANDLER, "depends_on": ["c", str(ids["a"])]},
    ]
    added = workflows.add_tasks(tenant, workflow_id, items, idempotency_key="k")
    again = workflows.add_tasks(tenant, workflow_id, items, idempotency_key="k")
    assert (again.task_ids, again.created, again.workflow_id) == (added.task_ids, False, workflow_id)
    ids |= dict(zip("cd", added.task_ids, strict=True))
    row = Workflow._plain.get()
    assert (row.task_count, row.edge_count) == (4, 4)
    assert around(tenant, ids["a"], ids)["descendants"] == ["b", "c", "d"]
    worker = HandWorker()
    for name in "abcd":
        worker.end(worker.start(ids[name]))
    assert Task._plain.filter(state=TaskState.SUCCEEDED).count() == 4


@pytest.mark.parametrize(
    ("item", "error"),
    [
        ({"name": "a"}, DuplicateName),
        ({"name": "c", "depends_on": ["nobody"]}, UnknownDependency),
    ],
)
def test_what_does_not_fit_is_refused_whole(tenant: Tenant, item: dict[str, Any], error: type[Exception]) -> None:
    workflow_id, _ = make(tenant, {"a": []})
    fine = {"name": "fine", "handler": HANDLER}
    with pytest.raises(error):
        workflows.add_tasks(tenant, workflow_id, [fine, {"handler": HANDLER, **item}])
    assert (Task._plain.count(), Workflow._plain.get().task_count) == (1, 1)


def test_the_plans_limits_hold_for_the_whole(tenant: Tenant) -> None:
    workflow_id, _ = make(tenant, {"a": [], "b": ["a"], "c": ["b"]})
    tenant.plan.max_dag_depth = 3
    with pytest.raises(TooLarge, match="levels"):
        workflows.add_tasks(tenant, workflow_id, [{"name": "d", "handler": HANDLER, "depends_on": ["c"]}])
    workflows.add_tasks(tenant, workflow_id, [{"name": "d", "handler": HANDLER, "depends_on": ["b"]}])
    tenant.plan.max_dag_tasks = 4
    with pytest.raises(TooLarge, match="tasks"):
        workflows.add_tasks(tenant, workflow_id, [{"name": "e", "handler": HANDLER}])
    assert Workflow._plain.get().task_count == 4


def test_subtasks_hold_up_what_follows_their_parent(tenant: Tenant) -> None:
    workflow_id, ids = make(tenant, {"split": [], "total": ["split"]})
    worker = HandWorker()
    (running,) = worker.start(ids["split"])
    items = [{"name": f"part-{n}", "handler": HANDLER} for n in range(2)]
    parts = workflows.add_subtasks(running, items, join=True, key="once")
    assert workflows.add_subtasks(running, items, join=True, key="once") == parts, "a repeated attempt adds none"
    worker.end([running])
    assert LiveTask._plain.get(pk=ids["total"]).state == TaskState.BLOCKED
    worker.end(worker.start(parts[0]))
    assert LiveTask._plain.get(pk=ids["total"]).state == TaskState.BLOCKED
    worker.end(worker.start(parts[1]))
    assert LiveTask._plain.get(pk=ids["total"]).state == TaskState.READY
    assert Workflow._plain.get(pk=workflow_id).edge_count == 3
    assert Task._plain.get(pk=parts[0]).submitted_by == f"task:{ids['split']}"
    with pytest.raises(AttemptReplaced):
        workflows.add_subtasks(running, items, join=True, key="late")


def test_a_workflow_is_cancelled_whole(tenant: Tenant) -> None:
    workflow_id, ids = make(tenant, {"a": [], "run": [], "b": ["a"], "c": ["run"]})
    worker = HandWorker()
    worker.start(ids["run"])
    assert workflows.cancel_workflow(tenant, workflow_id, actor="me") == {"cancelled": 3, "asked": 1}
    assert workflows.cancel_workflow(tenant, workflow_id) == {"cancelled": 0, "asked": 0}
    assert set(Task._plain.values_list("state", flat=True)) == {TaskState.CANCELLED, None}
    assert LiveTask._plain.get().cancel_requested


def run(worker: HandWorker, *ids: UUID, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    """Run tasks to their end."""
    worker.end(worker.start(*ids), outcome)


def test_a_workflow_runs_again_from_what_failed(tenant: Tenant) -> None:
    shape = {"ok": [], "bad": ["ok"], "after": ["bad"], "cleanup": ["bad"], "never": ["ok"]}
    one = {"total_attempts": 1}
    workflow_id, ids = make(
        tenant, shape, bad=one, cleanup={"condition": "any_failed"}, never={"condition": "any_failed"}
    )
    worker = HandWorker()
    run(worker, ids["ok"])
    run(worker, ids["bad"], outcome=Outcome.FAILED)
    run(worker, ids["cleanup"])
    assert not LiveTask._plain.exists()
    again = rerun(tenant, workflow_id, actor="me")
    assert set(again) == {ids["bad"], ids["after"]}, "what could not have its turn stays as it is"
    assert not DeadLetter._plain.exists()
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == 2
    assert LiveTask._plain.get(pk=ids["bad"]).fence == 1, "fences go on rising"
    run(worker, ids["bad"])
    assert LiveTask._plain.get(pk=ids["after"]).state == TaskState.READY
    run(worker, ids["after"])
    assert Task._plain.filter(state=TaskState.SUCCEEDED).count() == 4
    assert TaskEvent._plain.get(task_id=ids["bad"], reason="run again from the failed tasks").actor == "me"
    with pytest.raises(Conflict):
        rerun(tenant, workflow_id)


def test_a_branch_not_taken_is_skipped_and_the_workflow_done(tenant: Tenant) -> None:
    shape = {"left": [], "right": [], "both": ["left", "right"], "alarm": ["left", "right"], "call": ["alarm"],
             "report": ["both", "call"], "close": ["alarm"]}  # fmt: skip
    conditions = {"alarm": "any_failed", "report": "none_failed", "close": "all_done"}
    workflow_id, ids = make(tenant, shape, **{name: {"condition": value} for name, value in conditions.items()})
    worker = HandWorker()
    run(worker, ids["left"])
    run(worker, ids["right"])
    run(worker, ids["both"], ids["close"])
    run(worker, ids["report"])
    with tenant_scope(tenant.pk):
        whole, alarm, call = workflow(workflow_id), reading.task(ids["alarm"]), reading.task(ids["call"])
    assert (whole["status"], whole["counts"]["succeeded"], whole["counts"]["skipped"]) == ("done", 5, 2)
    assert (alarm["state"], alarm["status"]) == (call["state"], call["status"]) == ("skipped", "done")
    assert "not taken" in alarm["reason"]
    told = TaskEvent._plain.get(task_id=ids["alarm"])
    assert (told.from_state, told.to_state) == (TaskState.BLOCKED, TaskState.SKIPPED)
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == 0
    with pytest.raises(Conflict, match="it is skipped"):
        retry(tenant.pk, ids["alarm"])
    with pytest.raises(Conflict, match="no task of the workflow"):
        rerun(tenant, workflow_id)
    assert set(rerun(tenant, workflow_id, task_id=ids["left"])) == set(ids.values()) - {ids["right"]}
    worker.end(worker.start(ids["left"]), Outcome.RETRY)
    assert LiveTask._plain.get(pk=ids["alarm"]).state == TaskState.BLOCKED


def test_one_task_runs_again_with_all_that_follows(tenant: Tenant) -> None:
    workflow_id, ids = make(tenant, {"a": [], "b": ["a"], "c": ["b"], "other": ["a"], "end": ["c", "other"]})
    worker = HandWorker()
    for name in ("a", "b", "c"):
        run(worker, ids[name])
    assert set(rerun(tenant, workflow_id, task_id=ids["b"])) == {ids["b"], ids["c"]}
    assert LiveTask._plain.get(pk=ids["end"]).pending == 2, "what waits for them waits for them again"
    with pytest.raises(Conflict, match="has not ended"):
        rerun(tenant, workflow_id, task_id=ids["a"])
    for name in ("b", "c", "other", "end"):
        run(worker, ids[name])
    assert Task._plain.filter(state=TaskState.SUCCEEDED).count() == 5
    assert set(Dependency.objects.values_list("outcome", flat=True)) == {1}
    assert set(rerun(tenant, workflow_id, task_id=ids["a"])) == set(ids.values())
    for name in ("a", "b", "c", "other", "end"):
        run(worker, ids[name])
    assert Task._plain.filter(state=TaskState.SUCCEEDED).count() == 5


def test_rerun_waits_for_a_release_that_was_lost(tenant: Tenant) -> None:
    workflow_id, ids = make(tenant, {"a": [], "b": ["a"]}, a={"total_attempts": 1})
    worker = HandWorker()
    started = worker.start(ids["a"])
    with pytest.MonkeyPatch.context() as patch:  # the worker dies between its finish and the release
        patch.setattr(transitions, "release", lambda *_: 0)
        worker.end(started, Outcome.FAILED)
    assert Task._plain.get(pk=ids["a"]).release_pending
    assert set(rerun(tenant, workflow_id)) == {ids["a"], ids["b"]}
    retry_is_refused = pytest.raises(Conflict)
    with retry_is_refused:
        retry(tenant.pk, ids["a"])
    run(worker, ids["a"])
    run(worker, ids["b"])
    assert Task._plain.filter(state=TaskState.SUCCEEDED).count() == 2
