"""Small things a client of the API relies on: what errors say, what lists can be narrowed by, what limits tell."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from django.db import connections, transaction
from django.utils import timezone

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome
from slackwater_tasks.graph import cache, relatives
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import IdempotencyKey, Task
from slackwater_tasks.submission.service import submit, submit_workflow
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from slackwater_tenants.models import Plan
from slackwater_tenants.scoping import tenant_scope
from tests.support.api import HANDLER, ApiClient, client_of, furnish, ids
from tests.support.hand_worker import HandWorker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db


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
        assert again.body["id"] == first.body["id"]
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
    assert {answer.status for answer in answers} == {201}
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
    assert acme.get("/tasks?status=in_progress,waiting").status == 200
    task_id = acme.task()
    assert ids(acme, "/tasks?status=waiting,in_progress", "id") == [task_id]
    assert ids(acme, "/tasks?status=in_progress", "id") == []


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


# -- limits -----------------------------------------------------------------------------------------------------------
def test_limits_tell_every_number_of_the_plan_that_binds_a_client(acme: ApiClient) -> None:
    told = acme.get("/limits").body["limits"]
    own = {"id", "slug", "name", "created_at", "price_micros_per_attempt", "price_permille"}
    columns = {field.name for field in Plan._meta.fields} - own
    assert set(told) == {"rate_window_s" if name == "rate_per_s" else name for name in columns}


def test_the_largest_graph_of_a_new_plan_can_be_handed_in_at_once() -> None:
    assert Plan().burst >= Plan().max_dag_tasks


# -- the graph right after the submission -----------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_the_first_question_about_a_large_graph_reads_no_edge(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish()
    tenant = client_of("acme").tenant
    monkeypatch.setattr(relatives, "LARGE", 2)
    monkeypatch.setattr(relatives, "PACKED_FROM", 2)
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
    furnish()
    tenant = client_of("acme").tenant
    monkeypatch.setattr(relatives, "PACKED_FROM", 1)
    relatives.kept.forget()
    items = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]
    with transaction.atomic():
        submit_workflow(tenant, {"name": "w", "tasks": items})
        transaction.set_rollback(True)
    assert not relatives.kept._shapes
    submit_workflow(tenant, {"name": "w", "tasks": items})
    assert len(relatives.kept._shapes) == 1
