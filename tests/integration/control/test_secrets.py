"""Tenants' secrets: sealed, bound to their tenant and name, never shown."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import override_settings

from scheduler_ext.core.errors import ConfigurationError, InvalidInput, NotFound, NotGranted
from slackwater_tasks.control import secrets
from slackwater_tasks.models import Secret
from slackwater_tasks.runtime.sealed import reveal
from slackwater_tenants.scoping import tenant_scope
from slackwater_tenants.services import create_tenant
from tests.support.api import client_of, furnish

pytestmark = pytest.mark.django_db


def test_a_secret_is_sealed_and_never_shown() -> None:
    furnish()
    acme = client_of("acme")
    answer = acme.post("/secrets", {"name": "MAIL_KEY", "value": "correct horse"})
    assert answer.status == 201
    assert "correct horse" not in str(answer.body)
    assert acme.post("/secrets", {"name": "MAIL_KEY", "value": "battery staple"}).status == 200
    assert [row["name"] for row in acme.get("/secrets").body["items"]] == ["MAIL_KEY"]
    assert b"battery" not in bytes(Secret._plain.get().sealed)
    assert reveal(acme.tenant.pk, "MAIL_KEY") == "battery staple"
    other = client_of("other")
    with pytest.raises(NotFound):
        reveal(other.tenant.pk, "MAIL_KEY")
    assert acme.call("DELETE", "/secrets/MAIL_KEY").status == 204
    assert acme.call("DELETE", "/secrets/MAIL_KEY").status == 404


def test_a_row_moved_to_another_tenant_cannot_be_opened() -> None:
    acme, other = create_tenant("acme", "A"), create_tenant("other", "O")
    secrets.put(acme, "KEY", "the value")
    Secret._plain.update(tenant=other)
    with pytest.raises(ConfigurationError):
        reveal(other.pk, "KEY")


def test_keys_are_changed_without_losing_a_secret() -> None:
    acme = create_tenant("acme", "A")
    with override_settings(SLACKWATER={**settings.SLACKWATER, "SECRETS_KEYS": ["old"]}):
        secrets.put(acme, "KEY", "the value")
    with override_settings(SLACKWATER={**settings.SLACKWATER, "SECRETS_KEYS": ["new", "old"]}):
        assert reveal(acme.pk, "KEY") == "the value"
        assert secrets.reseal() == 1
    with override_settings(SLACKWATER={**settings.SLACKWATER, "SECRETS_KEYS": ["new"]}):
        assert reveal(acme.pk, "KEY") == "the value"
    with (
        override_settings(SLACKWATER={**settings.SLACKWATER, "SECRETS_KEYS": ["old"]}),
        pytest.raises(ConfigurationError, match="SECRETS_KEYS"),
    ):
        reveal(acme.pk, "KEY")


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [("1A", "v", "name"), ("A-B", "v", "name"), ("A" * 64, "v", "name"), ("A", "seven77", "value"), ("A", 3, "value"),
     ("A", "x" * 16_385, "value"), ("A", "a\x00b", "value")],
)  # fmt: skip
def test_what_is_no_secret_is_refused(name: str, value: object, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        secrets.put(create_tenant("acme", "A"), name, value)
    assert caught.value.field == field


def test_all_secrets_together_are_bounded() -> None:
    acme = create_tenant("acme", "A")
    secrets.put(acme, "A", "x" * 16_000)
    with pytest.raises(NotGranted):
        secrets.put(acme, "B", "x" * 16_000)
    secrets.put(acme, "A", "y" * 16_384)
    with tenant_scope(acme.pk):
        assert len(secrets.names()) == 1
