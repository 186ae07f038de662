"""The ledger as the dispatcher uses it: leadership, waking, the snapshot, and claims."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.labels import labels_of
from scheduler_ext.core.resources import add, part, peak, scale, zero
from scheduler_ext.core.run_times import LEARNT_FROM, RunTimes
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    CLIENT,
    LATE_GROUP,
    MILLI,
    NO_SLOTS,
    NOBODY,
    PER_CHILD,
    Behind,
    Decision,
    Grant,
    Kept,
    LineView,
    NodeView,
    Opening,
    PoolView,
    Reason,
    RunEnd,
    Slots,
    Snapshot,
    TaskView,
    TenantView,
    Vector,
    WorkKind,
    add_slots,
)
from scheduler_ext.core.work import Changes, Lead, Lock
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.ports import RoundStore
from scheduler_ext.round.claims_ahead import is_over_soon
from scheduler_ext.round.gate import share_milli
from slackwater_tasks.ledger import active_policies, openings, sql, transitions
from slackwater_tasks.ledger import expected_ends as running_ends
from slackwater_tasks.ledger.active_policies import Chosen
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.ledger.decayed_usage import LivePast
from slackwater_tasks.ledger.fronts import Depth, Foremost
from slackwater_tasks.ledger.parking import nominate, park_hopeless, resume
from slackwater_tasks.ledger.rate_windows import RateBook
from slackwater_tasks.ledger.snapshot_rows import (
    Flight,
    LineInfo,
    Reference,
    Work,
    node_view,
    pool_view,
    read_row,
    set_apart,
    submitted_s,
    tenant_view,
)

REFRESH_S = 1.0
"""Seconds between two readings of plans, lines, handlers and learnt run times; a change holds with the next round."""
LEARN_S = 0.05
"""Seconds between two searches for missing run times: until found, such tasks run alone."""


def _milli(decision: Decision) -> int:
    """The thousandths of a slot that a claim takes."""
    return MILLI if decision.exclusive else share_milli(decision.expected_us)


class PgRoundStore(RoundStore):
    """:class:`scheduler_ext.ports.RoundStore` on PostgreSQL."""

    def __init__(self, conf: SchedulerConf, holder: str, database: Database | None = None) -> None:
        """``holder`` names this dispatcher in the leader row and in every claim."""
        self.conf = conf
        self.holder = holder
        self.db = database or Database(f"slackwater dispatcher {holder}", hot=True)
        self.reference = Reference()
        self.rates = RateBook()
        self.past = LivePast(conf.cell)
        self.ahead = openings.Ahead()
        self.granted = openings.Granted()
        self._epoch = 0
        self._last: Snapshot | None = None
        self.depth = Depth(conf.round_limit)

    # -- leadership ---------------------------------------------------------------------------------------------------
    def lead(self, holder: str) -> Lead:
        leases = {"lease": self.conf.leader_lease_s, "node_lease": self.conf.node_lease_s}
        params = {"cell": self.conf.cell, "holder": holder, **leases}
        row = self.db.conn.execute(sql.leadership.LEAD, params).fetchone()
        epoch = row[0] if row else 0
        if epoch != self._epoch:
            self._epoch, self.past.use = epoch, None  # another may have led meanwhile: what it wrote down counts
            self.ahead.led()
        return Lead(epoch=epoch, leads=row is not None, empty=row is not None and bool(row[1]))

    def resign(self, holder: str) -> None:
        with self.db.conn.transaction():
            if self.db.conn.execute(sql.leadership.RESIGN, (self.conf.cell, holder)).rowcount:
                self.past.save(self.db.conn)

    # -- waking -------------------------------------------------------------------------------------------------------
    def wake(self, limit: int) -> int:
        return transitions.wake(self.db.conn, limit)

    def next_due_s(self) -> float | None:
        row = self.db.conn.execute(sql.due.NEXT_DUE).fetchone()
        due = [s for s in (row[0] if row else None, self.rates.due_s) if s is not None]
        return min(due) if due else None

    def promote(self, limit: int) -> Changes:
        with self.db.conn.transaction():
            rows = self.db.conn.execute(sql.due.PROMOTABLE, (limit,)).fetchall()
            lines = {str(line): line for _, *line in rows}
            urgent = {key: self._urgent_line(*line) for key, line in lines.items()}
            moves = [(task_id, urgent[str(line)]) for task_id, *line in rows]
            return transitions.promote(self.db.conn, moves)

    def _urgent_line(self, tenant_id: int, tier_id: int, require: list[str], prefer: list[str], workflow: str) -> int:
        alike = (tenant_id, tier_id, Category.URGENT, labels_of(require, prefer))
        # A line of a workflow's may have been deleted since it was read.
        for line_id, info in self.reference.lines.items() if not workflow else ():
            if (info.tenant_id, info.tier_id, info.category, info.labels) == alike:
                return line_id
        row = self.db.conn.execute(
            sql.snapshot.MAKE_LINE, (tenant_id, int(Category.URGENT), tier_id, require, prefer, workflow)
        ).fetchone()
        self.reference.read_at = float("-inf")
        assert row is not None
        return int(row[0])

    # -- the snapshot -------------------------------------------------------------------------------------------------
    def chosen(self) -> Chosen:
        """The policies that hold now."""
        self._refresh()
        assert self.reference.chosen is not None
        return self.reference.chosen

    def share(self) -> SharePolicy:
        return self.chosen().share.policy

    def snapshot(self, *, ends: bool = False, kept: Kept = NOBODY) -> Snapshot:
        """The frozen view of this moment; tasks are seldom nominated while no node has a free slot.

        ``ends``: with the moments at which what runs is expected to end. ``kept``: as the round before left it.
        """
        conn = self.db.conn
        self._refresh()
        if self.reference.changed:
            self.withdraw()  # what was decided ahead may be decided otherwise now
        recent, self.ahead.unseen = self.ahead.recent(), False
        # As many heads as the room of the last round asks for come along, unless something must go before them.
        heads = self.depth.heads() if self.depth.reach and not (self.rates.limits or self.reference.paused) else 0
        crowded = self._crowded()
        early = (sql.snapshot.FRONTS, (self.depth.in_turn,)) if crowded else (sql.snapshot.NOMINATE, (heads,))
        with conn.pipeline():
            nodes_cur = conn.execute(sql.snapshot.NODES, (self.conf.cell,))
            ahead_cur = conn.execute(sql.openings.OUTSTANDING, (self.conf.cell, self._epoch))
            flight_cur = conn.execute(sql.snapshot.IN_FLIGHT)
            mutex_cur = conn.execute(sql.snapshot.MUTEX_HELD)
            heads_cur = conn.execute(*early) if heads else None
            node_rows, flight_rows, held = nodes_cur.fetchall(), flight_cur.fetchall(), dict(mutex_cur.fetchall())
            found = heads_cur.fetchall() if heads_cur is not None else None
            given = self.ahead.read(ahead_cur.fetchall())
        self.reference.changed &= bool(given)  # what somebody was in the midst of claiming is there still
        flights, tenants, pools, workflows = self._in_flight(flight_rows)
        now = time.time()
        over = self._ends(now) if ends else {}
        nodes = self._nodes(node_rows, flights, given, over)
        room = self.depth.measure(nodes, given, self.granted.wanted(nodes))
        rates = self.rates.count(conn)
        if rates and room:
            self.rates.unpark(conn)
        lines, behind = self._look(room, tenants, pools, kept.line_id, found, None if crowded else heads)
        self.depth.saw(lines)
        if ends:
            lines = running_ends.with_longest(conn, lines, self.reference.run_times)
        if rates:
            lines = self.rates.mark(conn, lines)
        self._last = self.past.count(conn, Snapshot(
            now=now, cell=self.conf.cell, nodes=nodes, tenants=tenants, lines=lines, behind=behind, mutex_held=held,
            rates_left=rates, pools=pools, workflows=workflows, openings=given, kept=kept,
        ), self.share())  # fmt: skip
        if recent:
            # Past use has been counted by what is in flight: room given ahead is nobody's use.
            counted = openings.in_flight(tenants, given, self.reference.lines)
            self._last = replace(
                self._last,
                recent=openings.examples(recent, self.reference, self.rates, self.conf.cell, now, self._line_view),
                tenants=counted,
            )
        return self._last

    def unseen(self) -> bool:
        return self.ahead.unseen

    def wants_room(self) -> bool:
        row = self.db.conn.execute(sql.snapshot.WANTS_ROOM, (self.conf.cell,)).fetchone()
        return bool(row and row[0])

    def view(self, heads: int, *, ready: Sequence[Any] = (), ends: bool = False) -> Snapshot:
        """This moment with ``heads`` tasks of each line, changing nothing; for explaining, not for deciding.

        ``ready``: rows as ``NOMINATE`` gives them that stand at the head of their line as well; ``ends``: with the
        moments at which what runs is expected to end.
        """
        conn = self.db.conn
        self._refresh()
        flights, tenants, pools, workflows = self._in_flight(conn.execute(sql.snapshot.IN_FLIGHT).fetchall())
        rows = [read_row(row) for row in conn.execute(sql.snapshot.NODES, (self.conf.cell,)).fetchall()]
        over = self._ends(time.time()) if ends else {}
        set_apart(flights, rows)
        nodes = tuple(node_view(row, flights.get(row[0]) or Flight(), over.get(row[0], ())) for row in rows)
        found = conn.execute(sql.snapshot.NOMINATE, (heads,)).fetchall()
        among = {row[0] for row in found}
        lines = self._line_views(self._by_line([*found, *(row for row in ready if row[0] not in among)]))
        if ends:
            lines = running_ends.with_longest(conn, lines, self.reference.run_times)
        rates = self.rates.peek(conn)
        return self.past.seen(conn, Snapshot(
            now=time.time(), cell=self.conf.cell, nodes=nodes, tenants=tenants, rates_left=rates,
            pools=pools, workflows=workflows, mutex_held=dict(conn.execute(sql.snapshot.MUTEX_HELD).fetchall()),
            lines=self.rates.mark(conn, lines) if rates else lines,
        ), self.share())  # fmt: skip

    def _refresh(self, *, force: bool = False) -> None:
        ref, now = self.reference, time.monotonic()
        if not force and now - ref.read_at < REFRESH_S:
            if ref.unknown and now - ref.learnt_at >= LEARN_S:
                self._learn()
            return
        conn = self.db.conn
        before = (ref.lines, ref.tenants, ref.handlers, ref.chosen and ref.chosen.share, self.rates.limits)
        with conn.pipeline():
            lines = conn.execute(sql.snapshot.LINES)
            tenants = conn.execute(sql.snapshot.TENANTS)
            times = conn.execute(sql.snapshot.RUN_TIMES, (LEARNT_FROM,))
            handlers = conn.execute(sql.snapshot.HANDLERS)
            limits = conn.execute(sql.rates.LIMITS)
            ref.learn_lines(lines.fetchall())
            ref.learn_tenants(tenants.fetchall())
            ref.run_times = RunTimes(times.fetchall())
            ref.handlers = {row[0]: (row[1], WorkKind(row[2]), row[3]) for row in handlers.fetchall()}
            paused = frozenset(id_ for id_, known in ref.handlers.items() if known[2])
            self.rates.learn(limits.fetchall())
        ref.chosen = active_policies.read(
            lambda sql, params: conn.execute(sql, params).fetchall(), self.conf, self.conf.cell
        )
        ref.changed |= before != (ref.lines, ref.tenants, ref.handlers, ref.chosen.share, self.rates.limits)
        if ref.paused - paused:
            resume(conn)
        ref.paused, ref.read_at = paused, time.monotonic()
        ref.unknown.clear()

    def _learn(self) -> None:
        """Read the run times learnt meanwhile of handlers about which nothing was known."""
        ref = self.reference
        rows = self.db.conn.execute(sql.snapshot.RUN_TIMES_OF, (LEARNT_FROM, list(ref.unknown))).fetchall()
        ref.run_times.read(rows)
        ref.unknown -= {row[1] for row in rows}
        ref.learnt_at = time.monotonic()

    def pool_of(self, info: LineInfo) -> str:
        """The path of a line's pool: its own, its tenant's, or the one that its client's tenants share."""
        return f"{CLIENT}{info.alike}" if info.alike else self._pool(info.pool_id)

    def _pool(self, pool_id: int | None) -> str:
        chosen = self.reference.chosen
        return chosen.pools.get(pool_id, "") if chosen is not None and pool_id is not None else ""

    def _ends(self, now: float) -> dict[int, tuple[RunEnd, ...]]:
        vectors = {line_id: info.vector for line_id, info in self.reference.lines.items()}
        return running_ends.running(self.db.conn, now, vectors, self.reference.kind_of, self.reference.run_times)

    def _nodes(self, rows: Sequence[Any], flights: dict[int, Flight], given: Sequence[Opening],
               ends: Mapping[int, tuple[RunEnd, ...]]) -> tuple[NodeView, ...]:  # fmt: skip
        """The nodes, with room given ahead as taken."""
        if not {each.node_id for each in given} <= {row[0] for row in rows}:
            self.withdraw()  # of a node that is gone; counted as taken once more
        openings.hold(given, set_apart(flights, rows), self.reference.lines)
        return tuple(node_view(row, flights.get(row[0]) or Flight(), ends.get(row[0], ())) for row in rows)

    def _in_flight(self, rows: Sequence[Any]) -> tuple[dict[int, Flight], dict[int, TenantView], dict[str, PoolView],
                                                       dict[str, dict[int, dict[str, tuple[Slots, Vector]]]]]:  # fmt: skip
        """What is in flight, by node, tenant, pool and workflow with a share of its own, from the rows themselves.

        No second account can drift.
        """
        if any(row[1] not in self.reference.lines for row in rows):
            self._refresh(force=True)
        flights: dict[int, Flight] = {}
        used: dict[int, tuple[Vector, int, Slots]] = {}
        pooled: dict[str, dict[int, tuple[Slots, Vector]]] = {}
        split: dict[str, dict[int, dict[str, tuple[Slots, Vector]]]] = {}
        for node_id, line_id, kind, handler_id, by_itself, exclusive, count, milli in rows:
            info = self.reference.lines[line_id]
            flight = flights.setdefault(node_id, Flight())
            if exclusive:
                work, learnt = self.reference.learnt_of(info.tenant_id, kind, handler_id, by_itself)
                one = part(info.vector, PER_CHILD[work]) if work in PER_CHILD else info.vector
                vector = scale(one, count)
                held = {work: count * MILLI}
                flight.hold(work, one, count, over_soon=is_over_soon(work, learnt.mean_us if learnt else None))
            else:
                vector, held = info.vector, {WorkKind.PROCESS: milli}
                flight.batch_peak = peak(flight.batch_peak, info.vector)
                flight.batch_milli += milli
                flight.batch_count += count
            if info.cell != self.conf.cell:
                continue  # what another cell's tenants hold there is no part of this one
            so_far, tasks, slots = used.get(info.tenant_id, (zero(), 0, NO_SLOTS))
            used[info.tenant_id] = (add(so_far, vector), tasks + count, add_slots(slots, held))
            if pool := self.pool_of(info):
                members = pooled.setdefault(pool, {})
                slots, so_far = members.get(info.tenant_id, (NO_SLOTS, zero()))
                members[info.tenant_id] = (add_slots(slots, held), add(so_far, vector))
            if info.tenant_id in self.reference.split:
                apart = split.setdefault(pool, {}).setdefault(info.tenant_id, {})
                slots, so_far = apart.get(info.workflow, (NO_SLOTS, zero()))
                apart[info.workflow] = (add_slots(slots, held), add(so_far, vector))
        known = self.reference.tenants
        tenants = self.reference.idle | {
            tid: tenant_view(tid, known[tid], held) for tid, held in used.items() if tid in known
        }
        return flights, tenants, {path: pool_view(members) for path, members in pooled.items()}, split

    def _crowded(self) -> bool:
        """Whether to look at some lines only; a second policy that is compared might choose others."""
        return self.depth.crowded and self.chosen().shadow is None

    def _look(self, room: int, tenants: Mapping[int, TenantView], pools: Collection[str], keep: int,
              found: Sequence[Any] | None, heads: int | None) -> tuple[tuple[LineView, ...], tuple[Behind, ...]]:  # fmt: skip
        """The lines with the tasks at their heads, and who waits behind them, if there is anything to look at.

        ``found``: what was read already, so many ``heads`` of each line or, for ``None``, where all lines stand.
        """
        if not (self.depth.looks(room) or self.granted.now):  # what else comes ends a grant
            return (), ()
        if heads is None:
            return self._look_at_some(tenants, pools, keep, found)
        wanted = max(self.depth.heads(), self.granted.heads())
        rows = found if found is not None and wanted <= heads else nominate(self.db.conn, wanted, self.reference.paused)
        by_line = {line: rows[:wanted] for line, rows in self._by_line(rows).items()}
        self.depth.found(len(by_line), cut=any(len(rows) == wanted for rows in by_line.values()))
        return self._line_views(by_line), ()

    def _look_at_some(self, tenants: Mapping[int, TenantView], pools: Collection[str], keep: int,
                      found: Sequence[Any] | None) -> tuple[tuple[LineView, ...], tuple[Behind, ...]]:  # fmt: skip
        """The same for the lines that may come to their turn."""
        fronts = (
            found if found is not None
            else self.db.conn.execute(sql.snapshot.FRONTS, (self.depth.in_turn,)).fetchall()
        )  # fmt: skip
        *found_of_all, few = fronts[0]
        numbers, groups, ranks = (each or () for each in found_of_all)
        known, use = self.reference, self.past.use
        if not all(map(known.lines.__contains__, numbers)):
            self._refresh(force=True)  # what belongs to new tenants is looked at by the next round
        past_use = use.grown if use is not None else {}
        remembers = bool(getattr(self.share(), "memory_s", 0))
        foremost = Foremost(known, tenants, pools, past_use, cell=self.conf.cell, keep=abs(keep), remembers=remembers)
        chosen = foremost.choose(zip(numbers, groups, ranks, strict=True), self.depth.most())
        self.depth.found(len(numbers), cut=True)
        self.depth.stood(few)
        rows = nominate(self.db.conn, self.depth.heads_of(len(chosen)), known.paused, chosen)
        return self._line_views(self._by_line(rows)), foremost.waits(self._pool)

    def _by_line(self, rows: Sequence[Any]) -> dict[int, list[Any]]:
        """Rows of ``NOMINATE`` by line; unknown lines and handlers are looked up."""
        by_line: dict[int, list[Any]] = {}
        for line_id, found in groupby(rows, itemgetter(1)):
            by_line.setdefault(line_id, []).extend(found)
        known = self.reference
        if by_line.keys() - known.lines or set(map(itemgetter(6), rows)) - known.handlers.keys() - {None}:
            self._refresh(force=True)
        return by_line

    def _line_views(self, by_line: dict[int, list[Any]]) -> tuple[LineView, ...]:
        """The lines of this cell among them."""
        views = []
        for line_id, found in by_line.items():
            if (info := self.reference.lines[line_id]).cell != self.conf.cell:
                continue
            if LATE_GROUP in (found[0][3], found[-1][3]):
                late = [row for row in found if row[3] == LATE_GROUP]
                views.append(replace(self._line_view(line_id, info, late), line_id=-line_id, late=True))
            else:
                late = []
            if punctual := [row for row in found if row[3] != LATE_GROUP] if late else found:
                views.append(self._line_view(line_id, info, punctual))
        return tuple(views)

    def _line_view(self, line_id: int, info: LineInfo, rows: Sequence[Any]) -> LineView:
        tenant, chosen, works = info.tenant_id, self.reference.chosen, dict[int | None, Work | None]()
        assert chosen is not None
        # By arrival the rank is the time of submission.
        by_arrival = (
            rows[0][3] != LATE_GROUP and not chosen.sweeping and chosen.order_of(tenant, line_id).name == "fifo"
        )
        heads = []
        for task_id, _, fence, group, rank, _kind, handler_id, priority, alone, mutex, limit, avoid, latest in rows:
            if handler_id not in works:
                works[handler_id] = self.reference.work_of(tenant, handler_id)
            if (work := works[handler_id]) is None:
                continue
            kind, expected, long = work
            if alone and kind in PER_CHILD:
                kind = WorkKind.PROCESS  # alone: in a child's main thread, beside nobody
            submitted_at = rank / 1e6 if by_arrival else submitted_s(task_id)
            heads.append(
                TaskView(task_id, line_id, fence, (group, rank), kind, handler_id, priority, submitted_at, latest,
                         expected, long, alone, mutex, limit, avoid)
            )  # fmt: skip
        return self.line_of(line_id, info, tuple(heads))

    def line_of(self, line_id: int, info: LineInfo, heads: tuple[TaskView, ...] = ()) -> LineView:
        """A line with these tasks at its head."""
        return LineView(
            line_id=line_id, tenant_id=info.tenant_id, category=info.category, tier_id=info.tier_id,
            vector=info.vector, heads=heads, paused=info.paused, pool=self.pool_of(info),
            labels=info.labels, workflow=info.workflow, weight=info.weight,
        )  # fmt: skip

    def look(self, *, decided: int, more: bool) -> bool:
        return self.depth.adapt(decided=decided, more=more)

    # -- claims -------------------------------------------------------------------------------------------------------
    def claim(self, epoch: int, decisions: Sequence[Decision]) -> list[Decision]:
        if not decisions:
            return []
        ahead: list[Decision] = []
        if self.granted.now:
            ahead, decisions = self.granted.claim(self.db.conn, self.conf, epoch, self.holder, decisions)
        if self.rates.limits:
            with self.db.conn.transaction():
                decisions = self.rates.allow(self.db.conn, decisions)
                won = self._claim(epoch, decisions)
                self.rates.take(self.db.conn, decisions, won)
        else:
            won = self._claim(epoch, decisions) if decisions else set()
        claimed = ahead + [d for d in decisions if d.task_id in won]
        self.ahead.came(claimed)
        if self.past.use is not None:
            self.past.claimed(self._last, claimed, _milli)
        return claimed

    def _claim(self, epoch: int, decisions: Sequence[Decision]) -> set[str]:
        millis = [_milli(d) for d in decisions]
        return transitions.claim_if_ready(self.db.conn, self.conf, epoch, self.holder, decisions, millis)

    def widen(self, epoch: int, openings: Sequence[Opening]) -> None:
        there = {each.key for each in self._last.openings} if self._last is not None else set()
        self.ahead.widen(self.db.conn, self.conf.cell, epoch, openings, there)

    def grant(self, epoch: int, grants: Sequence[Grant]) -> None:
        self.granted.write(self.db.conn, self.conf.cell, epoch, grants)

    def withdraw(self) -> None:
        self.ahead.withdraw(self.db.conn, self.conf.cell)

    def park(self, task_ids: Sequence[str], reason: Reason = Reason.MUTEX) -> int:
        """Park tasks whose mutex key is taken, or whose rate is used up.

        Those whose key became free meanwhile go on at once.
        """
        if reason is Reason.NEVER_FITS:
            last = self._last
            return park_hopeless(self.db.conn, self.conf, last.nodes, last.lines, task_ids) if last else 0
        if reason is Reason.RATE:
            return self.rates.park(self.db.conn, task_ids)
        with self.db.conn.transaction():
            parked = transitions.park(self.db.conn, task_ids)
            if parked:
                keys = self.db.conn.execute(sql.parking.KEYS_OF, (list(task_ids),)).fetchall()
                transitions.unpark(self.db.conn, [row[0] for row in keys])
        return parked

    def locks(self) -> list[Lock]:
        return [Lock(*row) for row in self.db.conn.execute(sql.parking.MUTEX_HOLDERS).fetchall()]

    def return_queued(self) -> int:
        return transitions.return_queued(self.db.conn, self.conf.cell, expired_only=False)
