"""How much rounds could claim, did claim, and why not more: by plan and node, of the busiest round since last asked.

To count on costs a round next to nothing: it is kept as it is, and looked through when it is asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.labels import admits
from scheduler_ext.core.resources import add, fits, subtract, zero
from scheduler_ext.core.types import (
    MILLI,
    Decision,
    LineView,
    NodeView,
    Plan,
    Reason,
    Snapshot,
    Vector,
    WorkKind,
)
from scheduler_ext.policies.holdings import taken_by
from scheduler_ext.round.gate import share_milli
from scheduler_ext.round.node_account import Node

MAX_NODES: Final = 200
"""How many nodes are reported: those that claimed most."""
WHY: Final = {
    **{reason.name.lower(): reason.value for reason in Reason},
    "no_resource": "a slot is free, but not the resources its tier asks for",
    "round_full": "the round claimed as much as one may",
    "no_work": "nothing waited that it could run",
    "goes_on": "it goes on by itself with what waits",
}
"""Why not more was claimed, in words."""
TOOK_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
"""Upper bounds in seconds of the buckets that rounds are counted in by how long they took; one more holds the longer."""
Work = tuple[WorkKind, int | None, frozenset[str]]
"""Kind, handler, and the labels it requires."""
Waiting = set[tuple[Work, Vector, str]]
"""What was left waiting: the work, what it takes, and why."""


class Tally:
    """The tally of one dispatcher."""

    def __init__(self, conf: SchedulerConf) -> None:
        self._limit = conf.round_limit
        self._rounds = self._claimed = 0
        self._took, self._took_s = [0] * (len(TOOK_BOUNDS) + 1), 0.0
        self._size = (-1, -1)
        self._busiest: tuple[Snapshot, Plan, Sequence[Decision]] | None = None

    def count(self, snapshot: Snapshot, plan: Plan, won: Sequence[Decision], seconds: float = 0.0) -> None:
        """Count one more round, which took so many seconds."""
        self._rounds += 1
        self._claimed += len(won)
        self._took[bisect_left(TOOK_BOUNDS, seconds)] += 1
        self._took_s += seconds
        if (size := (len(won), len(plan.left))) > self._size:
            self._size, self._busiest = size, (snapshot, plan, won)

    def take(self, plans: Mapping[int, str], ahead: int = 0) -> dict[str, Any]:
        """The busiest round's account as JSON values, and the sums so far.

        ``plans`` gives each tenant's plan by its id. ``ahead``: how many tasks were claimed, so far, of room that rounds
        had given ahead; they count among the claims.
        """
        if self._busiest is None:
            return {}
        (snapshot, plan, won), self._busiest, self._size = self._busiest, None, (-1, -1)
        full = len(plan.decisions) >= self._limit
        lines = {line.line_id: line for line in snapshot.lines}
        works = {(task.kind, task.handler_id, _required(line)) for line in snapshot.lines for task in line.heads}
        nodes = [_NodeAccount(view, works) for view in snapshot.nodes]
        by_id = {node.view.node_id: node for node in nodes}
        for decision in won:
            by_id[decision.node_id].take(decision, lines[decision.line_id])
        by_plan, waiting = self._left(snapshot, plan, nodes, plans, full=full)
        for decision in won:
            row = by_plan.setdefault(plans.get(lines[decision.line_id].tenant_id, ""), Counter())
            row["claimed"] += 1
        shown = sorted(nodes, key=lambda node: -node.claimed)[:MAX_NODES]
        return {
            "rounds": self._rounds, "claims": self._claimed + ahead, "ahead": ahead, "limit": self._limit, "claimed": len(won),
            "took": self._took, "took_s": round(self._took_s, 6), "could": sum(node.could for node in nodes) / MILLI,
            "plans": [
                {"plan": name, "claimed": row.pop("claimed", 0), "left": dict(row)} for name, row in sorted(by_plan.items())
            ],
            "nodes": [
                {"node": node.view.name, "could": node.could / MILLI, "took": node.took / MILLI, "claimed": node.claimed,
                 "why": _why(node, plan, waiting, full=full)} for node in shown
            ],
        }  # fmt: skip

    def _left(self, snapshot: Snapshot, plan: Plan, nodes: Sequence[_NodeAccount], plans: Mapping[int, str], *,
              full: bool) -> tuple[dict[str, Counter[str]], Waiting]:  # fmt: skip
        """What was left waiting by plan and reason, with those behind it, and what that asks for."""
        by_plan: dict[str, Counter[str]] = {}
        waiting: Waiting = set()
        known: dict[Work, bool] = {}
        for line in snapshot.lines:
            row = by_plan.setdefault(plans.get(line.tenant_id, ""), Counter())
            front = Reason.SHARE
            require = _required(line)
            for task in line.heads:
                reason = plan.left.get(task.task_id)
                if reason is None:
                    continue
                front = reason = front if reason is Reason.POSITION else reason
                name = reason.name.lower()
                work = (task.kind, task.handler_id, require)
                if reason is Reason.NO_SLOT:
                    if work not in known:
                        known[work] = any(node.runs(work) and node.has_slot(work[0]) for node in nodes)
                    name = "no_resource" if known[work] else name
                elif reason is Reason.SHARE and full:
                    name = "round_full"
                row[name] += 1
                waiting.add((work, taken_by(line, task.kind), name))
        return by_plan, waiting


def _why(node: _NodeAccount, plan: Plan, waiting: Waiting, *, full: bool) -> str:
    """Why a round claimed no more for a node."""
    if node.view.node_id in plan.going_on:
        return "goes_on"
    return "round_full" if full else node.why(waiting)


def _required(line: LineView) -> frozenset[str]:
    """The labels that a line's work requires of a node."""
    return line.labels.require if line.labels is not None else frozenset()


class _NodeAccount:
    """What one node had free when the round began, and what the round took.

    Slots that no work there was may use, for their kind, its handlers or the node's labels, count as free for nobody.
    """

    def __init__(self, view: NodeView, works: set[Work]) -> None:
        self.view = view
        self._account = Node(view, 0)
        self._left = {kind: max(0, MILLI * (slots - self._account.counts[kind]))
                      for kind, slots in self._account.slots.items()}  # fmt: skip
        if WorkKind.PROCESS in self._left:
            self._left[WorkKind.PROCESS] = max(0, self._left[WorkKind.PROCESS] - view.batch_milli)
        kinds = {work[0] for work in works if self.runs(work)}
        self.could = sum(left for kind, left in self._left.items() if kind in kinds)
        self.took = self.claimed = 0
        self._taken = zero()

    def take(self, decision: Decision, line: LineView) -> None:
        """One claim; short tasks share slots, and one of their vectors for each child."""
        milli = MILLI if decision.exclusive else share_milli(decision.expected_us)
        self.claimed += 1
        if decision.exclusive and self._left[decision.kind] < milli:
            return  # claimed ahead: what it takes is not free yet
        self._left[decision.kind] -= milli
        self.took += milli
        if decision.exclusive:
            self._taken = add(self._taken, taken_by(line, decision.kind))

    def runs(self, work: Work) -> bool:
        """Whether it may ever run such work, for all that is known of kinds, handlers and labels."""
        kind, handler, require = work
        known = kind in self._left and (handler is None or handler in self.view.handlers)
        return known and admits(self.view.labels, require)

    def has_slot(self, kind: WorkKind) -> bool:
        return self._left.get(kind, 0) > 0

    def why(self, waiting: Waiting) -> str:
        """Why no more was claimed for the node."""
        if not any(left > 0 for left in self._left.values()):
            return "no_slot"
        free = subtract(self._account.free, self._taken)
        able = [each for each in waiting if self.runs(each[0])]
        if not able:
            return "no_work"
        with_slot = [each for each in able if self.has_slot(each[0][0])]
        if not with_slot:
            return "no_slot"
        roomy = [why for _, vector, why in with_slot if fits(vector, free)]
        return min(roomy) if roomy else "no_resource"
