"""The rules of alerts: the condition, its threshold, and how long it lasts before it raises and clears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from scheduler_ext.core.errors import ConfigurationError
from slackwater_conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One condition: it raises an alert after ``after_s``, and clears it once over for ``clear_after_s``."""

    says: str
    """The condition in a few words."""
    threshold: float
    """The limit; its meaning and unit are the rule's."""
    means: str
    """What the threshold is."""
    after_s: float
    clear_after_s: float = 30.0
    enabled: bool = True


RULES: Final[Mapping[str, Rule]] = {
    "node_unused": Rule(
        says="a node is unused", threshold=60.0, after_s=3600.0,
        means="seconds back in which no task ended on it, while none is in flight there",
    ),
    "node_failed": Rule(
        says="a node was lost and has not come back", threshold=86_400.0, after_s=15.0,
        means="seconds after its last heartbeat for which it is missed; then it is taken for gone for good",
    ),
    "capacity_low": Rule(
        says="there is too little capacity", threshold=1.0, after_s=120.0, clear_after_s=60.0,
        means="slots of each kind for each slot that the demand wants at `resource_ratio_permille`; fewer are too few",
    ),
    "failures_rising": Rule(
        says="more attempts fail than before", threshold=0.2, after_s=30.0, clear_after_s=120.0,
        means="part of the last minute's attempts (20 or more) that failed, at least twice the part before; "
        "it is over below half of this",
    ),
    "dispatcher": Rule(
        says="no dispatcher leads the cell: nothing is started", threshold=0.0, after_s=10.0,
        means="seconds after the leader's lease ran out",
    ),
    "beat": Rule(
        says="no beat is at work: schedules do not fire", threshold=10.0, after_s=15.0,
        means="seconds since a beat last ticked",
    ),
    "upkeep": Rule(
        says="no upkeep is at work: what crashes leave behind is not mended", threshold=10.0, after_s=15.0,
        means="seconds since an upkeep last went through its jobs",
    ),
    "queue": Rule(
        says="the nodes' queues do not work", threshold=30.0, after_s=10.0,
        means="seconds that a claim is past its time without being taken back; Redis not answering counts always",
    ),
    "work_late": Rule(
        says="work that is ready is past its latest start", threshold=30.0, after_s=60.0, clear_after_s=60.0,
        means="seconds past the latest start, of the first in a line that is not paused",
    ),
}  # fmt: skip
CHANGEABLE: Final = ("threshold", "after_s", "clear_after_s", "enabled")


def rules() -> dict[str, Rule]:
    """The rules with the settings' changes; ``ConfigurationError`` names the one that cannot be."""
    return changed(conf().alerts)


def changed(changes: Any) -> dict[str, Rule]:
    """The rules with ``changes``, a mapping of names to the fields that differ."""
    if not isinstance(changes, Mapping):
        raise ConfigurationError("must be an object of rules", field="SLACKWATER_ALERTS")
    found = dict(RULES)
    for name, values in changes.items():
        if name not in RULES:
            raise ConfigurationError(f"there is no such rule; known are {', '.join(RULES)}", field=str(name))
        if not isinstance(values, Mapping):
            raise ConfigurationError("must be an object", field=str(name))
        found[name] = replace(RULES[name], **{key: _value(name, key, value) for key, value in values.items()})
    return found


def _value(rule: str, key: str, value: Any) -> Any:
    field = f"{rule}.{key}"
    if key not in CHANGEABLE:
        raise ConfigurationError(f"there is no such field; known are {', '.join(CHANGEABLE)}", field=field)
    kind = next(str(one.type) for one in fields(Rule) if one.name == key)
    if kind == "bool":
        if not isinstance(value, bool):
            raise ConfigurationError("must be true or false", field=field)
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise ConfigurationError("must be a number, 0 or more", field=field)
    return float(value)
