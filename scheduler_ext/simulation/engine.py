"""Virtual time: arrivals and ends in order, and between them the same choice and the same gate as in a live round.

One tree of lines and one ledger are kept for the whole run and told what changes, so that an event costs the
logarithm of the number of lines instead of a new snapshot.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Final

from scheduler_ext.conf import PROMOTE_LEAD_MS, SchedulerConf
from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.labels import Labels
from scheduler_ext.core.resources import fits
from scheduler_ext.core.types import LATE_GROUP, MILLI, LineView, Reason, Snapshot, TenantView, Vector, WorkKind
from scheduler_ext.policies.base import OrderPolicy, SharePolicy
from scheduler_ext.policies.remembering_tree import running_tree
from scheduler_ext.policies.tree import Rules
from scheduler_ext.round.gate import Gate, expected_end
from scheduler_ext.round.longest_waiting import make_room
from scheduler_ext.round.node_account import Node
from scheduler_ext.round.prioritizer import BACKFILL_DEPTH
from scheduler_ext.simulation.following import follow_on, follows
from scheduler_ext.simulation.layout import edges_of, is_alike, lines_of, one_node, tenants_of
from scheduler_ext.simulation.learning import Learning
from scheduler_ext.simulation.model import Cell, Job, Run, Trace
from scheduler_ext.simulation.preemption import Preemptor
from scheduler_ext.simulation.timers import Timers
from scheduler_ext.simulation.waiting import Waiting, refused

PROGRESS_EVERY: Final = 10_000
NO_EVENT: Final = 1 << 62


class Engine:
    """One run of a trace. ``run()`` may be called once."""

    def __init__(
        self,
        trace: Trace,
        cell: Cell,
        *,
        order: OrderPolicy,
        share: SharePolicy,
        conf: SchedulerConf | None = None,
        tenants: dict[int, TenantView] | None = None,
        past_use: Mapping[str, float] | None = None,
        backfill: bool = True,
        progress: Callable[[int], None] | None = None,
        learning: Learning | None = None,
        until: int | None = None,
    ) -> None:
        """``backfill`` keeps a node for what does not fit yet; ``progress`` hears how many jobs have ended.

        ``learning``: expected run times are learnt from what has ended; ``until``: end when that job has started.
        """
        conf = conf or SchedulerConf()
        self._trace, self._cell = trace, cell
        self._order: Any = order
        self._share_name = share.name
        self._slicing, self._joins = hasattr(order, "quantum_us"), hasattr(order, "level_of")
        self._backfill = backfill and len({(job.vector, job.kind) for job in trace.jobs}) > 1
        """Whether all jobs ask for the same: then one that finds no room leaves none for another."""
        lines, self._following = lines_of(trace)
        self._promotions: list[tuple[int, int]] = []
        self._tenants = tenants or tenants_of(trace)
        snapshot = Snapshot(
            now=0.0, cell="simulated", nodes=cell.views(), tenants=self._tenants, lines=tuple(lines),
            past_use=past_use or {},
            rates_left={number: max(0, at.starts - len(at.used_us)) for number, at in trace.limits.items()},
        )  # fmt: skip
        if not isinstance(share, Rules):
            raise ConfigurationError("this share policy cannot be simulated", field="share_policy")
        alike = is_alike(trace, self._tenants)
        seen = one_node(snapshot, trace.jobs[0]) if alike else snapshot
        self._gate = Gate(seen, conf, reserve=self._backfill, short=False)
        self._timers = Timers(trace, self._gate, conf) if conf.ceiling_windows or trace.limits else None
        self._chooser = running_tree(snapshot, share)
        self._preemptor: Preemptor | None = None
        if hasattr(share, "starvation_s") and self._chooser.has_floors:
            self._preemptor = Preemptor(self._chooser, self._gate, share.starvation_s)
        self._kinds = tuple({job.kind for job in trace.jobs})
        self._learning, self._until, self._progress = learning, until, progress
        self._plain = not (self._backfill or self._slicing or self._preemptor or self._timers)
        """Whether room alone decides about a job that arrives while nothing waits."""
        self._alike = alike and len(seen.nodes) == 1 and not (self._backfill or self._preemptor or self._timers)
        """Whether any job may take the place of any other, as far as room goes."""
        self._follows = self._alike and not (self._slicing or learning or until is not None) and follows(trace)
        """Whether, while all is full, each job that ends is simply followed by one that waits."""
        self._begin(trace)

    def _begin(self, trace: Trace) -> None:
        self._alarm: int | None = None
        self._began: dict[int, int] = {}
        """With pre-emption: when each running job last began."""
        self._ends: list[tuple[int, int, Job]] = []
        self._over: list[tuple[Node, LineView, float | None]] = []
        """Room of ended jobs that the ledger does not have back yet."""
        self._freed: list[Node] = []
        self._fresh = False
        """Whether something became ready that no decision has looked at."""
        self._stuck = False
        """With jobs that are alike: whether nothing starts before something has ended."""
        self._queue = Waiting()
        self._children, self._missing = edges_of(trace)
        self._arrivals = [*(job.arrived_us for job in trace.jobs), NO_EVENT]
        self._serving: dict[int, int] = {}
        self._now = self._next = 0
        self._waiting = self._ended = self._preemptions = self._decisions = self._backfilled = 0
        self._started = [-1] * len(trace.jobs)
        self._finished = [-1] * len(trace.jobs)
        self._segments: list[tuple[int, int, int]] = []
        self._unplaced: dict[int, str] = {}

    def run(self, clock: Callable[[], float]) -> Run:
        """Run to the end; ``clock`` reads real time, only to report how long the run took."""
        begin = clock()
        collecting = gc.isenabled()
        gc.disable()  # a run makes no cycles, and walking a million jobs again and again costs more than all else
        try:
            self._loop()
        finally:
            if collecting:
                gc.enable()
        return Run(
            label=f"{self._order.name}/{self._share_name}", trace=self._trace, cell=self._cell, tenants=self._tenants,
            started_us=self._started, ended_us=self._finished, segments=self._segments, unplaced=self._unplaced,
            preemptions=self._preemptions, decisions=self._decisions, backfilled=self._backfilled,
            seconds=clock() - begin,
        )  # fmt: skip

    def _loop(self) -> None:
        """Event by event: what ends, then what arrives, then what can start."""
        jobs, ends, promotions, chooser = self._trace.jobs, self._ends, self._promotions, self._chooser
        arrivals, plain, alike, over = self._arrivals, self._plain, self._alike, self._over
        while True:
            now = arrivals[self._next]
            if ends and ends[0][0] < now:
                now = ends[0][0]
            if now == NO_EVENT and not self._goes_on():
                break
            if promotions or not plain:
                now = self._next_time(now)
            self._now = now
            chooser.now = now / 1e6
            if promotions or not plain:
                self._follow(now)
            while ends and ends[0][0] == now:
                self._end(heappop(ends)[2])
            while arrivals[self._next] == now:
                self._arrive(jobs[self._next])
            if over or not (self._stuck and alike):
                self._decide()
            if self._until is not None and self._started[self._until] >= 0:
                return
        self._give_up()

    def _decide(self) -> None:
        if self._waiting:
            if not self._alike or not (self._swap() if self._over else self._is_stuck()):
                self._drain()
            if self._follows and (self._stuck or not self._fresh):
                self._follow_on()
            if self._preemptor is not None:
                self._preempt(self._preemptor)
        elif self._over and not self._alike:
            self._give_back()
            if self._chooser.waits_for_room:
                self._chooser.reopen(self._has_room)
            self._freed.clear()

    def _next_time(self, now: int) -> int:
        """When something happens next: at ``now`` something ends or arrives."""
        if self._timers is not None and self._waiting:
            due = self._timers.due()
            now = now if due is None else min(now, due)
        if self._promotions and self._promotions[0][0] < now:
            now = self._promotions[0][0]
        if self._alarm is not None and self._alarm < now:
            now, self._alarm = self._alarm, None
        return now

    def _follow(self, now: int) -> None:
        """What comes about by time alone."""
        job: Any
        promotions = self._promotions
        if self._timers is not None and self._timers.follow(now):
            going = list(self._timers.going_on())  # other ceilings hold, or a rate allows another start
            for job in going:
                self._chooser.offer(job.line, job)
            if self._backfill:
                self._queue.go_on(going)
            self._chooser.reopen(self._has_room)
        while promotions and promotions[0][0] <= now:
            self._promote(heappop(promotions)[1])

    def _give_up(self) -> None:
        jobs = self._trace.jobs if self._waiting else []
        found = refused(jobs, self._finished, self._missing, self._gate, self._chooser, self._timers)
        self._unplaced = found | self._unplaced

    def _goes_on(self) -> bool:
        """Whether a waiting job may still start though nothing arrives and nothing ends any more."""
        return bool(self._waiting and self._timers is not None and self._timers.due() is not None)

    def _follow_on(self) -> None:
        chooser, jobs, most = self._chooser, self._trace.jobs, PROGRESS_EVERY - 1 - self._ended % PROGRESS_EVERY
        stays = self._stuck or chooser.is_shut or self._is_full()
        if not stays or self._over or not chooser.swaps(self._is_full) or not self._gate.would_open(jobs[0].line, 1):
            return
        came, swaps = follow_on(jobs, self._arrivals, self._next, self._ends, chooser, self._order.rank, self._started,
                                self._finished, self._waiting, most)  # fmt: skip
        self._stuck, self._fresh = self._stuck or came > 0, self._fresh or came > 0
        self._next, self._waiting = self._next + came, self._waiting + came - swaps
        self._ended, self._decisions = self._ended + swaps, self._decisions + swaps

    # -- what happens ------------------------------------------------------------------------------

    def _arrive(self, job: Job) -> None:
        self._next += 1
        if self._missing and self._missing[job.index]:
            return
        if self._waiting or not self._plain or not self._start_at_once(job):
            self._offer(job)

    def _offer(self, job: Any) -> None:
        """Add a job that has become ready."""
        line = job.line
        if self._learning is not None:
            self._learning.expect(job)
        if self._slicing:
            job.level = self._serving.get(line.line_id, 0) if self._joins else 0
        job.rank = self._order.rank(job)
        self._wait(line, job)
        if job.latest_start_us is not None and not line.late:
            lead = 0 if self._following[line.line_id].late else PROMOTE_LEAD_MS * 1000
            heappush(self._promotions, (max(self._now, job.latest_start_us - lead), job.index))

    def _wait(self, line: LineView, job: Any) -> None:
        self._waiting += 1
        self._fresh = True
        self._chooser.offer(line, job)
        if self._backfill:
            self._queue.add(job)

    def _promote(self, index: int) -> None:
        """Move a waiting task near its latest start to its tenant's urgent line, and past it to the line of late work."""
        if self._started[index] >= 0 or index in self._unplaced:
            return
        job: Any = self._trace.jobs[index]
        if self._timers is not None and job.rates and self._timers.is_parked(job):
            job.line = self._following[job.line.line_id]
            self._timers.park(job, job.line)
            return
        self._chooser.withdraw(job.line, job)
        line = job.line = self._following[job.line.line_id]
        if line.late:
            job.rank = (LATE_GROUP, job.latest_start_us)
        else:
            heappush(self._promotions, (max(self._now, job.latest_start_us), job.index))
        self._chooser.offer(line, job)
        self._fresh = True

    def _end(self, job: Any) -> None:
        if self._slicing and job.remaining_us > job.turn_us and self._goes_round_alone(job):
            return
        node, line = job.node, job.line
        if not self._alike:
            self._gate.uncount(line, job, MILLI)
        self._chooser.release(line)
        self._over.append((node, line, job.ends_at))
        job.ends_at = None
        if self._preemptor is not None:
            self._preemptor.ended(job)
            if not self._slicing:
                self._segments.append((job.index, self._began[job.index], self._now))
        if self._slicing:
            self._segments.append((job.index, self._now - job.turn_us, self._now))
            job.remaining_us -= job.turn_us
            if job.remaining_us > 0:
                self._go_on_later(job, line)
                return
        self._finished[job.index] = self._now
        self._ended += 1
        if self._learning is not None:
            self._learning.ended(job)
        if self._children:
            self._release_children(job)
        if self._progress is not None and self._ended % PROGRESS_EVERY == 0:
            self._progress(self._ended)

    def _goes_round_alone(self, job: Job) -> bool:
        """While nobody waits, nobody is asked to yield: turn follows turn until the next arrival, as one event.

        Where something else may begin to wait meanwhile, each turn is looked at by itself.
        """
        jobs = self._trace.jobs
        until = jobs[self._next].arrived_us if self._next < len(jobs) else NO_EVENT
        if self._waiting or until <= self._now or self._children or self._timers or self._preemptor:
            return False
        self._segments.append((job.index, self._now - job.turn_us, self._now))
        job.remaining_us -= job.turn_us
        job.turn_us = 0
        while job.turn_us < job.remaining_us and self._now + job.turn_us < until:
            job.level += 1
            job.turn_us = min(job.remaining_us, job.turn_us + self._order.quantum_us(job.level))
        self._serving[job.line.line_id] = job.level
        heappush(self._ends, (self._now + job.turn_us, job.index, job))
        return True

    def _go_on_later(self, job: Any, line: LineView) -> None:
        self._preemptions += 1
        job.level += 1
        job.rank = self._order.rank(job)
        self._wait(line, job)

    def _release_children(self, job: Job) -> None:
        for index in self._children[job.index]:
            self._missing[index] -= 1
            if self._missing[index] == 0 and index < self._next:
                self._offer(self._trace.jobs[index])

    # -- deciding ----------------------------------------------------------------------------------

    def _drain(self, first: Any = None) -> None:
        """Start what can start now, ``first`` ahead of all: the round of the live dispatcher, without its snapshot."""
        gate, chooser, ledger = self._gate, self._chooser, self._gate.ledger
        gate.now = self._now / 1e6
        chooser.settle()
        self._fresh = self._stuck = False
        if self._over:
            self._give_back()
            ledger.forget_reservations()
            if first is not None:
                gate.keep_no_room()
                self._place(first.line, first)
                chooser.take(first.line, first)
            chooser.reopen(self._has_room)
            self._freed.clear()
            if self._backfill:
                if self._learning is not None:
                    self._learning.correct(self._now)
                queue = self._queue
                queue.keep(make_room(gate, chooser, queue.kept, queue.turns, queue.longest(), self._place))
        passed_over = 0
        while passed_over < BACKFILL_DEPTH and ledger.has_room(self._kinds):
            picked = chooser.pick()
            if picked is None:
                break
            line, task = picked
            self._decisions += 1
            reason = gate.refusal(line, task, 0) or chooser.refusal(line, task, MILLI)
            if reason is None:
                node = gate.place(line, task, 0)
                if isinstance(node, Node):
                    chooser.accept(line, task)
                    self._start(task, node, line)
                    continue
                reason = node
            passed_over += reason is Reason.RESERVED
            self._leave(line, task, reason)

    def _start_at_once(self, job: Any) -> bool:
        """Start a job that arrives while nothing waits, deciding as the lines would; False without room."""
        gate, chooser, line, jobs = self._gate, self._chooser, job.line, self._trace.jobs
        if chooser.waits_for_room or (self._next < len(jobs) and jobs[self._next].arrived_us == self._now):
            return False  # two that arrive together are in the order's hands
        chooser.settle()
        if self._alike and self._over:
            if not gate.would_open(line, len(self._over)) or chooser.refusal(line, job, MILLI):
                return False
            node: Any = self._over.pop()[0]
        else:
            if self._over:
                self._give_back()
                gate.ledger.forget_reservations()
                self._freed.clear()
            gate.now = self._now / 1e6
            if gate.refusal(line, job, 0) or chooser.refusal(line, job, MILLI):
                return False
            node = gate.place(line, job, 0)
            if not isinstance(node, Node):
                return False
        job.rank = self._order.rank(job)
        self._decisions += 1
        self._waiting += 1
        chooser.accept_alone(line, job)
        self._start(job, node, line)
        return True

    def _place(self, line: LineView, job: Any) -> None:
        node = self._gate.place(line, job, 0)
        assert isinstance(node, Node)
        self._start(job, node, line)

    def _preempt(self, preemptor: Preemptor) -> None:
        """End jobs in the way of a starving pool's; they wait again in their places and spend no attempt."""
        while True:
            stopped, head, self._alarm = preemptor.check(self._now, self._began)
            if not stopped:
                return
            for job in stopped:
                self._stop(job, preemptor)
            self._drain(head)

    def _stop(self, job: Any, preemptor: Preemptor) -> None:
        line = job.line
        self._ends[:] = [end for end in self._ends if end[2] is not job]
        heapify(self._ends)
        preemptor.ended(job)
        self._segments.append((job.index, self._began[job.index], self._now))
        self._gate.uncount(line, job, MILLI)
        self._chooser.release(line)
        self._over.append((job.node, line, job.ends_at))
        job.ends_at = None
        self._preemptions += 1
        self._wait(line, job)

    def _is_stuck(self) -> bool:
        """With jobs that are alike: whether all is shut or full, so that what comes waits until something ends."""
        self._stuck = self._chooser.is_shut or self._is_full()
        return self._stuck

    def _swap(self) -> bool:
        """When one of jobs that are alike has ended and all that wait were refused, let the next take its place as it is.

        The same decision as the long way: afterwards as much is in use as before, and the others are refused as before.
        """
        chooser, over = self._chooser, self._over
        if len(over) > 1 or chooser.passed_over or (self._fresh and not self._stuck and not self._is_full()):
            return False
        more = self._waiting > 1
        picked = chooser.hand_over(self._gate.would_open, self._is_full, more=more)
        if picked is None:
            return False
        self._decisions += 1
        self._stuck = self._stuck and more
        self._start(picked[1], over.pop()[0], picked[0])
        return True

    def _is_full(self) -> bool:
        return not self._gate.ledger.has_room(self._kinds)

    def _give_back(self) -> None:
        ledger = self._gate.ledger
        for node, line, ends_at in self._over:
            ledger.release_exclusive(node, ledger.shape(line.vector, line.kind, None, line.labels), ends_at)
            self._freed.append(node)
        self._over.clear()

    def _start(self, job: Any, node: Node, line: LineView) -> None:
        self._waiting -= 1
        now, job.node = self._now, node
        if self._backfill:
            self._queue.remove(job)
            self._backfilled += self._gate.ledger.keeps_room
        if self._started[job.index] < 0:
            self._started[job.index] = now
        if self._slicing:
            self._serving[line.line_id] = job.level
            job.turn_us = min(job.remaining_us, self._order.quantum_us(job.level))
            end = now + job.turn_us
        else:
            end = now + job.run_us
        job.ends_at = expected_end(job, self._gate.now) if self._backfill else None
        if self._learning is not None and job.ends_at is not None:
            self._learning.started(job, now)
        heappush(self._ends, (end, job.index, job))
        if self._timers is not None:
            self._timers.started(job, now)
        if self._preemptor is not None:
            self._began[job.index] = now
            self._preemptor.started(job)

    def _leave(self, line: LineView, job: Any, reason: Reason) -> None:
        never = reason in (Reason.NEVER_FITS, Reason.NO_NODE, Reason.NO_LABELS)
        if not never and (reason is not Reason.RATE or self._timers is None):
            self._chooser.reject(line, job, reason)
            return
        if self._backfill:
            self._queue.remove(job)
        self._chooser.leave(line, job)
        if never:  # it would wait for ever: upkeep gives up what no node can ever run
            self._unplaced[job.index] = reason.value
            self._waiting -= 1
        elif self._timers is not None:
            self._timers.park(job, line)

    def _has_room(self, vector: Vector, kind: WorkKind, labels: Labels | None) -> bool:
        if self._backfill:
            return True
        shape = self._gate.ledger.shape(vector, kind, None, labels)
        return any(
            node.room(kind) > 0 and fits(shape.vector, node.free) and (shape.among is None or node.index in shape.among)
            for node in self._freed
        )
