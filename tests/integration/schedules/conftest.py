"""A tenant whose schedules fire."""

from __future__ import annotations

import pytest

from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import forget_lookups, furnish


@pytest.fixture
def acme() -> Tenant:
    """A tenant with tiers and a handler."""
    forget_lookups()
    furnish()
    return create_tenant("acme", "Acme")
