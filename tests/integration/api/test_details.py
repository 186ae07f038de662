"""Small things a client of the API relies on: what errors say, what lists can be narrowed by, what limits tell."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
import redis
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.utils import timezone

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category, Outcome
from slackwater_monitoring.models import Delivery
from slackwater_resources.models import Handler
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_tasks.control.lines import set_line_paused
from slackwater_tasks.graph import cache, relatives
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import DeadLetter, IdempotencyKey, Line, Task
from slackwater_tasks.submission.service import submit, submit_workflow
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.scoping import tenant_scope
from slackwater_tenants.services import set_paused
from tests.support.api import HANDLER, ApiClient, client_of, forget_lookups, furnish
from tests.support.hand_worker import HandWorker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> ApiClient:
    forget_lookups()
    furnish()
    return client_of("acme")


def ids(client: ApiClient, path: str, name: str = "name") -> list[Any]:
    """What a list shows."""
    answer = client.get(path)
    assert answer.status == 200, answer.body
    return [item[name] for item in answer.body["items"]]


# -- idempotency ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/tasks", "/workflows"])
def test_an_idempotency_key_is_the_same_in_the_header_and_in_the_body(acme: ApiClient, path: str) -> None:
    body: dict[str, Any] = {"handler": HANDLER, "args": [1]}
    if path == "/workflows":
        body = {"name": "w", "tasks": [{"name": "a", **body}]}
    first = acme.post(path, body, Idempotency_Key="k")
    for again in (
        acme.post(path, {**body, "idempotency_key": "k"}),
        acme.post(path, {**body, "idempotency_key": "k"}, Idempotency_Key="k"),
    ):
        assert (again.status, again.body["id"], again.body["created"]) == (200, first.body["id"], False)
    changed = {"args": [2]} if path == "/tasks" else {"name": "v"}
    assert acme.post(path, {**body, **changed, "idempotency_key": "k"}).code == "idempotency_mismatch"


@pytest.mark.django_db(transaction=True)
def test_repeats_at_the_same_moment_give_one_task(acme: ApiClient) -> None:
    """The first holds its transaction open until the others have begun: they wait for it, and get its answer."""
    body, many = {"handler": HANDLER}, 6
    with ThreadPoolExecutor(many) as pool:

        def repeat(_: int) -> Any:
            try:
                return ApiClient(acme.tenant, acme.key, acme.text).post("/tasks", body, Idempotency_Key="k")
            finally:
                connections.close_all()

        with transaction.atomic():
            first = submit(acme.tenant, body, actor="first", idempotency_key="k")
            later = [pool.submit(repeat, n) for n in range(many)]
            wait_until(lambda: waiting_for_locks() == many, message="all others wait")
        answers = [one.result() for one in later]
    assert {answer.status for answer in answers} == {200}
    assert {answer.body["id"] for answer in answers} == {str(first.task_ids[0])}
    assert Task._plain.count() == 1


def waiting_for_locks() -> int:
    """Sessions of this database that wait for another's transaction."""
    with connect() as conn:
        row = conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.django_db(transaction=True)
def test_an_idempotency_key_is_kept_for_the_configured_time(acme: ApiClient) -> None:
    first = acme.post("/tasks", {"handler": HANDLER}, Idempotency_Key="k").body["id"]
    upkeep = LedgerUpkeep(SchedulerConf(idempotency_keys_s=3_600.0), lambda _: None)
    for hours, gone in ((0.9, 0), (1.1, 1)):
        IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(hours=hours))
        assert upkeep.forget_keys() == gone
    upkeep.db.close()
    again = acme.post("/tasks", {"handler": HANDLER}, Idempotency_Key="k")
    assert (again.status, again.body["id"] != first) == (201, True)


# -- what errors say --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/tasks", "GET, POST, HEAD"),
        ("POST", "/limits", "GET, HEAD"),
        ("OPTIONS", "/limits", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_there_is_answered_with_those_that_are(
    acme: ApiClient, method: str, path: str, allowed: str
) -> None:
    answer = acme.call(method, path)
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert set(answer.headers["Allow"].split(", ")) == set(allowed.split(", "))


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("state=flying", "state", "blocked, scheduled, ready"),
        ("status=idle", "status", "waiting, in_progress, done, failed"),
        ("category=soon", "category", "urgent, delayable"),
    ],
)
def test_a_word_that_is_no_choice_is_answered_with_the_choices(
    acme: ApiClient, query: str, field: str, words: str
) -> None:
    answer = acme.get(f"/tasks?{query}")
    assert (answer.status, answer.body["field"]) == (422, field)
    assert words in answer.body["detail"]


def test_a_status_filter_takes_the_word_that_tasks_show(acme: ApiClient) -> None:
    assert acme.get("/tasks?status=in%20progress,waiting").status == 200
    task_id = acme.task()
    assert ids(acme, "/tasks?status=waiting,in%20progress", "id") == [task_id]
    assert ids(acme, "/tasks?status=in%20progress", "id") == []


def test_a_misspelt_field_is_told_what_was_meant(acme: ApiClient) -> None:
    for name, meant in (("handlr", "handler"), ("tag", "tags"), ("depends-on", "depends_on")):
        answer = acme.post("/tasks", {"handler": HANDLER, name: []})
        assert answer.body["field"] == name
        assert f"did you mean {meant}?" in answer.body["detail"]
    assert "did you mean" not in acme.post("/tasks", {"handler": HANDLER, "zzz": 1}).body["detail"]


def test_a_conflict_names_the_state_as_the_task_shows_it(acme: ApiClient) -> None:
    task_id = acme.task()
    acme.post(f"/tasks/{task_id}/cancel")
    late = acme.post(f"/tasks/{task_id}/cancel")
    assert (late.code, late.body["state"]) == ("conflict", "cancelled")
    assert acme.patch(f"/tasks/{task_id}", {"priority": 1}).body["state"] == "cancelled"


def test_a_key_is_not_offered_a_scope_that_no_tenant_can_give(acme: ApiClient) -> None:
    for scopes in ([], ["fly"], ["read", "fly"]):
        answer = acme.post("/keys", {"name": "k", "scopes": scopes})
        assert (answer.status, answer.body["field"]) == (422, "scopes")
        assert "operate" not in answer.body["detail"]


def test_a_schedule_whose_end_has_passed_is_told_so(acme: ApiClient) -> None:
    daily = {"name": "d", "kind": "daily", "task": {"handler": HANDLER}, "end_at": "2020-01-01T00:00:00Z"}
    assert acme.post("/schedules", daily).body["field"] == "end_at"


def test_a_reason_that_is_cut_says_so(acme: ApiClient) -> None:
    for length, ending in ((150, "xx"), (400, "x…")):
        task_id = UUID(acme.task(total_attempts=1))
        worker = HandWorker(f"hand-{length}")
        worker.end(worker.start(task_id), Outcome.FAILED, error="Traceback\nValueError: " + "x" * length)
        reason = acme.get(f"/tasks/{task_id}").body["reason"]
        assert reason.startswith("failed: ValueError: xxx")
        assert reason.endswith(ending)
        assert len(reason) <= 200


# -- what lists can be narrowed by ------------------------------------------------------------------------------------
def test_schedules_are_narrowed_by_kind_handler_and_pause(acme: ApiClient) -> None:
    one = {"name": "a", "kind": "daily", "task": {"handler": HANDLER}}
    acme.post("/schedules", one)
    acme.post("/schedules", {**one, "name": "b", "paused": True})
    acme.post("/schedules", {**one, "name": "c", "kind": "interval", "rule": {"every_s": 60}})
    assert ids(acme, "/schedules?kind=daily") == ["a", "b"]
    assert ids(acme, "/schedules?paused=true") == ["b"]
    assert ids(acme, "/schedules?paused=false&kind=daily") == ["a"]
    assert ids(acme, f"/schedules?handler={HANDLER}&name=c") == ["c"]
    assert ids(acme, "/schedules?handler=none") == []
    for query, field in (("kind=hourly", "kind"), ("paused=yes", "paused"), ("size=1", "size")):
        assert acme.get(f"/schedules?{query}").body["field"] == field


def test_firings_are_narrowed_by_outcome_and_time(acme: ApiClient) -> None:
    made = acme.post("/schedules", {"name": "a", "kind": "daily", "task": {"handler": HANDLER}}).body["id"]
    now = timezone.now().replace(microsecond=0)
    for hours, outcome in ((3, "submitted"), (2, "missed"), (1, "failed")):
        at = now - timedelta(hours=hours)
        ScheduleFire._plain.create(
            schedule_id=UUID(made), tenant=acme.tenant, fire_at=at, due_at=at, fired_at=at, lateness_ms=0,
            outcome=outcome, version=1,
        )  # fmt: skip
    path = f"/schedules/{made}/fires"
    assert ids(acme, path, "outcome") == ["failed", "missed", "submitted"]
    assert ids(acme, f"{path}?outcome=missed,failed", "outcome") == ["failed", "missed"]
    since = (now - timedelta(hours=2)).isoformat().replace("+", "%2B")
    assert ids(acme, f"{path}?fire_after={since}", "outcome") == ["failed", "missed"]
    assert ids(acme, f"{path}?fire_before={since}", "outcome") == ["submitted"]
    assert acme.get(f"{path}?outcome=lost").body["detail"].startswith("must be one of submitted, missed")


def test_workflows_and_scripts_are_narrowed_by_name(acme: ApiClient) -> None:
    for name in ("a", "b"):
        acme.post("/workflows", {"name": name, "tasks": [{"name": "t", "handler": HANDLER}]})
        acme.post("/scripts", {"name": name, "content": f"#!/bin/sh\necho {name}\n"})
    assert ids(acme, "/workflows?name=a") == ["a"]
    assert ids(acme, "/workflows?submitted_before=2020-01-01T00:00:00Z") == []
    assert ids(acme, "/workflows?submitted_after=2020-01-01T00:00:00Z") == ["b", "a"]
    assert acme.get("/workflows?submitted_after=soon").body["field"] == "submitted_after"
    assert ids(acme, "/scripts?name=b") == ["b"]


def test_dead_letters_are_narrowed_by_what_died_and_of_what(acme: ApiClient) -> None:
    for name, outcome in (("a", Outcome.FAILED), ("b", Outcome.CAP_EXCEEDED)):
        task_id = UUID(acme.task(name=name, tags=[f"tag-{name}"]))
        DeadLetter._plain.create(task_id=task_id, tenant=acme.tenant, outcome=outcome, reason="r")
    assert ids(acme, "/dead-letters?outcome=cap_exceeded,worker_lost") == ["b"]
    assert ids(acme, f"/dead-letters?handler={HANDLER}&tag=tag-a") == ["a"]
    assert ids(acme, "/dead-letters?name=b") == ["b"]
    assert ids(acme, "/dead-letters?at_before=2020-01-01T00:00:00Z") == []
    assert acme.get("/dead-letters?outcome=bored").body["field"] == "outcome"


def test_a_webhooks_log_is_narrowed_by_event_and_task_and_tells_times_as_all_else_does(
    acme: ApiClient,
) -> None:
    hook = acme.post("/webhooks", {"url": "https://example.org/h", "events": ["task.failed"]}).body["id"]
    task_id = acme.task()
    for event, of, log in (
        ("task.failed", UUID(task_id), [{"at": 0.5, "status": 204, "error": "", "ms": 3}]),
        ("ping", None, []),
    ):
        Delivery._plain.create(
            subscription_id=UUID(hook), tenant=acme.tenant, event=event, task_id=of, payload="{}", log=log,
            state="delivered", tries_left=0, next_attempt_at=timezone.now(),
        )  # fmt: skip
    path = f"/webhooks/{hook}/deliveries"
    assert ids(acme, f"{path}?event=ping", "event") == ["ping"]
    found = acme.get(f"{path}?task={task_id}&state=delivered,failed").body["items"]
    assert [item["event"] for item in found] == ["task.failed"]
    assert found[0]["log"][0]["at"] == "1970-01-01T00:00:00.500000Z"
    assert acme.get(f"{path}?event=task.exploded").body["field"] == "event"
    assert acme.get(f"{path}?task=1").body["field"] == "task"


# -- limits -----------------------------------------------------------------------------------------------------------
def test_limits_tell_every_number_of_the_plan_that_binds_a_client(acme: ApiClient) -> None:
    told = acme.get("/limits").body["limits"]
    own = {"id", "slug", "name", "created_at", "price_micros_per_attempt", "price_permille"}
    assert set(told) == {field.name for field in Plan._meta.fields} - own


def test_the_largest_graph_of_a_new_plan_can_be_handed_in_at_once() -> None:
    assert Plan().burst >= Plan().max_dag_tasks


# -- the graph right after the submission -----------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_the_first_question_about_a_large_graph_reads_no_edge(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_lookups()
    furnish()
    tenant = client_of("acme").tenant
    monkeypatch.setattr(relatives, "LARGE", 2)
    monkeypatch.setattr(relatives, "AT_ONCE", 2)
    relatives.kept.forget()
    names = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
    items = [{"name": name, "handler": HANDLER, "depends_on": needs} for name, needs in names.items()]
    found = submit_workflow(tenant, {"name": "w", "tasks": items})
    a, b, c, d = found.task_ids

    def refuse(*args: Any) -> Any:
        raise AssertionError("the edges are read")

    read = relatives.of_workflow
    with tenant_scope(tenant.pk):
        monkeypatch.setattr(relatives, "of_workflow", refuse)
        here = relatives.graph(b)
        relatives.kept.forget()
        elsewhere = relatives.graph(b)  # what another process finds in Redis
        relatives.kept.forget()
        monkeypatch.setattr(relatives, "of_workflow", read)
        monkeypatch.setattr(cache, "get", lambda *args: None)
        from_the_rows = relatives.graph(b)
    assert here == elsewhere == from_the_rows
    assert (here["ancestors"], here["descendants"], here["depth"]) == ([str(a)], [str(d)], 2)
    assert str(c) not in here["topological_order"]


@pytest.mark.django_db(transaction=True)
def test_a_large_graph_that_its_caller_takes_back_is_not_kept(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_lookups()
    furnish()
    tenant = client_of("acme").tenant
    monkeypatch.setattr(relatives, "AT_ONCE", 1)
    relatives.kept.forget()
    items = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]
    with transaction.atomic():
        submit_workflow(tenant, {"name": "w", "tasks": items})
        transaction.set_rollback(True)
    assert not relatives.kept._shapes
    submit_workflow(tenant, {"name": "w", "tasks": items})
    assert len(relatives.kept._shapes) == 1


# -- pausing one's own ------------------------------------------------------------------------------------------------
def paused(answer: Any) -> tuple[bool, str | None]:
    """Whether, and by whom."""
    assert answer.status == 200, answer.body
    return answer.body["paused"], answer.body["paused_by"]


def test_an_organisation_pauses_itself_and_goes_on(acme: ApiClient) -> None:
    acme.task()
    assert paused(acme.get("/organization")) == (False, None)
    assert paused(acme.patch("/organization", {"paused": True})) == (True, "organization")
    assert paused(acme.patch("/organization", {"paused": True})) == (True, "organization")
    assert acme.get("/queues").body["items"][0]["paused_by"] == "organization"
    assert acme.patch("/organization", {"name": "New"}).body["paused"] is True
    assert paused(acme.patch("/organization", {"paused": False})) == (False, None)
    assert Tenant.objects.get(slug="acme").name == "New"
    for body in ({"paused": 1}, {"paused": None}, {"name": "Other", "paused": "no"}):
        assert acme.patch("/organization", body).body["field"] == "paused"
    assert acme.patch("/organization", {}).status == 422
    assert Tenant.objects.get(slug="acme").name == "New"


def test_who_runs_the_platform_has_the_last_word_on_a_tenant(acme: ApiClient) -> None:
    tenant = Tenant.objects.get(slug="acme")
    acme.patch("/organization", {"paused": True})
    assert set_paused(tenant, paused=True), "the platform's pause takes the place of the tenant's own"
    assert not set_paused(tenant, paused=True)
    forget_lookups()
    refused = acme.patch("/organization", {"paused": False})
    assert (refused.status, refused.code, refused.body["field"]) == (403, "not_granted", "paused")
    assert paused(acme.patch("/organization", {"paused": True})) == (True, "platform")
    assert set_paused(tenant, paused=False)
    assert not set_paused(tenant, paused=False)
    forget_lookups()
    assert paused(acme.get("/organization")) == (False, None)


def test_a_line_is_paused_by_its_tenant_and_by_the_platform(acme: ApiClient) -> None:
    path = "/queues/delayable/basic"
    assert acme.get(path).status == acme.patch(path, {"paused": True}).status == 404
    acme.task()
    tag = acme.get(path).headers["ETag"]
    assert paused(acme.call("PATCH", path, {"paused": True}, If_Match=tag)) == (True, "organization")
    assert acme.call("PATCH", path, {"paused": False}, If_Match=tag).status == 412
    assert paused(acme.patch(path, {"paused": False})) == (False, None)
    line = Line._plain.get()
    assert set_line_paused(line, paused=True)
    assert (acme.patch(path, {"paused": False}).status, paused(acme.get(path))) == (403, (True, "platform"))
    assert set_line_paused(line, paused=False)
    for body, field in (({}, "paused"), ({"paused": 0}, "paused"), ({"ready": 1}, "ready")):
        assert acme.patch(path, body).body["field"] == field
    for nowhere in ("/queues/Delayable/basic", "/queues/soon/basic", "/queues/urgent/basic"):
        assert acme.get(nowhere).status == 404


def test_an_operator_of_a_tenant_pauses_a_line_and_no_viewer_does(acme: ApiClient) -> None:
    acme.task()
    for role, status in (("viewer", 403), ("operator", 200)):
        member = acme.post("/members", {"username": role, "role": role}).body["id"]
        key = ApiClient(acme.tenant, acme.key, acme.post("/keys", {"name": role, "member": member}).body["key"])
        assert key.patch("/queues/delayable/basic", {"paused": True}).status == status
        assert key.patch("/organization", {"paused": True}).status == 403


def test_the_commands_pause_and_let_go_on(acme: ApiClient) -> None:
    acme.task()
    acme.post("/schedules", {"name": "nightly", "kind": "daily", "task": {"handler": HANDLER}})

    def said(*arguments: str) -> dict[str, Any]:
        out = StringIO()
        call_command(*arguments, "--json", stdout=out)
        found: dict[str, Any] = json.loads(out.getvalue())
        return found

    for what, shown in (
        (["tenant"], lambda: Tenant.objects.get().paused),
        (["line", "delayable/basic"], lambda: Line._plain.get(category=Category.DELAYABLE).paused),
        (["handler", HANDLER], lambda: Handler.objects.get(name=HANDLER).paused),
        (["schedule", "nightly"], lambda: Schedule._plain.get().paused),
    ):
        named = {"kind": what[0], "name": what[1] if len(what) > 1 else "acme"}
        assert said("pause", *what) == {**named, "paused": True, "changed": True}
        assert shown()
        assert said("pause", *what) == {**named, "paused": True, "changed": False}
        assert said("resume", *what) == {**named, "paused": False, "changed": True}
        assert not shown()
    for wrong, code in (
        (["line"], 2),
        (["line", "soon/basic"], 3),
        (["handler", "no"], 3),
        (["schedule", "no"], 3),
    ):
        with pytest.raises(CommandError) as caught:
            call_command("pause", *wrong)
        assert caught.value.returncode == code
