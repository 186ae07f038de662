"""Which policies hold where: what was chosen while the platform runs, and else the configuration.

The nearest choice of an order holds: that of the line, of its tenant, of its pool and the pools above it, of the cell,
of the configuration. Reading costs two small statements every :data:`TTL_S` in each process.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.run_times import LEARNT_FROM, RunTimes
from scheduler_ext.policies.base import OrderPolicy, SharePolicy
from scheduler_ext.policies.registry import order_policy, share_policy, with_pools
from slackwater_conf import conf
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.ledger.sql.snapshot import RUN_TIMES

log = logging.getLogger(__name__)

TTL_S = 2.0
"""How long a process may use what it has read."""

CHOICES = """
(SELECT kind, pool_id, tenant_id, line_id, policy, parameters FROM slackwater_tasks_policychoice
    WHERE cell = %(cell)s ORDER BY id)
UNION ALL SELECT 'sweep', NULL, NULL, NULL, '', '{}'::jsonb FROM slackwater_tasks_ranksweep WHERE cell = %(cell)s AND passes > 0
"""
POOLS = """
SELECT id, parent_id, slug, weight, guaranteed, maximum, lends, inside FROM slackwater_tenants_pool WHERE cell = %s ORDER BY id
"""
PLACES = """
SELECT id, NULL, pool_id FROM slackwater_tenants_tenant WHERE pool_id IS NOT NULL
UNION ALL SELECT tenant_id, id, pool_id FROM slackwater_tasks_line WHERE pool_id IS NOT NULL
"""

Execute = Callable[[str, Any], Sequence[Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share policy: its name, its parameters, and the policy itself."""

    name: str
    parameters: Mapping[str, Any]
    policy: SharePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The orders chosen in one cell, from which a task gets its place."""

    order: OrderPolicy
    """The order where nothing nearer is chosen."""
    sweeping: bool = False
    """Whether ranks of an earlier order may still be met."""
    by_tenant: Mapping[int, OrderPolicy] = field(default_factory=dict)
    by_line: Mapping[int, OrderPolicy] = field(default_factory=dict)
    run_times: RunTimes | None = None
    """What is learnt of run times; read only where an order uses them."""

    def fingerprint(self) -> str:
        """A key that is equal for equal orders."""
        orders = [
            repr(self.order),
            sorted((tenant, repr(order)) for tenant, order in self.by_tenant.items()),
            sorted((line, repr(order)) for line, order in self.by_line.items()),
        ]
        return hashlib.sha256(json.dumps(orders).encode()).hexdigest()

    def order_of(self, tenant_id: int, line_id: int) -> OrderPolicy:
        """The order of a line."""
        if not self.by_tenant and not self.by_line:
            return self.order
        return self.by_line.get(line_id) or self.by_tenant.get(tenant_id) or self.order

    def run_time_us(self, tenant_id: int, keys: Sequence[str]) -> int | None:
        """The mean run time learnt of a tenant's tasks with these keys; ``None`` also where no order goes by it."""
        found = self.run_times.of(tenant_id, keys) if self.run_times is not None else None
        return found.mean_us if found is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Orders):
    """Everything chosen in one cell."""

    share: Share
    shadow: Share | None = None
    pools: Mapping[int, str] = field(default_factory=dict)
    """Path by id."""


def read(execute: Execute, conf: SchedulerConf, cell: str) -> Chosen:
    """Read what is chosen in a cell. What cannot be built is logged, and the configuration holds instead."""
    rows, pools = _rows(execute, cell)
    paths = paths_of((row[0], row[1], row[2]) for row in pools)
    settings = {
        paths[row[0]]: {"weight": row[3], "guaranteed": row[4], "maximum": row[5], "lends": row[6], "inside": row[7]}
        for row in pools
    }
    shares = {(row[0], row[1]): (row[4], row[5]) for row in rows if row[0] not in ("order", "sweep")}
    inside = {paths[pool]: choice for (kind, pool), choice in shares.items() if kind == "share" and pool in paths}
    share = _share(shares.get(("share", None)) or (conf.share_policy, {}), settings, inside, conf)
    shadow = shares.get(("shadow", None))
    return Chosen(
        share=share, shadow=_share(shadow, settings, {}, conf) if shadow else None, pools=paths,
        **_orders(rows, pools, execute, conf),
    )  # fmt: skip


def _rows(execute: Execute, cell: str) -> tuple[Sequence[Sequence[Any]], Sequence[Sequence[Any]]]:
    """What is chosen, and the pools."""
    rows = execute(CHOICES, {"cell": cell})
    found = [(*row[:5], json.loads(row[5]) if isinstance(row[5], str) else row[5]) for row in rows]
    return found, execute(POOLS, (cell,))


def paths_of(rows: Iterable[tuple[int, int | None, str]]) -> dict[int, str]:
    """The path of each pool by its id, from (id, parent, slug)."""
    known = {pool: (parent, slug) for pool, parent, slug in rows}
    paths: dict[int, str] = {}
    for pool in known:
        names: list[str] = []
        each: int | None = pool
        while each is not None and each in known and len(names) <= len(known):
            each, slug = known[each]
            names.append(slug)
        paths[pool] = "/".join(reversed(names))
    return paths


def _share(choice: tuple[str, Mapping[str, Any]], pools: Mapping[str, Mapping[str, Any]],
           inside: Mapping[str, tuple[str, Mapping[str, Any]]], conf: SchedulerConf) -> Share:  # fmt: skip
    name, parameters = choice
    try:
        name, parameters = with_pools(name, parameters, pools, inside)
        return Share(name=name, parameters=parameters, policy=share_policy(name, parameters))
    except ConfigurationError as error:
        log.warning("the share policy %s cannot be used, %s holds: %s", name, conf.share_policy, error)
        return Share(name=conf.share_policy, parameters={}, policy=share_policy(conf.share_policy))


def _order(name: str, parameters: Mapping[str, Any], conf: SchedulerConf) -> OrderPolicy:
    try:
        return order_policy(name, parameters)
    except ConfigurationError as error:
        log.warning("the order %s cannot be used, %s holds: %s", name, conf.order_policy, error)
        return order_policy(conf.order_policy)


def _orders(rows: Sequence[Sequence[Any]], pools: Sequence[Sequence[Any]], execute: Execute, conf: SchedulerConf
            ) -> dict[str, Any]:  # fmt: skip
    """The fields of :class:`Orders`: the cell's order, and those of tenants and lines that have another."""
    cell = order_policy(conf.order_policy)
    by_pool: dict[int, OrderPolicy] = {}
    by_tenant: dict[int, OrderPolicy] = {}
    by_line: dict[int, OrderPolicy] = {}
    for kind, pool, tenant, line, name, parameters in rows:
        if kind != "order":
            continue
        policy = _order(name, parameters, conf)
        if line is not None:
            by_line[line] = policy
        elif tenant is not None:
            by_tenant[tenant] = policy
        elif pool is not None:
            by_pool[pool] = policy
        else:
            cell = policy
    if by_pool:
        parents = {row[0]: row[1] for row in pools}
        for tenant, line, pool in execute(PLACES, ()):
            found = _nearest(pool, by_pool, parents)
            if line is not None and tenant not in by_tenant:
                by_line.setdefault(line, found or cell)
            elif line is None and found is not None:
                by_tenant.setdefault(tenant, found)
    return {
        "order": cell, "by_tenant": by_tenant, "by_line": by_line, "sweeping": any(row[0] == "sweep" for row in rows),
        "run_times": _run_times(execute, [cell, *by_tenant.values(), *by_line.values()]),
    }  # fmt: skip


def _nearest(
    pool: int | None, by_pool: Mapping[int, OrderPolicy], parents: Mapping[int, int | None]
) -> OrderPolicy | None:
    while pool is not None:
        if pool in by_pool:
            return by_pool[pool]
        pool = parents.get(pool)
    return None


def _run_times(execute: Execute, orders: Iterable[OrderPolicy]) -> RunTimes | None:
    if not any(getattr(order, "by_run_time", False) for order in orders):
        return None
    return RunTimes((t, key, mean, long) for t, key, mean, long in execute(RUN_TIMES, (LEARNT_FROM,)))


# -- in a process that submits ----------------------------------------------------------------------------------------
_known: dict[str, tuple[float, Orders]] = {}


def current(cell: str) -> Orders:
    """The orders of a cell, as this process knows them: at most :data:`TTL_S` old."""
    found = _known.get(cell)
    if found is None or time.monotonic() - found[0] > TTL_S:
        settings = conf().scheduler
        orders = Orders(**_orders(*_rows(fetch_all, cell), fetch_all, settings))
        if found is not None and orders == found[1]:
            orders = found[1]  # the same ones: what was made with them still holds
        found = _known[cell] = (time.monotonic(), orders)
    return found[1]


def forget() -> None:
    """Forget what was read, so that it is read anew next time."""
    _known.clear()
