"""Operations on tenants: creating them with their counters, giving them keys, finding them by a key."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from django.utils import timezone

from scheduler_ext.core.errors import Conflict, DoesNotFit, Faults, InvalidInput, NotAuthenticated, NotFound, NotGranted
from slackwater_tenants.members import check_fields, text_of
from slackwater_tenants.models import ApiKey, Membership, Plan, Tenant, TenantCounter
from slackwater_tenants.price_list import PLANS

KEY_MARK = "sw"
LAST_USE_STEP = timedelta(minutes=1)
_READ = [model._meta.db_table for model in (ApiKey, Tenant, Plan, Membership)]
"""The tables that are read of a key."""
_VERSION = f"concat_ws(' ', {', '.join(f'{table}.xmin, {table}.ctid' for table in _READ)})"
"""Of the rows that were read, who wrote each and where it lies: the same as long as nobody has changed any."""
_UNCHANGED = f"""
SELECT {_VERSION} FROM {_READ[0]} JOIN {_READ[1]} ON {_READ[1]}.id = {_READ[0]}.tenant_id
JOIN {_READ[2]} ON {_READ[2]}.id = {_READ[1]}.plan_id LEFT JOIN {_READ[3]} ON {_READ[3]}.id = {_READ[0]}.member_id
WHERE {_READ[0]}.id = %s
"""  # noqa: S608 - names of ours


def is_granted(patterns: Iterable[str], handler: str) -> bool:
    """Whether one of a plan's patterns (``*``, ``?``, case counts) matches the whole name of a handler."""
    return any(fnmatchcase(handler, pattern) for pattern in patterns)


def ensure_plan(slug: str) -> Plan:
    """The plan of that slug; one that ships is made when it is missing."""
    if slug in PLANS:
        return Plan.objects.get_or_create(slug=slug, defaults=PLANS[slug])[0]
    try:
        return Plan.objects.get(slug=slug)
    except Plan.DoesNotExist:
        known = ", ".join(Plan.objects.values_list("slug", flat=True)) or "none"
        raise NotFound(f"there is no plan {slug!r}; known are {known}", field="plan") from None


def create_tenant(slug: str, name: str, plan_slug: str = "standard", *, trusted: bool = False, **fields: Any) -> Tenant:
    """Create a tenant with its counter row. ``InvalidInput`` names the field at fault, ``Conflict`` a taken slug."""
    with transaction.atomic():
        if Tenant.objects.filter(slug=slug).exists():
            raise Conflict(f"the tenant {slug!r} exists already", field="slug")
        tenant = Tenant(slug=slug, name=name, plan=ensure_plan(plan_slug), trusted=trusted, **fields)
        try:
            tenant.full_clean()
        except ValidationError as error:
            field, messages = next(iter(error.message_dict.items()))
            raise InvalidInput(messages[0], field=field) from None
        tenant.save()
        TenantCounter.objects.create(tenant=tenant)
    return tenant


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so one round of SHA-256 is enough: there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()


def create_api_key(
    tenant: Tenant,
    name: str,
    scopes: Sequence[str] = ("submit", "read", "cancel"),
    expires_at: datetime | None = None,
    *,
    member: Membership | None = None,
    origins: Sequence[str] = (),
) -> tuple[ApiKey, str]:
    """Create a key; returns it with its secret text, which is not stored."""
    unknown = set(scopes) - set(ApiKey.Scope.values)
    if unknown or not scopes:
        known = ", ".join(ApiKey.Scope.values)
        raise InvalidInput(
            f"give at least one of {known}" + (f", not {sorted(unknown)}" if unknown else ""), field="scopes"
        )
    if expires_at is not None and expires_at <= timezone.now():
        raise DoesNotFit("must lie in the future", field="expires_at")
    prefix, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    key = ApiKey.objects.create(
        tenant=tenant,
        name=name,
        prefix=prefix,
        secret_hash=_hash(secret),
        scopes=sorted(scopes),
        expires_at=expires_at,
        member=member,
        origins=list(origins),
    )
    return key, f"{KEY_MARK}_{prefix}_{secret}"


def authenticate(text: str) -> ApiKey:
    """Find the key of ``text``, with its tenant and plan; ``NotAuthenticated`` when unknown, expired or revoked."""
    mark, _, rest = text.partition("_")
    prefix, _, secret = rest.partition("_")
    if mark != KEY_MARK or not prefix or not secret:
        raise NotAuthenticated("this is not an API key")
    key = live_keys().filter(prefix=prefix).annotate(version=RawSQL(_VERSION, ())).first()  # noqa: S611 - names of ours
    if key is None or not hmac.compare_digest(key.secret_hash, _hash(secret)):
        raise NotAuthenticated
    _note_use(key)
    return key


def is_unchanged(key: ApiKey) -> bool:
    """Whether a key that was found by :func:`authenticate` would be found the same now; at a fraction of what that costs.

    Not where its last use is to be written again, which that does.
    """
    if _is_use_due(key, timezone.now()):
        return False
    with connection.cursor() as cur:
        cur.execute(_UNCHANGED, (key.pk,))
        return bool(cur.fetchone() == (vars(key)["version"],))


def live_keys() -> QuerySet[ApiKey, ApiKey]:
    """The keys that hold now, each with its tenant and plan."""
    valid = Q(expires_at=None) | Q(expires_at__gt=Now())
    return ApiKey.objects.select_related("tenant__plan", "member").filter(valid, revoked_at=None)


def _note_use(key: ApiKey) -> None:
    """Write the last use once a minute at most: it must not cost a write per request."""
    now = timezone.now()
    if _is_use_due(key, now):
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)


def _is_use_due(key: ApiKey, now: datetime) -> bool:
    return key.last_used_at is None or now - key.last_used_at > LAST_USE_STEP


def revoke_api_key(key: ApiKey) -> bool:
    """Revoke a key at once; False when it was revoked before."""
    return ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=Now()) == 1


def set_paused(tenant: Tenant, *, paused: bool) -> bool:
    """Pause or resume a tenant: its tasks are accepted, none is started. False when it was so before.

    By those who run the platform: the tenant itself cannot end such a pause, also where it had paused itself before.
    """
    changed = pause_by_platform(Tenant.objects.filter(pk=tenant.pk), paused=paused)
    tenant.paused, tenant.paused_by_itself = paused, False
    return changed


def pause_by_platform(row: QuerySet[Any], *, paused: bool) -> bool:
    """Pause or resume one row of tenants or lines for the platform; a tenant's own pause becomes the platform's. False when
    it was so before."""
    row = row.exclude(paused=True, paused_by_itself=False) if paused else row.filter(paused=True)
    return row.update(paused=paused, paused_by_itself=False) == 1


def pause_by_itself(rows: QuerySet[Any], *, paused: bool) -> None:
    """Pause or resume a tenant, or the rows that it sees as one line, on the tenant's own behalf.

    ``NotGranted`` where it all stays paused, for the platform paused it.
    """
    before = {"paused": False} if paused else {"paused": True, "paused_by_itself": True}
    rows.filter(**before).update(paused=paused, paused_by_itself=paused)
    if not paused and not rows.filter(paused=False).exists():
        raise NotGranted("the platform's operators have paused it, and only they can resume it", field="paused")


def paused_by(paused: bool, itself: bool) -> str | None:
    """The party that paused, as the API names it: ``organization``, ``platform``, or none."""
    return None if not paused else "organization" if itself else "platform"


def change_tenant(tenant: Tenant, data: object) -> None:
    """Rename or pause a tenant, as its owner may; all other changes are the platform's.

    ``InvalidInput`` names the field at fault.
    """
    faults = Faults()
    fields = check_fields(data, ("name", "paused"), faults)
    name, paused = faults.of(text_of, {"name": tenant.name, **fields}, "name", 200), fields.get("paused", tenant.paused)
    if not isinstance(paused, bool):
        faults.found.append(InvalidInput("must be true or false", field="paused"))
    faults.tell()
    if not fields:
        raise InvalidInput("give at least one field to change")
    with transaction.atomic():
        if "name" in fields:
            tenant.name = name
            tenant.save(update_fields=["name"])
        if "paused" in fields:
            pause_by_itself(Tenant.objects.filter(pk=tenant.pk), paused=paused)
            tenant.refresh_from_db(fields=["paused", "paused_by_itself"])
