"""Typed handlers over REST: what may be called, wrong arguments refused with their field, a document of one's own."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from jsonschema_rs import Draft202012Validator

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.run_times import bucket_of
from scheduler_ext.core.work import Export
from scheduler_ext.task.signature import schema_of
from slackwater_resources import registry
from slackwater_resources.models import Handler
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.models import RunTime, Task
from slackwater_tasks.runtime.work_store import PgWorkStore
from tests.support.api import ApiClient

pytestmark = pytest.mark.django_db


def send(to: str, subject: str = "hello", *, copies: int = 1) -> None:
    """Send a mail."""


def convert(path: str, sizes: list[int]) -> None:
    """Convert a picture."""


@pytest.fixture(autouse=True)
def _published(acme: ApiClient) -> None:
    for name, function in (("mail.send", send), ("images.convert", convert)):
        Handler.objects.create(name=name, schema=schema_of(function), description=str(function.__doc__))
    Handler.objects.create(name="old.untyped")


def plan_of(acme: ApiClient, **changes: Any) -> None:
    """Change the tenant's plan."""
    plan = acme.tenant.plan
    for name, value in changes.items():
        setattr(plan, name, value)
    plan.save()


def test_the_list_says_what_may_be_called_and_how(acme: ApiClient) -> None:
    borrowed: Any = SimpleNamespace(conn=connection.connection)
    store, key = PgWorkStore(SchedulerConf(), "test", borrowed), (acme.tenant.pk, "mail.send")
    store.learn({key: [0.1] * 6 + [0.2] * 3})
    store.learn({key: [3.1], (acme.tenant.pk, "script:ab"): [9.0]})
    learnt = RunTime.objects.get(tenant=acme.tenant, key="mail.send")
    assert {int(bucket): n for bucket, n in learnt.buckets.items()} == Counter(
        map(bucket_of, [1e5] * 6 + [2e5] * 3 + [3.1e6])
    )
    shown = {item["name"]: item for item in acme.get("/handlers").body["items"]}
    mail = shown["mail.send"]
    assert (mail["description"], mail["kind"], mail["available"]) == ("Send a mail.", "process", False)
    assert (mail["usual_run_s"], mail["runs"], mail["tier"]) == (pytest.approx(0.43), 10, "basic")
    assert (mail["median_run_s"], mail["long_run_s"]) == (pytest.approx(0.1, rel=0.06), pytest.approx(0.2, rel=0.06))
    assert learnt.long_us == pytest.approx(mail["long_run_s"] * 1e6)
    assert mail["schema"]["required"] == ["to"]
    assert (shown["old.untyped"]["schema"], shown["old.untyped"]["usual_run_s"]) == (None, None)
    assert acme.get("/handlers/mail.send").body == mail
    assert acme.get("/handlers/no.such").status == 404


@pytest.mark.parametrize(
    ("task", "field", "said"),
    [
        ({}, "kwargs.to", "must be given"),
        ({"args": [5]}, "args[0]", "must be a string"),
        ({"kwargs": {"to": "a", "copies": "2"}}, "kwargs.copies", "must be a whole number"),
        ({"kwargs": {"to": "a", "subjct": "x"}}, "kwargs.subjct", "did you mean subject?"),
        ({"args": ["a", "b", "c"]}, "args[2]", "2 positional arguments at most"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_stored(
    acme: ApiClient, task: Any, field: str, said: str
) -> None:
    one = acme.post("/tasks", {"handler": "mail.send", **task})
    assert (one.status, one.body["field"]) == (422, field)
    assert said in one.body["detail"]
    several = acme.post("/tasks", [{"handler": "mail.send", "args": ["a"]}, {"handler": "mail.send", **task}])
    assert (several.status, several.body["field"]) == (422, f"tasks[1].{field}")
    graph = acme.post("/workflows", {"tasks": [{"name": "x", "handler": "mail.send", **task}]})
    assert (graph.status, graph.body["field"]) == (422, f"tasks[0].{field}")
    assert Task._plain.count() == 0


def test_right_arguments_results_of_parents_and_untyped_handlers_are_accepted(acme: ApiClient) -> None:
    tasks = [
        {"name": "a", "handler": "old.untyped", "args": [1], "kwargs": {"anything": {}}},
        {"name": "b", "handler": "mail.send", "args": [{"$from": "a"}], "depends_on": ["a"]},
        {"name": "c", "handler": "images.convert", "kwargs": {"path": "x", "sizes": [1, 2]}},
    ]
    assert acme.post("/workflows", {"tasks": tasks}).status == 201


def test_an_edit_is_checked_too(acme: ApiClient) -> None:
    task = acme.post("/tasks", {"handler": "mail.send", "args": ["a"]}).body["id"]
    refused = acme.patch(f"/tasks/{task}", {"kwargs": {"to": "b"}})
    assert (refused.status, refused.body["field"]) == (422, "kwargs.to")
    assert acme.patch(f"/tasks/{task}", {"args": [], "kwargs": {"to": "b"}}).status == 200


def test_what_its_workers_say_now_counts_before_a_refusal(acme: ApiClient) -> None:
    def wider(to: str, cc: str = "") -> None:
        """It takes more since its last release."""

    acme.post("/tasks", {"handler": "mail.send", "args": ["a"]})  # this process remembers what it took
    Handler.objects.filter(name="mail.send").update(schema=schema_of(wider))
    assert acme.post("/tasks", {"handler": "mail.send", "kwargs": {"to": "a", "cc": "b"}}).status == 201


def test_a_check_that_is_known_costs_no_query(
    acme: ApiClient, django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_cache, "ARGUMENTS_TTL_S", 3600.0)
    assert reference_cache.arguments("mail.send") is not None
    with django_assert_max_num_queries(0):
        assert reference_cache.arguments("mail.send") is reference_cache.arguments("mail.send")


def test_a_task_is_submitted_by_its_arguments_alone(acme: ApiClient) -> None:
    query = "tier=regular&category=urgent&priority=7&delay_tolerance_s=2.5&name=greeting"
    made = acme.post(f"/handlers/mail.send/tasks?{query}", {"to": "a@example.org"})
    assert made.status == 201
    shown = acme.get(f"/tasks/{made.body['id']}").body
    assert (shown["handler"], shown["kwargs"], shown["args"]) == ("mail.send", {"to": "a@example.org"}, [])
    assert [shown[name] for name in ("tier", "category", "priority", "name")] == ["regular", "urgent", 7, "greeting"]
    wrong = acme.post("/handlers/mail.send/tasks", {"to": 1})
    assert (wrong.status, wrong.body["field"]) == (422, "to")
    assert acme.post("/handlers/mail.send/tasks?priority=high", {"to": "a"}).body["field"] == "priority"
    assert acme.post("/handlers/no.such/tasks", {}).status == 404


def test_the_document_of_a_tenant_names_its_handlers_alone(acme: ApiClient) -> None:
    plan_of(acme, handlers=["mail.*"])
    found = acme.get("/openapi.json").body
    operation = found["paths"]["/api/v1/handlers/mail.send/tasks"]["post"]
    assert (operation["operationId"], operation["tags"], operation["summary"]) == (
        "mail_send",
        ["mail"],
        "Send a mail.",
    )
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = found["components"]["schemas"][reference.rpartition("/")[2]]
    assert Draft202012Validator(schema).is_valid({"to": "a"})
    assert not Draft202012Validator(schema).is_valid({"to": "a", "more": 1})
    assert "convert" not in json.dumps(found["paths"])
    assert "/api/v1/tasks" in found["paths"]


def test_a_worker_publishes_what_its_code_says() -> None:
    export = Export(name="mail.send", task="mail.send", schema=schema_of(convert))
    with connection.cursor() as cur:
        cur.execute(registry.EXPORT, registry.row_of(export))
    assert Handler.objects.values_list("schema__required", flat=True).get(name="mail.send") == ["path", "sizes"]
