"""Policies by name, with their parameters checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from scheduler_ext.core.errors import TYPES, ConfigurationError, typed
from scheduler_ext.policies.base import OrderPolicy, SharePolicy
from scheduler_ext.policies.order.deadline import Deadline
from scheduler_ext.policies.order.feedback import Feedback
from scheduler_ext.policies.order.fifo import Fifo
from scheduler_ext.policies.order.round_robin import RoundRobin
from scheduler_ext.policies.order.shortest_first import ShortestFirst
from scheduler_ext.policies.order.workflow import SmallestWorkflow
from scheduler_ext.policies.share.nested import LEVELS, NestedShare
from scheduler_ext.policies.share.terms import PooledShare

ORDER_POLICIES: Final[dict[str, type[Any]]] = {
    "fifo": Fifo,
    "deadline": Deadline,
    "shortest_first": ShortestFirst,
    "round_robin": RoundRobin,
    "feedback": Feedback,
    "workflow": SmallestWorkflow,
}
SHARE_POLICIES: Final[dict[str, type[Any]]] = {**LEVELS, "nested": NestedShare}


def order_policy(name: str, parameters: Mapping[str, Any] | None = None) -> OrderPolicy:
    """Return the order policy ``name``; ``ConfigurationError`` for an unknown name or a wrong parameter."""
    policy: OrderPolicy = _build("order", ORDER_POLICIES, name, parameters or {})
    return policy


def share_policy(name: str, parameters: Mapping[str, Any] | None = None) -> SharePolicy:
    """Return the share policy ``name``; ``ConfigurationError`` for an unknown name or a wrong parameter."""
    policy: SharePolicy = _build("share", SHARE_POLICIES, name, parameters or {})
    return policy


def with_pools(
    name: str,
    parameters: Mapping[str, Any],
    pools: Mapping[str, Mapping[str, Any]],
    inside: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
) -> tuple[str, dict[str, Any]]:
    """A share policy's name and parameters with the pools set apart from it; what its parameters say goes before.

    ``inside`` are pools in which another policy holds: then it is the nested one.
    """
    if inside:
        levels = {"": (name, parameters), **inside}
        told = {path: dict(zip(("policy", "parameters"), _own_pools(*each, pools), strict=True))
                for path, each in levels.items()}  # fmt: skip
        return "nested", {"levels": told}
    return _own_pools(name, parameters, pools)


def _own_pools(
    name: str, parameters: Mapping[str, Any], pools: Mapping[str, Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    policy: Any = SHARE_POLICIES.get(name)
    if not pools or policy is None or not issubclass(policy, PooledShare):
        return name, dict(parameters)
    own = {path: {key: value for key, value in each.items() if key in policy.settings} for path, each in pools.items()}
    return name, {**parameters, policy.parameter: {**own, **parameters.get(policy.parameter, {})}}


def parameters_of(policy: type[Any]) -> dict[str, str]:
    """The parameters a policy takes, each with the name of its type."""
    return {spec.name: str(spec.type) for spec in fields(policy) if spec.init and spec.name != "name"}


def _build(what: str, known: Mapping[str, type[Any]], name: str, parameters: Mapping[str, Any]) -> Any:
    field = f"{what}_policy"
    if name not in known:
        names = ", ".join(sorted(known))
        raise ConfigurationError(f"there is no {what} policy {name!r}; known are {names}", field=field)
    accepted = parameters_of(known[name])
    for parameter, value in parameters.items():
        if parameter not in accepted:
            takes = ", ".join(sorted(accepted)) or "no parameters"
            raise ConfigurationError(f"{name} takes {takes}", field=f"{field}.{parameter}")
        if accepted[parameter] in TYPES:  # structured ones check themselves
            typed(value, accepted[parameter], f"{field}.{parameter}")
    try:
        return known[name](**parameters)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, field=f"{field}.{error.field}") from error
