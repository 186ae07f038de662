"""Operations on subscriptions and their deliveries. REST and the admin call these functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from scheduler_ext.core.errors import Conflict, DoesNotFit, Faults, InvalidInput, NotFound, NotGranted
from scheduler_ext.core.states import Event
from slackwater_monitoring.models import Delivery, Subscription
from slackwater_monitoring.notify.webhook_signature import make_secret
from slackwater_tasks.field_kinds import Flag, Text, Texts, utc_text
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.models import Listener, new_id
from slackwater_tasks.runtime.sealed import open_sealed, seal
from slackwater_tasks.submission.webhook_address import parse_given
from slackwater_tenants.members import lock_tenant
from slackwater_tenants.models import Tenant

EVENTS: Final = {f"task.{event.name.lower()}": event for event in Event if event.name}
"""Names of events of tasks, as clients write them."""
WORKFLOW_EVENTS: Final = ("workflow.succeeded", "workflow.failed")
TENANT_EVENTS: Final = ("schedule.failed", "quota.warning", "quota.exhausted", "key.expiring")
ALL_EVENTS: Final = (*EVENTS, *WORKFLOW_EVENTS, *TENANT_EVENTS)
"""Names of all events."""
WILDCARDS: Final = ("*", "task.*", "workflow.*", "schedule.*", "quota.*", "key.*")
"""What stands for several, those that are yet to come included."""


def covers(names: Collection[str], event: str) -> bool:
    """Whether an event is among those asked for."""
    return event in names or "*" in names or f"{event.partition('.')[0]}.*" in names


PING: Final = "ping"
MAX_SUBSCRIPTIONS: Final = 50
"""Subscriptions a tenant may have."""
MAX_FILTERS: Final = 20
MAX_TRIES: Final = 11
"""Attempts at a delivery: the last comes some 28 hours after the first."""
NO_ADDRESS: Final[dict[str, str]] = {
    Subscription.Channel.EMAIL: "has no meaning for e-mail: it goes to the tenant's owners",
    Subscription.Channel.TASK: "has no meaning here: each task names its own",
}
OLD_SECRET_FOR: Final = timedelta(hours=24)
"""A secret that was rotated signs beside the new one for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A new subscription with its secret, which is shown this once; empty for e-mail."""

    subscription: Subscription
    secret: str


# -- fields -----------------------------------------------------------------------------------------------------------
def _texts(longest: int) -> Callable[[Any, str], list[str]]:
    return lambda value, field: list(Texts(MAX_FILTERS, longest).check(value, field))


def _events(value: Any, field: str) -> list[str]:
    if not isinstance(value, list) or not value:
        raise InvalidInput("must be an array with at least one event", field=field)
    for n, name in enumerate(value):
        if not isinstance(name, str) or name not in (*WILDCARDS, *ALL_EVENTS):
            raise InvalidInput(f"must be one of {', '.join((*WILDCARDS, *ALL_EVENTS))}", field=f"{field}[{n}]")
    return [name for name in (*WILDCARDS, *ALL_EVENTS) if name in value]


def _url(value: Any, field: str) -> str:
    parse_given(value, field=field)
    return str(value)


def _channel(value: Any, field: str) -> str:
    if value not in Subscription.Channel.values:
        raise InvalidInput(f"must be one of {', '.join(Subscription.Channel.values)}", field=field)
    return str(value)


FIELDS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "channel": _channel,
    "url": _url,
    "events": _events,
    "tags": _texts(63),
    "handlers": _texts(200),
    "description": Text(200).check,
    "include_result": Flag().check,
    "enabled": Flag().check,
}
CHANGEABLE: Final = frozenset(FIELDS) - {"channel"}
CHOOSES: Final = ("events", "tags", "handlers")
"""The fields that say what is told."""


def _parse(data: Any, known: frozenset[str], faults: Faults) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidInput("The body must be an object.")
    fixed = [name for name in data if name in FIELDS and name not in known]
    faults.found += [InvalidInput("cannot be changed", field=name) for name in fixed]
    fields = faults.unknown({name: value for name, value in data.items() if name not in fixed}, known)
    return {name: faults.of(FIELDS[name], value, name) for name, value in fields.items()}


# -- subscriptions ----------------------------------------------------------------------------------------------------
def _rows(tenant_id: int) -> QuerySet[Any]:
    # Unscoped, because the tenant is named: another tenant's subscription is not found.
    return Subscription.objects.unscoped().for_tenant(tenant_id)


def get(tenant_id: int, subscription_id: UUID) -> Subscription:
    """The tenant's subscription of that id; ``NotFound`` when it has none."""
    found: Subscription | None = _rows(tenant_id).filter(pk=subscription_id).first()
    if found is None:
        raise NotFound(f"there is no webhook {subscription_id}")
    return found


def create(tenant: Tenant, data: Any, *, actor: str = "") -> Made:
    """Make a subscription; ``InvalidInput`` names the field at fault, ``Conflict`` one that tells the same already.

    Its secret is in the answer and nowhere else.
    """
    faults = Faults()
    values = _parse(data, frozenset(FIELDS), faults)
    channel = values.setdefault("channel", Subscription.Channel.WEBHOOK.value)
    if channel == Subscription.Channel.WEBHOOK and not data.get("url"):
        faults.found.append(DoesNotFit("says where to send: give an address", field="url"))
    if channel in NO_ADDRESS and "url" in values:
        faults.found.append(DoesNotFit(NO_ADDRESS[channel], field="url"))
    if "events" not in values:
        faults.found.append(InvalidInput("must be an array with at least one event", field="events"))
    faults.tell()
    made = Subscription(id=new_id(), tenant=tenant, created_by=actor[:120], **values)
    secret = make_secret() if channel != Subscription.Channel.EMAIL else ""
    if secret:
        made.sealed = _seal(made, secret)
    with transaction.atomic():
        lock_tenant(tenant.pk)
        _refuse_twin(made)
        if _rows(tenant.pk).count() >= MAX_SUBSCRIPTIONS:
            raise NotGranted(f"a tenant has at most {MAX_SUBSCRIPTIONS} webhooks", limit=MAX_SUBSCRIPTIONS)
        made.save(force_insert=True)
        _tell_statements(tenant.pk)
    made.refresh_from_db()
    return Made(subscription=made, secret=secret)


def _refuse_twin(one: Subscription) -> None:
    """``Conflict`` where another tells the same at the same address: each event would come twice."""
    for other in _rows(one.tenant_id).filter(channel=one.channel, url=one.url).exclude(pk=one.pk):
        if all(set(getattr(other, name)) == set(getattr(one, name)) for name in CHOOSES):
            told = f"{other.pk} tells of the same already, and each event would come twice"
            raise Conflict(told if other.enabled else f"{told}: enable it", field="url" if one.url else "channel")


def change(tenant_id: int, subscription_id: UUID, data: Any) -> Subscription:
    """Change fields; enabling a disabled subscription sends the deliveries that waited. ``Conflict`` as in :func:`create`."""
    faults = Faults()
    values = _parse(data, CHANGEABLE, faults)
    faults.tell()
    if not values:
        raise InvalidInput("give at least one field to change")
    with transaction.atomic():
        lock_tenant(tenant_id)
        found = get(tenant_id, subscription_id)
        if "url" in values and found.channel != Subscription.Channel.WEBHOOK:
            raise DoesNotFit(NO_ADDRESS[found.channel], field="url")
        if values.get("enabled"):
            values |= {"disabled_reason": "", "failing_since": None}
        for name, value in values.items():
            setattr(found, name, value)
        if not values.keys().isdisjoint(("url", *CHOOSES)):
            _refuse_twin(found)
        found.updated_at = timezone.now()
        found.save(update_fields=[*values, "updated_at"])
        _tell_statements(tenant_id)
    return found


def delete(tenant_id: int, subscription_id: UUID) -> None:
    """Remove it with its deliveries; those that wait are not sent."""
    with transaction.atomic():
        lock_tenant(tenant_id)
        get(tenant_id, subscription_id).delete()
        _tell_statements(tenant_id)


def rotate(tenant_id: int, subscription_id: UUID) -> Made:
    """Give it a new secret; for a day the old one signs beside it."""
    with transaction.atomic():
        lock_tenant(tenant_id)
        found = get(tenant_id, subscription_id)
        if found.channel == Subscription.Channel.EMAIL:
            raise Conflict("e-mail has no secret")
        secret = make_secret()
        found.sealed_before, found.before_until = found.sealed, timezone.now() + OLD_SECRET_FOR
        found.sealed = _seal(found, secret)
        found.save(update_fields=["sealed", "sealed_before", "before_until"])
    return Made(subscription=found, secret=secret)


def reseal(*, progress: Callable[[], None] = lambda: None) -> int:
    """Seal every secret anew under the first key, those that still sign beside the new ones too; returns how many."""
    count = 0
    for row in Subscription.objects.unscoped().order_by("pk").iterator():  # the platform's own keys, of every tenant
        found = {"sealed": bytes(row.sealed), "sealed_before": bytes(row.sealed_before)}
        signs = {name: value for name, value in found.items() if value}
        if row.before_until is not None and row.before_until <= timezone.now():
            signs.pop("sealed_before", None)  # its day is over: it is forgotten, whichever key sealed it
        opened = {name: open_secret(row.tenant_id, str(row.pk), value) for name, value in signs.items()}
        anew = dict.fromkeys(found, b"") | {name: _seal(row, secret) for name, secret in opened.items()}
        # Compared and set: one that was rotated meanwhile is sealed under the first key already.
        if found["sealed"]:
            count += Subscription._plain.filter(pk=row.pk, **found).update(**anew)
        progress()
    return count


def _seal(subscription: Subscription, secret: str) -> bytes:
    return seal(subscription.tenant_id, f"webhook:{subscription.pk}", secret)


def open_secret(tenant_id: int, subscription_id: str, sealed: bytes) -> str:
    """The secret as it was shown; ``ConfigurationError`` when the platform's keys no longer open it."""
    return open_sealed(tenant_id, f"webhook:{subscription_id}", bytes(sealed))


def _tell_statements(tenant_id: int) -> None:
    """Update the listener row, which tells the statements that change states which events are wanted."""
    asked = list(_rows(tenant_id).filter(enabled=True).values_list("channel", "events"))
    mask = Event(0)
    for _, names in asked:
        for name, event in EVENTS.items():
            if covers(names, name):
                mask |= event
    if mask:
        told = any(channel == Subscription.Channel.TASK for channel, _ in asked)
        values = {"events": int(mask), "tells_tasks": told}
        Listener.objects.update_or_create(tenant_id=tenant_id, defaults=values)
    else:
        Listener.objects.filter(tenant_id=tenant_id).delete()
    transaction.on_commit(reference_cache.forget_listeners)


def disable(subscription_id: str, reason: str) -> None:
    """Disable it: the receiver is gone, or has failed for days. Waiting deliveries are kept."""
    with transaction.atomic():
        found = Subscription._plain.filter(pk=subscription_id, enabled=True).first()
        if found is None:
            return
        lock_tenant(found.tenant_id)
        Subscription._plain.filter(pk=found.pk).update(enabled=False, disabled_reason=reason[:200])
        _tell_statements(found.tenant_id)


# -- deliveries -------------------------------------------------------------------------------------------------------
def ping(tenant_id: int, subscription_id: UUID) -> Delivery:
    """Send a test message once; its log shows the outcome."""
    found = get(tenant_id, subscription_id)
    if not found.enabled:
        raise Conflict("it is disabled; enable it first")
    if found.channel == Subscription.Channel.TASK:
        raise Conflict("it has no address of its own: each task names one")
    payload = {
        "type": PING,
        "timestamp": utc_text(timezone.now()),
        "data": {"webhook_id": str(found.pk), "events": found.events},
    }
    # Read again: some of its columns are the database's to fill in.
    made = Delivery._plain.create(
        tenant_id=tenant_id, subscription=found, event=PING, payload=json.dumps(payload), tries_left=1
    )
    made.refresh_from_db()
    return made


def deliveries(tenant_id: int, subscription_id: UUID) -> QuerySet[Delivery]:
    """The log."""
    return Delivery._plain.filter(subscription=get(tenant_id, subscription_id))


def replay(tenant_id: int, subscription_id: UUID, delivery_id: UUID) -> Delivery:
    """Send a delivery again, now, with the same id and content; its attempts begin anew."""
    found = get(tenant_id, subscription_id)
    if not found.enabled:
        raise Conflict("it is disabled; enable it first")
    rows = Delivery._plain.filter(subscription=found, pk=delivery_id)
    changed = rows.exclude(state=Delivery.State.PENDING).update(
        state=Delivery.State.PENDING, tries_left=MAX_TRIES, next_attempt_at=timezone.now(), delivered_at=None
    )
    delivery = rows.first()
    if delivery is None:
        raise NotFound(f"there is no delivery {delivery_id}")
    if not changed:
        raise Conflict("it is still on its way")
    return delivery
