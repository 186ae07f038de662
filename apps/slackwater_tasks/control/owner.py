"""Finds the tenant of a task that comes through an interface without tenants: Celery's or Django's."""

from __future__ import annotations

from scheduler_ext.core.errors import NoTenant
from scheduler_ext.task.running import task as running_task
from slackwater_conf import conf
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_in_context


def owner(name: str, slug: str = "") -> Tenant:
    """The tenant of the running task, the one in context, or the one that ``slug`` or the settings name."""
    tenants = Tenant.objects.select_related("plan")
    running = running_task.get()
    tenant_id = running.tenant_id if running is not None else tenant_in_context()
    if tenant_id is not None:
        return tenants.get(pk=tenant_id)
    slug = slug or conf().tenant
    if not slug:
        raise NoTenant(
            f"{name} is a handler: whose task shall it be? Name a tenant in SLACKWATER_TENANT, submit it "
            "inside tenant_scope(), or with slackwater_tasks.submission.service.submit()"
        )
    found = tenants.filter(slug=slug).first()
    if found is None:
        raise NoTenant(f"SLACKWATER_TENANT names {slug!r}; there is no such tenant")
    return found
