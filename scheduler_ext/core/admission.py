"""Checks of a submission against its plan. Pure: counters and rates are checked where they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from scheduler_ext.core.errors import InvalidInput, NotGranted, TooLarge


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """What a plan allows. ``None`` is no limit."""

    tiers: frozenset[str] = frozenset()
    """Names of the tiers it may use; custom tiers of its own are added by the caller."""
    max_cap_ms: int | None = None
    """Longest execution cap."""
    max_payload_bytes: int | None = None
    """Largest arguments of one task, as JSON."""
    max_dag_tasks: int | None = None
    max_dag_edges: int | None = None
    max_dag_depth: int | None = None
    handlers: tuple[str, ...] = ()
    """Patterns (``*``, ``?``) of the handlers it grants."""


def check_tier(plan: PlanLimits, tier: str, *, field: str = "tier") -> None:
    """``NotGranted`` unless the plan allows ``tier``."""
    if tier not in plan.tiers:
        allowed = ", ".join(sorted(plan.tiers)) or "none"
        raise NotGranted(f"the plan does not grant the tier {tier!r}; it grants {allowed}", field=field)


def check_cap(plan: PlanLimits, cap_ms: int, *, field: str = "cap_ms") -> None:
    """``InvalidInput`` for a cap that is not positive, ``TooLarge`` for one beyond the plan's."""
    if cap_ms <= 0:
        raise InvalidInput("must be greater than 0", field=field)
    if plan.max_cap_ms is not None and cap_ms > plan.max_cap_ms:
        longest = plan.max_cap_ms / 1000
        raise TooLarge(f"the plan allows an execution cap of {longest:g} seconds at most", field=field, limit=longest)


def check_payload(plan: PlanLimits, size: int, *, field: str = "args") -> None:
    """``TooLarge`` when a payload of ``size`` bytes is more than the plan allows."""
    _at_most(size, plan.max_payload_bytes, field, "bytes", "the payload")


def check_handler(plan: PlanLimits, handler: str, *, field: str = "handler") -> None:
    """``NotGranted`` unless one of the plan's patterns matches ``handler``."""
    if not is_granted(plan.handlers, handler):
        raise NotGranted(f"the plan does not grant the handler {handler!r}", field=field)


def is_granted(patterns: tuple[str, ...], handler: str) -> bool:
    """Whether one of the patterns (``*``, ``?``, case counts) matches the whole name."""
    return any(fnmatchcase(handler, pattern) for pattern in patterns)


def check_dag(plan: PlanLimits, *, tasks: int, edges: int, depth: int, field: str = "tasks") -> None:
    """``TooLarge`` when a workflow has more tasks, edges or levels than the plan allows."""
    _at_most(tasks, plan.max_dag_tasks, field, "tasks", "the workflow")
    _at_most(edges, plan.max_dag_edges, field, "dependencies", "the workflow")
    _at_most(depth, plan.max_dag_depth, field, "levels", "the workflow")


def _at_most(value: int, limit: int | None, field: str, unit: str, what: str) -> None:
    if limit is not None and value > limit:
        raise TooLarge(f"{what} has {value} {unit}; the plan allows {limit}", field=field, limit=limit)
