"""A tenant's own management of its keys: list, make, rotate, revoke."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from scheduler_ext.core.errors import Conflict, DoesNotFit, Faults, InvalidInput, NotFound, NotGranted, whole
from slackwater_tenants import services
from slackwater_tenants.members import ROLE_SCOPES, check_fields, get_member, text_of
from slackwater_tenants.models import ApiKey, Membership, Tenant

MAX_KEYS = 1_000
TENANT_SCOPES = frozenset(ApiKey.Scope.values) - {ApiKey.Scope.OPERATE}
"""The scopes that a tenant may give a key: not that of the platform's operators."""
MAX_OVERLAP_S = 7 * 86_400
KEY_FIELDS = ("name", "scopes", "expires_at", "member_id", "origins")
MAX_ORIGINS = 20
ORIGIN = re.compile(r"https?://[a-z0-9.-]{1,180}(:[0-9]{1,5})?|https?://\[[0-9a-f:.]{2,45}\](:[0-9]{1,5})?")


def keys(tenant_id: int) -> QuerySet[ApiKey, ApiKey]:
    """A tenant's keys, those that are revoked or expired included."""
    return ApiKey.objects.filter(tenant_id=tenant_id)


def get_key(tenant_id: int, key_id: str) -> ApiKey:
    """One key by its visible part; ``NotFound`` when the tenant has none such."""
    found = keys(tenant_id).filter(prefix=key_id).first()
    if found is None:
        raise NotFound(f"There is no key {key_id[:16]}.")
    return found


def make_key(tenant: Tenant, data: Any) -> tuple[ApiKey, str]:
    """A key of the tenant, or of a member with what the role allows; returns it with its text, shown this once."""
    faults = Faults()
    fields = check_fields(data, KEY_FIELDS, faults)
    name = faults.of(text_of, fields, "name", 120)
    member = faults.of(_member_of, tenant.pk, fields.get("member_id"))
    scopes = faults.of(_scopes_of, fields.get("scopes", []), member)
    expires_at = faults.of(_moment_of, fields.get("expires_at"))
    origins = faults.of(check_origins, fields.get("origins", []))
    faults.tell()
    if keys(tenant.pk).filter(revoked_at=None).count() >= MAX_KEYS:
        raise NotGranted(f"a tenant has at most {MAX_KEYS} keys; revoke unused ones", limit=MAX_KEYS)
    return services.create_api_key(tenant, name, scopes, expires_at, member=member, origins=origins)


def _scopes_of(scopes: Any, member: Membership | None) -> list[str]:
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise InvalidInput("must be an array of strings", field="scopes")
    if ApiKey.Scope.OPERATE in scopes:
        raise NotGranted("only the platform's operators can give operate", field="scopes")
    if not scopes or set(scopes) - TENANT_SCOPES:
        raise InvalidInput(f"must name at least one of {', '.join(sorted(TENANT_SCOPES))}", field="scopes")
    beyond = sorted(set(scopes) - ROLE_SCOPES[member.role]) if member is not None else []
    if beyond and member is not None:
        raise DoesNotFit(f"the role {member.role} does not allow {', '.join(beyond)}", field="scopes")
    return sorted(set(scopes))


def check_origins(value: Any) -> list[str]:
    """Origins as browsers send them; ``InvalidInput`` for anything else."""
    if not isinstance(value, list) or len(value) > MAX_ORIGINS:
        raise InvalidInput(f"must be an array of at most {MAX_ORIGINS} origins", field="origins")
    for n, origin in enumerate(value):
        if not isinstance(origin, str) or not ORIGIN.fullmatch(origin):
            raise InvalidInput(
                "must be an origin as browsers send it, for example https://app.example.org", field=f"origins[{n}]"
            )
    return sorted(set(value))


def allowed_origins() -> frozenset[str]:
    """The origins that any key which holds names."""
    return frozenset(chain.from_iterable(services.live_keys().exclude(origins=[]).values_list("origins", flat=True)))


def rotate_key(tenant_id: int, key_id: str, data: Any) -> tuple[ApiKey, str]:
    """A new key with the name, scopes and expiry of an old one, which ends after ``overlap_s`` seconds (0: at once)."""
    fields = check_fields(data, ("overlap_s",))
    overlap = whole(fields.get("overlap_s", 0))
    if not isinstance(overlap, int) or isinstance(overlap, bool) or not 0 <= overlap <= MAX_OVERLAP_S:
        raise InvalidInput(f"must be a whole number from 0 to {MAX_OVERLAP_S}", field="overlap_s")
    with transaction.atomic():
        old = keys(tenant_id).select_for_update().filter(pk=get_key(tenant_id, key_id).pk).get()
        now = timezone.now()
        if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= now):
            raise Conflict("it is revoked or expired; make a new one")
        if ApiKey.Scope.OPERATE in old.scopes:  # or whoever manages the tenant would come to hold it
            raise NotGranted("only the platform's operators can replace a key that operates nodes")
        made = services.create_api_key(
            old.tenant, old.name, old.scopes, old.expires_at, member=old.member, origins=old.origins
        )
        if overlap:
            end = now + timedelta(seconds=overlap)
            old.expires_at = min(end, old.expires_at) if old.expires_at else end
            old.save(update_fields=["expires_at"])
        else:
            services.revoke_api_key(old)
    return made


def revoke_key(tenant_id: int, key_id: str) -> None:
    """Revoke a key; its history stays readable. Repeating it does nothing."""
    services.revoke_api_key(get_key(tenant_id, key_id))


def _member_of(tenant_id: int, value: Any) -> Membership | None:
    if value is None:
        return None
    try:
        return get_member(tenant_id, UUID(value if isinstance(value, str) else ""))
    except ValueError:
        raise InvalidInput("must be the id of a member", field="member_id") from None
    except NotFound as error:
        raise DoesNotFit(error.message, field="member_id") from None


def _moment_of(value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        found = parse_datetime(value) if isinstance(value, str) else None
        found = found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except OverflowError:
        raise DoesNotFit("is out of range", field="expires_at") from None
    except ValueError:
        found = None
    if found is None:
        raise InvalidInput(
            "must be an ISO 8601 date and time with a zone, for example 2030-01-31T09:00:00Z", field="expires_at"
        )
    return found
