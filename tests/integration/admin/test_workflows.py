"""The page of a workflow: what its graph and timeline are drawn from, and what is run again from it."""

from __future__ import annotations

from copy import copy
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from scheduler_ext.core.states import ClientStatus, Outcome, TaskState
from slackwater_resources.models import Handler
from slackwater_schedules.models import ScheduleFire
from slackwater_tasks.models import Task, TaskEvent, Workflow, new_id
from slackwater_tasks.read import workflow_runs, workflows
from slackwater_tasks.read.workflow_runs import Run, critical_path
from slackwater_tasks.submission import service
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.integration.ledger.test_query_plans import scans
from tests.support.admin import press, said, staff, state, submit
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker
from tests.support.planner import learn
from tests.support.schedules import due

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
SHAPE: dict[str, list[str]] = {"fetch": [], "clean 1": ["fetch"], "clean 2": ["fetch"], "merge": ["clean 1", "clean 2"]}


def submit_flow(tenant: Tenant, shape: dict[str, list[str]] = SHAPE) -> tuple[UUID, dict[str, UUID]]:
    """A workflow of that shape: name -> what it needs."""
    tasks = [
        {"name": name, "handler": HANDLER, "depends_on": needs, "total_attempts": 1} for name, needs in shape.items()
    ]
    made = service.submit_workflow(tenant, {"name": "nightly", "tasks": tasks}, actor="test")
    assert made.workflow_id is not None
    return made.workflow_id, dict(zip(shape, made.task_ids, strict=True))


def picture(page: Client, workflow_id: UUID) -> dict[str, Any]:
    answer = page.get(reverse("admin:sw_workflow_picture", args=[workflow_id]))
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_the_page_has_each_task_with_its_waits_attempts_and_needs(page: Client, tenant: Tenant) -> None:
    workflow_id, ids = submit_flow(tenant)
    shown = page.get(reverse("admin:slackwater_tasks_workflow_change", args=[workflow_id])).text
    assert reverse("admin:sw_workflow_picture", args=[workflow_id]) in shown
    before = picture(page, workflow_id)
    assert (before["final"], before["critical"]) == (False, [])
    worker = HandWorker()
    worker.run(ids["fetch"])
    worker.start(ids["clean 2"])
    found = picture(page, workflow_id)
    fetch, clean, clean_2, merge = found["tasks"]
    assert fetch[:4] == [str(ids["fetch"]), "fetch", HANDLER, "succeeded"]
    assert fetch[4] <= 5, "free since it came"
    assert [(attempt[2], attempt[1] >= attempt[0]) for attempt in fetch[7]] == [("succeeded", True)]
    assert (clean[3], clean[7], clean[6]) == ("ready", [], [0])
    assert clean[4] == fetch[5], "free since what it needed ended"
    assert [attempt[1:] for attempt in clean_2[7]] == [[None, "running"]]
    assert (merge[3], merge[6]) == ("blocked", [1, 2])
    assert found["critical"] == [0, 2]
    assert found["critical_ms"] >= found["critical_ran_ms"] >= 0
    # As many statements for more tasks, no more tasks than are promised, and only for those who may see them.
    other, _ = submit_flow(tenant, {f"t{n}": [] for n in range(20)})
    counts = []
    for one in (workflow_id, other):
        with CaptureQueriesContext(connection) as queries:
            picture(page, one)
        counts.append(len(queries))
    assert counts[0] == counts[1]
    url = reverse("admin:sw_workflow_picture", args=[workflow_id])
    assert staff().get(url).status_code == 403
    assert Client().get(url).status_code == 302


def test_a_picture_is_bounded(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow_id, _ = submit_flow(tenant)
    monkeypatch.setattr(workflow_runs, "MOST_TASKS", 3)
    found = workflow_runs.runs(workflow_id)
    assert [run.name for run in found] == ["fetch", "clean 1", "clean 2"]


def test_the_critical_path_goes_back_by_the_parent_that_ended_last() -> None:
    now = timezone.now()

    def run(name: str, *parents: int, began: int, ended: int | None) -> Run:
        begin, end = now - timedelta(seconds=began), None if ended is None else now - timedelta(seconds=ended)
        return Run(
            id=UUID(int=began), name=name, what="", state=TaskState.SUCCEEDED, free_at=begin, ended_at=end,
            attempts=[(begin, end, "succeeded")], parents=list(parents),
        )  # fmt: skip

    short, long = run("short", began=90, ended=80), run("long", began=89, ended=50)
    end, beside = run("end", 0, 1, began=40, ended=30), run("beside", began=88, ended=60)
    assert critical_path([short, long, end, beside], now) == [1, 2]
    assert critical_path([short, long, end, beside, run("runs", 3, began=20, ended=None)], now) == [3, 4]
    assert critical_path([], now) == []


def test_its_statements_find_its_tasks_among_many_by_the_workflow(tenant: Tenant) -> None:
    task = Task.objects.unscoped().get(pk=submit(tenant))
    many = []
    for _ in range(500):
        task.pk = new_id()
        many.append(copy(task))
    Task.objects.unscoped().bulk_create(many)
    learn("slackwater_tasks_task")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    for statement in (workflow_runs.TASKS, workflow_runs.ATTEMPTS, workflow_runs.EDGES):
        with psycopg.ClientCursor(connection.connection) as cur:
            found = cur.execute(f"EXPLAIN (FORMAT JSON) {statement}", [UUID(int=1), 10]).fetchone()
        assert found is not None
        used = scans(found[0][0]["Plan"], {"slackwater_tasks_task"})
        assert used == {("slackwater_tasks_task", "slackwater_task_workflow")}, statement


def test_a_part_is_run_again_from_a_task_for_a_reason(page: Client, tenant: Tenant) -> None:
    workflow_id, ids = submit_flow(tenant)
    worker = HandWorker()
    worker.run(ids["fetch"])
    model = "slackwater_tasks_task"
    refused = press(page, model, ids["fetch"], "rerun-from")
    assert refused.status_code == 200
    assert f"Not now: the task &#x27;clean 1&#x27; ({ids['clean 1']}) has not ended: it is ready" in refused.text
    assert "and 1 more that follow" in refused.text
    assert 'name="reason"' not in refused.text, "there is nothing to confirm"
    worker.run(ids["clean 1"])
    worker.run(ids["clean 2"], outcome=Outcome.FAILED)
    asked = press(page, model, ids["clean 1"], "rerun-from")
    assert "2 tasks run again" in asked.content.decode()
    assert state(ids["clean 1"]) is TaskState.SUCCEEDED, "only told, until a reason is given"
    url = reverse(f"admin:{model}_change", args=[ids["clean 1"]]).replace("change/", "do/rerun-from/")
    viewer = staff("slackwater_tasks.view_task")
    assert viewer.post(url, {"reason": "the rates were wrong"}).status_code == 403
    assert "2 tasks run again" in said(page.post(url, {"reason": "the rates were wrong"}))
    assert (state(ids["clean 1"]), state(ids["merge"])) == (TaskState.READY, TaskState.BLOCKED)
    reasons = TaskEvent.objects.unscoped().filter(task_id=ids["merge"]).values_list("reason", "actor")
    assert (f"run again from {ids['clean 1']} on: the rates were wrong", "user:root") in reasons
    # And the workflow's own page runs again what failed, once it is known to have.
    shown = reverse("admin:slackwater_tasks_workflow_change", args=[workflow_id])
    assert "Run the failed again" not in page.get(shown).text
    Workflow.objects.unscoped().filter(pk=workflow_id).update(status=ClientStatus.FAILED)
    assert "1 task runs again" in said(press(page, "slackwater_tasks_workflow", workflow_id, "rerun"))
    assert state(ids["clean 2"]) is TaskState.READY


def test_past_runs_stand_beside_each_other_and_all_output_on_one_page(page: Client, tenant: Tenant) -> None:
    worker = HandWorker("node-9")
    (older, first), (newer, second) = submit_flow(tenant), submit_flow(tenant)
    submit_flow(create_tenant("globex", "Globex"))
    worker.run(first["fetch"], logs="reading the rates\n2 were wrong\n")
    worker.run(second["fetch"], outcome=Outcome.FAILED, logs="no rates\n")
    shown = page.get(reverse("admin:sw_workflow_runs", args=[newer]))
    assert [name for name, _ in shown.context["rows"]] == list(SHAPE)
    cells = {name: [cell["kind"] for cell in row] for name, row in shown.context["rows"]}
    assert cells["fetch"] == ["succeeded", "failed"], "the newest on the right, nobody else's"
    assert cells["merge"] == ["blocked", "cancelled"]
    assert reverse("admin:slackwater_tasks_task_change", args=[first["clean 1"]]) in shown.text
    # The firings of a schedule: workflows and single tasks.
    fires, schedule = ScheduleFire.objects.unscoped(), due(tenant, name="nightly")
    now = timezone.now()
    for n, made in enumerate(({"workflow_id": older}, {"task_id": second["fetch"]})):
        at = now - timedelta(hours=n + 1)
        fires.create(
            tenant=tenant, schedule=schedule, fire_at=at, due_at=at, fired_at=at, lateness_ms=1, outcome="submitted",
            version=1, **made,
        )  # fmt: skip
    url = reverse("admin:sw_schedule_runs", args=[schedule.pk])
    rows = dict(page.get(url).context["rows"])
    assert [cell and cell["kind"] for cell in rows["fetch"]] == ["succeeded", "failed"]
    assert [cell and cell["kind"] for cell in rows["merge"]] == ["blocked", None]
    assert url in page.get(reverse("admin:slackwater_schedules_schedule_change", args=[schedule.pk])).text
    # What all tasks of one wrote, searched.
    output = reverse("admin:sw_workflow_output", args=[older])
    assert [(line["name"], line["text"]) for line in page.get(output).context["lines"]] == [
        ("fetch", "reading the rates"), ("fetch", "2 were wrong"),
    ]  # fmt: skip
    assert [line["text"] for line in page.get(output, {"q": "WRONG", "handler": HANDLER}).context["lines"]] == [
        "2 were wrong"
    ]
    assert page.get(output).context["names"] == [HANDLER], "each once, however many tasks have it"
    assert page.get(output, {"q": "nothing like it"}).context["lines"] == []
    assert page.get(output, {"before": "x"}).status_code == 404
    # The same of a handler's tasks, over workflows and tenants.
    foreign = submit(create_tenant("initech", "Initech"), name="alone")
    worker.run(foreign, logs="no rates here\n")
    everywhere = reverse("admin:sw_output")

    def told(**asked: str) -> list[tuple[str, str, str]]:
        lines = page.get(everywhere, asked).context["lines"]
        return [(line["tenant"], line["name"], line["text"]) for line in lines]

    assert told(q="no rates", handler=HANDLER) == [
        ("initech", "alone", "no rates here"), (tenant.slug, "fetch", "no rates")
    ]  # fmt: skip
    assert told(q="no rates", tenant="initech") == [("initech", "alone", "no rates here")]
    assert told(handler="mail.send") == told(tenant="nobody") == []
    assert "There is no tenant nobody." in page.get(everywhere, {"tenant": "nobody"}).text
    of_handler = page.get(
        reverse("admin:slackwater_resources_handler_change", args=[Handler.objects.get(name=HANDLER).pk])
    )
    assert f"{everywhere}?{urlencode({'handler': HANDLER})}" in of_handler.text
    for address in (output, everywhere, url, reverse("admin:sw_workflow_runs", args=[newer])):
        assert staff().get(address).status_code == 403


def test_the_list_tells_state_progress_failures_and_how_long(
    page: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = HandWorker()
    (waits, _), (done, first), (failed, second), (begun, third) = (submit_flow(tenant) for _ in range(4))
    for name in SHAPE:
        worker.run(first[name])
    worker.run(second["fetch"], outcome=Outcome.FAILED)
    worker.run(third["fetch"])
    worker.run(third["clean 1"], outcome=Outcome.FAILED)
    for workflow_id, status in ((done, ClientStatus.DONE), (failed, ClientStatus.FAILED)):
        end = timezone.now() + timedelta(minutes=5)
        Workflow.objects.unscoped().filter(pk=workflow_id).update(status=status, finished_at=end)
    url = reverse("admin:slackwater_tasks_workflow_changelist")

    def told(**given: str) -> dict[UUID, list[str]]:
        """What the list says of each: state, tasks ended, failures, how long."""
        changes = page.get(url, given).context["cl"]
        fields = ("shown_state", "progress", "failures", "took")
        return {
            row.pk: [strip_tags(str(getattr(changes.model_admin, field)(row))) for field in fields]
            for row in changes.result_list
        }

    found = told()
    assert found[done] == ["done", "4 of 4", "0", "5 min"]
    assert found[failed] == ["failed", "4 of 4", "1", "5 min"]
    assert found[begun][:3] == ["in progress", "2 of 4", "1"]
    assert found[waits][:3] == ["waiting", "0 of 4", "0"]
    assert found[waits][3].endswith("so far")
    assert [set(told(state=state)) for state in ("open", "failed", "done", "x")] == [
        {waits, begun}, {failed}, {done}, set(),
    ]  # fmt: skip
    monkeypatch.setattr(workflows, "COUNTED_TASKS", 4)
    found = told()
    assert found[begun][1:3] == ["2 of 4", "1"], "the newest are counted"
    assert (found[failed][1:3], found[waits][:3]) == (["4 of 4", "–"], ["in progress", "of 4", "–"])
