"""Keeps room for what has waited longest without fitting, whatever the order inside lines (EASY backfill).

An order that lets small tasks pass would keep a large one out for ever. So each round looks, before it starts anything,
for what has found no room for long, and keeps a node for what has waited longest of it: since it came, or since its
tenant (or the pool at the top) last had its turn, so that a backlog of large tasks takes turns with those of others. It
stays the one until it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler_ext.core.types import MILLI, LineView, TaskView
from scheduler_ext.policies.base import Chooser
from scheduler_ext.round.gate import Gate

Waiting = tuple[LineView, TaskView]


def make_room(
    gate: Gate,
    chooser: Chooser,
    kept: Waiting | None,
    turns: dict[str, float],
    candidates: Iterable[Waiting],
    start: Callable[[LineView, TaskView], object],
) -> Waiting | None:
    """Start the task that room was kept for if it fits by now, and keep room for the next one; return that one.

    ``turns``: when each account at the top had its turn; a new one is noted.
    """
    gate.keep_no_room()
    if kept is not None and not _may_start(gate, chooser, *kept):
        kept = None
    elif kept is not None and gate.finds_room(*kept):
        line, task = kept
        start(line, task)
        chooser.take(line, task)
        kept = None
    if kept is None:
        kept = _longest(gate, chooser, turns, candidates)
        if kept is not None:
            turns[chooser.account_at_top(kept[0])] = gate.now
    if kept is not None:
        gate.keep_room(*kept)
    return kept


def _may_start(gate: Gate, chooser: Chooser, line: LineView, task: TaskView) -> bool:
    return gate.refusal(line, task, 0) is None and chooser.refusal(line, task, MILLI) is None


def _longest(gate: Gate, chooser: Chooser, turns: dict[str, float], candidates: Iterable[Waiting]) -> Waiting | None:
    best: tuple[float, float, str] | None = None
    found: Waiting | None = None
    for line, task in candidates:
        since = max(task.submitted_at, turns.get(chooser.account_at_top(line), 0.0))
        key = (since, task.submitted_at, task.task_id)
        if (
            (best is None or key < best)
            and gate.has_waited(task)
            and _may_start(gate, chooser, line, task)
            and not gate.finds_room(line, task)
        ):
            best, found = key, (line, task)
    return found
