"""Fixtures of several folders: a tenant, and an administrator with a browser."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client

from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import forget_lookups, furnish
from tests.support.runner import runner

__all__ = ["runner"]


@pytest.fixture
def furnished(db: None) -> Iterator[None]:
    """Tiers and a handler, and no memory of what another test rolled back."""
    forget_lookups()
    furnish()
    yield
    forget_lookups()


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
def tenant() -> Tenant:
    """A client organisation."""
    return create_tenant("acme", "Acme")
