"""The wall between tenants where it is not REST: commands, admin pages, and what is told of tasks.

Generated over what there is: a new command, option or page without a case here fails.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.test import Client
from django.urls import URLPattern, URLResolver

from slackwater_monitoring.models import Delivery
from slackwater_monitoring.notify import deliveries
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from tests.integration.api.test_auth import Objects, fingerprint, own_something
from tests.support.api import client_of, furnish
from tests.support.hand_worker import HandWorker
from tests.support.webhooks import ALL, hook

OPERATORS = {
    "create_api_key", "create_demo", "create_tenant", "delete_tenant", "doctor", "migrate", "prune",
    "reseal_secrets",
    "run_dispatcher", "run_upkeep", "shell", "simulate", "up", "verify_receipts", "workflow_report",
}  # fmt: skip
"""Commands of the platform's operator, which speak for no tenant."""
Case = Callable[[Objects], list[str]]
COMMANDS: dict[str, list[Case]] = {
    "cancel": [
        lambda theirs: [theirs.task_id],
        lambda theirs: ["--filter", f"workflow_id={theirs.workflow_id}"],
        lambda _: ["--filter", "status=waiting"],
    ],
    "retry": [
        lambda theirs: [theirs.task_id],
        lambda theirs: ["--filter", f"workflow_id={theirs.workflow_id}"],
        lambda _: ["--filter", "state=failed"],
    ],
    "status": [
        lambda theirs: [theirs.task_id, "--logs"],
        lambda theirs: [theirs.workflow_id],
        lambda _: [],
    ],
    "explain": [lambda theirs: [theirs.task_id]],
    "dead_letters": [
        lambda _: [],
        lambda theirs: ["--retry", theirs.task_id],
        lambda _: ["--retry", "--all"],
    ],
    "submit": [
        lambda theirs: ["demo.echo", "--depends-on", theirs.task_id],
        lambda theirs: ["--script", theirs.sha256],
        lambda theirs: ["demo.echo", "--tier", theirs.tier_name],
    ],
    "nodes": [lambda _: [], lambda _: ["drain", "node-1"]],
    "policies": [lambda _: ["show"]],
    "prune": [lambda _: []],
    "schedules": [
        lambda _: [],
        lambda theirs: ["show", theirs.schedule_id],
        lambda _: ["show", "secret"],
        lambda theirs: [
            "backfill",
            theirs.schedule_id,
            "--start",
            "2026-01-01T00:00:00Z",
            "--end",
            "2026-01-02T00:00:00Z",
        ],
    ],
    "usage": [lambda _: []],
    "pause": [
        lambda theirs: ["schedule", theirs.schedule_id],
        lambda _: ["schedule", "secret"],
        lambda theirs: ["line", f"{theirs.category}/{theirs.tier_name}"],
    ],
    "resume": [
        lambda theirs: ["schedule", theirs.schedule_id],
        lambda theirs: ["line", f"{theirs.category}/{theirs.tier_name}"],
    ],
    "terminate": [
        lambda theirs: ["workflow", theirs.workflow_id, "--yes", "--wait", "0"],
        lambda theirs: ["line", f"{theirs.category}/{theirs.tier_name}", "--yes", "--wait", "0"],
        lambda _: ["tenant", "--yes", "--wait", "0"],
    ],
    "top": [lambda _: ["--once"]],
    "tenants": [lambda _: []],
    "workflows": [lambda _: []],
    "import_beat": [],  # reads what is no tenant's
    "import_workflow": [],  # names nothing that exists
}
"""What to say as one tenant where another's object is meant."""
QUIET = {"policies"}
"""Shows choices of the cell by their names, which are no tenant's own."""


@pytest.fixture
def two(db: None) -> tuple[Any, Objects]:
    """A tenant, and the objects of another."""
    furnish()
    mine, other = client_of("acme"), client_of("other")
    return mine, own_something(other)


def commands() -> Iterator[tuple[str, bool]]:
    """Every command of the platform, and whether it speaks for a tenant."""
    for name, app in get_commands().items():
        if app == "slackwater":
            parser = load_command_class("slackwater", name).create_parser("manage.py", name)
            yield name, any("--tenant" in action.option_strings for action in parser._actions)


@pytest.mark.parametrize(("name", "for_tenant"), sorted(commands()))
def test_a_command_reaches_one_tenant_alone(name: str, for_tenant: bool, two: tuple[Any, Objects]) -> None:
    if not for_tenant:
        assert name in OPERATORS, f"say whether {name} is an operator's, or give it --tenant and a case here"
        return
    assert name in COMMANDS, f"the command {name} has no case here"
    _, theirs = two
    before = fingerprint()
    own = {value for field, value in theirs.names.items() if len(value) > 8 and field != "artifact_name"}
    for make in COMMANDS[name]:
        arguments = make(theirs)
        out, err = StringIO(), StringIO()
        with contextlib.suppress(CommandError):
            call_command(name, *arguments, "--tenant", "acme", stdout=out, stderr=err)
        shown = out.getvalue()
        assert not [value for value in own if value in shown], (name, arguments)
        assert name in QUIET or "secret" not in shown, (name, arguments)
        assert fingerprint() == before, (name, arguments)


def pages(patterns: Any, prefix: str = "/admin/") -> Iterator[str]:
    """Every address of the admin, with a made-up value for each parameter."""
    for pattern in patterns:
        text = re.sub(r"<[^>]+>", "1", str(pattern.pattern)).lstrip("^").rstrip("$\\Z")
        if isinstance(pattern, URLResolver):
            yield from pages(pattern.url_patterns, prefix + text)
        elif isinstance(pattern, URLPattern):
            yield prefix + text


OPEN = {"/admin/login/", "/admin/logout/", "/admin/jsi18n/"}


def test_no_admin_page_opens_to_a_member_of_a_tenant(two: tuple[Any, Objects]) -> None:
    mine, _ = two
    mine.post("/members", {"username": "ann", "role": "owner"})
    member = get_user_model().objects.get(username="ann")
    assert not member.is_staff
    for visitor in (None, member):
        client = Client(raise_request_exception=False)
        if visitor is not None:
            client.force_login(visitor)
        seen = 0
        for page in pages(admin.site.get_urls()):
            if page in OPEN or "(?P" in page:
                continue
            for method in ("get", "post"):
                answer = getattr(client, method)(page)
                assert answer.status_code in {302, 403, 404}, (method, page, answer.status_code)
                if answer.status_code == 302:
                    assert "/login/" in answer["Location"] or answer["Location"].startswith("/admin/"), page
            seen += 1
        assert seen > 100


@pytest.mark.django_db(transaction=True)
def test_what_is_told_of_a_task_is_told_to_its_tenant_alone(settings: Any) -> None:
    """Both ask for all events; each gets its own, by webhook and as a notice of the live stream."""
    furnish()
    settings.SLACKWATER = {**settings.SLACKWATER, "WEBHOOK_PRIVATE": True, "WEBHOOK_PORTS": (0,)}
    worker, clients = HandWorker(), [client_of("acme"), client_of("other")]
    tasks: dict[int, set[str]] = {}
    late: set[tuple[int, str]] = set()
    for client in clients:
        hook(client, "http://127.0.0.1:9/x", ALL)
        done, given_up = client.task(), client.task(delay_tolerance_s=0, on_late="give_up")
        tasks[client.tenant.pk] = {done, given_up}
        late.add((client.tenant.pk, given_up))
        worker.run(UUID(done))
    upkeep = LedgerUpkeep(worker.conf, lambda _: None)
    upkeep.expire_late()
    upkeep.db.close()
    notices: list[deliveries.Notice] = []
    with connect() as conn, conn.transaction():
        deliveries.spread(conn, 100, notices)
    found: dict[int, set[str]] = {}
    for row in Delivery._plain.select_related("subscription"):
        assert row.tenant_id == row.subscription.tenant_id
        found.setdefault(row.tenant_id, set()).add(str(row.task_id))
    assert found == tasks
    assert {(notice[2], notice[0]) for notice in notices} == late
