"""Execution rates as a tenant sees and sets them: its own, beside those that operators set."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from django.db import IntegrityError, transaction
from django.db.models import Q

from scheduler_ext.core.errors import Conflict, DoesNotFit, Faults, NotFound, NotGranted
from slackwater_resources.models import Handler
from slackwater_tasks.field_kinds import Text, Whole
from slackwater_tasks.models import RateLimit
from slackwater_tasks.models.rates import MAX_FRAME_S, MAX_STARTS
from slackwater_tenants.members import check_fields
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import is_granted

FIELDS = ("handler", "key", "starts", "window_s")
KEY, HANDLER = Text(150), Text(200)
MAX_OWN = 200
"""The most limits a tenant may set itself."""


def limits_of(tenant: Tenant) -> list[dict[str, Any]]:
    """The limits that apply to the tenant's tasks, whoever set them."""
    rows = RateLimit.objects.filter(Q(tenant=tenant) | Q(tenant=None)).select_related("handler")
    patterns = tuple(tenant.plan.handlers)
    return [
        _shown(row)
        for row in rows
        if row.tenant_id or (row.handler is not None and is_granted(patterns, row.handler.name))
    ]


def set_limit(tenant: Tenant, data: Any) -> dict[str, Any]:
    """Set a limit of the tenant's own: of a rate key, of a handler, or of all its tasks."""
    faults = Faults()
    fields = check_fields(data, FIELDS, faults)
    key = faults.of(KEY.check, fields.get("key", ""), "key")
    name = faults.of(HANDLER.check, fields.get("handler", ""), "handler")
    starts = faults.of(Whole(1, MAX_STARTS).check, fields.get("starts"), "starts")
    per_s = faults.of(Whole(1, MAX_FRAME_S).check, fields.get("window_s"), "window_s")
    if key and name:
        faults.found.append(DoesNotFit("give a key or a handler, not both", field="key"))
    faults.tell()
    handler = None
    if name:
        handler = Handler.objects.filter(name=name).first()
        if handler is None or not is_granted(tuple(tenant.plan.handlers), name):
            raise DoesNotFit(f"there is no handler {name!r} that the plan grants", field="handler")
    if RateLimit.objects.filter(tenant=tenant, own=True).count() >= MAX_OWN:
        raise NotGranted(f"a tenant may set {MAX_OWN} execution rates", limit=MAX_OWN)
    try:
        with transaction.atomic():
            made = RateLimit.objects.create(
                tenant=tenant, handler=handler, key=key, starts=starts, per_s=per_s, own=True
            )
    except IntegrityError:
        raise Conflict("there is a limit of the same over the same time; remove it first") from None
    return _shown(made)


def public_id(row: RateLimit) -> UUID:
    """The id by which clients know a limit: derived from its unique values, so it reveals nothing of other limits."""
    name = row.handler.name if row.handler is not None else ""
    return uuid5(NAMESPACE_OID, f"slackwater:rate:{row.tenant_id}:{name}:{row.key}:{row.per_s}:{row.of_plan}")


def remove_limit(tenant: Tenant, limit_id: UUID) -> None:
    """Remove a limit that the tenant has set itself; ``NotFound`` for any other."""
    own = RateLimit.objects.filter(tenant=tenant, own=True).select_related("handler")
    found = next((row for row in own if public_id(row) == limit_id), None)
    if found is None:
        raise NotFound(f"there is no execution rate {limit_id} of your own")
    found.delete()


def _shown(row: RateLimit) -> dict[str, Any]:
    return {
        "id": public_id(row),
        "of": "key" if row.key else "handler" if row.handler_id else "tenant",
        "handler": row.handler.name if row.handler is not None else None,
        "key": row.key or None,
        "starts": row.starts,
        "window_s": row.per_s,
        "own": row.own,
        "shared": row.tenant_id is None,
    }
