"""Pauses over REST and by command: of an organisation, of a line, and who has the last word."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from scheduler_ext.core.states import Category
from slackwater_resources.models import Handler
from slackwater_schedules.models import Schedule
from slackwater_tasks.control.lines import set_line_paused
from slackwater_tasks.models import Line
from slackwater_tenants.members import ROLE_SCOPES
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import set_paused
from tests.support.api import HANDLER, ApiClient, forget_lookups

pytestmark = pytest.mark.django_db


# -- pausing one's own ------------------------------------------------------------------------------------------------
def paused(answer: Any) -> tuple[bool, str | None]:
    """Whether, and by whom."""
    assert answer.status == 200, answer.body
    return answer.body["paused"], answer.body["paused_by"]


def test_an_organisation_pauses_itself_and_goes_on(acme: ApiClient) -> None:
    acme.task()
    assert paused(acme.get("/organization")) == (False, None)
    assert paused(acme.patch("/organization", {"paused": True})) == (True, "organization")
    assert paused(acme.patch("/organization", {"paused": True})) == (True, "organization")
    assert acme.get("/queues").body["items"][0]["paused_by"] == "organization"
    assert acme.patch("/organization", {"name": "New"}).body["paused"] is True
    assert paused(acme.patch("/organization", {"paused": False})) == (False, None)
    assert Tenant.objects.get(slug="acme").name == "New"
    for body in ({"paused": 1}, {"paused": None}, {"name": "Other", "paused": "no"}):
        assert acme.patch("/organization", body).body["field"] == "paused"
    assert acme.patch("/organization", {}).status == 422
    assert Tenant.objects.get(slug="acme").name == "New"


def test_who_runs_the_platform_has_the_last_word_on_a_tenant(acme: ApiClient) -> None:
    tenant = Tenant.objects.get(slug="acme")
    acme.patch("/organization", {"paused": True})
    assert set_paused(tenant, paused=True), "the platform's pause takes the place of the tenant's own"
    assert not set_paused(tenant, paused=True)
    forget_lookups()
    refused = acme.patch("/organization", {"paused": False})
    assert (refused.status, refused.code, refused.body["field"]) == (403, "not_granted", "paused")
    assert paused(acme.patch("/organization", {"paused": True})) == (True, "platform")
    assert set_paused(tenant, paused=False)
    assert not set_paused(tenant, paused=False)
    forget_lookups()
    assert paused(acme.get("/organization")) == (False, None)


def test_a_line_is_paused_by_its_tenant_and_by_the_platform(acme: ApiClient) -> None:
    path = "/queues/delayable/basic"
    assert acme.get(path).status == acme.patch(path, {"paused": True}).status == 404
    acme.task()
    tag = acme.get(path).headers["ETag"]
    assert paused(acme.call("PATCH", path, {"paused": True}, If_Match=tag)) == (True, "organization")
    assert acme.call("PATCH", path, {"paused": False}, If_Match=tag).status == 412
    assert paused(acme.patch(path, {"paused": False})) == (False, None)
    line = Line._plain.get()
    assert set_line_paused(line, paused=True)
    assert (acme.patch(path, {"paused": False}).status, paused(acme.get(path))) == (403, (True, "platform"))
    assert set_line_paused(line, paused=False)
    for body, field in (({}, "paused"), ({"paused": 0}, "paused"), ({"ready": 1}, "ready")):
        assert acme.patch(path, body).body["field"] == field
    for nowhere in ("/queues/Delayable/basic", "/queues/soon/basic", "/queues/urgent/basic"):
        assert acme.get(nowhere).status == 404


def test_a_line_of_several_sets_of_labels_is_paused_and_goes_on_as_one(acme: ApiClient) -> None:
    path = "/queues/delayable/basic"
    acme.task()
    acme.task(require_labels=["gpu"])
    own_share = {"share_weight": 2, "tasks": [{"name": "t", "handler": HANDLER}]}
    assert acme.post("/workflows", own_share).status == 201
    plain, *others = Line._plain.order_by("pk")
    assert len(others) == 2
    assert paused(acme.patch(path, {"paused": True})) == (True, "organization")
    for _ in range(2):
        again = acme.call("PATCH", path, {"paused": False}, Idempotency_Key="go on")
        assert paused(again) == (False, None)
    assert not Line._plain.filter(paused=True).exists()

    # What the platform paused stays so; the rest is the tenant's, and is what the line shows.
    assert set_line_paused(plain, paused=True)
    assert paused(acme.get(path)) == paused(acme.patch(path, {"paused": False})) == (False, None)
    assert paused(acme.patch(path, {"paused": True})) == (True, "organization")
    assert paused(acme.patch(path, {"paused": False})) == (False, None)
    assert list(Line._plain.filter(paused=True)) == [plain]
    for line in others:
        assert set_line_paused(line, paused=True)
    refused = acme.patch(path, {"paused": False})
    assert (refused.status, refused.code, paused(acme.get(path))) == (403, "not_granted", (True, "platform"))


def test_the_command_pauses_every_set_of_labels_of_a_line(acme: ApiClient) -> None:
    acme.task()
    acme.task(require_labels=["gpu"])
    acme.patch("/queues/delayable/basic", {"paused": True})
    for command, before in (("pause", True), ("pause", False), ("resume", True), ("resume", False)):
        out = StringIO()
        call_command(command, "line", "delayable/basic", "--json", stdout=out)
        assert json.loads(out.getvalue())["changed"] is before
        shown = (True, "platform") if command == "pause" else (False, None)
        assert paused(acme.get("/queues/delayable/basic")) == shown


def test_an_operator_of_a_tenant_pauses_a_line_and_no_viewer_does(acme: ApiClient) -> None:
    acme.task()
    for role, status in (("viewer", 403), ("operator", 200)):
        member = acme.post("/members", {"username": role, "role": role}).body["id"]
        key = ApiClient(
            acme.tenant,
            acme.key,
            acme.post(
                "/keys", {"name": role, "member_id": member, "scopes": sorted(ROLE_SCOPES[role] - {"manage"})}
            ).body["key"],
        )
        assert key.patch("/queues/delayable/basic", {"paused": True}).status == status
        assert key.patch("/organization", {"paused": True}).status == 403


def test_the_commands_pause_and_let_go_on(acme: ApiClient) -> None:
    acme.task()
    acme.post("/schedules", {"name": "nightly", "kind": "daily", "task": {"handler": HANDLER}})

    def said(*arguments: str) -> dict[str, Any]:
        out = StringIO()
        call_command(*arguments, "--json", stdout=out)
        found: dict[str, Any] = json.loads(out.getvalue())
        return found

    for what, shown in (
        (["tenant"], lambda: Tenant.objects.get().paused),
        (["line", "delayable/basic"], lambda: Line._plain.get(category=Category.DELAYABLE).paused),
        (["handler", HANDLER], lambda: Handler.objects.get(name=HANDLER).paused),
        (["schedule", "nightly"], lambda: Schedule._plain.get().paused),
    ):
        named = {"kind": what[0], "name": what[1] if len(what) > 1 else "acme"}
        assert said("pause", *what) == {**named, "paused": True, "changed": True}
        assert shown()
        assert said("pause", *what) == {**named, "paused": True, "changed": False}
        assert said("resume", *what) == {**named, "paused": False, "changed": True}
        assert not shown()
    for wrong, code in (
        (["line"], 2),
        (["line", "soon/basic"], 3),
        (["handler", "no"], 3),
        (["schedule", "no"], 3),
    ):
        with pytest.raises(CommandError) as caught:
            call_command("pause", *wrong)
        assert caught.value.returncode == code
