"""Terms of pools and queues from configuration, checked, with errors that name the pool and the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.types import LineView, Snapshot, TenantView
from scheduler_ext.policies.accounts import Measure
from scheduler_ext.policies.tree import Path, Terms, TreeChooser

WHOLE = 1_000_000
"""Configured shares are kept in millionths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One pool or queue as configured."""

    weight: int = 1
    guaranteed: float = 0.0
    """Per cent of what the pool above is guaranteed (of the cell, at the top)."""
    maximum: float = 100.0
    """Per cent of what the pool above may have at most."""
    lends: float = 100.0
    """Per cent of its idle guarantee that others may use; the rest stays free for it."""
    inside: str = "fair"
    """``fair``: equal turns by weight between the tenants in it; ``fifo``: by rank."""

    @property
    def guaranteed_parts(self) -> int:
        """The guaranteed share in millionths."""
        return round(self.guaranteed * WHOLE / 100)

    @property
    def kept_parts(self) -> int:
        """How much of the guarantee is never lent, in millionths."""
        return WHOLE - round(self.lends * WHOLE / 100)

    @property
    def maximum_parts(self) -> int:
        """The maximum in millionths."""
        return round(self.maximum * WHOLE / 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """All configured pools by path."""

    by_path: Mapping[Path, Pool] = field(default_factory=dict)

    def get(self, path: Path) -> Pool | None:
        """The pool at ``path``, if configured."""
        return self.by_path.get(path)

    def kept(self) -> list[Path]:
        """Paths of the pools that keep part of their guarantee though it is idle."""
        return [path for path, pool in self.by_path.items() if pool.guaranteed and pool.lends < 100]

    @classmethod
    def parse(cls, values: Mapping[str, Any], known: tuple[str, ...], *, name: str) -> Pools:
        """From ``{"path/of/pool": {setting: value}}``; ``ConfigurationError`` names what is wrong.

        ``known`` are the settings the policy has a use for.
        """
        if not isinstance(values, Mapping):
            raise ConfigurationError("must be a mapping of pool paths to settings", field=name)
        pools: dict[Path, Pool] = {}
        for path, settings in values.items():
            if not all(str(path).split("/")):
                raise ConfigurationError(f"{path!r} is not a path like org/team", field=name)
            pools[tuple(str(path).split("/"))] = _parse_pool(settings, known, f"{name}.{path}")
        result = cls(by_path=pools)
        result._check_sums(name)
        return result

    def _check_sums(self, name: str) -> None:
        sums: dict[Path, int] = {}
        for path, pool in self.by_path.items():
            sums[path[:-1]] = sums.get(path[:-1], 0) + pool.guaranteed_parts
        for above, parts in sums.items():
            if parts > WHOLE + len(self.by_path):
                where = "/".join(above) or "the top"
                raise ConfigurationError(f"the guaranteed shares under {where} exceed 100 %", field=name)


def _parse_pool(settings: Any, known: tuple[str, ...], where: str) -> Pool:
    if not isinstance(settings, Mapping):
        raise ConfigurationError("must be a mapping of settings", field=where)
    types = {spec.name: str(spec.type) for spec in fields(Pool)}
    clean: dict[str, Any] = {}
    for setting, value in settings.items():
        if setting not in known:
            raise ConfigurationError(f"known settings are {', '.join(known)}", field=f"{where}.{setting}")
        clean[setting] = _checked(value, types[setting], f"{where}.{setting}")
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


def _checked(value: Any, wanted: str, where: str) -> Any:
    types = {"int": (int,), "float": (int, float), "str": (str,)}[wanted]
    if isinstance(value, bool) or not isinstance(value, types):
        raise ConfigurationError(f"must be {wanted}, not {type(value).__name__}", field=where)
    return float(value) if wanted == "float" else value


def tenant_terms(tenant: TenantView | None, measure: Measure) -> Terms:
    """What a tenant's plan says."""
    if tenant is None:
        return Terms()
    return Terms(weight=tenant.weight, floor=measure.permille(tenant.guaranteed_permille))


def pool_terms(pool: Pool, floor_above: int, limit_above: int) -> Terms:
    """Terms of a pool, absolute, from those of the pool above."""
    limit = limit_above * pool.maximum_parts // WHOLE
    floor = floor_above * pool.guaranteed_parts // WHOLE
    return Terms(
        weight=pool.weight,
        floor=floor,
        kept=floor * pool.kept_parts // WHOLE,
        limit=limit if pool.maximum_parts < WHOLE else None,
    )


def pool_path(line: LineView) -> Path:
    """The path of a line's pool; of its tenant alone when it has none."""
    return tuple(line.pool.split("/")) if line.pool else (f"tenant {line.tenant_id}",)


def check_memory(memory_s: int) -> None:
    """``ConfigurationError`` for a negative memory of past use."""
    if memory_s < 0:
        raise ConfigurationError("must not be negative", field="memory_s")


class PooledShare:
    """What share policies over configured pools have in common. They count resources, not slots alone."""

    __slots__ = ()
    _pools: Pools

    @property
    def vectors(self) -> bool:
        """Shares count resources."""
        return True

    def start(self, snapshot: Snapshot) -> TreeChooser:
        """Begin a round over ``snapshot``."""
        rules: Any = self
        return TreeChooser(snapshot, rules)

    def kept(self) -> list[Path]:
        """The paths of pools that do not lend all they are guaranteed."""
        return self._pools.kept()
