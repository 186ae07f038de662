"""The served API against its own document, by schemathesis: a real server, a tenant's real objects, every kind of key.

Short here as an owner; at length, in the slow suite, as a key of each scope and a member of each role.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slackwater_api.http.reference import document
from slackwater_resources.models import Handler
from slackwater_tasks.models import Task
from slackwater_tenants.keys import make_key
from slackwater_tenants.models import ApiKey, Tenant
from slackwater_tenants.services import create_api_key
from tests.integration.api.test_auth import fingerprint, own_something
from tests.support.api import ALL_SCOPES, HANDLER, ApiClient, client_of, furnish
from tests.support.processes import running
from tests.support.submitters import free_port, is_up
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(1500)]
REFUSED = ["401", "403", "404", "409", "412", "413", "416", "422", "429"]
"""Statuses that a request may meet which is as the document says: ``contract_checks`` tells which 422 are meant."""
CONFIGURATION = f"""
[generation]
allow-x00 = false  # no text anywhere may hold a NUL: PostgreSQL cannot store it
[checks.positive_data_acceptance]
expected-statuses = {json.dumps(["2xx", "3xx", *REFUSED])}
[checks.negative_data_rejection]
expected-statuses = {json.dumps(["400", "405", "406", "415", *REFUSED])}
"""
BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[3]
HOOKED = {**os.environ, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.support.contract_checks"}
STREAMS = ("stream_task", "stream_workflow", "stream_events", "stream_task_logs", "stream_task_chunks")
"""A live stream has no end to wait for; their beginnings are compared with the document elsewhere."""
END_KEYS = ("revoke_key", "rotate_key", "delete_member", "change_member")
"""These may end the key that asks, and all that came after them would be a 401: they come last."""
ROLES = ("owner", "operator", "viewer")
CHANGES_NOTHING = {"read", "viewer"}


@dataclass
class Served:
    """A server, a tenant with an object of each kind, and another tenant whose objects must stay as they are."""

    url: str
    folder: Path
    tenant: Tenant
    names: dict[str, list[str]] = field(default_factory=dict)
    """Values for the parameters of paths: real ones, and some that lead nowhere."""

    def key(self, who: str) -> tuple[ApiKey, str]:
        """A key of the tenant with one scope, or of a new member in one role."""
        if who in ROLES:
            client = client_of_tenant(self.tenant)
            member = client.post("/members", {"username": f"the-{who}", "role": who}).body["id"]
            return make_key(self.tenant, {"name": who, "member_id": member, "scopes": scopes_of(who)})
        return create_api_key(self.tenant, who, (who,))

    def compare(self, text: str, *options: str) -> str:
        """Run schemathesis with a key; returns what it said."""
        command = [
            str(BIN / "schemathesis"),
            "run",
            f"{self.url}/api/schema/",
            "--no-color",
            "--checks",
            "all",
            "--request-timeout",
            "75",  # the longest wait takes 60
        ]
        command += ["-H", f"Authorization: Bearer {text}", *options]
        done = subprocess.run(command, cwd=self.folder, env=HOOKED, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        return done.stdout

    def configure(self) -> None:
        """Say what paths may name."""
        lines = []
        for name, values in self.names.items():
            lines += [f"[dictionaries.{name}]", f"values = {json.dumps(values)}"]
        lines.append("[parameters]")
        for name in self.names:
            lines.append(f'"path.{name}" = {{ dictionary = "{name}", probability = 0.7 }}')
        (self.folder / "schemathesis.toml").write_text("\n".join([*lines, CONFIGURATION]))


def scopes_of(role: str) -> list[str]:
    """All that the role allows."""
    from slackwater_tenants.members import ROLE_SCOPES

    return sorted(ROLE_SCOPES[role])


def client_of_tenant(tenant: Tenant) -> ApiClient:
    """A client of a tenant that is there."""
    key, text = make_key(tenant, {"name": "maker", "scopes": list(ALL_SCOPES)})
    return ApiClient(tenant, key, text)


@pytest.fixture
def served(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Served]:
    """The API as it is run in production, on real objects."""
    furnish()
    for name in ("demo.add", "mail.send"):
        Handler.objects.create(name=name)
    mine, other = client_of("contract"), client_of("other")
    plan = mine.tenant.plan
    plan.tasks_per_hour = plan.burst = 1_000_000
    plan.save()
    port = free_port()
    made = Served(f"http://127.0.0.1:{port}", tmp_path, mine.tenant)
    # Twice of one's own: one of them may be given up by the first request that names it.
    for objects in (own_something(mine), own_something(other)):
        for name, value in objects.names.items():
            made.names.setdefault(name, []).append(value)
    for name, values in made.names.items():
        values.append(HANDLER if name == "handler_name" else str(uuid.uuid4()))
    env = {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_REDIS_URL": redis_url,
        "SLACKWATER_VAR": str(tmp_path / "var"),
        "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": "platform:apps:.",
    }
    server = [sys.executable, "-m", "granian", "--interface", "asgi", "--port", str(port), "--no-ws"]
    made.configure()
    with running([*server, "slackwater.asgi:application"], env=env, name="api") as api:
        wait_until(lambda: is_up(port), timeout=60, message="the API answers")
        yield made
        assert "Traceback" not in api.output, api.output[-4000:]


def compared(served: Served, who: str, *options: str, ending: bool = False) -> None:
    """Compare as somebody; what he may not change is as it was, and his key still holds."""
    key, text = served.key(who)
    before = fingerprint()
    left_out = [part for name in (*STREAMS, *END_KEYS) for part in ("--exclude-operation-id", name)]
    served.compare(text, *options, *left_out)
    key.refresh_from_db()
    assert key.revoked_at is None, "the key that asked was revoked on the way: what came after was a 401"
    after = fingerprint()
    if who in CHANGES_NOTHING:
        assert after == before
    elif who not in {"cancel", "operate"}:
        assert Task._plain.filter(tenant=served.tenant).count() > 2, "nothing was accepted"
    if ending:
        served.compare(text, *options, *(part for name in END_KEYS for part in ("--include-operation-id", name)))
    other = Task._plain.exclude(tenant=served.tenant)
    assert sorted(other.values_list("name", flat=True)) == ["secret", "w"]


def test_the_operations_that_are_named_here_exist() -> None:
    paths: Any = document()["paths"]
    known = {operation["operationId"] for item in paths.values() for operation in item.values()}
    assert {*STREAMS, *END_KEYS} <= known


def test_no_answer_is_undocumented_or_broken(served: Served) -> None:
    compared(served, "owner", "-n", "1", "--phases", "examples,fuzzing", "--seed", "1")


@pytest.mark.slow
@pytest.mark.parametrize("who", [*ROLES, *ApiKey.Scope.values])
def test_no_answer_is_undocumented_or_broken_at_length(served: Served, who: str) -> None:
    # Who may do little is told so by most operations: fewer cases of it show as much.
    compared(served, who, "-n", "40" if who in {"owner", "manage"} else "20", ending=True)
