"""Keeps room for what has waited longest without fitting, whatever the order inside lines (EASY backfill).

An order that lets small tasks pass would keep a large one out for ever. So each round looks, before it starts anything,
for what has found no room for long, and keeps a node for what has waited longest of it: since it came, or since its
tenant (or the pool at the top) last had its turn, so that a backlog of large tasks takes turns with those of others. It
stays the one until it starts. Where tasks end together, so that each round finds all of a node free, only the rounds between
see that it does not fit, and by then its category may be above its ceiling. So it is remembered all the same; but no room
is kept for it, which is for others as long as that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler_ext.core.types import MILLI, LineView, Reason, TaskView
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

    ``turns``: when each account at the top had its turn; a new one is noted. One that is above its category's ceiling is
    returned without room kept for it, where there is no other.
    """
    gate.keep_no_room()
    why = _refusal(gate, chooser, *kept) if kept is not None else None
    if kept is not None and why is None and gate.finds_room(*kept):
        line, task = kept
        start(line, task)
        chooser.take(line, task)
        kept = None
    elif why not in _STAYS:
        kept = None
    if kept is None or why is not None:
        found = _longest(gate, chooser, turns, candidates)
        if found is not None and (kept is None or found[0] is None):
            why, kept = found
            turns[chooser.account_at_top(kept[0])] = gate.now
    if kept is not None and why is None:
        gate.keep_room(*kept)
    return kept


_STAYS = (None, Reason.PEAK)
"""What does not end the turn of what has waited: a ceiling may hold for hours, or until the next task ends."""


def _refusal(gate: Gate, chooser: Chooser, line: LineView, task: TaskView) -> Reason | None:
    return gate.refusal(line, task, 0) or chooser.refusal(line, task, MILLI)


def _longest(gate: Gate, chooser: Chooser, turns: dict[str, float],
             candidates: Iterable[Waiting]) -> tuple[Reason | None, Waiting] | None:  # fmt: skip
    """What has waited longest without fitting, of what may start if there is any; and what refuses it now."""
    best: tuple[bool, float, float, str] | None = None
    found: tuple[Reason | None, Waiting] | None = None
    for line, task in candidates:
        if not gate.has_waited(task) or (why := _refusal(gate, chooser, line, task)) not in _STAYS:
            continue
        since = max(task.submitted_at, turns.get(chooser.account_at_top(line), 0.0))
        key = (why is not None, since, task.submitted_at, task.task_id)
        if (best is None or key < best) and not gate.finds_room(line, task):
            best, found = key, (why, (line, task))
    return found
