"""Recorded rounds decide again what they decided."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.types import PoolView, RunEnd, Snapshot, WorkKind
from scheduler_ext.policies.registry import SHARE_POLICIES, share_policy
from scheduler_ext.round import replay
from scheduler_ext.round.prioritizer import prioritize
from tests.property.test_prioritizer import CONF, cells
from tests.support.deciding import many, node, snapshot

SHARES = st.sampled_from(sorted(SHARE_POLICIES))
HELD = {WorkKind.PROCESS: 5}


@given(cells(), SHARES)
def test_a_recorded_round_decides_the_same_byte_for_byte(cell: Snapshot, share: str) -> None:
    plan = prioritize(cell, CONF, share_policy(share))
    line = replay.record(cell, CONF, share, {"memory_s": 0}, plan)
    recorded = replay.load(line)
    assert line.count(b"\n") == 1
    assert recorded.snapshot == cell
    assert recorded.decisions == replay.decisions_of(plan) == replay.replay(recorded)


@given(cells())
def test_equal_snapshots_have_equal_digests(cell: Snapshot) -> None:
    line = replay.record(cell, CONF, "equal", {}, prioritize(cell, CONF, share_policy("equal")))
    assert replay.digest(replay.load(line).snapshot) == replay.digest(cell)


def _recorded() -> dict[str, object]:
    ends = (RunEnd(at=1010.0, kind=WorkKind.PROCESS, vector=(1, 0, 0, 0, 0, 0)),)
    held = {"a/b": {1: {"": (HELD, ()), "w": (HELD, ())}}}
    lines = [many(1, 3, pool="a/b"), many(2, 3, tenant=1, pool="a/b", workflow="w", weight=2)]
    cell = snapshot(lines, [node(1, ends=ends)], pools={"a/b": PoolView(used_slots_milli=HELD)}, workflows=held)
    document: dict[str, object] = json.loads(
        replay.record(cell, CONF, "equal", {}, prioritize(cell, CONF, share_policy("equal")))
    )
    assert replay.load(json.dumps(document).encode()).snapshot == cell
    return document


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"digest": "0"}, "digest"),
        ({"format": 99}, "format"),
        ({"snapshot": {}}, "record"),
        ({"plan": 0}, None),
    ],
)
def test_a_damaged_record_is_refused_or_differs(change: dict[str, object], field: str | None) -> None:
    document = json.dumps({**_recorded(), **change}).encode()
    if field is None:
        found = replay.load(document)
        assert replay.replay(found) != found.decisions
        return
    with pytest.raises(InvalidInput) as caught:
        replay.load(document)
    assert caught.value.field == field


def test_two_policies_on_one_round() -> None:
    queues = {"a": {"guaranteed": 75}, "b": {"guaranteed": 25}}
    cell = snapshot([many(1, 9, pool="a"), many(2, 9, pool="b")], [node(1, 4)])
    conf = SchedulerConf(delayable_permille=1000)
    found = replay.compare(cell, conf, share_policy("equal"), share_policy("capacity", {"queues": queues}))
    assert (found.both, found.only_first, found.only_second) == (3, ("2-0001",), ("1-0002",))
