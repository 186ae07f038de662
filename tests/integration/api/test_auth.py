"""Keys, scopes, and the wall between tenants: each endpoint is tried with another tenant's object."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_ext.core.states import Category, TaskState
from slackwater_api.v1.urls import urlpatterns
from slackwater_api.v1.views.platform import Nowhere
from slackwater_monitoring.models import Delivery, Sizing, Subscription, Usage
from slackwater_resources.models import Node, Tier
from slackwater_schedules.models import Schedule
from slackwater_tasks.models import Artifact, DeadLetter, Line, LiveTask, RateLimit, Task
from slackwater_tenants.models import ApiKey, Membership, Team, Tenant
from slackwater_tenants.services import create_api_key
from tests.support.api import HANDLER, ApiClient, client_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
WORDS = {"category"}
"""What is no tenant's own, and is named only beside what is."""
METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        "Bearer nonsense",
        "Bearer sw_12345678_wrong",
        "Bearer sw_\xff_x",
        "Bearer " + "x" * 5000,
    ],
)
def test_a_wrong_key_is_401(header: str) -> None:
    answer = client_of("acme").get("/tasks", Authorization=header)
    assert (answer.status, answer.code) == (401, "not_authenticated")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@dataclass(frozen=True)
class Objects:
    """What a tenant owns, by the names that paths give them."""

    task_id: str
    workflow_id: str
    sha256: str
    schedule_id: str
    secret_name: str
    webhook_id: str
    delivery_id: str
    team_slug: str
    member_id: str
    key_id: str
    tier_name: str
    artifact_name: str
    rate_id: str
    node_id: str
    upload_id: str
    category: str = "offpeak"
    handler_name: str = "secret.handler"
    template_name: str = "secret.template"

    @property
    def names(self) -> dict[str, str]:
        """The values by the names of path parameters."""
        return asdict(self)


def own_something(client: ApiClient) -> Objects:
    """One object of each kind; the task is a dead letter."""
    sha256 = client.post("/scripts", {"name": "s", "content": f"# {client.tenant.slug}"}).body["sha256"]
    workflow = client.post("/workflows", {"tasks": [{"name": "w", "handler": HANDLER}]}).body["id"]
    task_id = client.task(name="secret")
    LiveTask._plain.filter(pk=UUID(task_id)).delete()
    Task._plain.filter(pk=UUID(task_id)).update(state=TaskState.FAILED, finished_at=timezone.now())
    DeadLetter._plain.create(task_id=task_id, tenant=client.tenant, reason="r")
    made = client.post(
        "/schedules",
        {"name": "secret", "kind": "daily", "task": {"handler": HANDLER}, "rule": {"times": ["07:00"]}},
    )
    client.post("/secrets", {"name": "theirs_alone", "value": "secret-value"})
    hook = client.post("/webhooks", {"url": "https://secret.example", "events": ["task.failed"]}).body["id"]
    sent = client.post(f"/webhooks/{hook}/ping").body["id"]
    Usage._plain.create(tenant=client.tenant, day=timezone.now().date(), tier="secret", category=1, attempts=1)
    Sizing._plain.create(
        tenant=client.tenant, kind="handler", name="secret", tier=Tier.objects.get(slug="premium"), runs=20,
        cpu_milli=[1] * 20, memory_mb=[1] * 20, disk_mb=[0] * 20,
    )  # fmt: skip
    client.post("/teams", {"slug": "their-team", "name": "secret"})
    member = client.post(
        "/members", {"username": f"secret-{client.tenant.slug}", "role": "owner", "team": "their-team"}
    ).body["id"]
    key = client.post("/keys", {"name": "secret", "member_id": member, "scopes": ["read"]}).body["id"]
    client.post("/workflow-templates", {"name": "secret.template", "workflow": {"tasks": [{"handler": HANDLER}]}})
    client.post("/tiers", {"name": "their-tier", "cpu_milli": 1, "memory_mb": 1})
    Line._plain.create(
        tenant=client.tenant,
        category=Category.OFFPEAK,
        tier=Tier.objects.get(slug="their-tier", tenant=client.tenant),
    )
    rate = client.post("/rates", {"key": "secret", "starts": 1, "window_s": 1}).body["id"]
    Artifact._plain.create(
        task_id=task_id, tenant=client.tenant, name="secret/file", size=1, sha256="", content=b"x", fence=1
    )
    upload = client.call("POST", "/uploads", Upload_Length="0", Upload_Metadata="filename c2VjcmV0").body["id"]
    own = ("their-team", str(member), str(key), "their-tier", "secret/file", str(rate), str(a_node()), upload)
    return Objects(task_id, workflow, sha256, made.body["id"], "theirs_alone", hook, sent, *own)


def a_node() -> uuid.UUID:
    """A node at work, which belongs to no tenant."""
    now = timezone.now()
    values = {
        "hostname": "secret", "incarnation": uuid.uuid4(), "capacity": [1, 1, 0, 0, 0, 0], "slots": {"process": 1},
        "started_at": now, "heartbeat_at": now, "lease_expires_at": now + timedelta(minutes=1),
    }  # fmt: skip
    return Node.objects.get_or_create(name="secret", cell="far", defaults=values)[0].incarnation


# What to send where another tenant's object is named in the body or the query, and what must be the answer.
# A list shows one's own rows only; an endpoint with an object in its path needs no case, for the path says it.
LISTS: dict[str, Callable[[Objects], str]] = {
    "tasks": lambda theirs: f"/tasks?workflow_id={theirs.workflow_id}",
    "workflows": lambda _: "/workflows",
    "scripts": lambda _: "/scripts",
    "workflow-templates": lambda _: "/workflow-templates",
    "secrets": lambda _: "/secrets",
    "uploads": lambda _: "/uploads",
    "dead-letters": lambda _: "/dead-letters",
    "schedules": lambda _: "/schedules",
    "webhooks": lambda _: "/webhooks",
    "usage": lambda _: "/usage",
    "usage/hints": lambda _: "/usage/hints",
    "receipts": lambda theirs: f"/receipts?task_id={theirs.task_id}",
    "receipt-keys": lambda _: "/receipt-keys",
    "events": lambda _: "/events?last_event_id=1-1",
    "logs": lambda theirs: f"/logs?workflow_id={theirs.workflow_id}",
    "tiers": lambda _: "/tiers",
    "organization": lambda _: "/organization",
    "whoami": lambda _: "/whoami",
    "teams": lambda _: "/teams",
    "members": lambda theirs: f"/members?team={theirs.team_slug}",
    "keys": lambda theirs: f"/keys?member={theirs.member_id}",
    "rates": lambda _: "/rates",
    "nodes": lambda _: "/nodes",
    "queues": lambda _: "/queues",
    "limits": lambda _: "/limits",
    "handlers": lambda _: "/handlers",
    "openapi.json": lambda _: "/openapi.json?fields=openapi",  # what is one's own in it is the list of handlers
}
NAME_NOTHING = (
    "secrets", "uploads", "tiers", "rates", "organization", "teams", "scripts",
    "webhooks", "workflow-templates", "schedules/preview",
)  # fmt: skip
BODIES: dict[str, list[Callable[[Objects], Any]]] = {
    "organization/terminate": [lambda _: {"tenant": "other"}],
    "platform/terminate": [lambda _: {}],
    **{route: [] for route in NAME_NOTHING},
    "tasks": [
        lambda theirs: {"handler": HANDLER, "depends_on": [theirs.task_id]},
        lambda theirs: {"script": theirs.sha256},
    ],
    "workflows": [lambda theirs: {"tasks": [{"name": "a", "handler": HANDLER, "depends_on": [theirs.task_id]}]}],
    "stream-tickets": [lambda theirs: {"task_id": theirs.task_id}, lambda theirs: {"workflow_id": theirs.workflow_id}],
    "members": [lambda theirs: {"username": "x", "team": theirs.team_slug}],
    "keys": [lambda theirs: {"name": "x", "member_id": theirs.member_id, "scopes": ["read"]}],
    "schedules": [
        lambda theirs: {
            "name": "s",
            "kind": "daily",
            "rule": {"times": ["07:00"]},
            "task": {"script": theirs.sha256},
        }
    ],
}


# A filter matches one's own tasks alone: an answer of 200 that names none of theirs, and the fingerprint unchanged.
MATCHING: dict[str, list[Callable[[Objects], Any]]] = {
    "tasks/cancel": [
        lambda theirs: {"filter": {"workflow_id": theirs.workflow_id}},
        lambda _: {"filter": {"status": "waiting"}},
    ],
    "tasks/retry": [lambda _: {"filter": {"status": "failed"}}],
}


# Of the platform, not of a tenant: no scope that a tenant can give reaches them.
PLATFORM = {"nodes/<uuid:node_id>/drain", "nodes/<uuid:node_id>/resume"}


# A body that would be good for one's own object, so that the 404 is not a 422 by luck.
BODY: dict[str, dict[str, Any]] = {
    "workflows/<uuid:workflow_id>/tasks": {"POST": {"tasks": [{"name": "x", "handler": HANDLER}]}},
    "tasks/<uuid:task_id>/resubmit": {"POST": {}},
    "workflow-templates/<str:template_name>/submit": {"POST": {}},
    "tasks/<uuid:task_id>": {"PATCH": {"priority": 3}, "PUT": {"handler": HANDLER}},
    "webhooks/<uuid:webhook_id>": {"PATCH": {"enabled": False}},
    "teams/<str:team_slug>": {"PATCH": {"name": "taken over"}},
    "members/<uuid:member_id>": {"PATCH": {"role": "viewer"}},
    "tiers/<str:tier_name>": {"PATCH": {"memory_mb": 2}},
    "schedules/<uuid:schedule_id>": {"PATCH": {"paused": True}},
    "queues/<str:category>/<str:tier_name>": {"PATCH": {"paused": True}},
    "schedules/<uuid:schedule_id>/backfill": {"POST": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}},
}


def endpoints() -> Iterator[tuple[str, type, set[str]]]:
    """Route, view and path parameters of every endpoint of version 1."""
    for pattern in urlpatterns:
        view = vars(pattern.callback)["view_class"]
        if view is not Nowhere:
            yield str(pattern.pattern).replace("<any_case_", "<"), view, set(pattern.pattern.converters)


def path_of(route: str, parameters: set[str], values: dict[str, str]) -> str:
    """The path of a route with these values in it."""
    for name in parameters:
        route = re.sub(rf"<\w+:{name}>", values[name], route)
    return f"/{route}"


def test_another_tenants_object_does_not_exist() -> None:
    acme, other = client_of("acme"), client_of("other")
    theirs = own_something(other)
    before = fingerprint()
    for route, view, parameters in endpoints():
        does_not_exist(acme, theirs, route, view, parameters)
        assert fingerprint() == before, route


def does_not_exist(acme: ApiClient, theirs: Objects, route: str, view: Any, parameters: set[str]) -> None:
    """Try each method of an endpoint with another tenant's object."""
    values = theirs.names
    assert parameters <= set(values), f"own_something makes nothing for {parameters - set(values)}"
    offered = [method for method in METHODS if hasattr(view, method.lower())]
    assert offered, route
    for method in offered:
        if parameters:
            body = BODY.get(route, {}).get(method)
            answer = acme.call(method, path_of(route, parameters, values), body)
            # Nodes are nobody's: a tenant's key is told that it lacks the scope, whether there is such a node or not.
            expected = (403, "not_permitted") if route in PLATFORM else (404, "not_found")
            if method == "PUT":  # an id of one's own choice: that it is taken is all that is told
                expected = (409, "conflict")
            assert (answer.status, answer.code) == expected, f"{method} {route}"
        elif method == "GET":
            assert route in LISTS, f"the list {route} has no case here"
            found = acme.get(LISTS[route](theirs)).body
            shown = str(found)
            assert not [value for name, value in values.items() if name not in WORDS and value in shown], route
            assert "secret" not in shown, route
        elif route in MATCHING:
            for make in MATCHING[route]:
                answer = acme.post(path_of(route, parameters, values), make(theirs))
                assert (answer.status, answer.body["task_ids"], answer.body["matched"]) == (200, [], 0), route
        else:
            assert route in BODIES, f"{method} {route} has no case here"
            for make in BODIES[route]:
                assert acme.post(path_of(route, parameters, values), make(theirs)).status in {403, 404, 422}, route


def fingerprint() -> list[Any]:
    """What must not have changed."""
    return [
        *Task._plain.order_by("id").values_list("id", "state", "priority"),
        DeadLetter._plain.count(),
        *Schedule._plain.values_list("name", "version"),
        *Subscription._plain.values_list("pk", "enabled", "before_until"),
        *Delivery._plain.values_list("pk", "state", "attempts"),
        *Team.objects.values_list("pk", "name"),
        *Membership.objects.values_list("pk", "role", "team"),
        *ApiKey.objects.values_list("pk", "revoked_at", "scopes"),
        *RateLimit.objects.values_list("pk", "starts"),
        *Tier.objects.values_list("pk", "memory_mb", "retired_at"),
        *Node.objects.values_list("pk", "state"),
        *Line._plain.filter(paused=True).values_list("pk", "paused_by_itself"),
        *Tenant.objects.values_list("pk", "name", "paused"),
    ]


NEEDS = {"POST tasks": "submit", "POST tasks/cancel": "cancel", "POST tasks/<uuid:task_id>/cancel": "cancel"}


@pytest.mark.parametrize(
    ("route", "view", "parameters"), list(endpoints()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_each_method_needs_its_scope(route: str, view: Any, parameters: set[str]) -> None:
    acme = client_of("acme")
    values = {"task_id": str(uuid.uuid4()), "workflow_id": str(uuid.uuid4()), "sha256": "0" * 64}
    values |= {parameter: str(uuid.uuid4()) for parameter in parameters - set(values)}
    for method in (method for method in METHODS if hasattr(view, method.lower())):
        if (needed := getattr(view, method.lower()).operation.scope) == "any":  # every key may know itself
            continue
        if method == "GET":
            assert needed == ("manage" if route in {"keys", "keys/<str:key_id>"} else "read")
        assert needed == (needed if method == "GET" else NEEDS.get(f"{method} {route}", needed))
        without = [scope for scope in ("submit", "read", "cancel") if scope != needed]
        key, text = create_api_key(acme.tenant, "weak", without)
        answer = ApiClient(acme.tenant, key, text).call(method, path_of(route, parameters, values), {})
        assert (answer.status, answer.code) == (403, "not_permitted"), f"{method} {route}"


def test_manage_includes_the_other_scopes() -> None:
    assert client_of("acme", (ApiKey.Scope.MANAGE,)).post("/tasks", {"handler": HANDLER}).status == 201


def operator(*scopes: str) -> ApiClient:
    """A client with a key as only those who run the platform can make it."""
    acme = client_of("acme")
    return ApiClient(acme.tenant, *create_api_key(acme.tenant, "operator", scopes or ("operate",)))


def test_an_operator_drains_and_resumes_any_node() -> None:
    key, node_id = operator(), a_node()
    drained = key.post(f"/nodes/{node_id}/drain")
    assert (drained.status, drained.body) == (
        200, {"id": str(node_id), "name": "secret", "cell": "far", "state": "draining"},
    )  # fmt: skip
    assert Node.objects.get(incarnation=node_id).state == "draining"
    again = key.post(f"/nodes/{node_id}/drain")
    assert (again.status, again.code) == (409, "conflict")
    assert key.post(f"/nodes/{node_id}/resume").body["state"] == Node.objects.get(incarnation=node_id).state == "active"
    for missing in (uuid.uuid4(), 2**63):
        assert key.post(f"/nodes/{missing}/drain").status == 404
    # The scope is for nodes alone.
    assert (key.get("/tasks").status, key.post("/keys", {"name": "x"}).status) == (403, 403)


def test_managing_a_tenant_does_not_lead_to_its_operators_key() -> None:
    both = operator("manage", "operate")
    asked = both.post("/keys", {"name": "x", "scopes": ["read", "operate"]})
    assert (asked.status, asked.code, asked.body["field"]) == (403, "not_granted", "scopes")
    assert both.post("/keys", {"name": "x"}).body["field"] == "scopes", "what a key may do is said"
    rotated = both.post(f"/keys/{both.key.prefix}/rotate", {})
    assert (rotated.status, rotated.code) == (403, "not_granted")
    assert ApiKey.objects.filter(scopes__contains=["operate"]).count() == 1
    assert both.call("DELETE", f"/keys/{both.key.prefix}").status == 204


def test_a_request_id_comes_back() -> None:
    acme = client_of("acme")
    assert acme.get("/tiers", X_Request_Id="mine-1").headers["X-Request-Id"] == "mine-1"
    made = acme.get("/tasks/42", X_Request_Id="not a word").headers["X-Request-Id"]
    assert uuid.UUID(made).version == 7
