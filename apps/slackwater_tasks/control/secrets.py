"""A tenant's secrets: sealed in the database, given to its own tasks alone.

No value is ever shown again: neither the
API nor the admin nor a log has it, and no broker message carries it; a worker reads it when the task asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now

from scheduler_ext.core.errors import DoesNotFit, Faults, InvalidInput, NotFound, NotGranted
from slackwater_tasks.field_kinds import clean_text
from slackwater_tasks.models import Secret
from slackwater_tasks.runtime.sealed import NONCE, TAG, open_sealed, seal
from slackwater_tenants.models import Tenant

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
MAX_BYTES = 16_384
LEAST = 8
"""The least number of characters: a shorter secret can be guessed, and cannot be redacted safely."""
MAX_TOTAL_BYTES = 24_576
"""The most bytes of all secrets of a tenant: a script gets them in its environment."""
SHOWN = ("name", "updated_at", "updated_by")


def put(tenant: Tenant, name: str, value: Any, *, actor: str = "") -> bool:
    """Store or replace a secret; returns whether it is new. ``InvalidInput`` names the field at fault."""
    faults = Faults()
    faults.of(_check_name, name)
    faults.of(_check_value, value)
    faults.tell()
    others = Secret.objects.unscoped().for_tenant(tenant.pk).exclude(name=name)  # the tenant is named
    used = sum(len(sealed) - NONCE - TAG for sealed in others.values_list("sealed", flat=True))
    if used + len(value.encode()) > MAX_TOTAL_BYTES:
        raise NotGranted(
            f"the secrets of a tenant have at most {MAX_TOTAL_BYTES} bytes together", limit=MAX_TOTAL_BYTES
        )
    values = {"sealed": seal(tenant.pk, name, value), "updated_at": Now(), "updated_by": actor[:120]}
    return bool(Secret._plain.update_or_create(tenant=tenant, name=name, defaults=values)[1])


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidInput("must be 1 to 63 letters, digits and underscores, and not begin with a digit", field="name")


def _check_value(value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidInput("must be a string", field="value")
    clean_text(value, "value")
    if not LEAST <= len(value) <= MAX_BYTES:
        raise InvalidInput(f"must have at least {LEAST} characters, and at most {MAX_BYTES} bytes", field="value")
    if len(value.encode()) > MAX_BYTES:
        raise DoesNotFit(f"must have at most {MAX_BYTES} bytes", field="value")


def rows(name: str) -> QuerySet[Secret]:
    """The row of that name of the tenant in context, if there is one."""
    # What the column cannot hold is no secret's name, and the database would not even compare it.
    return Secret.objects.filter(name=name) if NAME.fullmatch(name) else Secret.objects.none()


def names() -> list[dict[str, Any]]:
    """The secrets of the tenant in context, without their values."""
    return [_shown(row) for row in Secret.objects.order_by("name").values(*SHOWN)]


def shown(name: str) -> dict[str, Any]:
    """A secret of the tenant in context, without its value; ``NotFound`` without one of that name."""
    found = rows(name).values(*SHOWN).first()
    if found is None:
        raise NotFound(f"There is no secret {name[:63]!r}.")
    return _shown(found)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "updated_by": row["updated_by"] or None}


def remove(name: str) -> None:
    """Delete a secret of the tenant in context; ``NotFound`` without one of that name."""
    if not rows(name).delete()[0]:
        raise NotFound(f"There is no secret {name[:63]!r}.")


def reseal(*, progress: Callable[[], None] = lambda: None) -> int:
    """Seal every secret anew under the first key; returns how many. Older keys may be dropped afterwards."""
    count = 0
    for row in Secret.objects.unscoped().order_by("pk").iterator():  # the platform's own keys, of every tenant
        sealed = seal(row.tenant_id, row.name, open_sealed(row.tenant_id, row.name, bytes(row.sealed)))
        # Compared and set: one that was replaced meanwhile is sealed under the first key already.
        count += Secret._plain.filter(pk=row.pk, sealed=bytes(row.sealed)).update(sealed=sealed)
        progress()
    return count
