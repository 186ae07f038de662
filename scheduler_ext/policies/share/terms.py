"""Terms of pools and queues from configuration, checked, with errors that name the pool and the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from scheduler_ext.core.errors import ConfigurationError, typed
from scheduler_ext.core.types import LineView, TenantView
from scheduler_ext.policies.accounts import Account, Measure
from scheduler_ext.policies.tree import Path, Rules, Terms, pool_path

WHOLE = 1_000_000
"""Configured shares are kept in millionths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One pool or queue as configured."""

    weight: int = 1
    guaranteed: float = 0.0
    """Per cent of what the pool above is guaranteed (at the top: of the cell)."""
    maximum: float = 100.0
    """Per cent of the maximum of the pool above."""
    lends: float = 100.0
    """Per cent of its idle guarantee that others may use; the rest stays free for it."""
    inside: str = "fair"
    """``fair``: equal turns by weight between the tenants in it; ``fifo``: by rank."""


def parse_pools(values: Mapping[str, Any], known: tuple[str, ...], *, name: str) -> dict[Path, Pool]:
    """Pools by path, from ``{"path/of/pool": {setting: value}}``; ``ConfigurationError`` names what is wrong.

    ``known`` are the settings the policy has a use for.
    """
    if not isinstance(values, Mapping):
        raise ConfigurationError("must be a mapping of pool paths to settings", field=name)
    pools: dict[Path, Pool] = {}
    sums: dict[Path, int] = {}
    for text, settings in values.items():
        path = tuple(str(text).split("/"))
        if not all(path):
            raise ConfigurationError(f"{text!r} is not a path like org/team", field=name)
        pools[path] = _parse_pool(settings, known, f"{name}.{text}")
        sums[path[:-1]] = sums.get(path[:-1], 0) + _parts(pools[path].guaranteed)
    for above, parts in sums.items():
        if parts > WHOLE + len(pools):
            where = "/".join(above) or "the top"
            raise ConfigurationError(f"the guaranteed shares under {where} exceed 100 %", field=name)
    return pools


def _parse_pool(settings: Any, known: tuple[str, ...], where: str) -> Pool:
    if not isinstance(settings, Mapping):
        raise ConfigurationError("must be a mapping of settings", field=where)
    types = {spec.name: str(spec.type) for spec in fields(Pool)}
    clean: dict[str, Any] = {}
    for setting, value in settings.items():
        if setting not in known:
            raise ConfigurationError(f"known settings are {', '.join(known)}", field=f"{where}.{setting}")
        clean[setting] = typed(value, types[setting], f"{where}.{setting}")
    pool = Pool(**clean)
    if pool.weight < 1:
        raise ConfigurationError("must be at least 1", field=f"{where}.weight")
    if not 0 <= pool.guaranteed <= pool.maximum <= 100:
        raise ConfigurationError("must be 0 <= guaranteed <= maximum <= 100", field=where)
    if not 0 <= pool.lends <= 100:
        raise ConfigurationError("must be from 0 to 100", field=f"{where}.lends")
    if pool.inside not in ("fair", "fifo"):
        raise ConfigurationError("must be fair or fifo", field=f"{where}.inside")
    return pool


def _parts(per_cent: float) -> int:
    """A share in millionths."""
    return round(per_cent * WHOLE / 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledShare(Rules):
    """What share policies over configured pools have in common: they count resources, not slots alone."""

    settings: ClassVar[tuple[str, ...]]
    """The settings of a pool that the policy knows."""
    parameter: ClassVar[str] = "pools"
    """The parameter that holds its pools."""
    _pools: Mapping[Path, Pool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        Rules.__post_init__(self)
        pools = parse_pools(getattr(self, self.parameter), self.settings, name=self.parameter)
        object.__setattr__(self, "_pools", pools)

    @property
    def vectors(self) -> bool:
        return True

    def owned(self, line: LineView) -> bool:
        """Whether the last account is the tenant's own: yes, except in a pool that is FIFO inside."""
        pool = self._pools.get(pool_path(line)) if line.pool else None
        return pool is None or pool.inside == "fair"

    def terms(self, path: Path, tenant: TenantView | None, above: Account, measure: Measure) -> Terms:
        """A pool's weight, minimum and maximum (both as parts of the pool above); without an entry, the plan's."""
        pool = self._pools.get(path)
        if pool is None:
            return Rules.terms(self, path, tenant, above, measure)
        floor = (measure.whole if above.parent is None else above.floor) * _parts(pool.guaranteed) // WHOLE
        limit = (measure.whole if above.limit is None else above.limit) * _parts(pool.maximum) // WHOLE
        return Terms(
            weight=pool.weight,
            floor=floor,
            kept=floor * (WHOLE - _parts(pool.lends)) // WHOLE,
            limit=limit if _parts(pool.maximum) < WHOLE else None,
        )

    def kept(self) -> list[Path]:
        """The paths of pools that do not lend all they are guaranteed."""
        return [path for path, pool in self._pools.items() if pool.guaranteed and pool.lends < 100]
