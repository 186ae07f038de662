"""Recording rounds and deciding them again: a round as one line of JSON, its digest, and a second policy
beside it.

The same snapshot, settings and policy give the same decisions, so a recorded round decided again gives the
recorded bytes; anything else means that the code has changed what it decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, TypeVar

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    LineView,
    NodeView,
    Plan,
    PoolView,
    RunEnd,
    Snapshot,
    TaskView,
    TenantView,
    WorkKind,
)
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.prioritizer import prioritize

FORMAT = 1

T = TypeVar("T")


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
    return sha256(_canonical(_snapshot_document(snapshot))).hexdigest()


def decisions_of(plan: Plan) -> bytes:
    """What a plan decided, with the reasons of what it left, in canonical JSON."""
    return _canonical(
        {
            "decisions": [asdict(decision) for decision in plan.decisions],
            "left": {task_id: reason.value for task_id, reason in plan.left.items()},
            "utilization_permille": plan.utilization_permille,
        }
    )


def record(
    snapshot: Snapshot, conf: SchedulerConf, policy: str, parameters: Mapping[str, Any], plan: Plan
) -> bytes:
    """A round as one line of JSON, ending in a newline."""
    document = {
        "format": FORMAT,
        "digest": digest(snapshot),
        "policy": policy,
        "parameters": dict(parameters),
        "conf": asdict(conf),
        "snapshot": _snapshot_document(snapshot),
        "plan": json.loads(decisions_of(plan)),
    }
    return _canonical(document) + b"\n"


def load(line: bytes) -> Record:
    """Read one recorded round; ``InvalidInput`` when it is damaged."""
    try:
        document = json.loads(line)
        if document["format"] != FORMAT:
            raise InvalidInput(f"is {document['format']}; this version reads {FORMAT}", field="format")
        snapshot = _snapshot_of(document["snapshot"])
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


def _snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "now": snapshot.now,
        "cell": snapshot.cell,
        "nodes": [_node_document(node) for node in snapshot.nodes],
        "tenants": [asdict(snapshot.tenants[number]) for number in sorted(snapshot.tenants)],
        "lines": [asdict(line) for line in snapshot.lines],
        "mutex_held": dict(snapshot.mutex_held),
        "pools": {path: asdict(pool) for path, pool in snapshot.pools.items()},
        "offpeak_open": snapshot.offpeak_open,
    }


def _node_document(node: NodeView) -> dict[str, Any]:
    document = {spec.name: getattr(node, spec.name) for spec in fields(node)}
    document["handlers"] = sorted(node.handlers)
    document["labels"] = sorted(node.labels)
    document["slots"] = dict(node.slots)
    document["exclusive_count"] = dict(node.exclusive_count)
    document["ends"] = [asdict(end) for end in node.ends]
    return document


def _snapshot_of(document: Mapping[str, Any]) -> Snapshot:
    tenants = [_build(TenantView, each, "used") for each in document["tenants"]]
    return Snapshot(
        now=document["now"],
        cell=document["cell"],
        nodes=tuple(_node_of(each) for each in document["nodes"]),
        tenants={tenant.tenant_id: tenant for tenant in tenants},
        lines=tuple(_line_of(each) for each in document["lines"]),
        mutex_held=document["mutex_held"],
        pools={path: _build(PoolView, each, "used") for path, each in document["pools"].items()},
        offpeak_open=document["offpeak_open"],
    )


def _node_of(document: Mapping[str, Any]) -> NodeView:
    values = dict(document)
    for name in ("slots", "exclusive_count"):
        values[name] = {WorkKind(kind): count for kind, count in values[name].items()}
    values["handlers"] = frozenset(values["handlers"])
    values["labels"] = frozenset(values["labels"])
    values["ends"] = tuple(
        RunEnd(at=end["at"], kind=WorkKind(end["kind"]), vector=tuple(end["vector"]))
        for end in values["ends"]
    )
    return _build(NodeView, values, "capacity", "exclusive_used", "batch_peak")


def _line_of(document: Mapping[str, Any]) -> LineView:
    values = dict(document)
    values["category"] = Category(values["category"])
    values["heads"] = tuple(
        _build(TaskView, {**head, "kind": WorkKind(head["kind"])}, "rank") for head in values["heads"]
    )
    return _build(LineView, values, "vector")


def _build(cls: type[T], values: Mapping[str, Any], *tuples: str) -> T:
    """An instance from plain values; the named fields are tuples, which JSON has as lists."""
    return cls(**{name: tuple(value) if name in tuples else value for name, value in values.items()})
