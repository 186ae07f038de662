"""Tiers that a client owns, within its plan: so many, each so large, at the price of what they take."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from scheduler_ext.core.errors import Conflict, Faults, InvalidInput, NotFound, NotGranted, whole
from scheduler_ext.core.resources import DIMENSIONS
from slackwater_resources.models import Tier
from slackwater_tenants.members import check_fields, lock_tenant, slug_of
from slackwater_tenants.models import Tenant

NEEDED = ("cpu_milli", "memory_mb")
FIELDS = ("name", *DIMENSIONS, "default_execution_cap_s")
DEFAULT_CAP_S = 600
SHORT = dict(zip(DIMENSIONS, ("cpu", "mem", "disk", "iops", "net", "ports"), strict=True))
"""The resources in the name of a tier that was made of another."""
MOST_DERIVED = 256
"""Tiers made of others that one tenant has."""


def own_tiers(tenant_id: int) -> QuerySet[Tier, Tier]:
    """The tiers a tenant owns and can name."""
    return Tier.objects.filter(tenant_id=tenant_id, retired_at=None)


def get_tier(tenant: Tenant, slug: str) -> Tier:
    """A tier the tenant can name, its own or a shared one of its plan; ``NotFound`` for any other."""
    found = own_tiers(tenant.pk).filter(slug=slug).first()
    if found is None and slug in tenant.plan.tiers:
        found = Tier.objects.filter(tenant=None, slug=slug).first()
    if found is None:
        raise NotFound(f"There is no tier {slug[:63]!r}.")
    return found


def create_tier(tenant: Tenant, data: Any) -> Tier:
    """A new tier of the tenant's own. A name it had before comes back with the new numbers."""
    faults = Faults()
    fields = check_fields(data, FIELDS, faults)
    slug = faults.of(slug_of, fields, "name")
    values = _checked(tenant, fields, faults)
    faults.needed(fields, *NEEDED)
    faults.tell()
    with transaction.atomic():
        lock_tenant(tenant.pk)
        if Tier.objects.filter(tenant=None, slug=slug).exists():
            raise Conflict(f"{slug!r} is a shared tier", field="name")
        if own_tiers(tenant.pk).filter(slug=slug).exists():
            raise Conflict(f"there is a tier {slug!r} already", field="name")
        most = tenant.plan.max_own_tiers
        if own_tiers(tenant.pk).filter(derived=False).count() >= most:
            raise NotGranted(f"the plan allows {most} tiers of one's own", limit=most)
        empty = dict.fromkeys(DIMENSIONS, 0) | {"default_cap_s": min(DEFAULT_CAP_S, tenant.plan.max_cap_s)}
        values = {**empty, **values}
        values["price_micros_per_hour"] = price_of(values)
        back = {**values, "retired_at": None}
        return Tier.objects.update_or_create(tenant=tenant, slug=slug, defaults=back)[0]


def derived_slug(slug: str, resources: Mapping[str, int]) -> str:
    """The name of a tier with other resources: ``regular-mem4096``."""
    changes = "-".join(f"{SHORT[name]}{resources[name]}" for name in DIMENSIONS if name in resources)
    found = f"{slug}-{changes}"
    return found if len(found) <= 63 else f"{slug[:40]}-{hashlib.sha256(found.encode()).hexdigest()[:20]}"


def derive_tier(tenant: Tenant, base_id: int, resources: Mapping[str, int], field: str) -> Tier:
    """A tier of the tenant's with ``resources`` in place of what the tier ``base_id`` has, made on first use.

    More than that has is within the plan's largest tier, or ``NotGranted``; less is always granted. It costs what the shared
    tiers would for the same.
    """
    base = Tier.objects.get(pk=base_id)
    values: dict[str, int] = {name: getattr(base, name) for name in DIMENSIONS}
    for name, value in resources.items():
        most = max(tenant.plan.largest_tier.get(name, 0), values[name])
        least = 1 if name in NEEDED else 0
        values[name] = _number(value, f"{field}.{name}", least, most, "the plan's largest tier of one's own")
    slug = derived_slug(base.slug, resources)
    with transaction.atomic():
        lock_tenant(tenant.pk)
        made = Tier.objects.filter(tenant=tenant, slug=slug, derived=True).first()
        if made is None:
            if Tier.objects.filter(tenant=tenant, derived=True).count() >= MOST_DERIVED:
                raise NotGranted(f"at most {MOST_DERIVED} different resources are kept of an organisation", field=field)
            if Tier.objects.filter(Q(tenant=tenant) | Q(tenant=None), slug=slug).exists():
                raise Conflict(f"there is a tier {slug!r}: name that", field=field)
            made = Tier(tenant=tenant, slug=slug, derived=True, default_cap_s=base.default_cap_s)
        for name, value in values.items():
            setattr(made, name, value)
        made.price_micros_per_hour, made.retired_at = price_of(values), None
        made.save()
    return made


def change_tier(tenant: Tenant, slug: str, data: Any) -> Tier:
    """Change an own tier's numbers: they count from the next round on, for the tasks that wait too."""
    faults = Faults()
    fields = check_fields(data, FIELDS[1:], faults)
    values = _checked(tenant, fields, faults)
    faults.tell()
    if not values:
        raise InvalidInput("give at least one field to change")
    with transaction.atomic():
        lock_tenant(tenant.pk)
        tier = _own(tenant, slug)
        for name, value in values.items():
            setattr(tier, name, value)
        tier.price_micros_per_hour = price_of({name: getattr(tier, name) for name in DIMENSIONS})
        tier.save()
    return tier


def retire_tier(tenant: Tenant, slug: str) -> None:
    """Retire an own tier: new tasks cannot name it, tasks that have it keep it."""
    tier = _own(tenant, slug)
    Tier.objects.filter(pk=tier.pk).update(retired_at=timezone.now())


def _own(tenant: Tenant, slug: str) -> Tier:
    tier = get_tier(tenant, slug)
    if tier.tenant_id is None:
        raise NotGranted(f"{slug!r} is a shared tier; only your own can be changed")
    return tier


def _checked(tenant: Tenant, fields: dict[str, Any], faults: Faults) -> dict[str, int]:
    """The numbers given, each within the plan; ``NotGranted`` names the field."""
    values: dict[str, int] = {}
    for name in DIMENSIONS:
        if name in fields:
            least = 1 if name in NEEDED else 0
            most = tenant.plan.largest_tier.get(name, 0)
            values[name] = faults.of(_number, fields[name], name, least, most, "the plan's largest tier of one's own")
    if "default_execution_cap_s" in fields:
        most = tenant.plan.max_cap_s
        what = "the plan's longest cap"
        given = fields["default_execution_cap_s"]
        values["default_cap_s"] = faults.of(_number, given, "default_execution_cap_s", 1, most, what)
    return values


def _number(value: Any, field: str, least: int, most: int, what: str) -> int:
    value = whole(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"must be a whole number, at least {least}", field=field)
    if value > most:
        raise NotGranted(f"{what} has {most}", field=field, limit=most)
    return value


def price_of(values: dict[str, Any]) -> int:
    """An hour's price of these resources: the cheapest shared tier, taken as often as it needs to hold them.

    As often as the scarcest resource asks for, fractions included: half a basic tier costs half of it. A resource that
    a shared tier has none of is not priced by it. Without shared tiers: 0.
    """
    prices = []
    for tier in Tier.objects.filter(tenant=None):
        # In whole numbers: the largest ratio of two integers, rounded up once, at the end.
        pairs = [(values[name], getattr(tier, name)) for name in DIMENSIONS if getattr(tier, name)]
        prices.append(max(-(-tier.price_micros_per_hour * wanted // has) for wanted, has in pairs))
    return min(prices, default=0)
