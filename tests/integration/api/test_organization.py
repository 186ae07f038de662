"""A tenant's own: users and what their roles allow, teams, keys, and tiers within the plan."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from slackwater_resources.models import Tier
from slackwater_tasks.models import Task
from slackwater_tenants.members import ROLE_SCOPES
from slackwater_tenants.models import ApiKey, Membership, Tenant
from tests.support.api import HANDLER, ApiClient, forget_lookups

pytestmark = pytest.mark.django_db


def member(acme: ApiClient, name: str, role: str) -> tuple[str, ApiClient]:
    """A user with a role, and a client that speaks with a key of its own."""
    made = acme.post("/members", {"username": name, "role": role})
    assert made.status == 201, made.body
    key = acme.post(
        "/keys", {"name": name, "member_id": made.body["id"], "scopes": sorted(ROLE_SCOPES[role] - {"manage"})}
    )
    assert key.status == 201, key.body
    return made.body["id"], ApiClient(acme.tenant, ApiKey.objects.get(prefix=key.body["id"]), key.body["key"])


def test_each_role_may_do_what_it_is_for(acme: ApiClient) -> None:
    task = {"handler": HANDLER}
    for role, expected in {
        "viewer": (200, 403, 403, 403),
        "operator": (200, 201, 403, 403),
        "owner": (200, 201, 403, 403),
    }.items():
        _, client = member(acme, role, role)
        team = {"slug": f"t-{role}", "name": "T"}
        statuses = (
            client.get("/tasks").status, client.post("/tasks", task).status,
            client.post("/teams", team).status, client.get("/keys").status,
        )  # fmt: skip
        assert statuses == expected, role  # manage must be asked for, even by an owner
    owner = acme.get("/members?role=owner").body["items"][0]["id"]
    text = acme.post("/keys", {"name": "all", "member_id": owner, "scopes": ["manage"]}).body["key"]
    assert acme.call("POST", "/teams", {"slug": "x", "name": "X"}, Authorization=f"Bearer {text}").status == 201


def test_a_key_follows_its_members_role_at_once(acme: ApiClient) -> None:
    member(acme, "first", "owner")
    member_id, client = member(acme, "ann", "operator")
    assert client.post("/tasks", {"handler": HANDLER}).status == 201
    assert acme.patch(f"/members/{member_id}", {"role": "viewer"}).body["role"] == "viewer"
    assert client.post("/tasks", {"handler": HANDLER}).status == 403
    shown = client.get("/organization").body
    assert (shown["scopes"], shown["role"], shown["member_id"]) == (["read"], "viewer", member_id)
    beyond = acme.post("/keys", {"name": "x", "member_id": member_id, "scopes": ["read", "cancel"]})
    assert (beyond.status, beyond.body["field"]) == (422, "scopes")
    assert acme.call("DELETE", f"/members/{member_id}").status == 204
    assert client.get("/tasks").status == 401
    assert not get_user_model().objects.filter(username="ann").exists()


def test_the_last_owner_stays(acme: ApiClient) -> None:
    ann, _ = member(acme, "ann", "owner")
    for answer in (acme.patch(f"/members/{ann}", {"role": "viewer"}), acme.call("DELETE", f"/members/{ann}")):
        assert (answer.status, answer.body["field"]) == (409, "role")
    bob, _ = member(acme, "bob", "owner")
    assert acme.patch(f"/members/{ann}", {"role": "viewer"}).status == 200
    assert acme.call("DELETE", f"/members/{bob}").status == 409


def test_a_user_of_others_is_neither_taken_in_nor_changed(acme: ApiClient) -> None:
    users = get_user_model()
    user = users.objects.create_user("admin", "admin@example.org", "password", is_staff=True)
    taken = acme.post("/members", {"username": "admin", "email": "mine@example.org"})
    assert (taken.status, taken.body["field"]) == (409, "username")
    row = Membership.objects.create(tenant=acme.tenant, user=user, role="viewer")
    refused = acme.patch(f"/members/{row.public_id}", {"email": "mine@example.org"})
    assert (refused.status, refused.body["field"]) == (409, "email")
    assert acme.call("DELETE", f"/members/{row.public_id}").status == 204
    assert users.objects.get(username="admin").email == "admin@example.org"


def test_teams_group_users(acme: ApiClient) -> None:
    assert acme.post("/teams", {"slug": "crew", "name": "Crew"}).status == 201
    assert acme.post("/teams", {"slug": "crew", "name": "Crew"}).status == 409
    acme.post("/members", {"username": "ann", "team": "crew"})
    acme.post("/members", {"username": "bob"})
    assert [row["username"] for row in acme.get("/members?team=crew").body["items"]] == ["ann"]
    assert acme.get("/teams/crew").body["members"] == 1
    assert acme.patch("/teams/crew", {"name": "The crew"}).body["name"] == "The crew"
    assert acme.call("DELETE", "/teams/crew").status == 204
    assert [row["team"] for row in acme.get("/members?sort=created_at").body["items"]] == [None, None]


def test_a_key_is_shown_once_and_rotated(acme: ApiClient) -> None:
    made = acme.post("/keys", {"name": "nightly", "scopes": ["read"]}).body
    listed = {row["id"]: row for row in acme.get("/keys").body["items"]}[made["id"]]
    assert made["key"].split("_")[1] == listed["id"]
    assert "key" not in listed
    rotated = acme.post(f"/keys/{made['id']}/rotate", {"overlap_s": 60}).body
    assert (rotated["name"], rotated["scopes"]) == ("nightly", ["read"])
    for text in (made["key"], rotated["key"]):
        assert acme.get("/tasks", Authorization=f"Bearer {text}").status == 200
    old = ApiKey.objects.get(prefix=made["id"])
    assert old.expires_at is not None
    assert timedelta(seconds=50) < old.expires_at - timezone.now() <= timedelta(seconds=60)
    again = acme.post(f"/keys/{rotated['id']}/rotate").body
    assert acme.get("/tasks", Authorization=f"Bearer {rotated['key']}").status == 401
    assert acme.call("DELETE", f"/keys/{again['id']}").status == 204
    assert acme.get("/tasks", Authorization=f"Bearer {again['key']}").status == 401
    assert acme.post(f"/keys/{again['id']}/rotate").status == 409


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/members", {"username": ""}, "username"),
        ("/members", {"username": "a b"}, "username"),
        ("/members", {"username": "x", "email": "no"}, "email"),
        ("/members", {"username": "x", "role": "king"}, "role"),
        ("/members", {"username": "x", "role": []}, "role"),
        ("/members", {"username": "x", "team": "none"}, "team"),
        ("/members", {"username": "x", "is_staff": True}, "is_staff"),
        ("/teams", {"slug": "A", "name": "x"}, "slug"),
        ("/teams", {"slug": "a", "name": ""}, "name"),
        ("/keys", {"name": "x", "scopes": ["fly"]}, "scopes"),
        ("/keys", {"name": "x", "scopes": [1]}, "scopes"),
        ("/keys", {"name": "x"}, "scopes"),
        ("/keys", {"name": "x", "member_id": 2**70, "scopes": ["read"]}, "member_id"),
        ("/keys", {"name": "x", "scopes": ["read"], "expires_at": "2030-01-01"}, "expires_at"),
        ("/keys", {"name": "x", "scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ("/tiers", {"name": "Large", "cpu_milli": 1, "memory_mb": 1}, "name"),
        ("/tiers", {"name": "x", "memory_mb": 1}, "cpu_milli"),
        ("/tiers", {"name": "x", "cpu_milli": 0, "memory_mb": 1}, "cpu_milli"),
        ("/tiers", {"name": "x", "cpu_milli": 1, "memory_mb": True}, "memory_mb"),
        ("/tiers", {"name": "x", "cpu_milli": 1, "memory_mb": 1, "gpu": 1}, "gpu"),
    ],
)
def test_what_is_wrong_is_named(acme: ApiClient, path: str, body: Any, field: str) -> None:
    answer = acme.post(path, body)
    assert (answer.status, answer.body["field"]) == (422, field)


# -- tiers of one's own -----------------------------------------------------------------------------------------------
OWN = {"name": "wide", "cpu_milli": 2000, "memory_mb": 512}


def test_a_tier_of_ones_own_is_named_by_tasks_until_it_is_given_up(acme: ApiClient) -> None:
    assert acme.post("/tasks", {"handler": HANDLER, "tier": "wide"}).status == 422
    made = acme.post("/tiers", OWN)
    assert (made.status, made.body["own"], made.body["default_execution_cap_s"]) == (201, True, 600)
    task_id = acme.task(tier="wide")
    assert acme.patch("/tiers/wide", {"memory_mb": 1024}).body["memory_mb"] == 1024
    assert acme.call("DELETE", "/tiers/wide").status == 204
    assert acme.post("/tasks", {"handler": HANDLER, "tier": "wide"}).status == 422
    assert "wide" not in str(acme.get("/tiers").body)
    assert acme.get("/tiers/wide").status == 404
    assert acme.get(f"/tasks/{task_id}").body["tier"] == "wide"
    assert acme.post("/tiers", {**OWN, "memory_mb": 64}).body["memory_mb"] == 64
    assert Tier.objects.get(slug="wide").pk == Task._plain.get(pk=task_id).tier_id


def test_the_plan_says_how_many_and_how_large(acme: ApiClient) -> None:
    plan = acme.tenant.plan
    plan.max_own_tiers, plan.largest_tier = 1, {"cpu_milli": 2000, "memory_mb": 1024}
    plan.save()
    forget_lookups()
    for field, value in (
        ("cpu_milli", 2001),
        ("memory_mb", 1025),
        ("ports", 1),
        ("default_execution_cap_s", 10**6),
    ):
        refused = acme.post("/tiers", {**OWN, field: value})
        assert (refused.status, refused.code, refused.body["field"]) == (403, "not_granted", field)
    assert acme.post("/tiers", OWN).status == 201
    assert acme.post("/tiers", OWN).status == 409
    more = acme.post("/tiers", {**OWN, "name": "other"})
    assert (more.status, more.code) == (403, "not_granted")
    assert acme.patch("/tiers/wide", {"cpu_milli": 5000}).body["field"] == "cpu_milli"
    limits = acme.get("/limits").body["limits"]
    assert (limits["max_own_tiers"], limits["largest_tier"]["cpu_milli"]) == (1, 2000)


def test_a_shared_tier_is_neither_shadowed_nor_changed(acme: ApiClient) -> None:
    shadow = acme.post("/tiers", {**OWN, "name": "premium"})
    assert (shadow.status, shadow.body["field"]) == (409, "name")
    for method, body in (("PATCH", {"memory_mb": 1}), ("DELETE", None)):
        assert acme.call(method, "/tiers/basic", body).status == 403
    acme.tenant.plan.tiers = ["basic"]
    acme.tenant.plan.save()
    forget_lookups()
    assert acme.get("/tiers/premium").status == 404


def test_it_costs_what_the_shared_ones_would(acme: ApiClient) -> None:
    Tier.objects.filter(tenant=None).delete()
    for slug, cpu, price in (("basic", 1000, 100), ("huge", 10_000, 700)):
        Tier.objects.create(slug=slug, cpu_milli=cpu, memory_mb=1000, price_micros_per_hour=price)
    # Twice a basic tier's CPU costs 200; a fifth of the huge one's 140, but its memory is needed half: 350.
    assert acme.post("/tiers", {"name": "a", "cpu_milli": 2000, "memory_mb": 500}).body["price_micros_per_hour"] == 200
    assert acme.post("/tiers", {"name": "b", "cpu_milli": 4000, "memory_mb": 1}).body["price_micros_per_hour"] == 280
    assert acme.patch("/tiers/b", {"cpu_milli": 1}).body["price_micros_per_hour"] == 1


def test_an_organisation_renames_itself_and_nothing_else(acme: ApiClient) -> None:
    assert acme.patch("/organization", {"name": "Acme Ltd"}).body["name"] == "Acme Ltd"
    assert Tenant.objects.get(pk=acme.tenant.pk).name == "Acme Ltd"
    for field in ("plan", "trusted", "paused", "script_root", "cell"):
        assert acme.patch("/organization", {"name": "x", field: "y"}).body["field"] == field
