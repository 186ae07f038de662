"""What the dispatcher has decided ahead, as it keeps it: room for lines of which tasks came lately, and who goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import psycopg

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.resources import add, part, peak
from scheduler_ext.core.types import (
    MILLI,
    PER_CHILD,
    Decision,
    Grant,
    LineView,
    NodeView,
    Opening,
    QueueName,
    TenantView,
    WorkKind,
)
from scheduler_ext.round.openings import MOST
from slackwater_tasks.ledger import sql, transitions
from slackwater_tasks.ledger.rate_windows import RateBook
from slackwater_tasks.ledger.snapshot_rows import Flight, LineInfo, Reference

Key = tuple[int, int, bool]
"""A line, a handler, and whether its tasks never share a batch."""
NO_TASK: Final = str(UUID(int=0))
PATIENCE: Final = "10ms"
"""How long whoever is claiming an opening is waited for, to add to it."""
LATELY_S: Final = 600.0
"""An opening of which nothing is claimed for so long is closed."""

LOOK_S: Final = 1.0
"""Seconds between two looks at how far lines are behind."""
AGAIN_S: Final = 1.0
"""So often grants are written anew as long as they last: the table may have been emptied."""
SEEN: Final = 128
"""So many tasks of each line are looked at to tell whether all are served: no line may be further behind."""


class Ahead:
    """What one dispatcher knows of its openings."""

    def __init__(self) -> None:
        self._came: dict[Key, float] = {}
        """When the last task of each came; the latest last."""
        self._kept: tuple[int, list[Key]] = (-1, [])
        """Whose openings may be there, and the epoch that was."""
        self.claimed = 0
        """How many tasks were claimed by whoever stored them, of what this dispatcher gave."""
        self._left: dict[Key, int] = {}
        """The places that each opening had when it was last seen."""
        self.unseen = False
        """Whether a task came of a line and handler of which none came before, and no round has given anything ahead since."""

    def read(self, rows: Iterable[Sequence[Any]]) -> tuple[Opening, ...]:
        """Read rows of ``OUTSTANDING``, and count what was claimed since they were last read."""
        there = read(rows)
        left = {opening.key: opening.places for opening in there}
        for key in {**self._left, **left}:
            self._count(key, left.get(key, 0), left.get(key, 0))
        return there

    def _count(self, key: Key, found: int, left: int) -> None:
        self.claimed += max(0, self._left.pop(key, 0) - max(0, found))
        if left > 0:
            self._left[key] = left

    def led(self) -> None:
        """Another may have led meanwhile: what was given before is nobody's."""
        self._left.clear()

    def withdraw(self, conn: Any, cell: str) -> None:
        """Take back all that nobody is in the midst of claiming."""
        self._taken_back(conn.execute(sql.openings.WITHDRAW, {"cell": cell}))

    def _taken_back(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for line, handler, alone, places in rows:
            self._count((line, handler, alone), places, 0)

    def came(self, claimed: Iterable[Decision]) -> None:
        """Note that tasks of these lines and handlers came."""
        keys = {(d.line_id, d.handler_id, d.alone) for d in claimed if d.handler_id is not None and d.line_id > 0}
        new = not keys <= self._came.keys()
        for key in keys:
            self._note(key)
        self.unseen |= new and len(self._came) <= MOST  # of more lines than that none keeps its opening for long

    def _note(self, key: Key) -> None:
        self._came.pop(key, None)
        self._came[key] = time.monotonic()

    def recent(self) -> list[Key]:
        """Of which tasks came lately, the latest first."""
        since = time.monotonic() - LATELY_S
        return [key for key, at in reversed(self._came.items()) if at >= since][:MOST]

    def widen(self, conn: Any, cell: str, epoch: int, wider: Sequence[Opening], there: AbstractSet[Key]) -> None:
        """Add to openings, under the leader's epoch; of those ``there`` close what nothing came for lately."""
        for opening in wider:
            if opening.key in self._came:
                self._note(opening.key)  # what it had was claimed
        recent = self.recent()
        if self._kept[0] != epoch or not there | set(self._kept[1]) <= set(recent):
            self._came = {key: at for key, at in self._came.items() if key in recent}
            self._taken_back(conn.execute(sql.openings.CLOSE, {"cell": cell, "epoch": epoch, **_keys(recent)}))
        self._kept = (epoch, recent)
        if wider:
            with suppress(psycopg.errors.LockNotAvailable):
                self._widen(conn, cell, epoch, wider)

    def _widen(self, conn: Any, cell: str, epoch: int, wider: Sequence[Opening]) -> None:
        widened = conn.execute(sql.openings.WIDEN, {
            "cell": cell, "patience": PATIENCE, "epoch": epoch, **_keys([each.key for each in wider]),
            "nodes": [each.node_id for each in wider], "kinds": [each.kind.value for each in wider],
            "queues": [each.queue.value for each in wider], "millis": [each.slot_milli for each in wider],
            "expected": [each.expected_us for each in wider], "places": [each.places for each in wider],
        })  # fmt: skip
        added = {each.key: each.places for each in wider}
        for line, handler, alone, places in widened:
            key = (line, handler, alone)
            self._count(key, places - added[key], places)


class Granted:
    """What one dispatcher has written of its grants."""

    def __init__(self) -> None:
        self.now: tuple[Grant, ...] = ()
        self._epoch = -1
        self._written = self._looked = float("-inf")

    def wanted(self, nodes: Iterable[NodeView]) -> dict[int, int]:
        """How many more tasks each node that goes on by itself should be given, by its id."""
        wanted: dict[int, int] = {}
        for (node_id, _), lacks in Grant.lacking(nodes, self.now).items():
            wanted[node_id] = wanted.get(node_id, 0) + lacks
        return wanted

    def heads(self) -> int:
        """The least number of tasks of each line to look at: now and then enough to tell whether all are served."""
        now = time.monotonic()
        if len(self.now) < 2 or now - self._looked < LOOK_S:
            return 0
        self._looked = now
        return SEEN

    def write(self, conn: Any, cell: str, epoch: int, grants: Sequence[Grant]) -> None:
        """Write what holds from now on under the leader's epoch, and take back the rest; seldom anything is to be done."""
        now, grants = time.monotonic(), tuple(grants)
        if (grants, epoch) == (self.now, self._epoch) and (not grants or now - self._written < AGAIN_S):
            return
        nodes, lines = [each.node_id for each in grants], [each.line_id for each in grants]
        with conn.transaction():
            conn.execute(sql.openings.REVOKE, {"cell": cell, "nodes": nodes, "lines": lines})
            if grants:
                conn.execute(sql.openings.GRANT, {
                    "cell": cell, "epoch": epoch, "nodes": nodes, "lines": lines,
                    "handlers": [each.handler_id for each in grants], "millis": [each.slot_milli for each in grants],
                })  # fmt: skip
        self.now, self._epoch, self._written = grants, epoch, now

    def claim(self, conn: Any, conf: SchedulerConf, epoch: int, holder: str,
              decisions: Sequence[Decision]) -> tuple[list[Decision], list[Decision]]:  # fmt: skip
        """Claim as many as were decided on of each line that a node goes on with; returns the claims, and what is left.

        Those that were decided on may have begun there meanwhile: claimed is whatever is first by now.
        """
        granted = {(each.node_id, each.line_id): each for each in self.now}
        counts, like, rest = dict[Grant, int](), dict[tuple[int, int], Decision](), list[Decision]()
        for decision in decisions:
            key = (decision.node_id, decision.line_id)
            if (grant := granted.get(key)) is None or decision.exclusive != (grant.slot_milli >= MILLI):
                rest.append(decision)
            else:
                counts[grant], like[key] = counts.get(grant, 0) + 1, decision
        found = transitions.claim_next(conn, conf, epoch, holder, counts) if counts else []
        return [replace(like[node, line], task_id=task_id, fence=fence) for task_id, fence, node, line in found], rest


def _keys(keys: Sequence[Key]) -> dict[str, list[Any]]:
    lines, handlers, alones = zip(*keys, strict=True) if keys else ((), (), ())
    return {"lines": list(lines), "handlers": list(handlers), "alones": list(alones)}


def read(rows: Iterable[Sequence[Any]]) -> tuple[Opening, ...]:
    """Rows of ``OUTSTANDING``."""
    return tuple(
        Opening(line_id=line, handler_id=handler, alone=alone, node_id=node, kind=WorkKind(kind), queue=QueueName(queue),
                slot_milli=milli, expected_us=expected, places=places, given=given)
        for line, handler, alone, node, kind, queue, milli, expected, places, given in rows
    )  # fmt: skip


def examples(recent: Sequence[Key], known: Reference, rates: RateBook, cell: str, now: float,
             view: Callable[[int, LineInfo, list[Any]], LineView]) -> tuple[LineView, ...]:  # fmt: skip
    """Of the lines of a cell of which tasks came lately, one task as an example of each handler's.

    None of what has a rate, whose starts only a round counts. ``view``: makes a line of rows as ``NOMINATE`` gives them.
    """
    lines = dict[int, list[Any]]()
    for line_id, handler_id, alone in recent:
        info = known.lines.get(line_id)
        if info is None or handler_id not in known.handlers or info.cell != cell:
            continue
        if not rates.of(info.tenant_id, handler_id, None):
            row = (NO_TASK, line_id, 0, 0, int(now * 1e6), 1, handler_id, 0, alone, None, 1, None, None)
            lines.setdefault(line_id, []).append(row)
    return tuple(view(line_id, known.lines[line_id], rows) for line_id, rows in lines.items())


def hold(given: Iterable[Opening], flights: dict[int, Flight], lines: Mapping[int, LineInfo]) -> None:
    """Count what is given ahead as taken from its nodes."""
    for opening in given:
        info = lines.get(opening.line_id)
        if info is None:
            continue
        flight = flights.setdefault(opening.node_id, Flight())
        if opening.slot_milli >= MILLI:
            one = part(info.vector, PER_CHILD[opening.kind]) if opening.kind in PER_CHILD else info.vector
            flight.exclusive_used = add(flight.exclusive_used, tuple(v * opening.places for v in one))
            flight.exclusive_count[opening.kind] = flight.exclusive_count.get(opening.kind, 0) + opening.places
        else:
            flight.batch_peak = peak(flight.batch_peak, info.vector)
            flight.batch_milli += opening.places * opening.slot_milli
            flight.batch_count += opening.places


def in_flight(tenants: Mapping[int, TenantView], given: Iterable[Opening],
              lines: Mapping[int, LineInfo]) -> Mapping[int, TenantView]:  # fmt: skip
    """The tenants with what is given ahead counted against how many tasks each may have in flight."""
    counted = dict(tenants)
    for opening in given:
        info = lines.get(opening.line_id)
        view = counted.get(info.tenant_id) if info is not None else None
        if view is not None and view.max_in_flight is not None:
            counted[view.tenant_id] = replace(view, in_flight=view.in_flight + opening.places)
    return counted
