"""Acts on everything that matches: in the background, part by part, with one entry in the audit; and what undoes them."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_adminkit.buttons import ButtonsMixin
from slackwater_tasks.admin import dead_groups
from slackwater_tasks.control import bulk_operations as bulk
from slackwater_tasks.models import BulkOperation, DeadLetter, LiveTask, Task, TaskEvent
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.admin import act, press, said, staff, state, submit
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
TASKS = "slackwater_tasks_task"


def finish() -> BulkOperation:
    """What upkeep does until the latest operation does not move any more."""
    while bulk.advance():
        pass
    return BulkOperation.objects.latest("created_at", "id")


def failed(tenant: Tenant, count: int) -> list[UUID]:
    """Dead letters."""
    made = [submit(tenant, total_attempts=1) for _ in range(count)]
    HandWorker(tenant.slug).run(*made, outcome=Outcome.FAILED, error="ValueError: no")
    return made


def test_everything_that_matches_is_cancelled_and_goes_on_after_a_crash(
    page: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PART", 2)
    other = create_tenant("globex", "Globex")
    mine, theirs = [submit(tenant, name=f"mail {n}") for n in range(5)], submit(other, name="mail x")
    bystander = submit(tenant, name="report")
    HandWorker().start(mine[0])
    asked = act(page, TASKS, "cancel", mine[0], query="q=name:mail", reason="")
    told = asked.content.decode()
    assert "ready 5, running 1" in told
    assert "the search &#x27;name:mail&#x27;" in told
    assert not BulkOperation.objects.exists()
    response = act(page, TASKS, "cancel", mine[0], query="q=name:mail", reason="the release was withdrawn")
    made = BulkOperation.objects.get()
    assert response["Location"] == reverse("admin:slackwater_tasks_bulkoperation_change", args=[made.pk])
    assert (made.total, made.status, made.parts.count()) == (6, "open", 4)
    late = submit(tenant, name="mail too late")

    work, calls = bulk.WORK["cancel"], []

    def killed(*args: Any, **kwargs: Any) -> Any:
        done = work(*args, **kwargs)
        calls.append(done)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return done

    monkeypatch.setitem(bulk.WORK, "cancel", killed)
    with pytest.raises(KeyboardInterrupt):
        finish()
    made.refresh_from_db()
    assert (made.done, made.parts.filter(done=True).count()) == (2, 1)
    made = finish()
    assert (made.status, made.done, made.asked, made.passed) == ("done", 6, 1, 0)
    assert [state(one) for one in (*mine[1:], theirs)] == [TaskState.CANCELLED] * 5
    assert LiveTask.objects.unscoped().get(pk=mine[0]).cancel_requested
    assert {state(bystander), state(late)} == {TaskState.READY}
    event = TaskEvent.objects.unscoped().get(task_id=mine[1], to_state=TaskState.CANCELLED)
    assert (event.actor, event.reason) == ("user:root", "cancelled on request, with others: the release was withdrawn")
    entry = LogEntry.objects.get()
    assert entry.object_id == str(made.pk)
    assert entry.change_message == ("Cancel 6 tasks, from ready 5, running 1 to cancelled: the release was withdrawn")
    shown = page.get(response["Location"]).content.decode()
    assert "6 of 6" in shown
    press(page, "slackwater_tasks_bulkoperation", made.pk, "undo")
    finish()
    assert {state(one) for one in (*mine[1:], theirs)} == {TaskState.READY}


def test_one_part_waits_for_its_plan_and_the_other_tenants_go_on(page: Client, tenant: Tenant) -> None:
    full = create_tenant("full", "Full", Plan.objects.create(slug="small", name="Small", burst=3).slug)
    waiting, there = failed(full, 2), failed(tenant, 2)
    Plan.objects.filter(slug="small").update(max_waiting=1)
    act(page, "slackwater_tasks_deadletter", "retry", there[0], query="q=")
    made = finish()
    for _ in range(3):
        bulk.advance()
    made.refresh_from_db()
    assert {state(one) for one in there} == {TaskState.READY}
    assert (made.status, made.done) == ("open", 2)
    assert "full: " in made.note
    assert made.parts.filter(done=False, retry_at__isnull=False).count() == 1
    Plan.objects.filter(slug="small").update(max_waiting=10)
    made.parts.update(retry_at=None)
    assert (finish().status, {state(one) for one in waiting}) == ("done", {TaskState.READY})


@pytest.mark.parametrize("good", [True, False])
def test_the_rest_follows_only_if_the_first_succeed(tenant: Tenant, good: bool) -> None:
    made = failed(tenant, 4)
    operation = bulk.begin("retry", Task.objects.unscoped(), what="them", reason="", actor="user:root", first=2)
    assert finish().note.startswith("waits for the first 2")
    tried, rest = made[:2], made[2:]
    assert ([state(one) for one in tried], {state(one) for one in rest}) == (
        [TaskState.READY] * 2, {TaskState.FAILED},
    )  # fmt: skip
    HandWorker("n2").run(tried[0])
    HandWorker("n3").run(tried[1], outcome=Outcome.SUCCEEDED if good else Outcome.FAILED)
    ended = finish()
    assert ended.pk == operation.pk
    assert (ended.status, ended.note) == ("done", "") if good else ended.status == "stopped"
    assert {state(one) for one in rest} == {TaskState.READY if good else TaskState.FAILED}


def test_a_tenant_is_stopped_in_one_act_and_an_operation_too(page: Client, tenant: Tenant) -> None:
    tasks = [submit(tenant) for _ in range(3)]
    HandWorker().start(tasks[0])
    url = reverse("admin:slackwater_tenants_tenant_change", args=[tenant.pk]).removesuffix("change/") + "do/stop/"
    assert "cancels 2 waiting tasks, and asks 1 running task" in page.post(url).content.decode()
    response = page.post(url, {"reason": "it floods the others"})
    assert "its 3 tasks are cancelled" in said(response)
    assert Tenant.objects.get(pk=tenant.pk).paused
    entry = LogEntry.objects.get()
    assert entry.change_message == (
        f"Stopped: {tenant} is paused, from active, and its 3 tasks are cancelled, from ready 2, running 1: it floods the others"
    )
    made = BulkOperation.objects.get()
    press(page, "slackwater_tasks_bulkoperation", made.pk, "stop")
    assert finish().status == "stopped"
    assert state(tasks[1]) is TaskState.READY


def test_a_pause_is_undone_from_its_message_and_from_the_audit(page: Client, tenant: Tenant) -> None:
    changed = reverse("admin:slackwater_tenants_tenant_change", args=[tenant.pk])
    page.post(f"{changed.removesuffix('change/')}do/pause/", {"reason": "too loud"})
    entry = LogEntry.objects.get()
    assert entry.change_message == "Paused, from active: too loud"
    text = page.get(changed).content.decode()
    form = re.search(r'<form method="post" action="([^"]+)" class="sw-undo">(.*?)</form>', text)
    assert form is not None
    page.post(form[1], dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[2])))
    assert not Tenant.objects.get(pk=tenant.pk).paused
    act(page, "slackwater_tenants_tenant", "pause", tenant.pk)
    text = page.get(reverse("admin:admin_logentry_changelist")).content.decode()
    [undo] = re.findall(r'formaction="([^"]+)"', text)
    page.post(undo)
    assert not Tenant.objects.get(pk=tenant.pk).paused
    viewer = staff("admin.view_logentry", "slackwater_tenants.view_tenant")
    act(page, "slackwater_tenants_tenant", "pause", tenant.pk)
    assert "formaction" not in viewer.get(reverse("admin:admin_logentry_changelist")).content.decode()


def test_dead_letters_are_grouped_requeued_a_few_first_and_edited(
    page: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [submit(tenant, total_attempts=1, args=[n]) for n in range(8)]
    worker = HandWorker()
    for n, one in enumerate(made):
        error = f"Traceback\n  line {n}\nValueError: no order {n}\n" if n < 7 else "KeyError: 'x'"
        worker.run(one, outcome=Outcome.FAILED, error=error)
    url = reverse("admin:slackwater_tasks_deadletter_groups")
    assert url in page.get(reverse("admin:slackwater_tasks_deadletter_changelist")).content.decode()
    text = page.get(url).content.decode()
    assert text.index("ValueError: no order #") < text.index("KeyError")
    assert "7 dead letters" in text
    monkeypatch.setattr(dead_groups, "LATEST", 3)
    assert "Of the 3 latest" in (text := page.get(url).content.decode())
    assert "Requeue all, older ones too" in text
    assert "7 dead letters" in page.get(url, {"all": "1"}).content.decode()
    outcome = str(int(Outcome.FAILED))
    group = {"handler": HANDLER, "outcome": outcome, "signature": "ValueError: no order #", "first": "5"}
    assert "Say why" in said(page.post(url, group))
    assert page.post(url, {**group, "outcome": "²", "reason": "x"}).status_code == 302  # no number: of no group
    told = said(page.post(url, {**group, "reason": "mended"}))
    assert "7 tasks are taken in the background: 5 first, then the other 2 if these succeed. <a" in told
    operation = finish()
    assert (operation.total, operation.first, operation.done) == (7, 5, 5)
    assert "the first 5 before the rest: mended" in LogEntry.objects.get().change_message
    viewer = staff("slackwater_tasks.view_deadletter")
    assert viewer.get(url).status_code == 200
    assert viewer.post(url, {**group, "reason": "x"}).status_code == 403

    edit = reverse("admin:slackwater_tasks_task_edit", args=[made[7]])
    form = page.get(edit).context["adminform"].form
    data = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    data |= {"start_at_0": "", "start_at_1": "", "args": "[77]"}
    refused = page.post(edit, data)
    assert list(refused.context["adminform"].form.errors) == ["reason"], "every act says why"
    response = page.post(edit, {**data, "reason": "the list was wrong"})
    assert response.status_code == 302, response.context["adminform"].form.errors
    new = Task.objects.unscoped().get(copied_from=made[7])
    told = LogEntry.objects.latest("pk").change_message
    assert re.fullmatch(rf"Run again as {new.pk}, edited: .*: the list was wrong", told)
    assert any(
        event.reason.endswith("the list was wrong") for event in TaskEvent.objects.unscoped().filter(task_id=made[7])
    )
    assert (new.args, state(new.pk), state(made[7])) == ([77], TaskState.READY, TaskState.FAILED)
    assert not DeadLetter.objects.unscoped().filter(pk=made[7]).exists()


def test_many_chosen_boxes_are_taken_in_the_background(
    page: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ButtonsMixin, "at_once", 1)
    chosen, left = [submit(tenant), submit(tenant)], submit(tenant)
    act(page, TASKS, "cancel", *chosen)
    assert BulkOperation.objects.get().what == "2 chosen tasks"
    finish()
    assert [state(each) for each in (*chosen, left)] == [TaskState.CANCELLED, TaskState.CANCELLED, TaskState.READY]
