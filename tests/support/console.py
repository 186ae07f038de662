"""The console as a test sees it: somebody of a tenant, logged in."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User
from django.test import Client

from slackwater_tenants.models import Membership, Tenant

PASSWORD = "a-long-secret"


def member(tenant: Tenant, role: str, name: str = "") -> User:
    """A new user with a role in a tenant."""
    user = User.objects.create_user(name or f"{role}-{uuid4().hex[:6]}")
    Membership.objects.create(tenant=tenant, user=user, role=role)
    return user


def browser_of(tenant: Tenant, role: str, name: str = "") -> Client:
    """The browser of a new member."""
    client = Client()
    client.force_login(member(tenant, role, name), backend="slackwater_monitoring.logins.LimitedBackend")
    return client


def told(response: Any) -> str:
    """The text of a page."""
    return str(response.content.decode())
