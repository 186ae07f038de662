"""Tasks of one line that are started together are those that would start one by one, on the same nodes."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import LineView, NodeView, Snapshot, TaskView, TenantView, WorkKind
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.round.prioritizer import _Round
from tests.support.deciding import SMALL, line, node, snapshot, task

POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("equal", {}),
    ("equal", {"memory_s": 600}),
    ("dominant_resource", {}),
    ("fair", {"pools": {"a": {"guaranteed": 30}}}),
    ("capacity", {"queues": {"a": {"guaranteed": 40, "maximum": 60}}}),
]
DIFFERENT: list[dict[str, Any]] = [
    {"kind": WorkKind.COROUTINE}, {"handler_id": 2}, {"expected_us": 7_000}, {"expected_us": None}, {"alone": True},
    {"mutex_key": "x"}, {"avoid_node": 1}, {"rates": (1,)}, {"priority": 5}, {"long_us": 90_000},
]  # fmt: skip
"""In what a task may differ from those around it."""


class _OneByOne(_Round):
    """Looks at each task by itself."""

    def _start_alike(self, line: LineView, task: TaskView, milli: int) -> None:
        """Nothing: whatever is next is picked, and looked at, like any other."""


class _Together(_Round):
    """Counts what is started so, of one line and of several."""

    runs = 0
    behind: Counter[WorkKind] = Counter()
    in_turns: Counter[WorkKind] = Counter()

    def _start_behind(self, *args: Any) -> None:
        before = len(self._decisions)
        super()._start_behind(*args)
        new = self._decisions[before:]
        _Together.runs += bool(new)
        _Together.behind.update(each.kind for each in new)

    def _start_in_turns(self, *args: Any) -> None:
        before = len(self._decisions)
        super()._start_in_turns(*args)
        _Together.in_turns.update(each.kind for each in self._decisions[before:])


def world(random: Random) -> Snapshot:
    """One line or a few, mostly of tasks that are alike, and nodes of which some are partly full."""
    lines, tenants = [], []
    common = _usual(random) if random.random() < 0.5 else None
    for number in range(1, random.choice([1, 1, 1, 2, 3]) + 1):
        usual = common or _usual(random)
        unlike = random.choice([0.0, 0.02, 0.2])
        tasks = [
            task(f"{number}-{place:04}", number, rank=(0, place), submitted_at=float(place), fence=place % 3,
                 **(usual | (random.choice(DIFFERENT) if random.random() < unlike else {})))
            for place in range(random.choice([3, 60, 300]))
        ]  # fmt: skip
        lines.append(line(number, tasks, category=random.choice(list(Category)), pool=random.choice(["", "", "a"])))
        tenants.append(TenantView(
            tenant_id=number, max_in_flight=random.choice([None, None, 5, 50]),
            maximum_permille=random.choice([1000, 1000, 400]),
        ))  # fmt: skip
    nodes = [_node(random, number) for number in range(1, random.choice([1, 2, 3]) + 1)]
    return snapshot(lines, nodes, tenants, rates_left={1: 2})


def _usual(random: Random) -> dict[str, Any]:
    """What most tasks of a line have in common."""
    usual: dict[str, Any] = {
        "handler_id": random.choice([1, 2]),
        "expected_us": random.choice([0, 80, 1_000, 5_000, 20_000]),
    }
    if random.random() < 0.4:
        usual |= {"kind": WorkKind.COROUTINE, "expected_us": random.choice([None, 10_000, 10_000_000])}
    return usual


def _node(random: Random, number: int) -> NodeView:
    slots = random.choice([1, 2, 8, 32])
    milli = random.choice([0, 0, random.randint(1, slots * 1000)])
    return node(
        number, slots, batch_milli=milli, batch_count=min(milli, 5), batch_peak=SMALL if milli else (),
        capacity=random.choice([(800, 4_000, 10, 10, 10, 10), (100_000, 100_000, 10, 10, 10, 10)]),
        slots={WorkKind.PROCESS: slots, WorkKind.COROUTINE: random.choice([0, 64, 512, 512])},
        exclusive_count={WorkKind.COROUTINE: random.choice([0, 0, 9])}, handlers=frozenset(random.choice([(1, 2), (1, 2), (1,)])),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parameters"), POLICIES, ids=[f"{name}{number}" for number, (name, _) in enumerate(POLICIES)]
)
def test_together_as_one_by_one(name: str, parameters: dict[str, Any]) -> None:
    share = share_policy(name, parameters)
    _Together.runs = 0
    _Together.behind.clear()
    _Together.in_turns.clear()
    for seed in range(500):
        random = Random(seed)
        view = world(random)
        conf = SchedulerConf(
            round_limit=random.choice([10, 100, 1_000]), peak_permille=random.choice([300, 1_000]),
            delayable_permille=random.choice([500, 900, 1_000]),
        )  # fmt: skip
        together = _Together(view, conf, share.start(view)).run()
        assert together == _OneByOne(view, conf, share.start(view)).run(), f"seed {seed}"
    assert _Together.runs > 100, "most often some could start together"
    for kind in (WorkKind.PROCESS, WorkKind.COROUTINE):
        assert _Together.behind[kind] > 1_000
        assert _Together.in_turns[kind] > 1_000
