"""Tasks over REST: submit, look, list, change, cancel, run again."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_ext.core.states import TaskState
from slackwater_tasks.models import DeadLetter, LiveTask, Task
from tests.support.api import HANDLER, ApiClient, client_of

pytestmark = pytest.mark.django_db


def finish(task_id: str, state: TaskState = TaskState.FAILED) -> None:
    """Put a task into a final state as the ledger holds it."""
    LiveTask._plain.filter(pk=UUID(task_id)).delete()
    Task._plain.filter(pk=UUID(task_id)).update(state=state, finished_at=timezone.now(), reason="for the test")


def test_a_task_is_stored_and_can_be_read_back(acme: ApiClient) -> None:
    fields: dict[str, Any] = {
        "handler": HANDLER, "name": "sum", "args": [1, {"a": None}], "kwargs": {"ü": "ß"}, "tier": "regular",
        "category": "urgent", "priority": 7, "delay_tolerance_s": 1.5, "on_late": "give_up", "execution_cap_s": 12,
        "total_attempts": 5, "retry": {"base_s": 1.0}, "mutex_key": "m", "mutex_limit": 2, "tags": ["a", "b"],
    }  # fmt: skip
    answer = acme.post("/tasks", fields)
    assert answer.status == 201
    assert answer.body == {"id": answer.body["id"], "task_ids": [answer.body["id"]], "created": True}
    assert answer.headers["Location"] == f"/api/v1/tasks/{answer.body['id']}"
    shown = acme.get(f"/tasks/{answer.body['id']}").body
    assert {name: shown[name] for name in fields} == fields
    assert (shown["status"], shown["state"], shown["attempts"], shown["result"]) == (
        "waiting",
        "ready",
        0,
        None,
    )
    assert shown["submitted_by"] == f"key:{acme.key.prefix}"


def test_a_list_is_stored_all_or_none(acme: ApiClient) -> None:
    answer = acme.post("/tasks", [{"handler": HANDLER, "name": "a"}, {"handler": HANDLER, "depends_on": ["a"]}])
    assert answer.status == 201
    first, second = answer.body["task_ids"]
    child = acme.get(f"/tasks/{second}").body
    assert (child["state"], child["depends_on"], child["waiting_for"]) == ("blocked", [first], 1)
    refused = acme.post("/tasks", [{"handler": HANDLER}, {"handler": HANDLER, "tier": "huge"}])
    assert (refused.status, refused.code, refused.body["field"]) == (422, "does_not_fit", "tasks[1].tier")
    assert Task._plain.count() == 2


@pytest.mark.parametrize("where", ["header", "field"])
def test_an_idempotent_repeat_gets_the_first_ids(acme: ApiClient, where: str) -> None:
    body = {"handler": HANDLER}
    headers = {"Idempotency_Key": "pay-1"} if where == "header" else {}
    if where == "field":
        body["idempotency_key"] = "pay-1"
    first, again = (acme.post("/tasks", body, **headers) for _ in range(2))
    assert (first.status, again.status) == (201, 201 if where == "header" else 200)
    assert again.body == {**first.body, "created": where == "header"}
    assert again.headers["Idempotency-Replayed"] == "true"
    other = acme.post("/tasks", {**body, "priority": 1}, **headers)
    assert (other.status, other.code, other.body["field"]) == (422, "idempotency_mismatch", "Idempotency-Key")
    assert Task._plain.count() == 1


def test_an_idempotent_list_returns_all_its_ids(acme: ApiClient) -> None:
    body = [{"handler": HANDLER}] * 3
    first, again = (acme.post("/tasks", body, Idempotency_Key="three") for _ in range(2))
    assert (first.status, again.status, again.body) == (201, 201, first.body)
    assert Task._plain.count() == 3


def test_header_and_field_must_agree(acme: ApiClient) -> None:
    answer = acme.post("/tasks", {"handler": HANDLER, "idempotency_key": "a"}, Idempotency_Key="b")
    assert (answer.status, answer.body["field"]) == (422, "idempotency_key")
    assert acme.post("/tasks", {"handler": HANDLER}, Idempotency_Key="x" * 201).status == 422


def test_lists_are_paged_by_cursor_and_neither_shift_nor_repeat(acme: ApiClient) -> None:
    ids = [acme.task(name=f"t{n}") for n in range(5)]
    first = acme.get("/tasks?limit=2").body
    acme.task(name="newcomer")
    second = acme.get(f"/tasks?limit=2&cursor={first['next_cursor']}").body
    third = acme.get(f"/tasks?limit=2&cursor={second['next_cursor']}").body
    seen = [row["id"] for page in (first, second, third) for row in page["items"]]
    assert seen == ids[::-1]
    assert third["next_cursor"] is None


def test_lists_are_narrowed_by_filters(acme: ApiClient) -> None:
    plain = acme.task(name="plain")
    tagged = acme.task(name="tagged", tags=["blue"], category="urgent", tier="premium")
    later = acme.task(start_at=(timezone.now() + timedelta(hours=1)).isoformat())
    failed = acme.task()
    finish(failed)

    def ids(query: str) -> set[str]:
        answer = acme.get(f"/tasks?{query}")
        assert answer.status == 200, answer.body
        return {row["id"] for row in answer.body["items"]}

    assert ids("state=ready") == {plain, tagged}
    assert ids("state=scheduled,failed") == {later, failed}
    assert ids("status=waiting") == {plain, tagged, later}
    assert ids("status=failed") == {failed}
    assert ids("status=in_progress,done") == set()
    assert ids("tag=blue") == ids("category=urgent") == ids("tier=premium") == ids("name=tagged") == {tagged}
    assert ids(f"handler={HANDLER}&state=failed") == {failed}
    tomorrow = (timezone.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert ids(f"submitted_after={tomorrow}") == set()
    assert ids(f"submitted_before={tomorrow}") == {plain, tagged, later, failed}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=lost", "state"), ("status=ready", "status"), ("limit=0", "limit"), ("limit=501", "limit"),
        ("limit=x", "limit"), ("limit=%D9%A3", "limit"), ("cursor=!!", "cursor"), ("cursor=AAAA", "cursor"),
        ("cursor=" + "A" * 8_004, "cursor"), ("workflow_id=1", "workflow_id"), ("submitted_after=soon", "submitted_after"),
        ("colour=red", "colour"), ("name=a%00b", "name"), ("name=%ff", "name"), ("tag=" + "x" * 64, "tag"),
        ("state=", "state"), ("workflow_id=", "workflow_id"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named(acme: ApiClient, query: str, field: str) -> None:
    answer = acme.get(f"/tasks?{query}")
    code = "does_not_fit" if query == "cursor=AAAA" else "invalid_input"
    assert (answer.status, answer.code, answer.body["field"]) == (422, code, field)


def test_a_waiting_task_is_changed_with_history(acme: ApiClient) -> None:
    task_id = acme.task(priority=1)
    answer = acme.patch(f"/tasks/{task_id}", {"priority": 9, "tags": ["x"]})
    assert (answer.status, answer.body["priority"], answer.body["tags"]) == (200, 9, ["x"])
    past = acme.get(f"/tasks/{task_id}/history").body["items"]
    assert [(entry["from"], entry["to"], entry["reason"]) for entry in past] == [
        (None, "ready", "submitted"),
        ("ready", "ready", "edited"),
    ]
    assert past[1]["detail"]["priority"] == [1, 9]
    assert past[1]["actor"] == f"key:{acme.key.prefix}"


def test_what_cannot_be_changed_is_refused(acme: ApiClient) -> None:
    task_id = acme.task()
    assert acme.patch(f"/tasks/{task_id}", {"handler": "x"}).body["field"] == "handler"
    assert acme.patch(f"/tasks/{task_id}", [1]).status == 422
    assert acme.patch(f"/tasks/{task_id}", {}).status == 422
    finish(task_id)
    answer = acme.patch(f"/tasks/{task_id}", {"priority": 1})
    assert (answer.status, answer.code) == (409, "conflict")


def test_a_waiting_task_is_cancelled_at_once(acme: ApiClient) -> None:
    task_id = acme.task()
    answer = acme.post(f"/tasks/{task_id}/cancel")
    assert (answer.status, answer.body["state"], answer.body["status"]) == (200, "cancelled", "failed")
    again = acme.post(f"/tasks/{task_id}/cancel")
    assert (again.status, again.code) == (409, "conflict")


def test_cancelling_with_dependants_takes_them_along(acme: ApiClient) -> None:
    parent, child = acme.post(
        "/tasks",
        [
            {"handler": HANDLER, "name": "p"},
            {"handler": HANDLER, "depends_on": ["p"], "condition": "all_done"},
        ],
    ).body["task_ids"]
    assert acme.post(f"/tasks/{parent}/cancel", {"dependents": True}).status == 200
    assert acme.get(f"/tasks/{child}").body["state"] == "cancelled"
    assert acme.post(f"/tasks/{parent}/cancel", {"dependents": "yes"}).body["field"] == "dependents"
    assert acme.post(f"/tasks/{parent}/cancel", {"children": True}).body["field"] == "children"


def test_a_failed_task_runs_again_from_the_dead_letters(acme: ApiClient) -> None:
    task_id = acme.task(name="broken")
    finish(task_id)
    DeadLetter._plain.create(task_id=task_id, tenant=acme.tenant, reason="failed: no luck")
    letters = acme.get("/dead-letters").body["items"]
    assert [(letter["task_id"], letter["name"], letter["reason"]) for letter in letters] == [
        (task_id, "broken", "failed: no luck")
    ]
    answer = acme.post(f"/dead-letters/{task_id}/retry")
    assert (answer.status, answer.body["state"]) == (200, "ready")
    assert acme.get("/dead-letters").body["items"] == []
    assert acme.post(f"/dead-letters/{task_id}/retry").status == 404
    past = acme.get(f"/tasks/{task_id}/history").body["items"]
    assert (past[-1]["from"], past[-1]["to"], past[-1]["reason"]) == (
        "failed", "ready", "run again from the dead letters",
    )  # fmt: skip
    assert acme.post(f"/tasks/{task_id}/retry").code == "conflict"


def test_dead_letters_are_paged(acme: ApiClient) -> None:
    ids = [acme.task() for _ in range(3)]
    for task_id in ids:
        finish(task_id)
        DeadLetter._plain.create(task_id=task_id, tenant=acme.tenant, reason="r")  # one transaction: one moment
    seen, cursor = [], ""
    for _ in range(3):
        page = acme.get(f"/dead-letters?limit=1&cursor={cursor}").body
        seen += [row["task_id"] for row in page["items"]]
        cursor = page["next_cursor"]
    assert sorted(seen) == sorted(ids)
    assert cursor is None


def test_waiting_for_a_final_task_answers_at_once(acme: ApiClient) -> None:
    task_id = acme.task()
    finish(task_id)
    assert acme.get(f"/tasks/{task_id}?wait=60").body["state"] == "failed"
    for wrong in ("x", "-1", "1e3", "60.1", "", "nan"):
        answer = acme.get(f"/tasks/{task_id}?wait={wrong}")
        assert (answer.status, answer.body["field"]) == (422, "wait")
    live = acme.task()
    assert acme.get(f"/tasks/{live}?wait=0.1").body["state"] == "ready"


def test_attempts_and_logs_of_a_fresh_task_are_empty(acme: ApiClient) -> None:
    task_id = acme.task()
    assert acme.get(f"/tasks/{task_id}/attempts").body["items"] == []
    assert acme.get(f"/tasks/{task_id}/logs?stream=stdout&fence=1").body["items"] == []
    assert acme.get(f"/tasks/{task_id}/logs?stream=both").body["field"] == "stream"
    assert acme.get(f"/tasks/{task_id}/logs?fence=x").body["field"] == "fence"


def test_what_does_not_exist_is_404(acme: ApiClient) -> None:
    unknown = uuid.uuid4()
    for method, path in [
        ("GET", f"/tasks/{unknown}"), ("GET", f"/tasks/{unknown}?wait=5"), ("PATCH", f"/tasks/{unknown}"),
        ("POST", f"/tasks/{unknown}/cancel"), ("POST", f"/tasks/{unknown}/retry"), ("GET", f"/tasks/{unknown}/logs"),
        ("GET", "/tasks/42"), ("GET", "/tasks/" + "0" * 5000), ("GET", "/nothing"),
        ("POST", "/tasks/%C2%A5%0A/retry"),
    ]:  # fmt: skip
        answer = acme.call(method, path, {"priority": 1} if method == "PATCH" else None)
        assert (answer.status, answer.code) == (404, "not_found"), path


def test_a_result_is_deleted_before_its_retention_and_nothing_else_of_its_task(
    acme: ApiClient,
) -> None:
    task_id = acme.task()
    finish(task_id, TaskState.SUCCEEDED)
    Task._plain.filter(pk=UUID(task_id)).update(result=5)
    assert client_of("globex").call("DELETE", f"/tasks/{task_id}/result").status == 404
    assert acme.get(f"/tasks/{task_id}").body["result"] == 5
    assert acme.call("DELETE", f"/tasks/{task_id}/result").status == 204
    shown = acme.get(f"/tasks/{task_id}").body
    assert (shown["result"], shown["status"]) == (None, "done")
    assert acme.call("DELETE", f"/tasks/{task_id}/result").status == 204, "what is gone may be deleted again"
