"""Who makes room for whom: the mission's round robin, shorter work, urgent work, pools that starve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category, Outcome
from scheduler_ext.core.types import LineView, NodeView, Plan, Snapshot, TaskView, TenantView, WorkKind
from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.preemption import choose as pure
from scheduler_ext.preemption import starvation
from scheduler_ext.preemption.choose import Turn
from scheduler_ext.round.prioritizer import prioritize

CPU = (1000, 0, 0, 0, 0, 0)
EQUAL = share_policy("equal")


@dataclass
class Job:
    """A task of the little world below. Times are seconds."""

    name: str
    arrives: float
    needs: float
    line: int = 1
    tenant: int = 1
    category: Category = Category.DELAYABLE
    expected: float | None = None
    checkpoints: bool = True
    idempotent: bool = True
    slots: int = 1
    """How many times the vector of others it asks for."""
    mutex: str | None = None
    priority: int = 0
    level: int = 0
    rank: tuple[int, int] = (0, 0)
    began: float | None = None
    done: float = 0.0
    lets_by: frozenset[str] = frozenset()
    ahead: bool = False
    finished: float = 0.0


@dataclass
class World:
    """One node and its jobs, step by step, decided by the very functions of the dispatcher."""

    jobs: list[Job]
    order: Any
    share: Any = EQUAL
    slots: int = 1
    tenants: dict[int, TenantView] = field(default_factory=dict)
    conf: SchedulerConf = field(default_factory=lambda: SchedulerConf(delayable_permille=1000))
    now: float = 0.0
    serving: int = 0
    log: list[str] = field(default_factory=list)

    def line(self, job: Job, heads: Sequence[TaskView] = ()) -> LineView:
        return LineView(
            line_id=job.line,
            tenant_id=job.tenant,
            category=job.category,
            tier_id=1,
            vector=tuple(v * job.slots for v in CPU),
            heads=tuple(heads),
        )

    def ranked(self, job: Job) -> RankInput:
        return RankInput(
            arrived_us=int(job.arrives * 1e6), latest_start_us=None, expected_us=None, cap_us=10**9,
            priority=job.priority, level=job.level,
        )  # fmt: skip

    def view(self, job: Job) -> TaskView:
        return TaskView(
            task_id=job.name, line_id=job.line, fence=0, rank=job.rank, handler_id=1, priority=job.priority,
            submitted_at=job.arrives, alone=job.checkpoints, mutex_key=job.mutex,
            expected_us=None if job.expected is None else int(job.expected * 1e6),
        )  # fmt: skip

    def waiting(self) -> list[Job]:
        return [j for j in self.jobs if j.arrives <= self.now and j.began is None and not j.finished]

    def running(self) -> list[Job]:
        return [j for j in self.jobs if j.began is not None]

    def snapshot(self) -> Snapshot:
        lines: dict[int, list[Job]] = {}
        for job in self.waiting():
            lines.setdefault(job.line, []).append(job)
        busy = self.running()
        used: dict[int, int] = {}
        for job in busy:
            used[job.tenant] = used.get(job.tenant, 0) + 1
        tenants = {
            n: replace(
                self.tenants.get(n, TenantView(tenant_id=n)), in_flight=used.get(n, 0),
                used=tuple(v * used.get(n, 0) for v in CPU), used_slots_milli={WorkKind.PROCESS: 1000 * used.get(n, 0)},
            )
            for n in {job.tenant for job in self.jobs}
        }  # fmt: skip
        return Snapshot(
            now=self.now, cell="c", tenants=tenants,
            mutex_held={job.mutex: 1 for job in busy if job.mutex is not None},
            nodes=(NodeView(
                node_id=1, name="n", capacity=tuple(v * self.slots for v in CPU), slots={WorkKind.PROCESS: self.slots},
                handlers=frozenset({1}), exclusive_used=tuple(v * len(busy) for v in CPU),
                exclusive_count={WorkKind.PROCESS: len(busy)},
            ),),
            lines=tuple(
                self.line(jobs[0], [self.view(j) for j in sorted(jobs, key=lambda j: (j.rank, j.name))])
                for jobs in lines.values()
            ),
        )  # fmt: skip

    def turns(self) -> list[Turn]:
        return [
            Turn(
                task=self.view(job), line=self.line(job), node_id=1, ran_s=self.now - (job.began or 0.0),
                checkpoints=job.checkpoints, idempotent=job.idempotent, level=job.level, ranked=self.ranked(job),
            )
            for job in self.running()
        ]  # fmt: skip

    def plan(self) -> Plan:
        """One round."""
        held = {job.name: job.lets_by for job in self.jobs if job.lets_by}
        ahead = frozenset(other for job in self.jobs if job.ahead for other in job.lets_by)
        offered = pure.offered(self.snapshot(), self.conf, self.share, held, ahead)
        return prioritize(offered, self.conf, self.share)

    def step(self) -> None:
        """What ends, what arrives, who yields, who starts: then one second passes."""
        for job in self.running():
            if job.done + self.now - (job.began or 0.0) >= job.needs:
                job.began, job.finished = None, self.now
        for job in self.jobs:
            if job.arrives == self.now:
                job.level = self.serving if hasattr(self.order, "level_of") else 0
                job.rank = self.order.rank(self.ranked(job))
        by_name = {job.name: job for job in self.jobs}
        for ask in pure.choose(self.snapshot(), self.turns(), self.conf, self.share, lambda _: self.order):
            job = by_name[ask.task_id]
            job.done += self.now - (job.began or 0.0)
            job.began, job.level, job.rank = None, ask.level, ask.rank
            job.lets_by, job.ahead = ask.lets_by, ask.ahead
        while (plan := self.plan()).decisions:
            started = frozenset(decision.task_id for decision in plan.decisions)
            for job in self.jobs:
                job.lets_by -= started
            for name in started:
                by_name[name].began = self.now
                if hasattr(self.order, "level_of"):
                    self.serving = max(self.serving, self.order.level_of(by_name[name].rank))
        self.log.append("".join(job.name for job in self.running()))
        self.now += 1

    def run(self) -> dict[str, float]:
        while not all(job.finished for job in self.jobs):
            self.step()
            assert self.now < 1000
        return {job.name: job.finished for job in self.jobs}


def test_the_worked_example_of_round_robin() -> None:
    order = order_policy("round_robin", {"quantum_ms": 2000})
    world = World([Job("A", 0, 10), Job("B", 6, 5), Job("C", 8, 3)], order)
    assert world.run() == {"A": 17, "B": 18, "C": 15}
    assert "".join(world.log).startswith("AAAAAABBCCAABBCA")


def test_nobody_yields_while_nobody_waits() -> None:
    world = World([Job("A", 0, 20)], order_policy("round_robin", {"quantum_ms": 2000}))
    assert world.run() == {"A": 20}
    assert world.jobs[0].level == 0


def test_feedback_sinks_what_uses_its_slices_up() -> None:
    order = order_policy("feedback", {"quanta_ms": [1000, 2000, 4000], "boost_ms": 60_000})
    world = World([Job("A", 0, 12), Job("B", 3, 2), Job("C", 6, 1)], order)
    assert world.run() == {"A": 15, "B": 8, "C": 7}
    assert "".join(world.log).startswith("AAABAACBA"), "each newcomer runs at once; what used its slice up sinks"


def test_what_has_no_checkpoints_runs_to_its_end() -> None:
    order = order_policy("round_robin", {"quantum_ms": 2000})
    world = World([Job("A", 0, 10, checkpoints=False), Job("B", 1, 2)], order)
    assert world.run() == {"A": 10, "B": 12}


def test_shorter_work_passes_under_any_order_and_the_long_task_keeps_its_place() -> None:
    world = World(
        [Job("A", 0, 20), Job("L", 1, 30), Job("s", 2, 1, expected=1.0), Job("M", 3, 5)], order_policy("fifo")
    )
    assert world.run() == {"A": 21, "s": 6, "L": 51, "M": 56}, "s passed at once; A went on before L and M"


def test_what_is_not_known_to_be_short_does_not_pass() -> None:
    world = World([Job("A", 0, 20), Job("s", 2, 1)], order_policy("fifo"))
    assert world.run() == {"A": 20, "s": 21}


def test_more_urgent_work_passes_whatever_its_length() -> None:
    urgent = Job("U", 2, 9, line=2, category=Category.URGENT)
    assert World([Job("A", 0, 20), urgent], order_policy("fifo")).run() == {"A": 29, "U": 14}


def test_one_that_was_asked_is_not_asked_again_and_its_room_counts() -> None:
    order = order_policy("round_robin", {"quantum_ms": 2000})
    world = World([Job("A", 0, 10), Job("B", 0, 10), Job("C", 3, 5)], order, slots=2)
    for _ in range(4):
        world.step()
    turns = world.turns()
    (ask,) = pure.choose(world.snapshot(), turns, world.conf, EQUAL, lambda _: order)
    under_way = [replace(turn, asked=turn.task.task_id == ask.task_id) for turn in turns]
    assert pure.choose(world.snapshot(), under_way, world.conf, EQUAL, lambda _: order) == []


def starved(*, idempotent: bool = True, checkpoints: bool = False) -> World:
    """Four slots, all taken by tenant 1; tenant 2 is guaranteed half of them, and waits."""
    jobs = [Job(f"{n}", n, 100, idempotent=idempotent, checkpoints=checkpoints, priority=int(n == 1)) for n in range(4)]
    for n, job in enumerate(jobs):
        job.began = float(n)
    world = World(
        [*jobs, Job("x", 5, 10, line=2, tenant=2, checkpoints=False)], order_policy("fifo"), slots=4,
        share=share_policy("fair", {"starvation_s": 30}),
        tenants={n: TenantView(tenant_id=n, guaranteed_permille=500) for n in (1, 2)},
    )  # fmt: skip
    world.now = 10.0
    return world


def room(world: World, *, delay: float = 0) -> list[pure.Ask]:
    memory = starvation.Starvation()
    return starvation.ask(
        memory, world.snapshot(), world.turns(), world.conf, world.share, now=world.now, delay=delay
    )  # fmt: skip


def test_a_pool_that_starves_is_given_its_minimum() -> None:
    world = starved()
    (ask,) = room(world)
    assert (ask.task_id, ask.outcome) == ("3", Outcome.PREEMPTED), "lowest priority, then the latest started"
    assert ask.rank == world.jobs[3].rank, "it keeps its place"
    assert ask.lets_by == {"x"}


def test_one_with_checkpoints_yields_instead_of_being_ended() -> None:
    world = starved(idempotent=False, checkpoints=True)
    (ask,) = room(world)
    assert ask.outcome is Outcome.YIELDED


def test_nobody_is_ended_before_the_starvation_delay_nor_what_may_not_run_twice() -> None:
    world = starved()
    assert room(world, delay=30) == []
    world = starved(idempotent=False)
    assert room(world) == []


def test_a_pool_is_not_brought_below_its_own_minimum() -> None:
    world = starved()
    for job in world.jobs[2:4]:
        job.tenant, job.line = 2, 2
    assert room(world) == []


def test_lowest_priority_makes_room_first_then_the_youngest_and_no_more_than_needed() -> None:
    world = starved()
    world.tenants = {1: TenantView(tenant_id=1), 2: TenantView(tenant_id=2, guaranteed_permille=1000)}
    waiting, names = world.jobs[-1], list[str]()
    for needs in (1, 2, 3):
        waiting.slots = needs
        names.append("".join(ask.task_id for ask in room(world)))
    assert names == ["3", "32", "320"], "one has a higher priority"
    world.jobs[3].idempotent = False
    assert "".join(ask.task_id for ask in room(world)) == "201"
    waiting.slots = 4
    assert room(world) == [], "it would not do"


def test_a_pool_keeps_its_minimum_without_all_that_it_gives() -> None:
    """Tenant 1 could spare either of two tasks, but not both: without them it would starve, and take its room back."""
    world = starved()
    world.jobs[0].line = world.jobs[0].tenant = 3
    waiting = world.jobs[-1]
    waiting.slots = 2
    world.tenants[3] = TenantView(tenant_id=3, guaranteed_permille=250)
    assert room(world) == []
    world.tenants[3] = TenantView(tenant_id=3)
    assert [ask.task_id for ask in room(world)] == ["3", "0"], "tenant 3 has none to keep"
    world.tenants[1] = TenantView(tenant_id=1, guaranteed_permille=250)
    assert [ask.task_id for ask in room(world)] == ["3", "2"]


def test_nobody_is_ended_for_what_may_not_start_anyhow() -> None:
    """A task that its tenant's own limit holds would leave the room to those ended, which would be ended again."""
    world = starved()
    world.jobs[0].line = world.jobs[0].tenant = 2
    assert [ask.task_id for ask in room(world)] == ["3"]
    world.tenants[2] = replace(world.tenants[2], max_in_flight=1)
    assert room(world) == []
    world.tenants[2] = replace(world.tenants[2], max_in_flight=None, paused=True)
    assert room(world) == []


def test_what_may_start_is_not_held_up_by_what_may_not() -> None:
    world = starved()
    world.jobs[0].mutex = world.jobs[-1].mutex = "k"
    assert room(world) == []
    world.jobs.append(replace(world.jobs[-1], name="y", mutex=None))
    (ask,) = room(world)
    assert ask.lets_by == {"y"}


def test_as_many_make_room_as_bring_the_cell_below_the_ceiling_of_what_waits() -> None:
    world = starved()
    world.tenants[1] = TenantView(tenant_id=1)
    world.conf = SchedulerConf(peak_permille=700, delayable_permille=750)
    assert [ask.task_id for ask in room(world)] == ["3", "2"], "with three of four slots in use it may not start"


def test_the_room_is_for_what_starved_whoever_else_waits() -> None:
    """A pool that is further below its minimum is served first, but not by what was ended for another."""
    world = starved()
    world.jobs[0].line = world.jobs[0].tenant = 2
    world.tenants[1] = TenantView(tenant_id=1, guaranteed_permille=250)
    world.tenants[3] = TenantView(tenant_id=3, guaranteed_permille=250)
    world.jobs.append(Job("y", 4, 10, line=3, tenant=3))
    (ask,) = room(world)
    ended = next(job for job in world.jobs if job.name == ask.task_id)
    ended.began, ended.lets_by, ended.ahead = None, ask.lets_by, ask.ahead
    assert [decision.task_id for decision in world.plan().decisions] == ["x"]
    ended.ahead = False
    assert [decision.task_id for decision in world.plan().decisions] == ["y"]
