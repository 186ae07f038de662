"""Records rounds as lines of JSON with a digest, decides them again, and compares two policies over them.

The same snapshot, settings and policy give the same decisions, so a recorded round decided again gives the
recorded bytes; anything else means that the code has changed what it decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from hashlib import sha256
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.types import Plan, Snapshot
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.round.prioritizer import prioritize

FORMAT = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What two policies would do in one round."""

    both: int
    """Tasks that start under either."""
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One recorded round."""

    snapshot: Snapshot
    conf: SchedulerConf
    policy: str
    parameters: Mapping[str, Any]
    decisions: bytes
    """The decisions as recorded, in canonical JSON."""


def digest(snapshot: Snapshot) -> str:
    """SHA-256 of a snapshot in canonical form: equal for equal snapshots, on any machine."""
    return sha256(_canonical(_plain(snapshot))).hexdigest()


def decisions_of(plan: Plan) -> bytes:
    """What a plan decided, with the reasons of what it left, in canonical JSON."""
    return _canonical(
        {
            "decisions": [_plain(decision) for decision in plan.decisions],
            "left": {task_id: reason.value for task_id, reason in plan.left.items()},
            "utilization_permille": plan.utilization_permille,
        }
    )


def record(snapshot: Snapshot, conf: SchedulerConf, policy: str, parameters: Mapping[str, Any], plan: Plan) -> bytes:
    """A round as one line of JSON, ending in a newline."""
    document = {
        "format": FORMAT,
        "digest": digest(snapshot),
        "policy": policy,
        "parameters": dict(parameters),
        "conf": asdict(conf),
        "snapshot": _plain(snapshot),
        "plan": json.loads(decisions_of(plan)),
    }
    return _canonical(document) + b"\n"


def load(line: bytes) -> Record:
    """Read one recorded round; ``InvalidInput`` when it is damaged."""
    try:
        document = json.loads(line)
        if document["format"] != FORMAT:
            raise InvalidInput(f"is {document['format']}; this version reads {FORMAT}", field="format")
        snapshot = _value(Snapshot, document["snapshot"])
        found = Record(
            snapshot=snapshot,
            conf=SchedulerConf.from_mapping(document["conf"]),
            policy=document["policy"],
            parameters=document["parameters"],
            decisions=_canonical(document["plan"]),
        )
        told = document["digest"]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"is not a recorded round: {error!r}", field="record") from error
    if digest(snapshot) != told:
        raise InvalidInput("the snapshot does not match its digest", field="digest")
    return found


def replay(recorded: Record) -> bytes:
    """Decide a recorded round again; equal to ``recorded.decisions`` when nothing has changed."""
    policy = share_policy(recorded.policy, recorded.parameters)
    return decisions_of(prioritize(recorded.snapshot, recorded.conf, policy))


def compare(snapshot: Snapshot, conf: SchedulerConf, first: SharePolicy, second: SharePolicy) -> Difference:
    """Decide one round under two policies; nothing is claimed."""
    one = [decision.task_id for decision in prioritize(snapshot, conf, first).decisions]
    other = [decision.task_id for decision in prioritize(snapshot, conf, second).decisions]
    common = set(one) & set(other)
    return Difference(
        both=len(common),
        only_first=tuple(task_id for task_id in one if task_id not in common),
        only_second=tuple(task_id for task_id in other if task_id not in common),
    )


# -- to and from plain values ----------------------------------------------------------------------


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    """A frozen value as JSON has it, whatever fields it has: nothing that deciding sees is left out."""
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    if isinstance(value, frozenset):
        return sorted(_plain(each) for each in value)
    return {name: _plain(getattr(value, name)) for name in _names(type(value))}  # type: ignore[arg-type]  # a class is hashable


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(spec.name for spec in fields(cls))


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _value(hint: Any, value: Any) -> Any:
    """A plain value as what its type says."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return None if value is None else _value(next(each for each in inner if each is not NoneType), value)
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[1:] == (...,) else inner
        return tuple(_value(kind, each) for kind, each in zip(kinds, value, strict=True))
    if origin is frozenset:
        return frozenset(_value(inner[0], each) for each in value)
    if origin is Mapping:
        return {_value(inner[0], key): _value(inner[1], each) for key, each in value.items()}
    if is_dataclass(hint):
        build: Any = hint
        return build(**{name: _value(_hints(build)[name], each) for name, each in value.items()})
    # Numbers stay as they were written: a whole one in the place of a float has another digest.
    return value if hint is float else hint(value)
