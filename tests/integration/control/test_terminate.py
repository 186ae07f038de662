"""All work of a tenant, a line, a workflow or the platform ends in one act, and nothing of it comes back."""

from __future__ import annotations

import json
import re
import time
from types import SimpleNamespace

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.urls import reverse

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.control.lines import set_line_paused
from slackwater_tasks.control.terminate import Subject, foretell, terminate
from slackwater_tasks.models import DeadLetter, Line, LiveTask, Task, TaskEvent
from slackwater_tasks.submission.service import submit, submit_workflow
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_api_key, create_tenant, set_paused
from tests.support.api import HANDLER, ApiClient
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


def fill(slug: str) -> Tenant:
    """A tenant with a dead letter, a running task, an urgent one, and a workflow with one that cleans up."""
    tenant = create_tenant(slug, slug)
    worker = HandWorker(f"hand-{slug}")
    dead = submit(tenant, {"handler": HANDLER, "total_attempts": 1}).task_ids[0]
    worker.end(worker.start(dead), Outcome.FAILED)
    worker.start(submit(tenant, {"handler": HANDLER}).task_ids[0])
    submit(tenant, {"handler": HANDLER, "category": "urgent"})
    tasks = [
        {"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"], "condition": "all_done"}
    ]  # fmt: skip
    submit_workflow(tenant, {"name": "w", "tasks": tasks})
    return tenant


def unfinished(tenant: Tenant) -> int:
    return LiveTask._plain.filter(tenant=tenant, cancel_requested=False).count()


def test_a_tenant_ends_alone_and_is_not_left_paused() -> None:
    acme, other = fill("acme"), fill("other")
    done = terminate([Subject.of_tenant(acme)], actor="me", wait_s=0)
    assert (done.cancelled, done.asked, done.dead_letters, done.left) == (3, 1, 1, 1)
    assert LiveTask._plain.get(tenant=acme).state == TaskState.RUNNING, "its worker ends it"
    assert unfinished(other) == 4
    assert DeadLetter._plain.get().tenant_id == other.pk
    assert TaskEvent._plain.filter(actor="me", reason="all work of its tenant was terminated").count() == 4
    assert not Tenant.objects.get(pk=acme.pk).paused
    set_paused(acme, paused=True)
    terminate([Subject.of_tenant(acme)], actor="me", wait_s=0)
    assert Tenant.objects.get(pk=acme.pk).paused, "what was paused before stays so"


def test_a_line_and_a_workflow_end_and_what_is_beside_them_stays() -> None:
    acme = fill("acme")
    urgent = Line.objects.unscoped().get(tenant=acme, category=1)  # the test is no tenant
    assert terminate([Subject.of_line(urgent)], actor="me", wait_s=0).cancelled == 1
    assert unfinished(acme) == 3
    assert DeadLetter._plain.count() == 1
    workflow = Task._plain.filter(workflow__isnull=False)[0].workflow_id
    assert workflow is not None
    done = terminate([Subject.of_workflow(acme, workflow)], actor="me", wait_s=0)
    assert (done.cancelled, done.left, unfinished(acme)) == (2, 0, 1)
    with pytest.raises(NotFound):
        Subject.of_workflow(create_tenant("other", "Other"), workflow)
    rest = Line.objects.unscoped().get(tenant=acme, category=2)  # the test is no tenant
    assert terminate([Subject.of_line(rest)], actor="me", wait_s=0).dead_letters == 1


def test_a_line_takes_none_of_the_dead_letters_of_one_with_other_labels() -> None:
    acme = create_tenant("acme", "acme")
    asks: tuple[dict[str, list[str]], ...] = ({}, {"require_labels": ["gpu"]}, {"prefer_labels": ["gpu"]})
    ids = [submit(acme, {"handler": HANDLER, **labels}).task_ids[0] for labels in asks]
    lines = [LiveTask._plain.select_related("line").get(pk=task).line for task in ids]
    LiveTask._plain.all().delete()
    for task in ids:
        DeadLetter._plain.create(tenant=acme, task_id=task, reason="it failed")
    for n, line in enumerate(lines[:2], start=1):
        assert foretell([Subject.of_line(line)]).dead_letters == 1
        assert terminate([Subject.of_line(line)], actor="me", wait_s=0).dead_letters == 1
        assert list(DeadLetter._plain.order_by("pk").values_list("pk", flat=True)) == ids[n:]
    acme.plan.prefer_labels = ["ssd"]
    acme.plan.save()
    assert terminate([Subject.of_line(lines[0])], actor="me", wait_s=0).dead_letters == 1, (
        "it has no line of its own now"
    )


@pytest.mark.parametrize("older_paused", [False, True])
def test_a_line_made_while_one_is_ended_goes_on_with_it(monkeypatch: pytest.MonkeyPatch, older_paused: bool) -> None:
    """It is made paused as the first of its category and tier is, which may have been paused before."""
    tenant, worker = create_tenant("acme", "acme"), HandWorker()
    if older_paused:
        submit(tenant, {"handler": HANDLER, "require_labels": ["gpu"]})
        set_line_paused(Line.objects.unscoped().get(tenant=tenant), paused=True)
    task_id = submit(tenant, {"handler": HANDLER}).task_ids[0]
    line = LiveTask._plain.select_related("line__tenant").get(pk=task_id).line
    set_line_paused(line, paused=False)
    running = worker.start(task_id)

    def meanwhile(_: float) -> None:
        submit(tenant, {"handler": HANDLER, "prefer_labels": ["ssd"]})
        worker.end(running, Outcome.CANCELLED)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=meanwhile)
    monkeypatch.setattr("slackwater_tasks.control.terminate.time", clock)
    assert terminate([Subject.of_line(line)], actor="me").left == 0
    made = Line.objects.unscoped().get(tenant=tenant, prefer_labels=["ssd"])
    assert made.paused == older_paused
    assert not Line.objects.unscoped().get(pk=line.pk).paused


def test_the_command_ends_the_platform(capsys: pytest.CaptureFixture[str]) -> None:
    tenants = [fill("acme"), fill("other")]
    with pytest.raises(CommandError, match="--yes"):
        call_command("terminate", "platform")
    assert [unfinished(tenant) for tenant in tenants] == [4, 4], "it was not meant"
    capsys.readouterr()
    call_command("terminate", "platform", "--yes", "--wait", "0", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told == {"cancelled": 6, "asked": 2, "dead_letters": 2, "left": 2}
    assert [unfinished(tenant) for tenant in tenants] == [0, 0]
    call_command("terminate", "platform", "--dry-run", "--json")
    assert json.loads(capsys.readouterr().out) == {"cancelled": 0, "asked": 0, "dead_letters": 0, "left": 2}
    for arguments in (["line"], ["tenant", "acme"], ["workflow", "no id"]):
        with pytest.raises(CommandError):
            call_command("terminate", *arguments, "--yes")


def test_over_rest_a_workflow_a_line_a_tenant_and_by_an_operator_the_platform() -> None:
    acme, other = fill("acme"), fill("other")
    client = ApiClient(acme, *create_api_key(acme, "own", ("manage",)))
    workflow = Task._plain.filter(tenant=acme, workflow__isnull=False)[0].workflow_id
    told = client.post("/organization/terminate", {"dry_run": True}).body
    assert told == {"dry_run": True, "cancelled": 3, "asked": 1, "dead_letters": 1, "left": 4}
    assert unfinished(acme) == 4, "nothing was done"
    assert client.post("/organization/terminate", {"reason": 5}).body["field"] == "reason"
    done = client.post(f"/workflows/{workflow}/terminate", {"reason": "withdrawn"}).body
    assert done == {"dry_run": False, "cancelled": 2, "asked": 0, "dead_letters": 0, "left": 0}
    assert TaskEvent._plain.filter(reason="all work of its workflow was terminated: withdrawn").count() == 2
    assert client.post("/queues/urgent/basic/terminate").body["cancelled"] == 1
    assert client.post("/organization/terminate").body["asked"] == 1
    assert (unfinished(acme), unfinished(other)) == (0, 4)
    cancels = ApiClient(acme, *create_api_key(acme, "cancels", ("cancel",)))
    assert cancels.post("/organization/terminate").status == 403
    assert client.post("/platform/terminate").status == 403
    operator = ApiClient(acme, *create_api_key(acme, "operator", ("operate",)))
    assert operator.post("/platform/terminate").body["cancelled"] == 3
    assert unfinished(other) == 0
    assert set(TaskEvent._plain.filter(tenant=other, actor__gt="").values_list("actor", flat=True)) == {"platform"}


def test_the_admin_tells_how_much_asks_why_and_writes_the_audit(page: Client) -> None:
    acme = fill("acme")
    line = Line.objects.unscoped().get(tenant=acme, category=1)  # the test is no tenant
    workflow = Task._plain.filter(workflow__isnull=False)[0].workflow_id
    for model, pk, cancelled in (
        ("slackwater_tasks_line", line.pk, 1), ("slackwater_tasks_workflow", workflow, 2),
        ("slackwater_tenants_tenant", acme.pk, 0),
    ):  # fmt: skip
        shown = page.get(reverse(f"admin:{model}_change", args=[pk])).content.decode()
        button = reverse(f"admin:{model}_do", args=[pk, "terminate"])
        assert button in shown
        before = unfinished(acme)
        asked = page.post(button)
        assert f"This cancels {counted(cancelled, 'waiting task')}" in asked.content.decode()
        assert unfinished(acme) == before, "a reason comes first"
        assert page.post(button, {"reason": "withdrawn"}).status_code == 302
        logged = LogEntry.objects.filter(object_id=str(pk)).get().get_change_message()
        assert re.fullmatch(
            rf"Terminated: {counted(cancelled, 'task was', plural='tasks were')} cancelled, .*: withdrawn", logged
        )
    assert unfinished(acme) == 0
    assert TaskEvent._plain.filter(actor="user:root", reason__endswith="terminated: withdrawn").count() == 4
