"""Finds the tenant of a task that comes through an interface without tenants: Celery's or Django's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from django.db import connection
from django.db.models import QuerySet

from scheduler_ext.core.errors import NoTenant
from scheduler_ext.task.running import task as running_task
from slackwater_conf import conf
from slackwater_tasks.ledger import reference_cache
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_in_context

KEPT_S: Final = 1.0
"""So long a tenant is remembered: so much later is seen what changed in it or its plan."""
MOST: Final = 1_000
"""The most tenants remembered."""


def owner(name: str, slug: str = "") -> Tenant:
    """The tenant of the running task, the one in context, or the one that ``slug`` or the settings name."""
    running = running_task.get()
    tenant_id = running.tenant_id if running is not None else tenant_in_context()
    if tenant_id is not None:
        return _known(tenant_id, lambda: _tenants().get(pk=tenant_id))
    slug = slug or conf().tenant
    if not slug:
        raise NoTenant(
            f"{name} is a handler: whose task shall it be? Name a tenant in SLACKWATER_TENANT, submit it "
            "inside tenant_scope(), or with slackwater_tasks.submission.service.submit()"
        )
    return _known(slug, lambda: _named(slug))


def _tenants() -> QuerySet[Tenant]:
    return Tenant.objects.select_related("plan")


def _named(slug: str) -> Tenant:
    found = _tenants().filter(slug=slug).first()
    if found is None:
        raise NoTenant(f"SLACKWATER_TENANT names {slug!r}; there is no such tenant")
    return found


def _known(key: int | str, read: Callable[[], Tenant]) -> Tenant:
    now, known = time.monotonic(), reference_cache.owners
    until, tenant = known.get(key, (now, None))
    if tenant is not None and now < until:
        return tenant
    tenant = read()
    if not connection.in_atomic_block:  # what a transaction has made may be rolled back
        if len(known) >= MOST:
            known.clear()
        known[key] = (now + KEPT_S, tenant)
    return tenant
