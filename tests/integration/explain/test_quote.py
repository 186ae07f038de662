"""A quote goes the whole way of a submission, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from uuid_utils import uuid7

from slackwater_api.http.auth import remembered
from slackwater_tasks.models import LiveTask
from slackwater_tasks.submission.service import store_script
from tests.support.api import HANDLER, Answer
from tests.support.cell import Cell, sql

pytestmark = pytest.mark.django_db(transaction=True)
COUNTED = ("task", "livetask", "line", "workflow", "dependency", "idempotencykey", "taskevent", "outbox")
SCHEDULE = {"name": "nightly", "kind": "daily", "rule": {"times": ["03:00"]}, "task": {"handler": HANDLER}}


def stored() -> list[Any]:
    """How many rows there are of all that a submission could write, and what the counters say."""
    with connection.cursor() as cur:
        cur.execute(" UNION ALL ".join(f"SELECT count(*) FROM slackwater_tasks_{name}" for name in COUNTED))
        rows = cur.fetchall()
        cur.execute("SELECT * FROM slackwater_tenants_tenantcounter ORDER BY 1")
        rows += cur.fetchall()
        for table in ("slackwater_schedules_schedule", "slackwater_resources_tier"):
            cur.execute(f"SELECT count(*) FROM {table}")
            rows += cur.fetchall()
        return rows


def quoted(cell: Cell, path: str, body: Any = None, method: str = "POST", **headers: Any) -> dict[str, Any]:
    """The quote; nothing was stored for it."""
    before = stored()
    answer: Answer = cell.client.call(method, f"{path}?dry_run=true", body, **headers)
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "application/vnd.slackwater.quote+json"
    assert stored() == before
    found: dict[str, Any] = answer.body
    return found


def test_a_quote_prices_forecasts_and_says_what_patience_saves(cell: Cell) -> None:
    """Five slots, runs of ten seconds learnt, five running: the next one starts in about ten."""
    cell.tenant.plan.price_micros_per_attempt = 10
    cell.tenant.plan.price_permille = {"urgent": 2000, "delayable": 1000, "periodic": 1000, "offpeak": 500}
    cell.tenant.plan.save()
    sql("UPDATE slackwater_resources_tier SET price_micros_per_hour = 36000 WHERE slug = 'basic'")
    sql(
        "INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at) VALUES (%s, %s, 50, 10e6, now())",
        cell.tenant.pk, HANDLER,
    )  # fmt: skip
    cell.worker.start(*[cell.submit() for _ in range(5)])
    found = quoted(cell, "/tasks", {"handler": HANDLER, "category": "urgent", "execution_cap_s": 100, "total_attempts": 2},
                   Idempotency_Key="k1")  # fmt: skip
    # 10 for the attempt, and ten seconds of an hour of 72,000; at most two attempts of a hundred.
    assert found["price"] == {"expected_micros": 210, "most_micros": 4020}
    assert (found["created"], found["tasks"], found["items"][0]["tier"]) == (True, 1, "basic")
    assert (
        found["predicted_start"]["earliest"] <= found["predicted_start"]["likely"] <= found["predicted_start"]["latest"]
    )
    cheapest = min(found["patience"], key=lambda one: one["price"]["expected_micros"])
    assert (cheapest["category"], cheapest["price"]["expected_micros"]) == ("offpeak", 60)
    assert all(one["predicted_start"] for one in found["patience"] if one["category"] != "offpeak")
    left = found["limits_left"]["waiting"]
    assert left == cell.tenant.plan.max_waiting - 6
    # What was quoted can be submitted, with the same key; quoted again, it would get that answer.
    body = {"handler": HANDLER, "category": "urgent"}
    assert cell.client.post("/tasks", body, Idempotency_Key="k1").status == 201
    assert not quoted(cell, "/tasks", body, Idempotency_Key="k1")["created"]


def test_scripts_of_many_names_are_one_item_and_cost_what_is_learnt_of_their_pattern(cell: Cell) -> None:
    cell.tenant.plan.price_micros_per_attempt = 10
    cell.tenant.plan.save()
    sql(
        "INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at)"
        " VALUES (%s, 'name:night #', 50, 10e6, now())", cell.tenant.pk,
    )  # fmt: skip
    script = store_script(cell.tenant, "x.py", b"print(1)\n").sha256
    names = ["night 1", "night 2", "one-off", "another"]
    found = quoted(cell, "/tasks", [{"name": name, "script": script} for name in names])
    assert sorted((one["tasks"], one["expected_run_s"]) for one in found["items"] if one["expected_run_s"]) == [(2, 10)]
    assert [one["tasks"] for one in found["items"] if one["expected_run_s"] is None] == [2]


def test_every_submission_can_be_quoted_and_refuses_what_it_would_refuse(cell: Cell) -> None:
    task = {"name": "a", "handler": HANDLER}
    chain = [task, {"name": "b", "handler": HANDLER, "depends_on": ["a"], "tier": "premium"}]
    many = quoted(cell, "/tasks", chain)
    assert (many["tasks"], [one["tier"] for one in many["items"]]) == (2, ["basic", "premium"])
    assert quoted(cell, "/workflows", {"name": "w", "tasks": chain})["tasks"] == 2
    own = str(uuid7())
    assert quoted(cell, f"/tasks/{own}", task, "PUT")["tasks"] == 1
    made = cell.client.post("/workflows", {"name": "w", "tasks": chain}).body
    assert quoted(cell, f"/workflows/{made['id']}/tasks", {"tasks": [{"handler": HANDLER}]})["tasks"] == 1
    cell.client.post(f"/workflows/{made['id']}/cancel")
    assert quoted(cell, f"/workflows/{made['id']}/retry", {})["tasks"] == 2
    for again in ("retry", "resubmit"):
        assert quoted(cell, f"/tasks/{made['task_ids'][0]}/{again}")["tasks"] == 1
    assert cell.client.post("/workflow-templates", {"name": "t", "workflow": {"tasks": chain}}).status == 201
    assert quoted(cell, "/workflow-templates/t/submit", {})["tasks"] == 2
    assert quoted(cell, "/schedules", SCHEDULE)["tasks"] == 1
    plan = cell.client.post("/schedules", SCHEDULE).body
    assert quoted(cell, f"/schedules/{plan['id']}/run")["tasks"] == 1
    past = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-03T00:00:00Z"}
    assert quoted(cell, f"/schedules/{plan['id']}/backfill", past)["tasks"] == 2
    for body, code in (({"handler": "no.such"}, "does_not_fit"), ({**task, "tier": "huge"}, "does_not_fit")):
        assert cell.client.post("/tasks?dry_run=true", body).code == code
    assert quoted(cell, f"/handlers/{HANDLER}/tasks", {})["tasks"] == 1
    assert cell.client.post("/tasks?dry_run=yes", task).body["field"] == "dry_run"
    cell.tenant.plan.max_urgent_permille = 0
    cell.tenant.plan.save()
    remembered.forget()
    assert cell.client.post("/tasks?dry_run=true", {**task, "category": "urgent"}).code == "not_granted"
    assert "urgent" not in {one["category"] for one in quoted(cell, "/tasks", task)["patience"]}
    assert not LiveTask.objects.unscoped().filter(task__handler="no.such").exists()  # the test is no tenant


def test_resources_that_nobody_used_before_are_quoted_and_then_submitted(cell: Cell) -> None:
    """Their tier is made, and taken back with the rest: who submits next makes it."""
    new = iter(range(64, 128))

    def task() -> dict[str, Any]:
        return {"handler": HANDLER, "resources": {"memory_mb": next(new)}}

    def chain() -> list[dict[str, Any]]:
        return [{"name": "a", **task()}, {"name": "b", "depends_on": ["a"], **task()}]

    assert quoted(cell, "/tasks", task())["predicted_start"], "nobody is before it"
    bodies: list[tuple[str, Any]] = [
        ("/tasks", task()), ("/tasks", [task(), task()]), ("/tasks", chain()), ("/workflows", {"tasks": chain()}),
        ("/schedules", {**SCHEDULE, "name": "other", "task": task()}),
    ]  # fmt: skip
    for path, body in bodies:
        found = quoted(cell, path, body)
        assert all(item["tier"].startswith("basic-mem") for item in found["items"])
        tasks = body.get("tasks", [body.get("task", body)]) if isinstance(body, dict) else body
        for each in tasks:
            made = cell.client.post("/tasks", {"handler": HANDLER, "resources": each["resources"]})
            assert made.status == 201, made.body
        assert cell.client.post(path, body).status == 201
        assert quoted(cell, path, {**body, "name": "again"} if isinstance(body, dict) else body)["tasks"] == len(tasks)
