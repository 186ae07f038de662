"""The admin: every page opens, every change goes through a service, and nothing breaks the ledger."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.resources.models import Handler, Tier
from apps.schedules.models import Schedule
from apps.tasks import services
from apps.tasks.models import DeadLetter, LiveTask, Script, Task, TaskEvent
from apps.tenants.models import ApiKey, Plan, Tenant, TenantCounter
from apps.tenants.services import authenticate, create_api_key, create_tenant
from scheduler_ext.core.errors import NotAuthenticated
from scheduler_ext.core.states import Outcome, TaskState
from tests.support.api import HANDLER, forget_lookups, furnish
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def furnished(db: None) -> Iterator[None]:
    """Tiers and a handler, and no memory of what another test rolled back."""
    forget_lookups()
    furnish()
    yield
    forget_lookups()


@pytest.fixture
def root() -> User:
    """Somebody who may do everything."""
    return User.objects.create_superuser("root", password="secret-root")


@pytest.fixture
def page(root: User) -> Client:
    """The administrator's browser."""
    client = Client()
    client.force_login(root)
    return client


@pytest.fixture
def tenant() -> Tenant:
    """A client organisation."""
    return create_tenant("acme", "Acme")


def staff(*permissions: str) -> Client:
    """The browser of somebody with just these permissions (app.codename)."""
    user = User.objects.create_user(f"staff-{uuid4().hex[:6]}", password="x", is_staff=True)
    for name in permissions:
        app, codename = name.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    client = Client()
    client.force_login(user)
    return client


def submit(tenant: Tenant, **fields: Any) -> UUID:
    """One task, handed in."""
    return services.submit(tenant, {"handler": HANDLER, **fields}, actor="test").task_ids[0]


def state(task_id: UUID) -> TaskState:
    """Where a task stands."""
    live = LiveTask.objects.unscoped().filter(pk=task_id).first()
    return TaskState(live.state if live else Task.objects.unscoped().get(pk=task_id).state)


def said(response: Any) -> str:
    """All messages of a response."""
    return " | ".join(str(message) for message in get_messages(response.wsgi_request))


def press(page: Client, model: str, pk: Any, button: str) -> Any:
    """Press a button of an object's page."""
    return page.post(f"{reverse(f'admin:{model}_change', args=[pk]).removesuffix('change/')}do/{button}/")


def act(page: Client, model: str, action: str, *pks: Any) -> Any:
    """Run an action of a list."""
    data = {"action": action, "_selected_action": [str(pk) for pk in pks]}
    return page.post(reverse(f"admin:{model}_changelist"), data)


def add_form(tenant: Tenant, **fields: Any) -> dict[str, Any]:
    """The form for a task as the page sends it, with some fields filled in."""
    return {
        "tenant": tenant.pk, "args": "[]", "kwargs": "{}", "tier": "basic", "category": "delayable", "priority": "0",
        "mutex_limit": "1", "on_late": "run_first", "total_attempts": "3", "condition": "all_succeeded", **fields,
    }  # fmt: skip


class TestPages:
    """Every page opens, with rows to show."""

    def furnish_all(self, tenant: Tenant) -> None:
        """A row of everything."""
        create_api_key(tenant, "ci")
        worker = HandWorker()
        done, failed = (
            submit(tenant, name="done", tags=["x"]),
            submit(tenant, name="broken", total_attempts=1),
        )
        worker.run(done, result='{"n": 1}', logs="hello\n")
        worker.run(failed, outcome=Outcome.FAILED, error="ValueError: <b>no</b>")
        worker.start(submit(tenant, name="running"))
        tasks = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]
        services.submit_workflow(tenant, {"name": "flow", "tasks": tasks}, actor="test")
        services.store_script(tenant, "job.sh", b"#!/bin/sh\necho hi\n")
        from apps.schedules.services import create_schedule

        create_schedule(
            tenant,
            {"name": "daily", "kind": "daily", "rule": {"times": ["07:30"]}, "task": {"handler": HANDLER}},
        )

    def test_every_list_opens_and_every_object_of_it(self, page: Client, tenant: Tenant) -> None:
        self.furnish_all(tenant)
        seen = []
        for model, model_admin in admin.site._registry.items():
            name = f"{model._meta.app_label}_{model._meta.model_name}"
            response = page.get(reverse(f"admin:{name}_changelist"))
            assert response.status_code == 200, name
            for obj in model_admin.get_queryset(response.wsgi_request)[:3]:
                answer = page.get(reverse(f"admin:{name}_change", args=[obj.pk]))
                assert answer.status_code == 200, (name, obj)
                seen.append(model._meta.model_name)
        expected = "task workflow deadletter attempt line leader script schedule tenant apikey plan tier node handler"
        assert set(expected.split()) <= set(seen)

    def test_every_form_to_add_opens_or_is_refused(self, page: Client) -> None:
        codes = {
            model._meta.model_name: page.get(
                reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_add")
            ).status_code
            for model in admin.site._registry
        }
        refused = {name for name, code in codes.items() if code == 403}
        assert set(codes.values()) == {200, 403}
        assert refused == {
            "workflow", "deadletter", "attempt", "taskevent", "line", "leader", "script", "node", "handler",
            "schedulefire",
        }  # fmt: skip

    def test_an_unknown_task_is_not_found(self, page: Client) -> None:
        assert page.get(reverse("admin:tasks_task_change", args=[uuid4()])).status_code == 404
        assert page.get("/admin/tasks/task/nonsense/change/").status_code == 404
        assert page.get("/admin/tasks/workflow/nonsense/change/").status_code == 404

    def test_the_task_page_tells_everything(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker("node-7")
        task_id = submit(tenant, name="mail", args=["to@example.org"], tags=["nightly"], total_attempts=1)
        worker.run(
            task_id, outcome=Outcome.FAILED, error="Traceback\nValueError: no <such> address", logs="trying\n"
        )
        text = page.get(reverse("admin:tasks_task_change", args=[task_id])).content.decode()
        for part in (
            str(task_id), "sw-failed", "nightly", "to@example.org", "node-7", "trying", "no &lt;such&gt; address",
            "dead-letter queue", "claimed for a node", "Run again",
        ):  # fmt: skip
            assert part in text, part
        assert "<such>" not in text

    def test_the_graph_links_the_neighbours(self, page: Client, tenant: Tenant) -> None:
        tasks = [
            {"name": "first", "handler": HANDLER},
            {"name": "<middle>", "handler": HANDLER, "depends_on": ["first"]},
            {"name": "last", "handler": HANDLER, "depends_on": ["<middle>"]},
        ]
        made = services.submit_workflow(tenant, {"name": "w", "tasks": tasks}, actor="test")
        text = page.get(reverse("admin:tasks_task_change", args=[made.task_ids[1]])).content.decode()
        svg = re.search(r"<svg class=\"sw-graph\".*?</svg>", text, re.DOTALL)
        assert svg is not None
        for task_id in made.task_ids:
            assert reverse("admin:tasks_task_change", args=[task_id]) in svg[0]
        assert "&lt;middle&gt;" in svg[0]
        assert "<middle>" not in text
        whole = page.get(reverse("admin:tasks_workflow_change", args=[made.workflow_id])).content.decode()
        assert whole.count('class="sw-edge"') == 2

    def test_a_list_of_tasks_costs_the_same_for_any_number(self, page: Client, tenant: Tenant) -> None:
        url = reverse("admin:tasks_task_changelist")
        worker = HandWorker()
        worker.run(submit(tenant))
        page.get(url)
        with CaptureQueriesContext(
            connection,
        ) as few:
            page.get(url)
        ids = [submit(tenant, name=f"t{n}") for n in range(25)]
        worker.run(*ids[:10])
        with CaptureQueriesContext(connection) as many:
            response = page.get(url)
        assert len(response.context["cl"].result_list) == 26
        assert len(many) == len(few), [q["sql"] for q in many]


class TestFinding:
    """Filters and search."""

    def ids(self, page: Client, **query: str) -> set[UUID]:
        """What the list of tasks shows."""
        response = page.get(reverse("admin:tasks_task_changelist"), query)
        assert response.status_code == 200
        return {task.pk for task in response.context["cl"].result_list}

    def test_by_state_wherever_it_stands(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker()
        ready, done, running = submit(tenant), submit(tenant), submit(tenant)
        worker.run(done)
        worker.start(running)
        assert self.ids(page, state="ready") == {ready}
        assert self.ids(page, state="succeeded") == {done}
        assert self.ids(page, state="in_flight") == {running}
        assert self.ids(page, state="live") == {ready, running}
        assert self.ids(page, state="final") == {done}
        assert self.ids(page, state="nonsense") == set()

    def test_by_id_tag_key_and_name(self, page: Client, tenant: Tenant) -> None:
        one = submit(tenant, name="report cafe", tags=["nightly"], mutex_key="disk-1")
        two = submit(tenant, name="other")
        assert self.ids(page, q=str(one)) == {one}
        assert self.ids(page, q=str(two)[:8]) == {one, two}
        assert self.ids(page, q="tag:nightly") == {one}
        assert self.ids(page, q="key:disk-1") == {one}
        assert self.ids(page, q="report") == {one}
        assert self.ids(page, q="name:cafe") == {one}
        assert self.ids(page, q=HANDLER) == {one, two}

    def test_other_lists_by_the_tasks_id(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker()
        one, two = submit(tenant, total_attempts=1), submit(tenant, total_attempts=1)
        worker.run(one, two, outcome=Outcome.FAILED, error="no")
        for model in ("deadletter", "attempt"):
            url = reverse(f"admin:tasks_{model}_changelist")
            assert len(page.get(url, {"q": str(one)}).context["cl"].result_list) == 1
            assert len(page.get(url, {"q": str(one)[:8]}).context["cl"].result_list) == 2
            assert len(page.get(url, {"q": "no such"}).context["cl"].result_list) == 0

    def test_by_age_through_the_ids(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        old = UUID("01900000-0000-7000-8000-000000000000")
        template = Task.objects.unscoped().get(pk=task_id)
        template.pk = old
        template.state, template.finished_at = TaskState.SUCCEEDED, template.submitted_at
        template.save(force_insert=True)
        assert self.ids(page) == {task_id, old}
        assert self.ids(page, age="1h") == {task_id}

    def test_by_tenant(self, page: Client, tenant: Tenant) -> None:
        other = create_tenant("globex", "Globex")
        mine, _ = submit(tenant), submit(other)
        assert self.ids(page, tenant__id__exact=str(tenant.pk)) == {mine}


class TestTasks:
    """What is done to tasks."""

    def test_adding_one_submits_it(self, page: Client, tenant: Tenant) -> None:
        form = add_form(
            tenant, name="from the page", handler=HANDLER, args='["a", 1]', kwargs='{"k": null}', category="urgent",
            priority="7", tags="x, y", execution_cap="12.5", delay_tolerance="3",
        )  # fmt: skip
        response = page.post(reverse("admin:tasks_task_add"), form)
        assert response.status_code == 302, response.context["adminform"].form.errors
        task = Task.objects.unscoped().get()
        assert response["Location"] == reverse("admin:tasks_task_change", args=[task.pk])
        assert (task.name, task.args, task.kwargs, task.priority) == (
            "from the page",
            ["a", 1],
            {"k": None},
            7,
        )
        assert (task.cap_ms, task.delay_tolerance_ms, task.tags) == (12_500, 3_000, ["x", "y"])
        assert task.submitted_by == "user:root"
        assert TenantCounter.objects.get(pk=tenant.pk).unfinished == 1

    def test_adding_a_script_stores_it(self, page: Client, tenant: Tenant) -> None:
        Tenant.objects.filter(pk=tenant.pk).update(trusted=True)
        content = b"#!/bin/sh\necho hi\n"
        form = add_form(tenant, script_file=SimpleUploadedFile("job.sh", content))
        response = page.post(reverse("admin:tasks_task_add"), form)
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
        response = page.post(reverse("admin:tasks_task_add"), add_form(tenant, **fields))
        assert response.status_code == 200
        assert part in " ".join(response.context["adminform"].form.errors[field])
        assert not Task.objects.unscoped().exists()

    def test_a_full_quota_is_told_above_the_form(self, page: Client) -> None:
        Plan.objects.create(slug="tiny", name="Tiny", max_waiting=0)
        small = create_tenant("small", "Small", "tiny")
        response = page.post(reverse("admin:tasks_task_add"), add_form(small, handler=HANDLER))
        assert response.status_code == 200
        assert response.context["adminform"].form.non_field_errors()

    def test_an_idempotency_key_leads_to_the_first_task(self, page: Client, tenant: Tenant) -> None:
        form = add_form(tenant, handler=HANDLER, idempotency_key="once")
        first, second = (page.post(reverse("admin:tasks_task_add"), form) for _ in range(2))
        assert first["Location"] == second["Location"]
        assert Task.objects.unscoped().count() == 1

    def test_editing_a_waiting_task(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant, name="old", priority=1, tags=["a"], execution_cap=60)
        url = reverse("admin:tasks_task_edit", args=[task_id])
        form = page.get(url).context["adminform"].form
        data = {name: form[name].value() for name in form.fields if name != "start_at"}
        data = {name: value for name, value in data.items() if value is not None}
        data |= {"name": "new", "priority": "9", "start_at_0": "", "start_at_1": ""}
        response = page.post(url, data)
        assert response.status_code == 302, response.context["adminform"].form.errors
        task = Task.objects.unscoped().get(pk=task_id)
        assert (task.name, task.priority, task.tags, task.cap_ms) == ("new", 9, ["a"], 60_000)
        event = TaskEvent.objects.unscoped().get(task_id=task_id, reason="edited")
        assert set(event.detail) == {"name", "priority"}
        assert event.actor == "user:root"

    def test_a_claimed_task_cannot_be_edited(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        HandWorker().start(task_id)
        data = {**add_form(tenant), "name": "late"}
        response = page.post(reverse("admin:tasks_task_edit", args=[task_id]), data)
        assert response.status_code == 200
        assert "only a waiting task" in str(response.context["adminform"].form.errors)

    def test_cancelling_from_its_page(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        assert "cancelled" in said(press(page, "tasks_task", task_id, "cancel"))
        assert state(task_id) is TaskState.CANCELLED
        assert (
            TaskEvent.objects.unscoped().get(task_id=task_id, to_state=TaskState.CANCELLED).actor
            == "user:root"
        )

    def test_a_running_task_is_asked_to_end(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        HandWorker().start(task_id)
        assert "asked to end" in said(press(page, "tasks_task", task_id, "cancel"))
        assert LiveTask.objects.unscoped().get(pk=task_id).cancel_requested

    def test_a_link_changes_nothing(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        url = reverse("admin:tasks_task_change", args=[task_id]).removesuffix("change/") + "do/cancel/"
        assert page.get(url).status_code == 405
        assert state(task_id) is TaskState.READY
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(User.objects.get(username="root"))
        assert strict.post(url).status_code == 403
        assert state(task_id) is TaskState.READY

    def test_actions_on_many_and_what_is_refused(self, page: Client, tenant: Tenant) -> None:
        done, one, two = submit(tenant), submit(tenant), submit(tenant)
        HandWorker().run(done)
        response = act(page, "tasks_task", "cancel", done, one, two)
        text = said(response)
        assert "2 cancelled" in text
        assert "1 refused" in text
        assert [state(t) for t in (done, one, two)] == [
            TaskState.SUCCEEDED, TaskState.CANCELLED, TaskState.CANCELLED,
        ]  # fmt: skip
        assert "2 running again" in said(act(page, "tasks_task", "retry", one, two))
        assert state(one) is TaskState.READY

    def test_cancelling_with_what_depends_on_it(self, page: Client, tenant: Tenant) -> None:
        tasks = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"],
                 "condition": "all_done"}]  # fmt: skip
        first, second = services.submit_workflow(tenant, {"name": "w", "tasks": tasks}, actor="test").task_ids
        act(page, "tasks_task", "cancel_with_dependants", first)
        assert (state(first), state(second)) == (TaskState.CANCELLED, TaskState.CANCELLED)

    def test_a_workflow_is_cancelled_as_a_whole(self, page: Client, tenant: Tenant) -> None:
        tasks: list[dict[str, Any]] = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER}]
        tasks.append({"name": "c", "handler": HANDLER, "depends_on": ["a", "b"], "condition": "all_done"})
        made = services.submit_workflow(tenant, {"name": "w", "tasks": tasks}, actor="test")
        bystander = submit(tenant)
        HandWorker().start(made.task_ids[1])
        assert "3 tasks" in said(press(page, "tasks_workflow", made.workflow_id, "cancel"))
        assert [state(task_id) for task_id in made.task_ids] == [
            TaskState.CANCELLED, TaskState.RUNNING, TaskState.CANCELLED,
        ]  # fmt: skip
        assert LiveTask.objects.unscoped().get(pk=made.task_ids[1]).cancel_requested
        assert state(bystander) is TaskState.READY
        viewer = staff("tasks.view_workflow", "tasks.view_task")
        assert press(viewer, "tasks_workflow", made.workflow_id, "cancel").status_code == 403

    def test_a_dead_letter_is_requeued(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker()
        one, two = submit(tenant, total_attempts=1), submit(tenant, total_attempts=1)
        worker.run(one, two, outcome=Outcome.FAILED, error="ValueError: no")
        assert DeadLetter.objects.unscoped().count() == 2
        response = press(page, "tasks_deadletter", one, "requeue")
        assert response["Location"] == reverse("admin:tasks_task_change", args=[one])
        assert "1 requeued" in said(act(page, "tasks_deadletter", "requeue", two))
        assert (state(one), state(two)) == (TaskState.READY, TaskState.READY)
        assert not DeadLetter.objects.unscoped().exists()

    def test_nothing_of_the_ledger_can_be_deleted_or_written(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        HandWorker().run(task_id)
        for model in (
            "tasks_task",
            "tenants_tenant",
            "resources_tier",
            "resources_node",
            "tasks_line",
            "tasks_attempt",
        ):
            pk = {"tasks_task": task_id, "tenants_tenant": tenant.pk}.get(model, 1)
            assert (
                page.post(reverse(f"admin:{model}_delete", args=[pk]), {"post": "yes"}).status_code == 403
            ), model
            response = page.get(reverse(f"admin:{model}_changelist"))
            assert "delete_selected" not in response.content.decode(), model
        page.post(reverse("admin:tasks_task_change", args=[task_id]), {"name": "forged", "state": "7"})
        assert Task.objects.unscoped().get(pk=task_id).name == ""
        assert state(task_id) is TaskState.SUCCEEDED


class TestClients:
    """Tenants and their keys."""

    def test_a_new_tenant_has_its_counter(self, page: Client) -> None:
        plan = Plan.objects.create(slug="gold", name="Gold")
        form = {
            "slug": "initech", "name": "Initech", "plan": plan.pk, "cell": "default", "trusted": "on",
            "script_root": "/srv/initech", "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0",
        }  # fmt: skip
        response = page.post(reverse("admin:tenants_tenant_add"), form)
        assert response.status_code == 302, response.context["adminform"].form.errors
        made = Tenant.objects.get(slug="initech")
        assert (made.plan, made.trusted, made.script_root) == (plan, True, "/srv/initech")
        assert TenantCounter.objects.filter(tenant=made).exists()

    def test_what_the_service_refuses_stays_in_the_form(
        self, page: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A slug taken between the form's check and the service's: the form comes back filled in."""
        from apps.tenants import admin as tenants_admin

        create_tenant("taken", "Taken")
        monkeypatch.setattr(tenants_admin.TenantForm, "validate_unique", lambda self: None)
        form = {
            "slug": "taken", "name": "Second", "plan": Plan.objects.get().pk, "cell": "default",
            "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0",
        }  # fmt: skip
        response = page.post(reverse("admin:tenants_tenant_add"), form)
        assert response.status_code == 200
        errors = response.context["adminform"].form.errors["slug"]
        assert list(errors) == ["slug: the tenant 'taken' exists already"]
        assert response.context["adminform"].form["name"].value() == "Second"

    def test_pausing_and_resuming(self, page: Client, tenant: Tenant) -> None:
        press(page, "tenants_tenant", tenant.pk, "pause")
        assert Tenant.objects.get(pk=tenant.pk).paused
        assert "1 refused" in said(act(page, "tenants_tenant", "pause", tenant.pk))
        assert "1 resumed" in said(act(page, "tenants_tenant", "resume", tenant.pk))
        assert not Tenant.objects.get(pk=tenant.pk).paused

    def test_a_key_is_shown_once_and_works(self, page: Client, tenant: Tenant) -> None:
        form = {"tenant": tenant.pk, "name": "ci", "scopes": ["submit", "read"]}
        response = page.post(reverse("admin:tenants_apikey_add"), form)
        assert response.status_code == 200
        found = re.search(r'id="api-key">(sw_[^<]+)<', response.content.decode())
        assert found is not None
        key = authenticate(found[1])
        assert (key.tenant, key.scopes) == (tenant, ["read", "submit"])
        assert "no-store" in response["Cache-Control"]
        secret = found[1].rsplit("_", 1)[1]
        for url in (
            reverse("admin:tenants_apikey_changelist"),
            reverse("admin:tenants_apikey_change", args=[key.pk]),
        ):
            assert secret not in page.get(url).content.decode()
        assert secret not in str(page.cookies)
        assert "revoked" in said(press(page, "tenants_apikey", key.pk, "revoke"))
        with pytest.raises(NotAuthenticated):
            authenticate(found[1])

    def test_a_key_that_is_born_expired_is_refused_at_its_field(self, page: Client, tenant: Tenant) -> None:
        form = {
            "tenant": tenant.pk,
            "name": "x",
            "scopes": ["read"],
            "expires_at_0": "2001-01-01",
            "expires_at_1": "00:00",
        }
        response = page.post(reverse("admin:tenants_apikey_add"), form)
        assert "expires_at" in response.context["adminform"].form.errors
        assert not ApiKey.objects.exists()


class TestResources:
    """Nodes, handlers, lines."""

    def test_draining_and_activating_a_node(self, page: Client) -> None:
        node = HandWorker().node
        press(page, "resources_node", node.pk, "drain")
        node.refresh_from_db()
        assert node.state == "draining"
        assert "1 refused" in said(act(page, "resources_node", "drain", node.pk))
        act(page, "resources_node", "activate", node.pk)
        node.refresh_from_db()
        assert node.state == "active"
        type(node).objects.update(state="lost")
        assert "lost, not draining" in said(press(page, "resources_node", node.pk, "activate"))

    def test_pausing_a_handler(self, page: Client) -> None:
        handler = Handler.objects.get(name=HANDLER)
        press(page, "resources_handler", handler.pk, "pause")
        handler.refresh_from_db()
        assert handler.paused

    def test_pausing_a_line(self, page: Client, tenant: Tenant) -> None:
        submit(tenant)
        line = LiveTask.objects.unscoped().get().line
        press(page, "tasks_line", line.pk, "pause")
        line.refresh_from_db()
        assert line.paused
        assert "1 resumed" in said(act(page, "tasks_line", "resume", line.pk))
        line.refresh_from_db()
        assert not line.paused

    def test_a_tier_of_a_tenants_own(self, page: Client, tenant: Tenant) -> None:
        form = {
            "slug": "huge", "tenant": tenant.pk, "cpu_milli": "16000", "memory_mb": "65536", "disk_mb": "0",
            "iops": "0", "bandwidth_kbps": "0", "ports": "0", "default_cap_s": "60",
        }  # fmt: skip
        assert page.post(reverse("admin:resources_tier_add"), form).status_code == 302
        assert Tier.objects.get(slug="huge").tenant == tenant


class TestSchedules:
    """Schedules through their services."""

    def form(self, tenant: Tenant, **fields: Any) -> dict[str, Any]:
        """A daily schedule as the page sends it."""
        return {
            "tenant": tenant.pk, "name": "nightly", "kind": "daily", "rule": '{"times": ["03:00"]}', "time_zone": "UTC",
            "task": json.dumps({"handler": HANDLER}), "jitter_s": "0", "missed": "one", "missed_after_s": "60",
            "missed_limit": "100", "missed_window_s": "3600", "overlap": "allow", **fields,
        }  # fmt: skip

    def test_adding_changing_pausing_deleting(self, page: Client, tenant: Tenant) -> None:
        response = page.post(reverse("admin:schedules_schedule_add"), self.form(tenant))
        assert response.status_code == 302, response.context["adminform"].form.errors
        schedule = Schedule.objects.unscoped().get()
        assert (schedule.created_by, schedule.next_fire_at.hour) == ("user:root", 3)
        url = reverse("admin:schedules_schedule_change", args=[schedule.pk])
        response = page.post(url, self.form(tenant, rule='{"times": ["04:00"]}'))
        assert response.status_code == 302, response.context["adminform"].form.errors
        schedule.refresh_from_db()
        assert (schedule.version, schedule.next_fire_at.hour) == (2, 4)
        assert "1 paused" in said(act(page, "schedules_schedule", "pause", schedule.pk))
        schedule.refresh_from_db()
        assert schedule.paused
        assert schedule.next_due_at is None
        page.post(reverse("admin:schedules_schedule_delete", args=[schedule.pk]), {"post": "yes"})
        assert not Schedule.objects.unscoped().exists()

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"rule": '{"times": ["25:00"]}'}, "rule"),
            ({"time_zone": "Mars/Olympus"}, "time_zone"),
            ({"task": '{"handler": "no.such"}'}, "task"),
            ({"task": '{"handler": "demo.echo", "depends_on": []}'}, "task"),
            ({"jitter_s": "99999999"}, "jitter_s"),
        ],
    )
    def test_what_is_wrong_is_told_at_its_field(
        self, page: Client, tenant: Tenant, fields: dict[str, str], field: str
    ) -> None:
        response = page.post(reverse("admin:schedules_schedule_add"), self.form(tenant, **fields))
        assert response.status_code == 200
        assert field in response.context["adminform"].form.errors
        assert not Schedule.objects.unscoped().exists()

    def test_a_taken_name_is_told_at_its_field(self, page: Client, tenant: Tenant) -> None:
        page.post(reverse("admin:schedules_schedule_add"), self.form(tenant))
        response = page.post(reverse("admin:schedules_schedule_add"), self.form(tenant))
        assert response.status_code == 200
        assert "name" in response.context["adminform"].form.errors
        assert Schedule.objects.unscoped().count() == 1


class TestPermissions:
    """Django's model permissions hold for every button, action and number."""

    def test_a_viewer_sees_and_changes_nothing(self, tenant: Tenant) -> None:
        task_id = submit(tenant)
        viewer = staff("tasks.view_task")
        text = viewer.get(reverse("admin:tasks_task_change", args=[task_id])).content.decode()
        assert "/do/cancel/" not in text
        assert press(viewer, "tasks_task", task_id, "cancel").status_code == 403
        act(viewer, "tasks_task", "cancel", task_id)
        assert viewer.get(reverse("admin:tasks_task_edit", args=[task_id])).status_code == 403
        assert viewer.get(reverse("admin:tasks_task_add")).status_code == 403
        assert (
            viewer.post(reverse("admin:tasks_task_add"), add_form(tenant, handler=HANDLER)).status_code == 403
        )
        assert state(task_id) is TaskState.READY
        assert Task.objects.unscoped().count() == 1

    def test_an_operator_may_change_and_not_add(self, tenant: Tenant) -> None:
        task_id = submit(tenant)
        operator = staff("tasks.view_task", "tasks.change_task")
        assert press(operator, "tasks_task", task_id, "cancel").status_code == 302
        assert state(task_id) is TaskState.CANCELLED
        assert operator.get(reverse("admin:tasks_task_add")).status_code == 403

    def test_only_who_may_change_nodes_drains_them(self) -> None:
        node = HandWorker().node
        viewer = staff("resources.view_node")
        assert press(viewer, "resources_node", node.pk, "drain").status_code == 403
        act(viewer, "resources_node", "drain", node.pk)
        node.refresh_from_db()
        assert node.state == "active"
        act(staff("resources.view_node", "resources.change_node"), "resources_node", "drain", node.pk)
        node.refresh_from_db()
        assert node.state == "draining"

    def test_the_side_bar_offers_what_one_may_see(self) -> None:
        text = staff("tasks.view_task").get(reverse("admin:index")).content.decode()
        assert reverse("admin:tasks_task_changelist") in text
        assert reverse("admin:tenants_apikey_changelist") not in text

    def test_nobody_unknown_gets_anything(self, tenant: Tenant) -> None:
        task_id = submit(tenant)
        for name, args in (
            ("sw_live", []),
            ("sw_task", [task_id]),
            ("sw_run_times", []),
            ("tasks_task_changelist", []),
        ):
            response = Client().get(reverse(f"admin:{name}", args=args))
            assert response.status_code == 302
            assert "/admin/login/" in response["Location"]
        nosy = staff()
        assert nosy.get(reverse("admin:sw_live")).status_code == 403
        assert nosy.get(reverse("admin:sw_task", args=[task_id])).status_code == 403
        assert nosy.get(reverse("admin:sw_run_times")).status_code == 403
