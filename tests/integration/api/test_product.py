"""What holds for every endpoint alike: ETags, sparse answers, sorting; and many tasks done at once by a filter."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.core.management import call_command
from django.utils import timezone

from scheduler_ext.core.states import TaskState
from slackwater_api.http.pagination import encode
from slackwater_tasks.models import DeadLetter, LiveTask, Task, TaskEvent
from slackwater_tasks.runtime.sealed import reveal
from slackwater_tenants.models import CurrentCounter, TenantCounter
from tests.support.api import HANDLER, ApiClient, client_of, forget_lookups

pytestmark = pytest.mark.django_db


def end(client: ApiClient, task_id: str, state: TaskState = TaskState.FAILED) -> None:
    """Let a task have ended."""
    LiveTask._plain.filter(pk=UUID(task_id)).delete()
    Task._plain.filter(pk=UUID(task_id)).update(state=state, finished_at=timezone.now())
    TenantCounter.objects.filter(tenant=client.tenant).update(unfinished=0)


# -- entity tags ------------------------------------------------------------------------------------------------------
def test_what_has_not_changed_is_not_sent_again(acme: ApiClient) -> None:
    path = f"/tasks/{acme.task()}"
    tag = acme.get(path).headers["ETag"]
    again = acme.get(path, If_None_Match=f'"other", W/{tag}')
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    assert "Content-Type" not in again.headers, "there is nothing that has a type"
    assert "no-cache" in again.headers["Cache-Control"]
    assert acme.get(path, If_None_Match="*").status == 304
    acme.patch(path, {"priority": 7})
    changed = acme.get(path, If_None_Match=tag)
    assert (changed.status, changed.body["priority"]) == (200, 7)
    assert changed.headers["ETag"] != tag
    assert acme.call("HEAD", path, If_None_Match=changed.headers["ETag"]).status == 304


def test_a_change_is_refused_when_the_task_is_not_as_it_was_read(acme: ApiClient) -> None:
    path = f"/tasks/{acme.task()}"
    tag = acme.get(path).headers["ETag"]
    changed = acme.call("PATCH", path, {"priority": 1}, If_Match=tag)
    assert changed.status == 200
    assert changed.headers["ETag"] == acme.get(path).headers["ETag"]
    late = acme.call("PATCH", path, {"priority": 2}, If_Match=tag)
    assert (late.status, late.code, late.body["etag"]) == (
        412,
        "precondition_failed",
        changed.headers["ETag"],
    )
    assert acme.get(path).body["priority"] == 1
    # A weak tag is no proof that nothing has changed.
    assert acme.call("PATCH", path, {"priority": 2}, If_Match=f"W/{changed.headers['ETag']}").status == 412
    assert acme.call("PATCH", path, {"priority": 2}, If_Match="*").status == 200
    wrong = acme.call("PATCH", path, {"priority": 3}, If_Match="abc")
    assert (wrong.status, wrong.body["field"]) == (422, "If-Match")


def test_schedules_and_webhooks_are_changed_and_removed_as_they_were_read(acme: ApiClient) -> None:
    schedule = {"name": "s", "kind": "daily", "rule": {"times": ["07:00"]}, "task": {"handler": HANDLER}}
    hook = {"url": "https://example.org", "events": ["task.failed"]}
    for path, body, change in (
        ("/schedules", schedule, {"paused": True}),
        ("/webhooks", hook, {"enabled": False}),
    ):
        one = f"{path}/{acme.post(path, body).body['id']}"
        tag = acme.get(one).headers["ETag"]
        assert acme.call("PATCH", one, change, If_Match=tag).status == 200, path
        assert acme.call("PATCH", one, change, If_Match=tag).status == 412, path
        assert acme.call("DELETE", one, If_Match=tag).status == 412, path
        assert acme.call("DELETE", one, If_Match=acme.get(one).headers["ETag"]).status == 204, path


def test_secrets_are_replaced_and_forgotten_as_they_were_read(acme: ApiClient) -> None:
    secret, other = {"name": "MAIL", "value": "the first"}, {"name": "MAIL", "value": "the second"}
    assert acme.post("/secrets", secret, If_Match='"none"').status == 412  # there is nothing to replace
    assert acme.get("/secrets").body["items"] == []
    assert acme.post("/secrets", secret).status == 201
    tag = acme.get("/secrets/MAIL").headers["ETag"]
    assert acme.post("/secrets", other, If_Match=tag).status == 200
    assert acme.post("/secrets", secret, If_Match=tag).status == 412
    assert reveal(acme.tenant.pk, "MAIL") == "the second"
    assert acme.call("DELETE", "/secrets/MAIL", If_Match=tag).status == 412
    tag = acme.get("/secrets/MAIL").headers["ETag"]
    assert acme.call("DELETE", "/secrets/MAIL", If_Match=tag).status == 204
    assert acme.get("/secrets/MAIL").status == 404
    assert acme.call("DELETE", "/secrets/MAIL", If_Match=tag).status == 404


def test_keys_are_rotated_and_revoked_as_they_were_read(acme: ApiClient) -> None:
    one = f"/keys/{acme.post('/keys', {'name': 'k', 'scopes': ['read']}).body['id']}"
    tag = acme.get(one).headers["ETag"]
    assert acme.post(f"{one}/rotate", {"overlap_s": 60}, If_Match='"other"').status == 412
    assert len(acme.get("/keys?sort=name").body["items"]) == 2
    assert acme.post(f"{one}/rotate", {"overlap_s": 60}, If_Match=tag).status == 201
    assert acme.post(f"{one}/rotate", {"overlap_s": 60}, If_Match=tag).status == 412  # it has an end now
    assert acme.call("DELETE", one, If_Match=tag).status == 412
    assert acme.get(one).body["revoked_at"] is None
    assert acme.call("DELETE", one, If_Match=acme.get(one).headers["ETag"]).status == 204
    assert acme.get(one).body["revoked_at"] is not None
    assert acme.call("DELETE", "/keys/999999", If_Match=tag).status == 404


# -- sparse answers ---------------------------------------------------------------------------------------------------
def test_only_the_fields_asked_for_are_answered(acme: ApiClient) -> None:
    task_id = acme.task(name="x")
    one = acme.get(f"/tasks/{task_id}?fields=id,name")
    assert one.body == {"id": task_id, "name": "x"}
    assert one.headers["Content-Type"] == "application/vnd.slackwater.partial+json"
    listed = acme.get("/tasks?fields=name").body
    assert listed == {"items": [{"name": "x"}], "next_cursor": None}
    assert acme.get("/tiers?fields=name&sort=-name").body["items"][0] == {"name": "regular"}
    wrong = acme.get("/tasks?fields=id,nonsense")
    assert (wrong.status, wrong.body["field"]) == (422, "fields")
    assert acme.get("/tiers?nonsense=1").body["field"] == "nonsense"


# -- sorting ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "sort", ["priority", "-priority", "name", "-name", "finished_at", "-finished_at", "submitted_at"]
)
def test_pages_in_any_order_hold_each_task_once(acme: ApiClient, sort: str) -> None:
    ids = [acme.task(priority=n % 3, name=f"{'b' if n % 2 else 'a'}',ü{n % 3}") for n in range(8)]
    for task_id in ids[:3]:
        end(acme, task_id)
    seen: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = acme.get(f"/tasks?limit=3&sort={sort}&cursor={cursor}").body
        seen += page["items"]
        cursor = page["next_cursor"]
    assert sorted(row["id"] for row in seen) == sorted(ids)
    name = sort.removeprefix("-")
    values = [row[name] for row in seen if row[name] is not None]
    assert values == sorted(values, reverse=sort.startswith("-"))
    assert [row[name] is None for row in seen] == sorted(row[name] is None for row in seen)


def every(client: ApiClient, path: str, name: str) -> list[Any]:
    """What all pages of a list show, two a page."""
    seen: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = client.get(f"{path}&limit=2&cursor={cursor}")
        assert page.status == 200, page.body
        seen += [row[name] for row in page.body["items"]]
        cursor = page.body["next_cursor"]
    return seen


@pytest.mark.parametrize("kind", ["tasks", "workflows", "webhooks"])
def test_what_has_no_text_to_sort_by_comes_last_and_none_is_missed(acme: ApiClient, kind: str) -> None:
    field = "url" if kind == "webhooks" else "name"
    values = ["https://example.org/b", None, "https://example.org/a", None, "https://example.org/c", None, None]
    for number, value in enumerate(values):
        given = {field: value} if value else {}
        body = {
            "tasks": {"handler": HANDLER, "tags": ["T"], **given},
            "workflows": {"tasks": [{"name": "t", "handler": HANDLER}], "tags": ["T"], **given},
            "webhooks": {"channel": "webhook" if value else "email", "events": ["task.failed"],
                         "tags": [f"t{number}"], **given},
        }[kind]  # fmt: skip
        assert acme.post(f"/{kind}", body).status == 201
    path = f"/{kind}?" if kind == "webhooks" else f"/{kind}?tag=T&"
    there = sorted(value for value in values if value)
    assert every(acme, f"{path}sort={field}", field) == [*there, *[None] * 4]
    assert every(acme, f"{path}sort=-{field}", field) == [*there[::-1], *[None] * 4]
    assert len(set(every(acme, f"{path}sort={field}", "id"))) == len(values)


@pytest.mark.parametrize("letter", ["a", "\u00e4", "\U0001f600", '"'])
def test_a_cursor_holds_the_longest_name(acme: ApiClient, letter: str) -> None:
    names = [letter * 199 + end for end in "xyz"]
    for name in names:
        acme.task(name=name)
    assert every(acme, "/tasks?sort=name", "name") == names


def test_a_cursor_belongs_to_its_order(acme: ApiClient) -> None:
    for _ in range(2):
        acme.task()
    cursor = acme.get("/tasks?limit=1&sort=priority").body["next_cursor"]
    answer = acme.get(f"/tasks?limit=1&sort=name&cursor={cursor}")
    assert (answer.status, answer.body["field"]) == (422, "cursor")
    assert acme.get("/tasks?sort=reason").body["field"] == "sort"


# -- many at once -----------------------------------------------------------------------------------------------------
def test_a_dry_run_tells_and_changes_nothing(acme: ApiClient) -> None:
    ids = [acme.task(tags=["t"]) for _ in range(3)]
    acme.task()
    before = TaskEvent._plain.count()
    told = acme.post("/tasks/cancel", {"filter": {"tag": "t"}, "dry_run": True, "limit": 2}).body
    assert (told["matched"], told["more"], told["task_ids"], told["dry_run"]) == (3, True, ids[:2], True)
    assert TaskEvent._plain.count() == before
    assert LiveTask._plain.count() == 4


def test_what_matches_is_cancelled_and_nothing_else(acme: ApiClient) -> None:
    other = client_of("other")
    theirs = other.task(tags=["t"])
    ids = [acme.task(tags=["t"]) for _ in range(3)]
    kept = acme.task()
    first = acme.post("/tasks/cancel", {"filter": {"tag": "t", "status": ["waiting", "failed"]}, "limit": 2}).body
    assert (sorted(first["task_ids"]), first["more"], first["asked_task_ids"]) == (ids[:2], True, [])
    rest = acme.post("/tasks/cancel", {"filter": {"tag": "t"}}).body
    assert (rest["task_ids"], rest["more"], rest["matched"]) == (ids[2:], False, 1)
    assert {acme.get(f"/tasks/{task_id}").body["state"] for task_id in ids} == {"cancelled"}
    assert acme.get(f"/tasks/{ids[0]}/history").body["items"][-1]["actor"] == f"key:{acme.key.prefix}"
    assert acme.get(f"/tasks/{kept}").body["state"] == other.get(f"/tasks/{theirs}").body["state"] == "ready"
    assert CurrentCounter.objects.get(tenant=acme.tenant).unfinished == 1


def test_dependants_end_with_them_but_are_not_counted(acme: ApiClient) -> None:
    graph = {"tasks": [{"name": "a", "handler": HANDLER, "tags": ["t"]},
                       {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]}  # fmt: skip
    parent, child = acme.post("/workflows", graph).body["task_ids"]
    assert acme.post("/tasks/cancel", {"filter": {"tag": "t"}}).body["task_ids"] == [parent]
    assert acme.get(f"/tasks/{child}").body["state"] == "cancelled"


def test_what_failed_runs_again_with_its_attempts_anew(acme: ApiClient) -> None:
    graph = {"tasks": [{"name": "a", "handler": HANDLER},
                       {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]}  # fmt: skip
    parent, child = acme.post("/workflows", graph).body["task_ids"]
    alone = acme.task()
    done = acme.task()
    end(acme, alone)
    end(acme, done, TaskState.SUCCEEDED)
    end(acme, parent)
    DeadLetter._plain.create(task_id=alone, tenant=acme.tenant, reason="r")
    answer = acme.post("/tasks/retry", {"filter": {"status": ["failed", "done"]}}).body
    assert (answer["task_ids"], answer["skipped"], answer["more"]) == (sorted([parent, alone]), [], False)
    states = [acme.get(f"/tasks/{task_id}").body["state"] for task_id in (parent, child, alone, done)]
    assert states == ["ready", "blocked", "ready", "succeeded"]
    assert LiveTask._plain.get(pk=UUID(parent)).has_children
    assert not LiveTask._plain.get(pk=UUID(alone)).has_children
    assert not DeadLetter._plain.exists()
    past = acme.get(f"/tasks/{alone}/history").body["items"][-1]
    assert (past["from"], past["to"], past["actor"]) == ("failed", "ready", f"key:{acme.key.prefix}")
    assert CurrentCounter.objects.get(tenant=acme.tenant).unfinished == 2


def test_what_the_plan_no_longer_allows_is_skipped_and_named(acme: ApiClient) -> None:
    large, small = acme.task(tier="premium"), acme.task()
    for task_id in (large, small):
        end(acme, task_id)
    acme.tenant.plan.tiers = ["basic"]
    acme.tenant.plan.save()
    answer = acme.post("/tasks/retry", {"filter": {"state": "failed"}}).body
    assert answer["task_ids"] == [small]
    assert [(row["task_id"], row["code"]) for row in answer["skipped"]] == [(large, "not_granted")]


def test_what_is_skipped_does_not_stand_in_the_way_of_the_rest(acme: ApiClient) -> None:
    """The oldest cannot run again, and fill every batch that begins with the oldest."""
    large = [acme.task(tier="premium", tags=["t"]) for _ in range(3)]
    small = [acme.task(tags=["t"]) for _ in range(2)]
    for task_id in (*large, *small):
        end(acme, task_id)
    acme.tenant.plan.tiers = ["basic"]
    acme.tenant.plan.save()
    asked: dict[str, Any] = {"filter": {"state": "failed"}, "limit": 2}
    for _ in range(2):
        stuck = acme.post("/tasks/retry", asked).body
        assert (stuck["task_ids"], stuck["more"], stuck["next"]) == ([], False, large[1])
    done, skipped, matched = [], [row["task_id"] for row in stuck["skipped"]], []
    while stuck["next"] is not None:
        stuck = acme.post("/tasks/retry", {**asked, "after": stuck["next"]}).body
        done += stuck["task_ids"]
        skipped += [row["task_id"] for row in stuck["skipped"]]
        matched.append(stuck["matched"])
    assert (done, skipped, matched) == (small, large, [3, 1])
    ids = [acme.task(tags=["u"]) for _ in range(3)]
    told = acme.post("/tasks/cancel", {"filter": {"tag": "u"}, "limit": 1, "dry_run": True, "after": ids[0]}).body
    assert (told["task_ids"], told["next"], told["matched"]) == ([ids[1]], ids[1], 2)


def test_beyond_the_plan_none_runs_again(acme: ApiClient) -> None:
    ids = [acme.task() for _ in range(3)]
    for task_id in ids:
        end(acme, task_id)
    acme.tenant.plan.max_waiting = 2
    acme.tenant.plan.save()
    forget_lookups()
    answer = acme.post("/tasks/retry", {"filter": {"state": "failed"}})
    assert (answer.status, answer.code) == (429, "quota_exceeded")
    assert {acme.get(f"/tasks/{task_id}").body["state"] for task_id in ids} == {"failed"}


FAR = ["2030-01-31T09:00:00+23:59", "2030-01-31T09:00:00-16:00", "0001-01-01T00:00:00+23:00"]
FAR += ["9999-12-31T23:59:59-23:00"]


@pytest.mark.parametrize("moment", FAR)
def test_a_zone_far_from_utc_is_no_fault_of_ours(acme: ApiClient, moment: str) -> None:
    """ISO 8601 allows offsets of a day; PostgreSQL does not know them."""
    text = quote(moment)
    acme.task()
    listed = [acme.get(f"/tasks?submitted_{word}={text}") for word in ("after", "before")]
    assert [answer.status for answer in listed] == [200, 200]
    assert sum(len(answer.body["items"]) for answer in listed) == 1
    task = {"handler": HANDLER}
    schedule = {"name": "s", "kind": "once", "rule": {"at": moment}, "task": task, "start": moment}
    daily = {"name": "d", "kind": "daily", "start": moment, "task": task}
    made = acme.post("/schedules", {"name": "x", "kind": "daily", "task": task}).body["id"]
    answers = [
        acme.post("/tasks", {**task, "start_at": moment}),
        acme.post("/keys", {"name": "k", "scopes": ["read"], "expires_at": moment}),
        acme.post("/schedules", schedule),
        acme.post("/schedules", daily),
        acme.post(f"/schedules/{made}/backfill", {"start": moment, "end": moment}),
    ]
    assert {answer.status for answer in answers} <= {201, 422}, [answer.body for answer in answers]


@pytest.mark.parametrize("moment", FAR)
def test_a_forged_cursor_is_no_fault_of_ours(acme: ApiClient, moment: str) -> None:
    for path, sort, tie in (("/webhooks", "updated_at", str(UUID(int=0))), ("/keys", "last_used_at", "1")):
        cursor = encode(sort, json.dumps(moment), tie)
        answer = acme.get(f"{path}?sort={sort}&cursor={cursor}")
        assert answer.status == (422 if moment in FAR[2:] else 200), answer.body


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "filter"),
        ({"filter": {}}, "filter"),
        ({"filter": []}, "filter"),
        ({"filter": {"nonsense": "x"}}, "filter.nonsense"),
        ({"filter": {"state": "flying"}}, "filter.state"),
        ({"filter": {"state": []}}, "filter.state"),
        ({"filter": {"workflow_id": 1}}, "filter.workflow_id"),
        ({"filter": {"tag": "t"}, "limit": 0}, "limit"),
        ({"filter": {"tag": "t"}, "limit": True}, "limit"),
        ({"filter": {"tag": "t"}, "dry_run": 1}, "dry_run"),
        ({"filter": {"tag": "t"}, "ids": []}, "ids"),
        ({"filter": {"tag": "t"}, "after": "x"}, "after"),
        ({"filter": {"tag": "t"}, "after": None}, "after"),
    ],
)
def test_a_wrong_filter_is_named(acme: ApiClient, body: Any, field: str) -> None:
    for path in ("/tasks/cancel", "/tasks/retry"):
        answer = acme.post(path, body)
        assert (answer.status, answer.body["field"]) == (422, field)


def test_the_commands_do_the_same_batch_by_batch(acme: ApiClient) -> None:
    ids = [acme.task(tags=["t"]) for _ in range(5)]
    out = StringIO()
    call_command("cancel", filter=["tag=t"], dry_run=True, stdout=out)
    assert "5 would be cancelled" in out.getvalue()
    call_command("cancel", filter=["tag=t"], limit=2, stdout=(out := StringIO()))
    assert "5 cancelled" in out.getvalue()
    call_command(
        "retry",
        filter=["tag=t", "state=cancelled"],
        limit=2,
        json=True,
        stdout=(out := StringIO()),
    )
    assert all(task_id in out.getvalue() for task_id in ids)
    assert LiveTask._plain.count() == 5
