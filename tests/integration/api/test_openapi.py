"""The OpenAPI document: complete, true to what is served, and shown by a page that needs no other host."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from importlib.resources import files
from typing import Any
from uuid import UUID

import pytest
import uuid_utils
from django.db import connection
from django.test import Client
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from jsonschema_rs import Draft202012Validator

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_api.http.openapi import ANSWERS
from slackwater_api.http.problems import STATUS
from slackwater_api.http.reference import document
from slackwater_api.v1.shapes.schedules import ScheduleChange, ScheduleIn
from slackwater_api.v1.shapes.tasks import TaskChange, TaskIn
from slackwater_api.v1.urls import urlpatterns
from slackwater_api.v1.views.platform import Nowhere
from slackwater_monitoring.models import Sizing, Usage
from slackwater_monitoring.receipts import chain, pages
from slackwater_monitoring.receipts.account import Receipt
from slackwater_monitoring.receipts.moments import since_epoch
from slackwater_resources.models import Handler, Node, Tier
from slackwater_schedules.fields import FIELDS as SCHEDULE_FIELDS
from slackwater_tasks.models import Artifact, Attempt, AttemptLog, Chunk, DeadLetter, LiveTask, Task
from slackwater_tasks.spec import EDITABLE, FIELDS
from slackwater_tenants.services import create_api_key
from tests.support.api import HANDLER, Answer, ApiClient, client_of, furnish

SHOWN_BY_ANOTHER = {
    "put_task", "submit_tasks", "submit_workflow", "add_workflow_tasks", "backfill_schedule", "cancel_task", "put_secret",
    "call_handler", "store_workflow_template",
}  # fmt: skip
"""Operations that answer with either of two statuses and one shape: one of them is shown."""
PLAIN = json.loads(json.dumps(document(), default=str))


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and description of every operation."""
    for path, item in PLAIN["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


def test_the_document_is_valid_openapi_3_1() -> None:
    rules = json.loads(files("drf_spectacular").joinpath("validation", "openapi_3_1_schema.json").read_text())
    errors = list(Draft202012Validator(rules).iter_errors(PLAIN))
    assert not errors, (errors[0].instance_path, errors[0].message)
    assert PLAIN["openapi"] == "3.1.0"
    assert PLAIN["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"


def test_no_two_components_of_the_document_have_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    SchemaGenerator().get_schema(request=None, public=True)
    assert "identical names" not in capsys.readouterr().err


def test_every_address_is_described_and_no_other() -> None:
    served = set()
    for pattern in urlpatterns:
        view = vars(pattern.callback)["view_class"]
        if view is not Nowhere:
            path = "/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", str(pattern.pattern))
            served |= {
                (path, method.upper()) for method in ("get", "post", "patch", "put", "delete") if hasattr(view, method)
            }
    assert served == {(path, method) for path, method, _ in operations()}


def test_every_operation_is_complete() -> None:
    for path, method, operation in operations():
        where = f"{method} {path}"
        assert operation["summary"], where
        assert "Needs " in operation["description"], where
        assert {"401", "403", "503"} <= set(operation["responses"]), where
        assert operation["security"] == [{"apiKey": []}], where
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert set(response["content"]) == {"application/problem+json"}, where
                assert response["description"], where
        if "{" in path:
            assert "404" in operation["responses"], where
        if "requestBody" in operation:
            for media, body in operation["requestBody"]["content"].items():
                assert "json" not in media or body["examples"], f"{where} shows no example"


def test_bodies_are_closed_and_answers_name_their_headers() -> None:
    schemas = PLAIN["components"]["schemas"]
    for name in ("TaskIn", "RetryIn", "WorkflowIn", "ScheduleIn", "BulkIn", "PatchedTaskChange", "KeyIn"):
        assert schemas[name]["additionalProperties"] is False, name
    task = schemas["TaskIn"]["properties"]
    assert (task["tier"]["default"], task["total_attempts"]["default"], task["category"]["default"]) == (
        "basic", 3, "delayable",
    )  # fmt: skip
    assert not [one for one in schemas["PatchedTaskChange"]["properties"].values() if "default" in one]
    used = {tag for _, _, operation in operations() for tag in operation["tags"]}
    assert {tag["name"] for tag in PLAIN["tags"]} == used
    for path, method, operation in operations():
        for status, answer in operation["responses"].items():
            assert "X-Request-Id" in answer["headers"], (method, path)
            assert ("Retry-After" in answer["headers"]) == (status in {"429", "503"}), (method, path)
        if method == "PATCH":
            assert operation["requestBody"]["required"], path
    made = PLAIN["paths"]["/api/v1/tasks"]["post"]["responses"]["201"]
    assert made["links"]["get_task"]["parameters"] == {"task_id": "$response.body#/id"}


def answers() -> Iterator[Any]:
    """Every good answer that has a body to show: operation, status, kind, and what is promised of it."""
    for path, method, operation in operations():
        for status, response in operation["responses"].items():
            for kind, content in response.get("content", {}).items():
                if int(status) < 300 and kind in {"application/json", "text/event-stream"}:
                    yield pytest.param(operation["operationId"], content, id=f"{method} {path} {status}")


@pytest.mark.parametrize(("operation", "content"), list(answers()))
def test_every_answer_has_an_example_in_its_shape(operation: str, content: dict[str, Any]) -> None:
    shown = [example["value"] for example in content.get("examples", {}).values()]
    assert shown or operation in SHOWN_BY_ANOTHER, "write an answer into apps/slackwater_api/v1/examples.json"
    schema = {**content["schema"], "components": PLAIN["components"]}
    for value in shown:
        errors = list(Draft202012Validator(closed(schema)).iter_errors(value))
        assert not errors, (errors[0].instance_path, errors[0].message)


def test_every_example_belongs_to_an_operation() -> None:
    assert set(ANSWERS) <= {operation["operationId"] for _, _, operation in operations()}


def test_shapes_name_every_field_that_services_take() -> None:
    assert set(TaskIn().fields) == set(FIELDS)
    assert set(TaskChange().fields) == EDITABLE
    assert set(ScheduleChange().fields) == {*SCHEDULE_FIELDS, "version"}
    assert set(ScheduleIn().fields) == set(SCHEDULE_FIELDS)


def conforms(answer: Answer, method: str, path: str) -> None:
    """Fail unless the answer is one that the document promises, in its status and its shape."""
    operation = PLAIN["paths"][path][method.lower()]
    assert str(answer.status) in operation["responses"], (method, path, answer.status, answer.body)
    response = operation["responses"][str(answer.status)]
    if answer.status == 204:
        return
    kind = answer.headers["Content-Type"].partition(";")[0]
    if kind == "application/octet-stream":
        assert kind in response["content"]
        return
    schema = {**response["content"][kind]["schema"], "components": PLAIN["components"]}
    errors = list(Draft202012Validator(closed(schema)).iter_errors(answer.body))
    assert not errors, (method, path, errors[0].instance_path, errors[0].message)


def closed(schema: Any) -> Any:
    """The schema with no property allowed that it does not name, so that none is served undescribed."""
    if isinstance(schema, list):
        return [closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "code" not in schema["properties"]:
        found["additionalProperties"] = False
    return found


@pytest.fixture
def acme(db: None) -> ApiClient:
    """A client of the tenant acme, whose cell has a node."""
    furnish()
    now = timezone.now()
    Node.objects.create(
        name="n",
        hostname="h",
        incarnation=uuid.uuid4(),
        capacity=[1, 1, 0, 0, 0, 0],
        slots={"process": 1},
        handlers=[Handler.objects.get(name=HANDLER).pk],
        started_at=now,
        heartbeat_at=now,
        lease_expires_at=now + timedelta(minutes=1),
    )
    return client_of("acme")


def owned(acme: ApiClient) -> dict[str, Any]:
    """A team, a user, a key, a tier and a line of it, by the names that paths give them."""
    acme.post("/teams", {"slug": "crew", "name": "Crew"})
    member = acme.post("/members", {"username": "ann", "role": "owner", "team": "crew"}).body["id"]
    other = acme.post("/members", {"username": "bob", "role": "owner"}).body["id"]
    key = acme.post("/keys", {"name": "k", "member_id": other, "scopes": ["read"]}).body["id"]
    acme.post("/tiers", {"name": "own", "cpu_milli": 100, "memory_mb": 100})
    acme.task(tier="own", category="offpeak")
    acme.post("/workflow-templates", {
        "name": "own", "parameters": {"properties": {"day": {}}}, "workflow": {"tasks": [{"name": "w", "handler": HANDLER}]},
    })  # fmt: skip
    return {
        "team_slug": "crew", "member_id": member, "key_id": key, "tier_name": "own", "category": "offpeak",
        "handler_name": HANDLER, "template_name": "own",
    }  # fmt: skip


def ended(acme: ApiClient) -> str:
    """A task that failed after two attempts, with logs, a result and a dead letter."""
    task_id = acme.task(retry={"base_s": 1}, args=[1, "x", None], kwargs={"a": {"b": []}}, tags=["t"])
    now = timezone.now() - timedelta(seconds=10)
    common = {
        "task_id": task_id,
        "tenant": acme.tenant,
        "node": Node.objects.get(name="n"),
        "error": "Traceback\nValueError: no",
    }
    for fence in (1, 2):
        end = now + timedelta(seconds=fence)
        Attempt._plain.create(
            **common,
            number=fence,
            fence=fence,
            queued_at=now,
            started_at=end - timedelta(seconds=0.5),
            finished_at=end,
            outcome=Outcome.FAILED,
            exit_code=1,
            cpu_ms=3,
            peak_memory_mb=4,
            peak_disk_mb=5,
        )
    Artifact._plain.create(
        task_id=task_id, tenant=acme.tenant, name="a/b.txt", size=1, sha256="0" * 64, content=b"x", fence=1
    )
    AttemptLog._plain.create(task_id=task_id, tenant=acme.tenant, fence=1, stream="stdout", text="hello")
    Chunk._plain.create(task_id=task_id, tenant=acme.tenant, fence=1, number=1, attempt=1, value="a")
    LiveTask._plain.filter(pk=UUID(task_id)).delete()
    Task._plain.filter(pk=UUID(task_id)).update(
        state=TaskState.FAILED,
        submitted_at=now - timedelta(seconds=1),
        finished_at=now + timedelta(seconds=2),
        attempts_used=2,
        result={"x": [1]},
        error="ValueError: no",
    )
    DeadLetter._plain.create(task_id=task_id, tenant=acme.tenant, outcome=Outcome.FAILED, reason="ValueError: no")
    return task_id


def test_answers_have_the_shapes_described(acme: ApiClient) -> None:
    task_id = ended(acme)
    acme.task()
    workflow_id = acme.post("/workflows", {"tasks": [{"name": "a", "handler": HANDLER}]}).body["id"]
    acme.post("/secrets", {"name": "s", "value": "the value"})
    acme.post("/rates", {"key": "bank", "starts": 60, "window_s": 60})
    sha256 = acme.post("/scripts", {"name": "s", "content": "#"}).body["sha256"]
    schedule = {"name": "s", "kind": "interval", "rule": {"every_s": 60}, "task": {"handler": HANDLER}}
    schedule_id = acme.post("/schedules", schedule).body["id"]
    hook = acme.post("/webhooks", {"url": "https://example.org", "events": ["task.failed"]})
    conforms(hook, "POST", "/api/v1/webhooks")
    conforms(acme.post(f"/webhooks/{hook.body['id']}/ping"), "POST", "/api/v1/webhooks/{webhook_id}/ping")
    Usage._plain.create(tenant=acme.tenant, day=timezone.now().date(), tier="basic", category=1, attempts=1)
    Sizing._plain.create(
        tenant=acme.tenant, kind="handler", name=HANDLER, tier=Tier.objects.get(slug="premium"), runs=20,
        cpu_milli=[1] * 20, memory_mb=[1] * 20, disk_mb=[0] * 20,
    )  # fmt: skip
    example = ANSWERS["list_receipts"]["value"]["items"][0]
    text = chain.canonical({**example, "number": "?", "task_id": task_id}).decode()
    around = Receipt(acme.tenant.pk, since_epoch(timezone.now()), example["charged_micros"], *text.split('"?"'))
    pages.write(connection.connection, [around])
    values = {"task_id": task_id, "workflow_id": workflow_id, "sha256": sha256, "schedule_id": schedule_id}
    values["webhook_id"] = hook.body["id"]
    values["artifact_name"] = "a/b.txt"
    values["secret_name"] = "s"
    made = acme.call("POST", "/uploads", Upload_Length="0")
    conforms(made, "POST", "/api/v1/uploads")
    values["upload_id"] = made.body["id"]
    values |= owned(acme)
    end = timezone.now() - timedelta(seconds=1)
    moments = {"start": (end - timedelta(minutes=5)).isoformat(), "end": end.isoformat()}
    conforms(
        acme.post(f"/schedules/{schedule_id}/backfill", moments),
        "POST",
        "/api/v1/schedules/{schedule_id}/backfill",
    )
    for path, method, _ in operations():
        if method == "GET":
            answer = acme.get(path.removeprefix("/api/v1").format(**values))
            assert answer.status == 200, (path, answer.body)
            conforms(answer, method, path)
            if isinstance(answer.body, dict) and "items" in answer.body:
                assert answer.body["items"], f"{path} shows nothing to compare"


def test_the_past_of_a_task_reads_like_a_version_history(acme: ApiClient) -> None:
    task_id = ended(acme)
    past = acme.get(f"/tasks/{task_id}/history").body["items"]
    assert [(entry["from"], entry["to"]) for entry in past] == [
        (None, "ready"),
        ("ready", "queued"),
        ("ready", "queued"),
        ("queued", "running"),
        ("running", "scheduled"),
        ("queued", "running"),
        ("running", "failed"),
    ]
    assert past[-1]["reason"] == "failed: ValueError: no"
    assert (past[-1]["attempt"], past[-1]["node"]) == (2, "n")
    shown = acme.get(f"/tasks/{task_id}").body
    assert (shown["node"], shown["attempts"], shown["result"], shown["args"]) == (
        "n",
        2,
        {"x": [1]},
        [1, "x", None],
    )
    assert shown["started_at"] is not None
    acme.post(f"/tasks/{task_id}/retry")
    again = [(entry["from"], entry["to"]) for entry in acme.get(f"/tasks/{task_id}/history").body["items"]]
    assert ("running", "failed") in again
    assert ("failed", "ready") in again


def examples() -> Iterator[Any]:
    """Every example of a body."""
    for path, method, operation in operations():
        for name, example in (
            operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {}).items()
        ):
            yield pytest.param(path, method, example["value"], id=f"{method} {path} {name}")


@pytest.mark.parametrize(("path", "method", "body"), list(examples()))
def test_every_example_is_accepted(acme: ApiClient, path: str, method: str, body: Any) -> None:
    for name in ("demo.add", "mail.send"):
        Handler.objects.create(name=name)
    schedule = {"name": "x", "kind": "daily", "task": {"handler": HANDLER}}
    workflow = {"tasks": [{"name": "w", "handler": HANDLER}]}
    values = {
        "task_id": acme.task(), "schedule_id": acme.post("/schedules", schedule).body["id"],
        "workflow_id": acme.post("/workflows", workflow).body["id"],
        "webhook_id": acme.post("/webhooks", {"url": "https://x.org", "events": ["task.late"]}).body["id"],
    }  # fmt: skip
    if "{" in path:
        values |= owned(acme)
    acme.post(f"/workflows/{values['workflow_id']}/cancel")  # so that there is something to run again
    if path.endswith("/resubmit"):
        acme.post(f"/tasks/{values['task_id']}/cancel")
    if method == "PUT":
        values["task_id"] = str(uuid_utils.uuid7())
    if "/platform/" in path:
        acme = ApiClient(acme.tenant, *create_api_key(acme.tenant, "operator", ("operate",)))
    answer = acme.call(method, path.removeprefix("/api/v1").format(**values), body)
    assert 200 <= answer.status < 300, answer.body
    conforms(answer, method, path)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/tasks", {"handler": 1}),
        ("POST", "/api/v1/tasks", []),
        ("GET", "/api/v1/tasks/{task_id}", None),
        ("PATCH", "/api/v1/tasks/{task_id}", {"priority": 1}),
        ("POST", "/api/v1/tasks/{task_id}/cancel", {}),
        ("POST", "/api/v1/scripts", {"name": "x" * 300, "content": "x" * 1_100_000}),
    ],
)
def test_problems_have_the_shape_described(acme: ApiClient, method: str, path: str, body: Any) -> None:
    answer = acme.call(method, path.removeprefix("/api/v1").format(task_id=uuid.uuid4()), body)
    assert answer.status >= 400
    conforms(answer, method, path)


def test_the_document_and_its_page_come_from_this_server_alone() -> None:
    client = Client()
    answer = client.get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"})
    assert (answer.status_code, json.loads(answer.content)["openapi"]) == (200, "3.1.0")
    page = client.get("/api/docs/").content.decode()
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(sources) >= 3
    assert not [source for source in sources if "//" in source]
    for source in sources:
        served = client.get(source)
        assert served.status_code == 200, source
        assert b"".join(served) if served.streaming else served.content


def test_every_code_has_its_anchor() -> None:
    page = Client().get("/api/docs/errors").content.decode()
    for code in STATUS:
        assert f'id="{code}"' in page
