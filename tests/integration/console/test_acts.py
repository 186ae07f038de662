"""What a tenant's people do in the console: as the REST interface would have it done, and noted by their names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_monitoring.models import Delivery, Subscription
from slackwater_resources.models import Handler
from slackwater_schedules.models import Schedule
from slackwater_tasks.models import DeadLetter, Task, TaskEvent
from slackwater_tasks.submission import service
from slackwater_tenants.models import ApiKey, Membership, Tenant
from tests.support.admin import state, submit
from tests.support.api import HANDLER, ApiClient
from tests.support.console import browser_of, told
from tests.support.hand_worker import HandWorker
from tests.support.schedules import make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
HERE = "/console/acme"


def secret_of(response: Any) -> str:
    """What a page shows once."""
    found = re.search(r'id="secret"[^>]*>([^<]+)<', told(response))
    assert found is not None, told(response)
    return found[1]


def test_tasks_and_dead_letters(tenant: Tenant) -> None:
    page, worker = browser_of(tenant, "operator", "ann"), HandWorker()
    waits, others = submit(tenant, name="waits"), [submit(tenant) for _ in range(2)]
    done = page.post(f"{HERE}/tasks/{waits}/cancel/", {"reason": "the order was withdrawn"}, follow=True)
    assert "The task was cancelled" in told(done)
    assert state(waits) is TaskState.CANCELLED
    event = TaskEvent.objects.unscoped().filter(task_id=waits).latest("id")
    assert (event.actor, event.reason) == ("user:ann", "cancelled on request: the order was withdrawn")
    page.post(f"{HERE}/tasks/{waits}/retry/")
    assert state(waits) is TaskState.READY
    page.post(f"{HERE}/tasks/cancel/", {"id": [str(each) for each in others]})
    assert {state(each) for each in others} == {TaskState.CANCELLED}
    assert "filter.id" in told(page.post(f"{HERE}/tasks/cancel/", follow=True)), "nothing was chosen"
    dead = [submit(tenant, name=f"dead {n}", total_attempts=1) for n in range(3)]
    for each in dead:
        worker.run(each, outcome=Outcome.FAILED, error="ValueError: no")
    listed = told(page.get(f"{HERE}/dead-letters/?handler_pattern=demo.*"))
    assert all(f"dead {n}" in listed for n in range(3))
    page.post(f"{HERE}/dead-letters/{dead[0]}/retry/")
    page.post(f"{HERE}/dead-letters/retry/", {"id": [str(each) for each in dead[1:]]})
    assert {state(each) for each in dead} == {TaskState.READY}
    assert not DeadLetter.objects.unscoped().exists()


def test_workflows_and_schedules(tenant: Tenant) -> None:
    page = browser_of(tenant, "operator")
    tasks = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]
    made = service.submit_workflow(tenant, {"name": "flow", "tasks": tasks}, actor="test")
    assert "flow" in told(page.get(f"{HERE}/workflows/"))
    at = f"{HERE}/workflows/{made.workflow_id}/"
    assert "sw-flow-graph" in told(page.get(at))
    assert [task[1] for task in page.get(f"{at}picture.json").json()["tasks"]] == ["a", "b"]
    assert "was cancelled" in told(page.post(f"{at}cancel/", {"reason": "x"}, follow=True))
    assert {state(each) for each in made.task_ids} == {TaskState.CANCELLED}
    assert "runs again" in told(page.post(f"{at}retry/", follow=True))
    daily = make(tenant, "daily")
    at = f"{HERE}/schedules/{daily.pk}/"
    assert "daily" in told(page.get(f"{HERE}/schedules/"))
    for act, paused in (("pause", True), ("resume", False)):
        page.post(f"{at}{act}/")
        assert Schedule.objects.unscoped().get().paused is paused
    assert "It has fired." in told(page.post(f"{at}run/", follow=True))
    assert "submitted" in told(page.get(f"{at}?outcome=submitted"))
    page.post(f"{at}delete/")
    assert not Schedule.objects.unscoped().exists()


def test_keys_are_made_shown_once_replaced_and_revoked(tenant: Tenant) -> None:
    page = browser_of(tenant, "owner", "ann")
    form = {"name": "ci", "scopes": ["read"], "member_id": "ann", "expires_at": "2099-01-31T09:00"}
    text = secret_of(page.post(f"{HERE}/keys/", form))
    key = ApiKey.objects.get()
    assert (key.name, key.scopes, key.member_id is not None, str(key.expires_at)) == (
        "ci", ["read"], True, "2099-01-31 09:00:00+00:00",
    )  # fmt: skip
    assert ApiClient(tenant, key, text).get("/tasks").status == 200
    assert text not in told(page.get(f"{HERE}/keys/"))
    again = page.post(f"{HERE}/keys/", {"name": "", "scopes": ["read"]})
    assert "Name: must be a string" in told(again)
    made = secret_of(page.post(f"{HERE}/keys/{key.prefix}/rotate/"))
    assert ApiClient(tenant, key, text).get("/tasks").status == 401
    assert ApiClient(tenant, key, made).get("/tasks").status == 200
    page.post(f"{HERE}/keys/{made.split('_')[1]}/revoke/")
    assert ApiClient(tenant, key, made).get("/tasks").status == 401


def test_members_usage_and_limits(tenant: Tenant) -> None:
    page = browser_of(tenant, "owner", "ann")
    page.post(f"{HERE}/members/", {"username": "bob", "role": "operator", "email": "bob@example.org"})
    bob = Membership.objects.get(user__username="bob")
    assert bob.role == "operator"
    assert "bob" in told(page.get(f"{HERE}/members/"))
    at = f"{HERE}/members/{bob.public_id}/"
    page.post(at, {"role": "admin", "email": ""})
    bob.refresh_from_db()
    assert bob.role == "owner"
    assert "Role: must be one of" in told(page.post(at, {"role": "king"}))
    assert "Name: this name is taken" in told(page.post(f"{HERE}/members/", {"username": "bob", "role": "viewer"}))
    page.post(f"{at}delete/")
    last = Membership.objects.get()
    refused = page.post(f"{HERE}/members/{last.public_id}/delete/", follow=True)
    assert "it is the last owner" in told(refused)
    HandWorker().run(submit(tenant))
    assert "to pay" in told(page.get(f"{HERE}/usage/"))
    assert "since: " in told(page.get(f"{HERE}/usage/?since=2030-13-01"))
    limits = told(page.get(f"{HERE}/limits/"))
    assert "Submissions an hour" in limits
    assert "permille" not in limits
    assert "256.0\xa0KB" in limits
    assert "<dd>4 cores</dd>" in limits
    page.post(f"{HERE}/organization/pause/")
    assert "paused by the organization" in told(page.get(f"{HERE}/limits/"))
    page.post(f"{HERE}/organization/resume/")
    assert not Tenant.objects.get().paused


def test_webhooks_and_their_deliveries(tenant: Tenant) -> None:
    page = browser_of(tenant, "owner")
    form = {
        "channel": "webhook",
        "url": "https://example.org/x",
        "events": ["task.failed"],
        "handlers": "mail.*, demo.*",
    }
    assert secret_of(page.post(f"{HERE}/webhooks/", form)).startswith("whsec_")
    hook = Subscription.objects.unscoped().get()
    assert hook.handlers == ["mail.*", "demo.*"]
    assert "events" in told(page.post(f"{HERE}/webhooks/", {"channel": "webhook", "url": "https://example.org"}))
    at = f"{HERE}/webhooks/{hook.pk}/"
    page.post(f"{at}ping/")
    sent = Delivery.objects.unscoped().get()
    assert "ping" in told(page.get(at))
    sent.state = Delivery.State.FAILED
    sent.save()
    page.post(f"{at}deliveries/{sent.pk}/replay/")
    sent.refresh_from_db()
    assert sent.state == Delivery.State.PENDING
    assert secret_of(page.post(f"{at}rotate/")).startswith("whsec_")
    page.post(f"{at}disable/")
    assert not Subscription.objects.unscoped().get().enabled
    page.post(f"{at}enable/")
    page.post(f"{at}delete/")
    assert not Subscription.objects.unscoped().exists()


def test_a_form_by_handler(tenant: Tenant) -> None:
    schema = {
        "type": "object", "required": ["to", "count"], "additionalProperties": False,
        "properties": {
            "to": {"type": "string"}, "count": {"type": "integer", "minimum": 1}, "urgent": {"type": "boolean"},
            "kind": {"enum": ["a", "b"], "default": "b"}, "more": {"type": "object"},
            "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        },
    }  # fmt: skip
    Handler.objects.create(name="mail.send", schema=schema)
    page = browser_of(tenant, "operator", "ann")
    assert "mail.send" in told(page.get(f"{HERE}/submit/"))
    at = f"{HERE}/submit/mail.send/"
    empty = told(page.get(at))
    assert "<option selected>b</option>" in empty
    once = re.search(r'name="once" value="([^"]+)"', empty)
    assert once is not None
    form = {
        "arg.to": "x@example.org", "arg.count": "2", "arg.urgent": "on", "arg.kind": "a", "arg.more": '{"n": 1}',
        "arg.ratio": "0.5", "name": "from the console", "tags": "eu, nightly", "tier": "basic", "priority": "7",
        "once": once[1],
    }  # fmt: skip
    refused = told(page.post(at, {**form, "arg.count": "none"}))
    assert "kwargs.count" in refused
    assert "x@example.org" in refused, "what was typed stays"
    assert "At the most" in told(page.post(at, {**form, "quote": "1"}))
    assert not Task.objects.unscoped().exists()
    first, second = page.post(at, form), page.post(at, form)
    assert first["Location"] == second["Location"], "sent twice, submitted once"
    task = Task.objects.unscoped().get()
    assert task.kwargs == {
        "to": "x@example.org", "count": 2, "urgent": True, "kind": "a", "more": {"n": 1}, "ratio": 0.5,
    }  # fmt: skip
    assert (task.name, task.tags, task.priority, task.submitted_by) == (
        "from the console",
        ["eu", "nightly"],
        7,
        "user:ann",
    )
    plain = {"arguments": '{"x": 1}'}
    assert page.post(f"{HERE}/submit/{HANDLER}/", plain).status_code == 302
    assert "kwargs" in told(page.post(f"{HERE}/submit/{HANDLER}/", {"arguments": "{"}))
    assert page.get(f"{HERE}/submit/no.such/").status_code == 404
