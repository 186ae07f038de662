"""Fixtures of several folders: a tenant, its client, and an administrator with a browser."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import ApiClient, client_of, furnish, nothing_remembered
from tests.support.runner import runner

__all__ = ["nothing_remembered", "runner"]


@pytest.fixture
def furnished(db: None) -> None:
    """Tiers and a handler."""
    furnish()


@pytest.fixture
def root() -> User:
    """Somebody who may do everything."""
    return User.objects.create_superuser("root", password="secret-root")


@pytest.fixture
def page(root: User) -> Client:
    """The administrator's browser."""
    client = Client()
    client.force_login(root)
    return client


@pytest.fixture
def tenant(furnished: None) -> Tenant:
    """A client organisation."""
    return create_tenant("acme", "Acme")


@pytest.fixture
def acme(furnished: None) -> ApiClient:
    """A client of the API that speaks for a tenant of that name."""
    return client_of("acme")
