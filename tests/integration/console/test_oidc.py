"""Logging in by a provider of OpenID Connect: who comes in, as whom, and what of a token is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from joserfc.jwk import ECKey

from slackwater_conf import Conf, WrongSetting
from slackwater_console.identities import roles_of
from slackwater_tenants.models import Identity, Membership, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.console import PASSWORD, member, told
from tests.support.provider import CLIENT, SECRET, Provider, provider

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
ROLES = {
    "acme-ops": {"acme": "operator"},
    "acme-all": {"acme": "viewer", "other": "admin"},
    "acme-root": {"acme": "admin", "nowhere": "viewer"},
}


@pytest.fixture
def issuer(settings: Any, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """A provider that the settings name, and a second tenant."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    create_tenant("other", "Other")
    with provider(sub="ann-1", preferred_username="ann", email="ann@example.org", groups=["acme-ops"]) as made:
        ours = {"OIDC_ISSUER": made.url, "OIDC_CLIENT_ID": CLIENT, "OIDC_CLIENT_SECRET": SECRET, "OIDC_ROLES": ROLES}
        settings.SLACKWATER = {**settings.SLACKWATER, **ours}
        yield made


def roles(name: str = "ann") -> dict[str, str]:
    """Somebody's roles by tenant."""
    return dict(Membership.objects.filter(user__username=name).values_list("tenant__slug", "role"))


def test_groups_make_a_member_and_change_it(issuer: Provider) -> None:
    page = Client()
    assert "/console/oidc/" in told(page.get("/console/login/"))
    back = issuer.come(page, then="/console/acme/dead-letters/")
    assert back["Location"] == "/console/acme/dead-letters/"
    assert page.get(back["Location"]).status_code == 200
    ann = User.objects.get(username="ann")
    assert (ann.is_staff, ann.has_usable_password(), ann.email) == (False, False, "ann@example.org")
    assert roles() == {"acme": "operator"}
    assert page.get("/console/other/tasks/").status_code == 404
    issuer.claims["groups"] = ["acme-all", "acme-ops", "unknown"]
    assert issuer.come(Client(), then="https://evil.example/")["Location"] == "/console/", "to no other server"
    assert roles() == {"acme": "operator", "other": "owner"}
    issuer.claims["groups"] = "acme-root"
    issuer.come(Client())
    assert roles() == {"acme": "owner"}
    issuer.claims["groups"] = []
    assert "belong to no organisation" in told(issuer.come(Client()))
    assert roles() == {}
    assert page.get("/console/acme/tasks/").status_code == 404
    assert User.objects.filter(username="ann").count() == Identity.objects.count() == 1


def test_groups_may_come_from_the_user_info(issuer: Provider) -> None:
    del issuer.claims["groups"]
    issuer.told = {"sub": "ann-1", "groups": ["acme-ops"]}
    issuer.come(Client())
    assert roles() == {"acme": "operator"}
    issuer.told = {"sub": "somebody-else", "groups": ["acme-root"]}
    issuer.come(Client())
    assert roles() == {}


def test_nobody_becomes_somebody_who_is_there(issuer: Provider, root: User) -> None:
    """A name that is taken is another's: of a password, of staff, or of another identity."""
    bob = member(Tenant.objects.get(slug="other"), "owner", "ann")
    bob.set_password(PASSWORD)
    bob.email = "ann@example.org"
    bob.save()
    issuer.claims |= {"email_verified": True}
    assert issuer.come(Client()).status_code == 302
    made = Identity.objects.get().user
    assert made != bob
    assert made.username.startswith("ann-")
    assert roles("ann") == {"other": "owner"}
    root.email = "root@example.org"
    root.save()
    issuer.claims |= {"sub": "root-1", "preferred_username": "root", "email": "root@example.org", "groups": []}
    assert issuer.come(Client()).status_code == 403
    assert not root.identities.exists()


def test_a_member_made_for_an_address_comes_by_it(issuer: Provider) -> None:
    carl = member(create_tenant("third", "Third"), "viewer", "carl")
    carl.email = "Carl@example.org"
    carl.save()
    issuer.claims |= {"sub": "carl-1", "email": "carl@example.org", "groups": []}
    assert issuer.come(Client()).status_code == 403, "an address that nobody vouches for"
    issuer.claims["email_verified"] = True
    page = Client()
    assert issuer.come(page).status_code == 302, "a tenant that no group names asks no group"
    assert page.get("/console/third/tasks/").status_code == 200
    assert Identity.objects.get().user == carl
    carl.is_active = False
    carl.save()
    assert issuer.come(Client()).status_code == 403


def test_what_is_wrong_with_a_token_is_refused(issuer: Provider) -> None:
    wrongs: list[dict[str, Any]] = [
        {"aud": "somebody-else"}, {"iss": "http://127.0.0.1:1"}, {"exp": 1}, {"nonce": "another"}, {"sub": ""},
    ]  # fmt: skip
    for wrong in wrongs:
        issuer.wrong = wrong
        assert issuer.come(Client()).status_code == 403, wrong
    issuer.wrong, issuer.signs_with = {}, ECKey.generate_key("P-256", {"kid": "first"})
    assert issuer.come(Client()).status_code == 403, "signed by somebody else"
    issuer.signs_with = None
    page = Client()
    page.get("/console/oidc/")
    for query in ({"code": "c", "state": "made-up"}, {"code": "c"}, {"error": "access_denied", "state": "x"}):
        assert page.get("/console/oidc/callback/", query).status_code == 403, query
    assert not User.objects.filter(username="ann").exists()


def test_without_a_provider_there_is_no_such_page_and_a_wrong_one_is_refused(tenant: Tenant, settings: Any) -> None:
    assert Client().get("/console/oidc/").status_code == 404
    assert "/console/oidc/" not in told(Client().get("/console/login/"))
    good = {"OIDC_ISSUER": "http://127.0.0.1:1", "OIDC_CLIENT_ID": CLIENT}
    settings.SLACKWATER = {**settings.SLACKWATER, **good}
    assert Client().get("/console/oidc/").status_code == 403, "it cannot be reached"
    for wrong, key in (
        ({"OIDC_ISSUER": "http://id.example.org"}, "OIDC_ISSUER"), ({"OIDC_CLIENT_ID": ""}, "OIDC_CLIENT_ID"),
        ({"OIDC_SCOPES": ["email"]}, "OIDC_SCOPES"), ({"OIDC_ROLES": {"ops": {"acme": "king"}}}, "OIDC_ROLES"),
        ({"OIDC_ROLES": {"ops": "acme"}}, "OIDC_ROLES"),
    ):  # fmt: skip
        with pytest.raises(WrongSetting) as refused:
            Conf.from_mapping({**good, **wrong})
        assert refused.value.key == key
    assert roles_of(["ops"]) == {}
