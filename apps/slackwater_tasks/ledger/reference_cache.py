"""Small look-ups that every submission needs, kept in the process: tiers, lines, handlers, the database's clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from django.db import transaction

from scheduler_ext.core.errors import DoesNotFit
from scheduler_ext.core.labels import Labels
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import LateMark, Repeats
from scheduler_ext.core.work import Export
from scheduler_ext.task import handlers
from scheduler_ext.task.arguments import Arguments
from slackwater_conf.database import in_ledger
from slackwater_resources.models import Handler
from slackwater_tasks.ledger import sql
from slackwater_tasks.ledger.connection import fetch_all, fetch_value
from slackwater_tasks.models.base import OnLate
from slackwater_tasks.spec import parse_fields
from slackwater_tenants.models import Tenant

T = TypeVar("T")
TIER_TTL_S = 2.0
MOST_LABELLED = 256
"""The most lines with labels, or of workflows with a share, of one tenant: each is read with every look at the ledger."""
# Whoever uses the labels again needs no new line.
LABELLED = """
SELECT count(*) FROM slackwater_tasks_line WHERE tenant_id = %s
    AND NOT (require_labels = '{}' AND prefer_labels = '{}' AND workflow = '')
    AND NOT (require_labels = %s::varchar[] AND prefer_labels = %s::varchar[] AND workflow = %s)
"""
# Written out: Django takes several times longer to make such a statement than to run it, and one task waits for all of them.
TIERS = """
SELECT tenant_id, id, slug, default_cap_s, cpu_milli, memory_mb, disk_mb, iops, bandwidth_kbps, ports
FROM slackwater_resources_tier WHERE tenant_id IS NULL OR (tenant_id = ANY(%s) AND retired_at IS NULL)
ORDER BY cpu_milli, slug
"""
SCHEMA = "SELECT schema::text FROM slackwater_resources_handler WHERE name = %s"
ARGUMENTS_TTL_S = 5.0


@dataclass(frozen=True, slots=True)
class TierInfo:
    """A tier as admission needs it."""

    id: int
    slug: str
    default_cap_ms: int
    shared: bool
    vector: tuple[int, ...]


class _Aged(Generic[T]):
    """Something that is read anew once it is older than so many seconds."""

    def __init__(self, keep_s: float, read: Callable[[], T]) -> None:
        self.keep_s = keep_s
        self.read = read
        self._read_at = float("-inf")

    def __call__(self) -> T:
        if time.monotonic() - self._read_at > self.keep_s:
            self._found = self.read()
            self._read_at = time.monotonic()
        return self._found

    def forget(self) -> None:
        """Forget the value, so that it is read anew."""
        self._read_at = float("-inf")


def _resumable() -> frozenset[str]:
    found = {row[0] for row in fetch_all("SELECT name FROM slackwater_resources_handler WHERE checkpoints")}
    return frozenset(found | {name for name, export in handlers.exported().items() if export.checkpoints})


def _declared() -> dict[str, dict[str, Any]]:
    rows = Handler.objects.exclude(defaults={}).values_list("name", "defaults")
    return {name: parse_fields(defaults) for name, defaults in rows}


_defaults = _Aged(5.0, _declared)
LATE_LISTENERS = named("SELECT tenant_id FROM slackwater_tasks_listener WHERE events & :event.LATE <> 0")
_late_listeners = _Aged(2.0, lambda: frozenset(row[0] for row in fetch_all(LATE_LISTENERS)))
resumable_handlers = _Aged(5.0, _resumable)
"""Names of the handlers that declare checkpoints."""
_serving: _Aged[dict[int, int]] = _Aged(
    1.0, lambda: dict(fetch_all("SELECT id, serving FROM slackwater_tasks_line WHERE serving > 0"))
)
_clock: _Aged[float] = _Aged(
    10.0, lambda: fetch_value("SELECT extract(epoch FROM clock_timestamp())::float8") - time.monotonic()
)
"""How far the database's clock is ahead of this process's."""
# Lines and handlers never change their ids; tiers are read anew.
_lines: dict[tuple[int, int, int, Labels | None], int] = {}
_handlers: dict[str, int] = {}
_arguments: dict[str, tuple[float, str | None, Arguments | None]] = {}
"""By handler: when it was read, as what, and what was made of it."""
_tiers: dict[int, tuple[float, dict[str, TierInfo]]] = {}
owners: dict[int | str, tuple[float, Tenant]] = {}
"""The tenants whose tasks come through interfaces without tenants, by id or slug, each with the time it holds until."""
made_of_it: dict[Any, Any] = {}
"""What others have made of these look-ups: it is forgotten with them."""


def forget() -> None:
    """Forget everything."""
    for known in (_lines, _handlers, _arguments, _tiers, owners, made_of_it):
        known.clear()
    for aged in (_late_listeners, resumable_handlers, _defaults, _serving, _clock):
        aged.forget()


def on_late_mark(tenant_id: int, on_late: int) -> int:
    """``on_late`` for the live row: marked if the tenant wants to be told of a passed latest start."""
    return LateMark.TELL if on_late == OnLate.RUN_FIRST and tenant_id in _late_listeners() else on_late


def serving(line_id: int) -> int:
    """The cycle a line serves under round robin, at most a second old: who joins an earlier one is served first."""
    return _serving().get(line_id, 0)


def now() -> datetime:
    """The database's time, from this process's clock and its measured distance to the database's."""
    return datetime.fromtimestamp(_clock() + time.monotonic(), UTC)


def tiers(tenant_id: int) -> dict[str, TierInfo]:
    """The tiers a tenant can name: the shared ones and its own, its own first."""
    read_tiers([tenant_id])
    made_here = {made.tier.slug: made.tier for made in _uncommitted() if made.tenant_id == tenant_id}
    return {**_tiers[tenant_id][1], **made_here} if made_here else _tiers[tenant_id][1]


@in_ledger
def read_tiers(tenant_ids: Iterable[int]) -> None:
    """Look up the tiers of many tenants at once, where they are not known or have been for too long."""
    now = time.monotonic()
    never: tuple[float, dict[str, TierInfo]] = (float("-inf"), {})
    stale = {tenant for tenant in tenant_ids if now - _tiers.get(tenant, never)[0] > TIER_TTL_S}
    if not stale:
        return
    shared: dict[str, TierInfo] = {}
    own: dict[int, dict[str, TierInfo]] = {tenant: {} for tenant in stale}
    may_go = {made.tier.id for made in _uncommitted()}
    for tenant_id, tier, slug, cap_s, *vector in fetch_all(TIERS, [[*stale]]):
        if tier in may_go:
            continue
        place = shared if tenant_id is None else own[tenant_id]
        place[slug] = TierInfo(tier, slug, cap_s * 1000, tenant_id is None, tuple(vector))
    for tenant, its_own in own.items():
        _tiers[tenant] = (now, {**shared, **its_own})


def forget_tiers(tenant_id: int) -> None:
    """Look up a tenant's tiers anew: one may just have been made."""
    _tiers.pop(tenant_id, None)
    made_of_it.clear()


@dataclass(frozen=True, slots=True)
class _TierMade:
    """What is called once a tier is committed. Until then its own transaction alone may know it: it may be taken back."""

    tenant_id: int
    tier: TierInfo

    def __call__(self) -> None:
        forget_tiers(self.tenant_id)


def tier_made(tenant_id: int, tier: TierInfo) -> None:
    """Let the transaction know the tier of a tenant that was made in it, and all others after the commit."""
    transaction.on_commit(_TierMade(tenant_id, tier))


def _uncommitted() -> list[_TierMade]:
    """The tiers made in this transaction. Django forgets the calls of a transaction, or a part of one, that is rolled back."""
    return [call for _, call, *_ in transaction.get_connection().run_on_commit if isinstance(call, _TierMade)]


def forget_listeners() -> None:
    """Look up anew who wants to be told of a late start."""
    _late_listeners.forget()
    made_of_it.clear()


def line_id(tenant_id: int, category: int, tier_id: int, labels: Labels | None = None, workflow: str = "") -> int:
    """The line of a tenant, category, tier, labels and ``workflow`` that has a share of its own, made on first use.

    Made on a statement of its own: two submitters that need it at once both find it.
    """
    key = (tenant_id, category, tier_id, labels)
    found = None if workflow else _lines.get(key)  # a workflow's are deleted after its end
    if found is None:
        require, prefer = (sorted(labels.require), sorted(labels.prefer)) if labels is not None else ([], [])
        asked = [require, prefer, workflow]
        if any(asked) and fetch_value(LABELLED, [tenant_id, *asked]) >= MOST_LABELLED:
            raise DoesNotFit(
                f"at most {MOST_LABELLED} lines with labels, or of workflows with a share, are kept of an organisation: "
                "one for each category, tier, set of labels and such workflow it has used",
                field="share_weight" if workflow else "require_labels" if require else "prefer_labels",
            )
        found = int(fetch_value(sql.snapshot.MAKE_LINE, (tenant_id, category, tier_id, *asked)))
        if not workflow:
            _remember(_lines, key, found)
    return found


def _remember(store: dict[Any, int], key: Any, value: int) -> None:
    # A row made inside a transaction that is rolled back must not be remembered; outside of one this is done at once.
    transaction.on_commit(lambda: store.__setitem__(key, value))


def handler_names(most: int) -> list[str]:
    """The names of some handlers, for those who ask for one that is none of them."""
    return list(Handler.objects.values_list("name", flat=True)[:most])


def handler_id(name: str) -> int | None:
    """The id of a handler; ``None`` when no worker has exported that name and this process does not declare it."""
    found = _handlers.get(name)
    if found is None:
        found = Handler.objects.filter(name=name).values_list("pk", flat=True).first()
        export = handlers.find(name) if found is None else None
        if export is None and found is None and handlers.is_declared(name):
            export = Export(name=name, task=name, repeats=Repeats.ASKED)  # its worker will say more
        if export is not None:
            declared = {
                "kind": export.kind.value,
                "idempotent": export.idempotent,
                "description": export.description,
                "checkpoints": export.checkpoints,
                "schema": export.schema,
                "defaults": dict(export.defaults),
                "repeats": export.repeats,
                "awaited": True,
            }
            found = Handler.objects.get_or_create(name=name, defaults=declared)[0].pk
        if found is None:
            return None
        _remember(_handlers, name, found)
    return found


def arguments(name: str, *, anew: bool = False) -> Arguments | None:
    """The compiled check of a handler's arguments; ``None`` if its workers published none.

    ``anew``: as it is now. Without it, it may be that of five seconds ago.
    """
    found = _arguments.get(name)
    if found is None or anew or time.monotonic() - found[0] > ARGUMENTS_TTL_S:
        text = fetch_value(SCHEMA, (name,))
        if found is None or found[1] != text:
            schema = json.loads(text) if text else None
            found = (0.0, text, Arguments(schema) if schema else None)
        found = _arguments[name] = (time.monotonic(), *found[1:])
    return found[2]


def handler_defaults(name: str) -> dict[str, Any]:
    """The defaults a handler declares for its tasks, by names of ``TaskSpec``; this process's own declaration comes
    first.
    """
    export = handlers.find(name)
    if export is not None:
        return parse_fields(export.defaults) if export.defaults else {}
    return _defaults().get(name, {})
