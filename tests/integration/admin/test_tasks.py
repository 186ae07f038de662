"""Tasks and workflows in the admin: made, changed, cancelled and run again through the services."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.models import DeadLetter, LiveTask, MutexScope, Script, Task, TaskEvent, Workflow
from slackwater_tasks.submission import service
from slackwater_tenants.models import CurrentCounter, Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.admin import act, add_form, form_of, press, said, staff, state, submit
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


class TestTasks:
    """What is done to tasks."""

    def test_adding_one_submits_it(self, page: Client, tenant: Tenant) -> None:
        form = add_form(
            tenant, name="from the page", handler=HANDLER, args='["a", 1]', kwargs='{"k": null}', category="urgent",
            priority="7", tags="x, y", execution_cap_s="12.5", delay_tolerance_s="3", mutex_key="door",
            mutex_limit="2", mutex_scope="dependent", metadata='{"order": "7"}', expires_in_s="900",
        )  # fmt: skip
        response = page.post(reverse("admin:slackwater_tasks_task_add"), form)
        assert response.status_code == 302, response.context["adminform"].form.errors
        task = Task.objects.unscoped().get()
        assert response["Location"] == reverse("admin:slackwater_tasks_task_change", args=[task.pk])
        assert (task.name, task.args, task.kwargs, task.priority) == (
            "from the page",
            ["a", 1],
            {"k": None},
            7,
        )
        assert (task.cap_ms, task.delay_tolerance_ms, task.tags) == (12_500, 3_000, ["x", "y"])
        assert (task.mutex_key, task.mutex_limit, task.mutex_scope) == ("door", 2, MutexScope.DEPENDENT)
        assert task.submitted_by == "user:root"
        assert task.expires_at is not None
        assert b"order: 7" in page.get(response["Location"]).content
        assert CurrentCounter.objects.get(pk=tenant.pk).unfinished == 1

    def test_adding_a_script_stores_it(self, page: Client, tenant: Tenant) -> None:
        Tenant.objects.filter(pk=tenant.pk).update(trusted=True)
        content = b"#!/bin/sh\necho hi\n"
        form = add_form(tenant, script_file=SimpleUploadedFile("job.sh", content))
        response = page.post(reverse("admin:slackwater_tasks_task_add"), form)
        assert response.status_code == 302, response.context["adminform"].form.errors
        script = Script.objects.unscoped().get()
        assert bytes(script.content) == content
        assert Task.objects.unscoped().get().script_sha256 == script.sha256

    @pytest.mark.parametrize(
        ("fields", "field", "part"),
        [
            ({"handler": HANDLER, "priority": "5000"}, "priority", "priority: must be from 0 to 1000"),
            ({}, "handler", "handler"),
            ({"handler": HANDLER, "args": "{"}, "args", "JSON"),
            ({"handler": HANDLER, "args": "{}"}, "args", "args: must be an array"),
            ({"handler": HANDLER, "depends_on": "no-such-task"}, "depends_on", "depends_on"),
            ({"handler": HANDLER, "retry": '{"base_s": -1}'}, "retry", "retry"),
            ({"script_path": "/etc/passwd"}, "script_path", "script_path"),
        ],
    )
    def test_what_the_service_refuses_is_told_at_its_field(
        self, page: Client, tenant: Tenant, fields: dict[str, str], field: str, part: str
    ) -> None:
        response = page.post(reverse("admin:slackwater_tasks_task_add"), add_form(tenant, **fields))
        assert response.status_code == 200
        assert part in " ".join(response.context["adminform"].form.errors[field])
        assert not Task.objects.unscoped().exists()

    def test_a_full_quota_is_told_above_the_form(self, page: Client) -> None:
        Plan.objects.create(slug="tiny", name="Tiny", max_waiting=0)
        small = create_tenant("small", "Small", "tiny")
        response = page.post(reverse("admin:slackwater_tasks_task_add"), add_form(small, handler=HANDLER))
        assert response.status_code == 200
        assert response.context["adminform"].form.non_field_errors()

    def test_an_idempotency_key_leads_to_the_first_task(self, page: Client, tenant: Tenant) -> None:
        form = add_form(tenant, handler=HANDLER, idempotency_key="once")
        first, second = (page.post(reverse("admin:slackwater_tasks_task_add"), form) for _ in range(2))
        assert first["Location"] == second["Location"]
        assert Task.objects.unscoped().count() == 1

    def test_editing_a_waiting_task(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant, name="old", priority=1, tags=["a"], execution_cap_s=60)
        url = reverse("admin:slackwater_tasks_task_edit", args=[task_id])
        data = form_of(page, url, name="new", priority="9", mutex_scope="independent")
        response = page.post(url, data)
        assert response.status_code == 302, response.context["adminform"].form.errors
        task = Task.objects.unscoped().get(pk=task_id)
        assert (task.name, task.priority, task.tags, task.cap_ms) == ("new", 9, ["a"], 60_000)
        event = TaskEvent.objects.unscoped().get(task_id=task_id, reason="edited")
        assert task.mutex_scope == MutexScope.INDEPENDENT
        assert set(event.detail) == {"name", "priority", "mutex_scope"}
        assert LogEntry.objects.get(object_id=str(task_id)).get_change_message() == (
            "Edited: mutex_scope from both to independent, name from old to new, priority from 1 to 9."
        )
        data |= {"kwargs": '{"token": "hush-hush"}', "tags": "a, b"}
        assert page.post(url, data).status_code == 302
        told = LogEntry.objects.filter(object_id=str(task_id)).latest("pk").get_change_message()
        assert told == "Edited: kwargs, tags from ['a'] to ['a', 'b'].", "what may be secret is not told"
        assert event.actor == "user:root"

    def test_a_task_is_edited_in_nothing_but_what_was_touched(self, page: Client, tenant: Tenant) -> None:
        started = timezone.now() + timedelta(days=1)
        task_id = submit(
            tenant, name="all", tags=["a", "b"], require_labels=["ssd"], prefer_labels=["gpu", "zone=eu"], args=[1],
            kwargs={"x": {"y": 2}}, metadata={"order": "7102"}, retry={"base_s": 2}, mutex_key="k", rate_key="bank",
            start_at=started.isoformat(), delay_tolerance_s=90.5,
        )  # fmt: skip
        plain = submit(tenant)
        for each in (task_id, plain):
            url = reverse("admin:slackwater_tasks_task_edit", args=[each])
            assert page.post(url, form_of(page, url, name="renamed")).status_code == 302
            [event] = TaskEvent.objects.unscoped().filter(task_id=each, reason="edited")
            assert set(event.detail) == {"name"}

    def test_a_claimed_task_cannot_be_edited(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        HandWorker().start(task_id)
        data = {**add_form(tenant), "name": "late"}
        response = page.post(reverse("admin:slackwater_tasks_task_edit", args=[task_id]), data)
        assert response.status_code == 200
        assert "only a waiting task" in str(response.context["adminform"].form.errors)

    def test_cancelling_from_its_page(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        assert "cancelled" in said(press(page, "slackwater_tasks_task", task_id, "cancel"))
        assert state(task_id) is TaskState.CANCELLED
        assert TaskEvent.objects.unscoped().get(task_id=task_id, to_state=TaskState.CANCELLED).actor == "user:root"

    def test_a_running_task_is_asked_to_end(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        HandWorker().start(task_id)
        assert "asked to end" in said(press(page, "slackwater_tasks_task", task_id, "cancel"))
        assert LiveTask.objects.unscoped().get(pk=task_id).cancel_requested

    def test_a_link_changes_nothing(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        url = reverse("admin:slackwater_tasks_task_change", args=[task_id]).removesuffix("change/") + "do/cancel/"
        assert page.get(url).status_code == 405
        assert state(task_id) is TaskState.READY
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(User.objects.get(username="root"))
        assert strict.post(url).status_code == 403
        assert state(task_id) is TaskState.READY

    def test_actions_on_many_and_what_is_refused(self, page: Client, tenant: Tenant) -> None:
        done, one, two = submit(tenant), submit(tenant), submit(tenant)
        HandWorker().run(done)
        response = act(page, "slackwater_tasks_task", "cancel", done, one, two)
        text = said(response)
        assert "2 cancelled" in text
        assert "1 refused" in text
        assert [state(t) for t in (done, one, two)] == [
            TaskState.SUCCEEDED, TaskState.CANCELLED, TaskState.CANCELLED,
        ]  # fmt: skip
        assert "2 running again" in said(act(page, "slackwater_tasks_task", "retry", one, two))
        assert state(one) is TaskState.READY

    def test_cancelling_with_what_depends_on_it(self, page: Client, tenant: Tenant) -> None:
        tasks = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"],
                 "condition": "all_done"}]  # fmt: skip
        first, second = service.submit_workflow(tenant, {"name": "w", "tasks": tasks}, actor="test").task_ids
        act(page, "slackwater_tasks_task", "cancel-dependants", first)
        assert (state(first), state(second)) == (TaskState.CANCELLED, TaskState.CANCELLED)

    def test_a_workflow_is_cancelled_as_a_whole(self, page: Client, tenant: Tenant) -> None:
        tasks: list[dict[str, Any]] = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER}]
        tasks.append({"name": "c", "handler": HANDLER, "depends_on": ["a", "b"], "condition": "all_done"})
        made = service.submit_workflow(tenant, {"name": "w", "tasks": tasks}, actor="test")
        bystander = submit(tenant)
        HandWorker().start(made.task_ids[1])
        answer = said(press(page, "slackwater_tasks_workflow", made.workflow_id, "cancel"))
        assert "2 tasks were cancelled, 1 running task was" in answer
        assert [state(task_id) for task_id in made.task_ids] == [
            TaskState.CANCELLED, TaskState.RUNNING, TaskState.CANCELLED,
        ]  # fmt: skip
        assert LiveTask.objects.unscoped().get(pk=made.task_ids[1]).cancel_requested
        assert state(bystander) is TaskState.READY
        viewer = staff("slackwater_tasks.view_workflow", "slackwater_tasks.view_task")
        assert press(viewer, "slackwater_tasks_workflow", made.workflow_id, "cancel").status_code == 403

    def test_a_dead_letter_is_retried(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker()
        one, two = submit(tenant, total_attempts=1), submit(tenant, total_attempts=1)
        worker.run(one, two, outcome=Outcome.FAILED, error="ValueError: no")
        assert DeadLetter.objects.unscoped().count() == 2
        response = press(page, "slackwater_tasks_deadletter", one, "retry")
        assert response["Location"] == reverse("admin:slackwater_tasks_task_change", args=[one])
        assert "1 retried" in said(act(page, "slackwater_tasks_deadletter", "retry", two))
        assert (state(one), state(two)) == (TaskState.READY, TaskState.READY)
        assert not DeadLetter.objects.unscoped().exists()

    def test_nothing_of_the_ledger_can_be_deleted_or_written(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        HandWorker().run(task_id)
        for model in (
            "slackwater_tasks_task",
            "slackwater_tenants_tenant",
            "slackwater_resources_tier",
            "slackwater_resources_node",
            "slackwater_tasks_line",
            "slackwater_tasks_attempt",
        ):
            pk = {"slackwater_tasks_task": task_id, "slackwater_tenants_tenant": tenant.pk}.get(model, 1)
            assert page.post(reverse(f"admin:{model}_delete", args=[pk]), {"post": "yes"}).status_code == 403, model
            response = page.get(reverse(f"admin:{model}_changelist"))
            assert "delete_selected" not in response.content.decode(), model
        page.post(reverse("admin:slackwater_tasks_task_change", args=[task_id]), {"name": "forged", "state": "7"})
        assert Task.objects.unscoped().get(pk=task_id).name == ""
        assert state(task_id) is TaskState.SUCCEEDED


class TestWorkflowsByHand:
    """A whole graph from the admin, by the service that REST calls."""

    def form(self, tenant: Tenant, tasks: Any, **fields: str) -> dict[str, Any]:
        """What the page sends."""
        return {
            "tenant": tenant.pk,
            "name": "by hand",
            "tasks": json.dumps(tasks),
            "idempotency_key": "",
            **fields,
        }

    def test_a_graph_is_handed_in(self, page: Client, tenant: Tenant) -> None:
        assert page.get(reverse("admin:slackwater_tasks_workflow_add")).status_code == 200
        tasks = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]
        form = self.form(tenant, tasks, idempotency_key="once")
        first, second = (page.post(reverse("admin:slackwater_tasks_workflow_add"), form) for _ in range(2))
        made = Workflow.objects.unscoped().get()
        assert (
            first["Location"] == second["Location"] == reverse("admin:slackwater_tasks_workflow_change", args=[made.pk])
        )
        assert (made.name, made.task_count, made.edge_count) == ("by hand", 2, 1)
        assert set(Task.objects.unscoped().values_list("submitted_by", flat=True)) == {"user:root"}

    @pytest.mark.parametrize(
        ("tasks", "part"),
        [
            ([{"name": "a", "handler": HANDLER, "depends_on": ["b"]}], "tasks[0].depends_on[0]"),
            ([{"name": "a", "handler": HANDLER, "tier": "huge"}], "tasks[0].tier"),
            ({"a": 1}, "must be an array"),
            ([], "required"),
        ],
    )
    def test_nothing_of_a_wrong_one_is_stored(self, page: Client, tenant: Tenant, tasks: Any, part: str) -> None:
        response = page.post(reverse("admin:slackwater_tasks_workflow_add"), self.form(tenant, tasks))
        assert response.status_code == 200
        assert part in " ".join(response.context["adminform"].form.errors["tasks"])
        assert not Task.objects.unscoped().exists()
        assert not Workflow.objects.unscoped().exists()

    def test_it_needs_the_permission(self, client: Client, tenant: Tenant) -> None:
        client.force_login(User.objects.create_user("staff", password="x", is_staff=True))
        assert client.get(reverse("admin:slackwater_tasks_workflow_add")).status_code == 403
