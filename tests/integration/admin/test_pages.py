"""The admin: every page opens, every change goes through a service, and nothing breaks the ledger."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from scheduler_ext.core.states import ClientStatus, Outcome, TaskState
from slackwater_schedules.firing import fire_due
from slackwater_tasks.models import LiveTask, Resumable, Task, TaskEvent, Workflow
from slackwater_tasks.submission import service
from slackwater_tasks.submission.service import submit_workflow
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_api_key, create_tenant
from tests.support.admin import said, staff, submit
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker
from tests.support.schedules import FIRES, due, make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


LIST_QUERIES = {"": 10, "task": 11}
PAGE_QUERIES = {"": 9, "node": 9, "tenant": 14, "task": 26, "schedule": 12}
"""The most statements of a list and of a row's page, its session and its user among them; empty: all that are not named."""


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
        service.submit_workflow(tenant, {"name": "flow", "tasks": tasks}, actor="test")
        service.store_script(tenant, "job.sh", b"#!/bin/sh\necho hi\n")
        from slackwater_schedules.services import create_schedule

        create_schedule(
            tenant,
            {"name": "daily", "kind": "daily", "rule": {"times": ["07:30"]}, "task": {"handler": HANDLER}},
        )

    def test_every_list_opens_and_every_object_of_it_and_asks_few_questions(self, page: Client, tenant: Tenant) -> None:
        self.furnish_all(tenant)
        seen, too_many = [], []

        def opened(most: dict[str, int], name: str, page_name: str, *args: Any) -> Any:
            with CaptureQueriesContext(connection) as asked:
                response = page.get(reverse(f"admin:{page_name}", args=args))
            assert response.status_code == 200, (page_name, args)
            if len(asked) > most.get(name, most[""]):
                too_many.append((page_name, len(asked)))
            return response

        for model, model_admin in admin.site._registry.items():
            label, name = f"{model._meta.app_label}_{model._meta.model_name}", str(model._meta.model_name)
            response = opened(LIST_QUERIES, name, f"{label}_changelist")
            for obj in model_admin.get_queryset(response.wsgi_request)[:3]:
                opened(PAGE_QUERIES, name, f"{label}_change", obj.pk)
                seen.append(name)
        assert not too_many, "\n" + "\n".join(map(str, too_many))
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
            "deadletter", "attempt", "taskevent", "line", "leader", "script", "node", "handler",
            "schedulefire", "subscription", "delivery", "artifact", "ranksweep", "alert", "component",
            "login", "logentry", "receiptpage", "workflowtemplate", "bulkoperation",
        }  # fmt: skip

    def test_an_unknown_task_is_not_found(self, page: Client) -> None:
        assert page.get(reverse("admin:slackwater_tasks_task_change", args=[uuid4()])).status_code == 404
        assert page.get("/admin/slackwater_tasks/task/nonsense/change/").status_code == 404
        assert page.get("/admin/slackwater_tasks/workflow/nonsense/change/").status_code == 404

    def test_the_task_page_tells_everything(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker("node-7")
        task_id = submit(tenant, name="mail", args=["to@example.org"], tags=["nightly"], total_attempts=1)
        worker.run(task_id, outcome=Outcome.FAILED, error="Traceback\nValueError: no <such> address", logs="trying\n")
        text = page.get(reverse("admin:slackwater_tasks_task_change", args=[task_id])).content.decode()
        for part in (
            str(task_id), "sw-failed", "nightly", "to@example.org", "node-7", "no &lt;such&gt; address",
            "dead-letter queue", "claimed for a node", "Run again", "Scheduling", "once",
        ):  # fmt: skip
            assert part in text, part
        output = reverse("admin:sw_task_output", args=[task_id])
        assert f'data-output="{output}"' in text
        shown = page.get(output).json()
        assert ([line["text"] for line in shown["lines"]], shown["ended"]) == (["trying"], True)
        assert page.get(output, {"place": shown["place"]}).json()["lines"] == []
        assert page.get(output, {"place": "x"}).status_code == 404
        assert "<such>" not in text

    def test_the_graph_links_the_neighbours(self, page: Client, tenant: Tenant) -> None:
        tasks = [
            {"name": "first", "handler": HANDLER},
            {"name": "<middle>", "handler": HANDLER, "depends_on": ["first"]},
            {"name": "last", "handler": HANDLER, "depends_on": ["<middle>"]},
        ]
        made = service.submit_workflow(tenant, {"name": "w", "tasks": tasks}, actor="test")
        text = page.get(reverse("admin:slackwater_tasks_task_change", args=[made.task_ids[1]])).content.decode()
        svg = re.search(r"<svg class=\"sw-graph\".*?</svg>", text, re.DOTALL)
        assert svg is not None
        for task_id in made.task_ids:
            assert reverse("admin:slackwater_tasks_task_change", args=[task_id]) in svg[0]
        assert "&lt;middle&gt;" in svg[0]
        assert "<middle>" not in text

    def test_a_list_of_tasks_costs_the_same_for_any_number(self, page: Client, tenant: Tenant) -> None:
        url = reverse("admin:slackwater_tasks_task_changelist")
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

    def test_pages_tell_what_runs_what_ended_and_what_waits(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker("node-7")
        worker.run(submit(tenant, name="done before"), took_s=2)
        worker.start(submit(tenant, name="at work"))
        submit(tenant, name="waits")
        schedule = due(tenant, name="hourly")
        fire_due()

        def text(name: str, *args: Any) -> str:
            return re.sub(r"<[^>]+>|\s+", " ", page.get(reverse(f"admin:{name}", args=args)).content.decode())

        node = text("slackwater_resources_node_change", worker.node.pk)
        assert ("at work" in node, "done before" in node, "CPU: 4 cores" in node) == (True, True, True)
        type(worker.node).objects.filter(pk=worker.node.pk).update(state="lost")
        assert "done before" in text("slackwater_resources_node_change", worker.node.pk)  # found from its end on
        type(worker.node).objects.filter(pk=worker.node.pk).update(state="active")
        client = text("slackwater_tenants_tenant_change", tenant.pk)
        assert "at work" in client
        assert re.search(r"Tasks not finished +3 ", client), client
        assert re.search(r"active +1 ", text("slackwater_tasks_line_changelist"))
        assert "in progress" in text("slackwater_schedules_schedule_changelist")
        fire = FIRES.get(schedule=schedule)
        assert fire.task_id is not None
        worker.run(fire.task_id)
        assert re.search(r"ago +succeeded ", text("slackwater_schedules_schedule_changelist"))
        made = submit_workflow(tenant, {"name": "flow", "tasks": [{"name": "a", "handler": HANDLER}]}, actor="test")
        assert re.search(r"flow +acme +waiting ", text("slackwater_tasks_workflow_changelist"))
        worker.run(made.task_ids[0], outcome=Outcome.FAILED)
        Workflow.objects.unscoped().update(  # as upkeep does
            status=ClientStatus.FAILED, finished_at=F("submitted_at") + timedelta(seconds=7)
        )
        assert re.search(r"flow +acme +failed .* 7\.0 s ", text("slackwater_tasks_workflow_changelist"))

    def test_a_waiting_task_shows_who_holds_what_it_waits_for(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker()
        held = [submit(create_tenant("greedy", "Greedy"), name="monthly report"), *(submit(tenant) for _ in range(3))]
        waiting = submit(tenant)
        assert "Held by" not in page.get(reverse("admin:slackwater_tasks_task_change", args=[waiting])).text
        worker.start(*held)
        shown = page.get(reverse("admin:slackwater_tasks_task_change", args=[waiting])).text
        assert "Held by" in shown
        assert reverse("admin:slackwater_tasks_task_change", args=[held[0]]) in shown
        assert "monthly report" in shown
        assert "greedy" in shown
        told = page.get(reverse("admin:sw_task_why", args=[waiting])).json()
        (longest, *_) = told["held_by"]
        assert (longest["waits_for"], longest["tenant"], longest["acts"]) == ("peak", "greedy", ["cancel"])
        # One that keeps checkpoints can be asked to yield; both acts ask why, and need the permission to change tasks.
        Resumable.objects.unscoped().create(
            task_id=held[0], tenant_id=LiveTask.objects.unscoped().get(pk=held[0]).tenant_id
        )
        assert "Ask to yield" in page.get(reverse("admin:slackwater_tasks_task_change", args=[waiting])).text
        viewer = staff("slackwater_tasks.view_task")
        assert "Ask to yield" not in viewer.get(reverse("admin:slackwater_tasks_task_change", args=[waiting])).text
        asked = ("yield", "asked to make room: payroll first", "Asked to yield"), ("cancel", "cancelled", "Cancel")
        for act, event, audit in asked:
            url = reverse("admin:slackwater_tasks_task_do", args=[held[0], act])
            assert viewer.post(url, {"reason": "payroll first"}).status_code == 403
            assert "Why?" in page.post(url, {"ask": "1"}).text
            assert page.post(url, {"ask": "1", "reason": "payroll first"}).status_code == 302
            assert TaskEvent.objects.unscoped().filter(task_id=held[0], reason__startswith=event).exists()
            assert LogEntry.objects.filter(object_id=str(held[0]), change_message=f"{audit}: payroll first").exists()
        assert Resumable.objects.unscoped().get(pk=held[0]).asked == Outcome.YIELDED
        assert "has been asked already" in said(
            page.post(reverse("admin:slackwater_tasks_task_do", args=[held[0], "yield"]), {"reason": "again"})
        )
        # What waits for other tasks is led to the one that runs, or waits itself.
        made = submit_workflow(tenant, {"name": "flow", "tasks": [
            {"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]},
            {"name": "c", "handler": HANDLER, "depends_on": ["b"]},
        ]}, actor="test")  # fmt: skip
        (root,) = page.get(reverse("admin:sw_task_why", args=[made.task_ids[2]])).json()["held_by"]
        assert (root["task_id"], root["state"], root["waits_for"]) == (str(made.task_ids[0]), "ready", "dependency")
        assert viewer.get(reverse("admin:sw_task_why", args=[waiting])).status_code == 200
        assert staff().get(reverse("admin:sw_task_why", args=[waiting])).status_code == 403


class TestFinding:
    """Filters and search."""

    def ids(self, page: Client, **query: str) -> set[UUID]:
        """What the list of tasks shows."""
        response = page.get(reverse("admin:slackwater_tasks_task_changelist"), query)
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

    def test_by_handler_node_workflow_schedule_error_and_tenant_together(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker()
        failed, running, waiting = submit(tenant, total_attempts=1), submit(tenant), submit(tenant, tags=["nightly"])
        worker.run(failed, outcome=Outcome.FAILED, error="it timed out at last")
        worker.start(running)
        flow = submit_workflow(tenant, {"name": "flow one", "tasks": [{"name": "a", "handler": HANDLER}]})
        Task.objects.unscoped().filter(pk=waiting).update(submitted_by="schedule:each day")
        (inside,) = flow.task_ids
        everything = {failed, running, waiting, inside}
        assert self.ids(page, q=f"handler:{HANDLER}") == everything
        assert self.ids(page, q=f"handler:{HANDLER[:3]}*") == everything
        assert self.ids(page, q=f"handler:{HANDLER[:3]}") == set()
        assert self.ids(page, q=f"node:{worker.node.name}") == {failed, running}
        assert self.ids(page, q='workflow:"flow one"') == {inside}
        assert self.ids(page, q=f"workflow:{flow.workflow_id}") == {inside}
        assert self.ids(page, q='schedule:"each day"') == {waiting}
        assert self.ids(page, q=f"schedule:{make(tenant, 'each day').pk}") == {waiting}
        assert self.ids(page, q=f"schedule:{uuid4()}") == set()
        assert self.ids(page, q='error:"TIMED OUT"') == {failed}
        assert self.ids(page, q=f"tenant:{tenant.slug} handler:{HANDLER} tag:nightly") == {waiting}
        assert self.ids(page, q=f"tenant:nobody {failed}") == set()
        assert self.ids(page, q=f"tenant:{tenant.slug} {failed}") == {failed}

    def test_by_handler_typed_since_there_may_be_thousands(self, page: Client, tenant: Tenant) -> None:
        task_id = submit(tenant)
        other = submit(tenant)
        Task.objects.unscoped().filter(pk=other).update(handler="mail.send")
        assert self.ids(page, handler=HANDLER) == {task_id}
        assert self.ids(page, handler=" mail.* ") == {other}
        assert self.ids(page, handler="mail") == set()
        assert self.ids(page, handler="") == {task_id, other}
        shown = page.get(reverse("admin:slackwater_tasks_task_changelist")).text
        assert '<input type="text" name="handler"' in shown, "a field, whatever the number of handlers"

    def test_other_lists_by_the_tasks_id(self, page: Client, tenant: Tenant) -> None:
        worker = HandWorker()
        one, two = submit(tenant, total_attempts=1), submit(tenant, total_attempts=1)
        worker.run(one, two, outcome=Outcome.FAILED, error="no")
        for model in ("deadletter", "attempt"):
            url = reverse(f"admin:slackwater_tasks_{model}_changelist")
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
