"""Keys are remembered for a second, and then asked about by what changes with them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scheduler_ext.core.errors import NotAuthenticated
from slackwater_api.http import auth
from slackwater_tenants.models import ApiKey, Membership, Plan, Tenant
from slackwater_tenants.services import create_api_key, revoke_api_key
from tests.support.api import ApiClient, client_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


def test_an_expired_key_is_401_even_while_it_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    acme = client_of("acme")
    monkeypatch.setattr(auth, "CACHE_TTL_S", 3600.0)
    key, text = create_api_key(acme.tenant, "short", ("read",), timezone.now() + timedelta(hours=1))
    short = ApiClient(acme.tenant, key, text)
    assert short.get("/tasks").status == 200
    principal = auth.remembered.known(f"Bearer {text}")
    assert principal is not None
    principal.key.expires_at = timezone.now()  # an hour later
    ApiKey.objects.update(expires_at=principal.key.expires_at)
    assert short.get("/tasks").status == 401


def test_a_revoked_key_stops_soon() -> None:
    assert auth.CACHE_TTL_S < 2, "what is said of it"
    acme = client_of("acme")
    assert acme.get("/tiers").status == 200
    assert revoke_api_key(acme.key)
    wait_until(lambda: acme.get("/tiers").status == 401, timeout=10)


def test_a_remembered_key_costs_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "CACHE_TTL_S", 60.0)
    acme = client_of("acme")
    acme.get("/tiers")
    with CaptureQueriesContext(connection) as queries:
        acme.get("/tiers")
    assert not [query for query in queries if "apikey" in query["sql"]]


def test_of_a_key_that_nobody_changed_only_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "CACHE_TTL_S", 0.0)
    acme = client_of("acme")
    ann = User.objects.create_user("ann")
    member = Membership.objects.create(tenant=acme.tenant, user=ann, role=Membership.Role.OPERATOR)
    key, text = create_api_key(acme.tenant, "hers", ("read", "submit"), member=member)

    def principal() -> auth.Principal:
        return auth.remembered.principal(text)

    principal()  # its use is noted
    first = principal()
    with CaptureQueriesContext(connection) as queries:
        assert (principal(), principal()) == (first, first)
    assert [query["sql"].split()[1][:9] for query in queries] == ["concat_ws"] * 2
    assert first.may("submit")
    for rows, change in (
        (Membership.objects, {"role": Membership.Role.VIEWER}),
        (Plan.objects, {"max_waiting": 7}),
        (Tenant.objects, {"name": "Renamed"}),
        (ApiKey.objects, {"last_used_at": timezone.now() - timedelta(hours=1)}),
    ):
        rows.update(**change)
        assert principal() is not first
        principal()  # a use that is noted changes the key itself
        first = principal()
        assert principal() is first
    assert (first.may("submit"), first.tenant.plan.max_waiting, first.tenant.name) == (False, 7, "Renamed")
    assert first.key.last_used_at is not None
    assert timezone.now() - first.key.last_used_at < timedelta(minutes=1)
    ApiKey.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
    with pytest.raises(NotAuthenticated):
        principal()
