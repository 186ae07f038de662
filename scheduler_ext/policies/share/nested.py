"""Nested share policies: the cell's policy decides between the pools on top, and a pool's own policy inside the pool.

Each level of the tree is ordered by the policy of the pool it stands in, or of the nearest above that has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.types import LineView, TenantView
from scheduler_ext.policies.accounts import Account, Measure
from scheduler_ext.policies.share.capacity import CapacityShare
from scheduler_ext.policies.share.dominant_resource import DominantResourceShare
from scheduler_ext.policies.share.equal import EqualShare
from scheduler_ext.policies.share.fair import FairShare
from scheduler_ext.policies.tree import Path, Rules, Terms, pool_path

LEVELS: Final[dict[str, type[Rules]]] = {
    "equal": EqualShare,
    "capacity": CapacityShare,
    "fair": FairShare,
    "dominant_resource": DominantResourceShare,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedShare(Rules):
    """A share policy for each level of the pools."""

    name: str = "nested"
    levels: Mapping[str, Any] = field(default_factory=dict)
    """``{"": {"policy": "capacity", "parameters": {…}}, "org/team": {"policy": "fair"}}``; the empty path is the cell,
    where equal turns hold if nothing is said."""
    _levels: Mapping[Path, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Build each level's policy; ``ConfigurationError`` names the level at fault."""
        Rules.__post_init__(self)
        if not isinstance(self.levels, Mapping):
            raise ConfigurationError("must be a mapping of pool paths to policies", field="levels")
        built = {
            tuple(path.split("/")) if path else (): _level(told, f"levels.{path}") for path, told in self.levels.items()
        }
        built.setdefault((), EqualShare())
        object.__setattr__(self, "_levels", built)

    @property
    def vectors(self) -> bool:
        return any(policy.vectors for policy in self._levels.values())

    @property
    def starvation_s(self) -> int:
        """The shortest starvation delay of all levels; infinite where none has one."""
        return min([p.starvation_s for p in self._levels.values() if hasattr(p, "starvation_s")], default=1 << 40)

    def kept(self) -> list[Path]:
        """The pools that do not lend all of their guarantee, where their level's policy knows of that."""
        return [path for policy in self._levels.values() for path in policy.kept() if self._above(path) is policy]

    def owned(self, line: LineView) -> bool:
        """Whether the last account is the tenant's own: as the pool's policy says."""
        return not line.pool or bool(self._inside(pool_path(line)).owned(line))

    def terms(self, path: Path, tenant: TenantView | None, above: Account, measure: Measure) -> Terms:
        """As the policy of the level says."""
        terms: Terms = self._above(path).terms(path, tenant, above, measure)
        return terms

    def key(self, account: Account) -> Any:
        """As the policy of the level says."""
        names: list[str] = []
        above = account.parent
        while above is not None and above.parent is not None:
            names.append(above.name)
            above = above.parent
        return self._inside(tuple(reversed(names))).key(account)

    def _above(self, path: Path) -> Any:
        """The policy that orders ``path`` among its siblings."""
        return self._inside(path[:-1])

    def _inside(self, path: Path) -> Any:
        """The policy that holds inside a pool: its own, or that of the nearest above that has one."""
        while path not in self._levels:
            path = path[:-1]
        return self._levels[path]


def _level(told: Any, where: str) -> Any:
    if not isinstance(told, Mapping) or set(told) - {"policy", "parameters"}:
        raise ConfigurationError("must be a mapping of policy and parameters", field=where)
    name = told.get("policy", "equal")
    if name not in LEVELS:
        raise ConfigurationError(f"must be one of {', '.join(LEVELS)}", field=f"{where}.policy")
    try:
        return LEVELS[name](**told.get("parameters", {}))
    except TypeError as error:
        raise ConfigurationError(str(error), field=f"{where}.parameters") from None
    except ConfigurationError as error:
        raise ConfigurationError(error.message, field=f"{where}.parameters.{error.field}") from error
