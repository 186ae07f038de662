"""Workflows, scripts, tiers, nodes, lines and limits over REST."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_ext.core.states import TaskState
from slackwater_resources.models import Node, Tier
from slackwater_tasks.models import LiveTask, Task
from tests.support.api import HANDLER, ApiClient, client_of

pytestmark = pytest.mark.django_db

DIAMOND = {
    "name": "photo",
    "tasks": [
        {"name": "fetch", "handler": HANDLER},
        {"name": "small", "handler": HANDLER, "depends_on": ["fetch"]},
        {"name": "large", "handler": HANDLER, "depends_on": ["fetch"]},
        {"name": "publish", "handler": HANDLER, "depends_on": ["small", "large"]},
    ],
}


def test_a_workflow_is_stored_and_counted_by_state(acme: ApiClient) -> None:
    answer = acme.post("/workflows", DIAMOND)
    assert (answer.status, len(answer.body["task_ids"])) == (201, 4)
    workflow_id = answer.body["id"]
    assert answer.headers["Location"] == f"/api/v1/workflows/{workflow_id}"
    shown = acme.get(f"/workflows/{workflow_id}").body
    assert (shown["name"], shown["task_count"], shown["edge_count"], shown["status"]) == (
        "photo",
        4,
        4,
        "waiting",
    )
    assert {state: n for state, n in shown["counts"].items() if n} == {"ready": 1, "blocked": 3}
    assert len(acme.get(f"/tasks?workflow_id={workflow_id}").body["items"]) == 4
    assert [row["id"] for row in acme.get("/workflows").body["items"]] == [workflow_id]


def test_a_workflow_tells_how_it_goes(acme: ApiClient) -> None:
    answer = acme.post("/workflows", DIAMOND)
    path, ids = f"/workflows/{answer.body['id']}", answer.body["task_ids"]

    def end(task_ids: list[str], state: TaskState) -> str:
        ids = [UUID(task_id) for task_id in task_ids]
        LiveTask._plain.filter(pk__in=ids).delete()
        Task._plain.filter(pk__in=ids).update(state=state, finished_at=timezone.now())
        return str(acme.get(path).body["status"])

    assert end(ids[:1], TaskState.SUCCEEDED) == "in_progress"
    assert end(ids, TaskState.SUCCEEDED) == "done"
    assert end(ids[3:], TaskState.FAILED) == "failed"


@pytest.mark.parametrize(
    ("tasks", "code", "field"),
    [
        (
            [
                {"name": "a", "handler": HANDLER, "depends_on": ["b"]},
                {"name": "b", "handler": HANDLER, "depends_on": ["a"]},
            ],
            "dependency_cycle",
            None,
        ),
        (
            [{"name": "a", "handler": HANDLER, "depends_on": ["x"]}],
            "unknown_dependency",
            "tasks[0].depends_on[0]",
        ),
        (
            [{"name": "a", "handler": HANDLER}, {"name": "a", "handler": HANDLER}],
            "duplicate_name",
            "tasks[1].name",
        ),
        ([], "invalid_input", "tasks"),
        ({"a": 1}, "invalid_input", "tasks"),
    ],
)
def test_a_wrong_graph_is_refused_whole(acme: ApiClient, tasks: object, code: str, field: str | None) -> None:
    answer = acme.post("/workflows", {"tasks": tasks})
    assert (answer.status, answer.code) == (422, code)
    if field is not None:
        assert answer.body["field"] == field
    assert Task._plain.count() == 0


def test_an_idempotent_workflow_returns_its_first_ids(acme: ApiClient) -> None:
    first, again = (acme.post("/workflows", DIAMOND, Idempotency_Key="w") for _ in range(2))
    assert (first.status, again.status, again.body) == (201, 201, first.body)


def test_a_script_is_stored_once_by_its_content(acme: ApiClient) -> None:
    text = "#!/bin/sh\necho hello\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    answer = acme.post("/scripts", {"name": "hello.sh", "content": text})
    assert (answer.status, answer.body["sha256"]) == (201, digest)
    assert answer.headers["Location"] == f"/api/v1/scripts/{digest}"
    encoded = base64.b64encode(text.encode()).decode()
    assert acme.post("/scripts", {"name": "again.sh", "content_base64": encoded}).body["sha256"] == digest
    assert [row["sha256"] for row in acme.get("/scripts").body["items"]] == [digest]
    assert acme.get(f"/scripts/{digest}").body["content"] == text
    assert acme.post("/tasks", {"script": digest}).status == 201
    assert acme.get(f"/scripts/{'0' * 64}").status == 404
    assert acme.get("/scripts/hello.sh").status == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "a", "content": 1}, "content"),
        ({"name": "a"}, "content"),
        ({"content": "x"}, "name"),
        ({"name": "a", "content": "x", "content_base64": "eA=="}, "content"),
        ({"name": "a", "content_base64": "%%"}, "content_base64"),
        ({"name": "a", "content": ""}, "content"),
        ({"name": "a/b", "content": "x"}, "name"),
        ({"name": "a", "content": "x", "mode": 1}, "mode"),
        ({"name": "a\x00", "content": "x"}, "name"),
        ({"name": "a", "content": "\ud800"}, "content"),
    ],
)
def test_a_wrong_script_names_its_field(acme: ApiClient, body: object, field: str) -> None:
    answer = acme.post("/scripts", body)
    assert (answer.status, answer.body.get("field")) == (422, field)


def test_tiers_are_those_of_the_plan_and_ones_own(acme: ApiClient) -> None:
    acme.tenant.plan.tiers = ["basic"]
    acme.tenant.plan.save()
    Tier.objects.create(slug="gpu", tenant=acme.tenant, cpu_milli=2000, memory_mb=8192)
    Tier.objects.create(slug="theirs", tenant=client_of("other").tenant, cpu_milli=1, memory_mb=1)
    items = acme.get("/tiers").body["items"]
    assert {(row["name"], row["own"]) for row in items} == {("basic", False), ("gpu", True)}


def test_nodes_of_the_cell_are_shown_with_ones_own_tasks(acme: ApiClient) -> None:
    now = timezone.now()
    for name, cell, state in [("a", "default", "active"), ("b", "far", "active"), ("c", "default", "lost")]:
        Node.objects.create(
            name=name,
            hostname="secret",
            incarnation=uuid.uuid4(),
            cell=cell,
            state=state,
            capacity=[2000, 1024, 0, 0, 0, 0],
            slots={"process": 2},
            started_at=now,
            heartbeat_at=now,
            lease_expires_at=now + timedelta(minutes=1),
        )
    LiveTask._plain.filter(pk=UUID(acme.task())).update(state=TaskState.RUNNING, node=Node.objects.get(name="a"))
    items = acme.get("/nodes").body["items"]
    assert [(row["name"], row["own_running"], row["capacity"]["cpu_milli"]) for row in items] == [("a", 1, 2000)]
    assert "secret" not in str(items)


def test_queues_count_what_stands_in_each_line(acme: ApiClient) -> None:
    acme.task(), acme.task(), acme.task(category="urgent", tier="premium")
    rows = {(row["category"], row["tier"]): row for row in acme.get("/queues").body["items"]}
    assert rows["delayable", "basic"]["ready"] == 2
    assert rows["urgent", "premium"]["ready"] == 1
    assert not rows["urgent", "premium"]["ready_is_minimum"]


def test_limits_show_the_plan_and_what_is_used(acme: ApiClient) -> None:
    plan = acme.tenant.plan
    plan.burst, plan.tasks_per_hour = 10, 10
    plan.save()
    acme.task(category="urgent"), acme.task()
    body = acme.get("/limits").body
    assert (body["plan"], body["limits"]["burst"]) == ("standard", 10)
    assert body["used"] == {
        "unfinished": 2,
        "urgent_unfinished": 1,
        "in_flight": 0,
        "submissions_available_now": 8,
    }


def test_over_the_rate_the_answer_says_when_to_come_again(acme: ApiClient) -> None:
    plan = acme.tenant.plan
    plan.burst, plan.tasks_per_hour = 2, 60
    plan.save()
    first, second = (acme.post("/tasks", {"handler": HANDLER}) for _ in range(2))
    assert (first.status, second.status) == (201, 201)
    policy = f'"submissions";q=2;w=120, "waiting";q={plan.max_waiting}'
    assert first.headers["RateLimit-Policy"] == second.headers["RateLimit-Policy"] == policy
    rates = [re.fullmatch(r'"submissions";r=(\d);t=(\d+), "waiting";r=(\d+)', one.headers["RateLimit"])
             for one in (first, second)]  # fmt: skip
    assert [rate and (rate[1], int(rate[3])) for rate in rates] == [
        ("1", plan.max_waiting - 1), ("0", plan.max_waiting - 2),
    ]  # fmt: skip
    assert all(rate and 1 <= int(rate[2]) <= 60 for rate in rates)
    answer = acme.post("/tasks", {"handler": HANDLER})
    assert (answer.status, answer.code, answer.body["title"]) == (429, "limit_exceeded", "Limit exceeded")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert answer.headers["RateLimit"] == f'"submissions";r=0;t={answer.headers["Retry-After"]}'
    assert answer.headers["RateLimit-Policy"] == '"submissions";q=2;w=120'
    assert answer.body["retry_after_s"] == int(answer.headers["Retry-After"])
    assert "RateLimit" not in acme.get("/limits").headers
    assert Task._plain.count() == 2
