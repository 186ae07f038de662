"""A tenant with a key, and a client that speaks for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from slackwater_api.http.auth import remembered
from slackwater_dashboard import live
from slackwater_resources.models import Handler, Tier
from slackwater_tasks.graph import relatives
from slackwater_tasks.ledger import active_policies, reference_cache
from slackwater_tasks.runtime import output
from slackwater_tasks.submission import refusal_cache
from slackwater_tenants.models import ApiKey, Tenant
from slackwater_tenants.services import create_api_key, create_tenant

HANDLER = "demo.echo"
ALL_SCOPES = ("submit", "read", "cancel", "manage")
TIERS = {"basic": (250, 256), "regular": (500, 1024), "premium": (1000, 4096)}


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """A test begins as a process does: what this one remembers of rows, the test before may have rolled back."""
    forget_lookups()


def forget_lookups() -> None:
    """Forget what this process remembers of the database, as if it had been started anew."""
    reference_cache.forget()
    active_policies.forget()
    refusal_cache.forget()
    remembered.forget()
    relatives.kept.forget()
    output._limits.clear()
    live._memory = live._Memory()


def furnish() -> None:
    """The shared tiers and one handler, where the migrations' are not there."""
    there = set(Tier.objects.filter(tenant=None).values_list("slug", flat=True))
    for slug in TIERS.keys() - there:
        cpu, memory = TIERS[slug]
        Tier.objects.create(slug=slug, tenant=None, cpu_milli=cpu, memory_mb=memory)
    Handler.objects.get_or_create(name=HANDLER)


@dataclass(frozen=True)
class Answer:
    """A response, read."""

    status: int
    body: Any
    headers: Any

    @property
    def code(self) -> str:
        """The problem's code."""
        return str(self.body["code"])


class ApiClient:
    """Calls the API with a key."""

    def __init__(self, tenant: Tenant, key: ApiKey, text: str) -> None:
        self.tenant, self.key, self.text = tenant, key, text
        self._client = Client(raise_request_exception=False)

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Answer:
        """One request under ``/api/v1``; ``headers`` with underscores for dashes."""
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent.setdefault("Authorization", f"Bearer {self.text}")
        kind = sent.pop("Content-Type", "application/json")
        response = self._client.generic(method, f"/api/v1{path}", data, content_type=kind, headers=sent)
        return read(response)

    def get(self, path: str, **headers: Any) -> Answer:
        """GET."""
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        """POST."""
        return self.call("POST", path, body, **more)

    def patch(self, path: str, body: Any) -> Answer:
        """PATCH."""
        return self.call("PATCH", path, body)

    def task(self, **fields: Any) -> str:
        """Submit a task and return its id."""
        answer = self.post("/tasks", {"handler": HANDLER, **fields})
        assert answer.status == 201, answer.body
        return str(UUID(answer.body["id"]))


def read(response: Any) -> Answer:
    """The response with its JSON."""
    kind = response.headers.get("Content-Type", "")
    content = b"".join(response)
    body = json.loads(content) if "json" in kind and content else content
    if kind.startswith("text/event-stream"):
        body = content.decode()
    return Answer(response.status_code, body, response.headers)


def client_of(slug: str, scopes: tuple[str, ...] = ALL_SCOPES, **fields: Any) -> ApiClient:
    """A client of a new tenant."""
    tenant = create_tenant(slug, slug.title(), **fields)
    return ApiClient(tenant, *create_api_key(tenant, "test", scopes))


def ids(client: ApiClient, path: str, name: str = "name") -> list[Any]:
    """What a list shows."""
    answer = client.get(path)
    assert answer.status == 200, answer.body
    return [item[name] for item in answer.body["items"]]
