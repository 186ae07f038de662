"""The verdict on a run: the ledger, the tasks' own record and the clients' answers, held against each other."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType

from scheduler_ext.core.states import FINAL, Outcome, TaskState
from tests.lab.torture.clients import Accepted
from tests.lab.torture.ledger import Row, Truth
from tests.lab.torture.record import Act, Life
from tests.lab.torture.workload import FAILS, Expected

MADE_ROOM = frozenset({Outcome.YIELDED, Outcome.PREEMPTED})
"""Ends that spend no attempt: the next run has the same number."""
HEARD_S = 3.0
"""So long after a link is whole again its worker may not have heard yet that it was given up; or once more as long as
the cut was: TCP waits twice as long before each repeat."""
Lives = Mapping[str, Sequence[Life]]


@dataclass(slots=True)
class Verdict:
    """Ids of the tasks at fault, by fault; all empty is the aim, but for what is only told."""

    lost: list[str] = field(default_factory=list)
    """Accepted, and not in the ledger; or recorded as succeeded without having run to its end."""
    stuck: list[str] = field(default_factory=list)
    """Not final at the end."""
    wrong_end: list[str] = field(default_factory=list)
    """Ended otherwise than its work did."""
    at_the_same_time: list[str] = field(default_factory=list)
    """Two attempts of it were seen acting at the same time, and not because the first was behind a cut link."""
    recorded_twice: list[str] = field(default_factory=list)
    """Two successes recorded, or a fence twice."""
    submitted_twice: list[str] = field(default_factory=list)
    """In the ledger, and answered to nobody."""
    effects_doubled: list[str] = field(default_factory=list)
    effects_missing: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """Began before what it needs had ended."""
    mutex: list[str] = field(default_factory=list)
    """Seen acting while another held its key; or taken by the key's receiver after another, or with its number."""
    attempts: list[str] = field(default_factory=list)
    """Attempts that were miscounted: numbers with gaps, more than allowed, or a run nobody counted."""
    work: list[str] = field(default_factory=list)
    """Went on from before the last checkpoint that it, or an attempt of it before, was told is stored."""
    counters: list[str] = field(default_factory=list)
    """Tenants' counters that are off."""

    def clean(self) -> bool:
        """Whether nothing is at fault."""
        return not any(getattr(self, spec.name) for spec in fields(self))

    def named(self) -> list[str]:
        """The ids of all that is at fault, each once; where more is said, the id comes first."""
        return list(dict.fromkeys(one.split()[0] for spec in fields(self) for one in getattr(self, spec.name)))

    def counts(self) -> dict[str, int]:
        """How many of each."""
        return {spec.name: len(getattr(self, spec.name)) for spec in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is no fault, and worth telling."""

    accepted: int
    finished: int
    runs: int
    """Runs the tasks saw."""
    repeated: int
    """Runs beyond one for each task that has run."""
    suspects: int
    """Runs that were handed back uncounted, because nobody could know whether they had begun."""
    yields: int
    """Turns that ended to make room: at a drained node, at a worker that was told to end."""
    resumed: int
    """Runs that went on from a checkpoint."""
    unseen: int
    """Attempts counted as lost with their worker before the task could say that it had begun."""
    behind_a_cut: int
    """Attempts that went on behind a cut link after their node was declared lost, beside the next one: a worker that
    hears nothing cannot know whether it alone was cut off. Their results are refused."""
    fires: int


def judge(
    accepted: Sequence[Accepted], truth: Truth, lives: Lives, outside: Mapping[str, int],
    cuts: Sequence[tuple[float, float]] = (), acts: Mapping[str, Sequence[Act]] = MappingProxyType({}),
) -> tuple[Verdict, Side]:  # fmt: skip
    """Hold the three against each other.

    ``outside``: how often each effect outside has happened. ``cuts``: from when to when a worker was cut off. ``acts``:
    what the receivers of keys were asked for.
    """
    verdict = Verdict()
    expected = {i: e for a in accepted for i, e in zip(a.task_ids, a.submission.expected, strict=True)}
    by_schedule = {i for i, row in truth.tasks.items() if row.submitted_by.startswith("schedule")}
    for task_id, expects in expected.items():
        _one(verdict, task_id, expects, truth, lives.get(task_id, ()))
    for task_id in by_schedule:
        _one(verdict, task_id, Expected(kind="schedule"), truth, lives.get(task_id, ()))
    verdict.submitted_twice = sorted(set(truth.tasks) - set(expected) - by_schedule)
    _effects(verdict, expected, truth, outside)
    _order(verdict, accepted, lives)
    _mutex(verdict, expected, lives)
    for asked in acts.values():
        _guarded(verdict, [one for one in asked if one.taken])
    if truth.counted[0] != truth.counted[1]:
        verdict.counters.append(f"counted {truth.counted[0]}, are {truth.counted[1]}")
    if truth.fires[0] != truth.fires[1] or len(by_schedule) != truth.fires[1]:
        verdict.submitted_twice.append(f"{truth.fires[0]} firings, {len(by_schedule)} tasks")
    behind = _behind_a_cut(verdict.at_the_same_time, truth, lives, cuts)
    verdict.at_the_same_time = [one for one in verdict.at_the_same_time if one not in behind]
    return verdict, _side(expected, by_schedule, truth, lives, len(behind))


def _behind_a_cut(task_ids: Sequence[str], truth: Truth, lives: Lives, cuts: Sequence[tuple[float, float]]) -> set[str]:
    """Those of which each earlier run was lost with its worker, and the next began while one was cut off."""
    found = set()
    for task_id in task_ids:
        lost = {a.fence for a in truth.attempts.get(task_id, ()) if a.outcome == Outcome.WORKER_LOST}
        pairs = [(a, b) for a, b in itertools.pairwise(lives.get(task_id, ())) if a.overlaps(b)]
        if all(
            first.fence in lost
            and any(cut <= then.began <= healed + max(HEARD_S, healed - cut) for cut, healed in cuts)
            for first, then in pairs
        ):
            found.add(task_id)
    return found


def _side(
    expected: Mapping[str, Expected], by_schedule: set[str], truth: Truth, lives: Lives, behind_a_cut: int
) -> Side:
    ours = [*expected, *by_schedule]
    runs = [life for task_id in ours for life in lives.get(task_id, ())]
    seen = {(life.task_id, life.fence) for life in runs}
    counted = [(task_id, attempt.fence) for task_id in ours for attempt in truth.attempts.get(task_id, ())]
    return Side(
        accepted=len(ours), runs=len(runs), fires=truth.fires[0],
        finished=sum(1 for i in ours if i in truth.tasks and truth.tasks[i].state in FINAL),
        repeated=len(runs) - len({life.task_id for life in runs}),
        yields=sum(a.outcome in MADE_ROOM for task_id in ours for a in truth.attempts.get(task_id, ())),
        resumed=sum(bool(life.resumed) for life in runs), suspects=len(seen & truth.handed_back),
        unseen=len(set(counted) - seen), behind_a_cut=behind_a_cut,
    )  # fmt: skip


def _one(verdict: Verdict, task_id: str, expects: Expected, truth: Truth, lives: Sequence[Life]) -> None:
    row = truth.tasks.get(task_id)
    if row is None:
        verdict.lost.append(task_id)
        return
    attempts = truth.attempts.get(task_id, [])
    if row.live or row.state not in FINAL:
        verdict.stuck.append(task_id)
    good = [a for a in attempts if a.outcome == Outcome.SUCCEEDED]
    fences = [a.fence for a in attempts]
    if len(good) > 1 or len(set(fences)) != len(fences):
        verdict.recorded_twice.append(task_id)
    ended = {life.fence for life in lives if life.ended}
    if any(a.fence not in ended for a in good):
        verdict.lost.append(task_id)
    _end(verdict, row, expects)
    for life, other in itertools.pairwise(lives):
        if life.overlaps(other):
            verdict.at_the_same_time.append(task_id)
    if _work_lost(lives):
        verdict.work.append(task_id)
    counted = set(fences)
    uncounted = [life for life in lives if life.fence not in counted and (task_id, life.fence) not in truth.handed_back]
    numbers = [a.number for a in attempts if a.outcome not in MADE_ROOM]
    wrong = numbers != list(range(1, len(numbers) + 1)) or len(numbers) > row.total_attempts
    wrong = wrong or (not row.live and row.attempts_used != len(numbers))
    if wrong or any(life.begun > 1 for life in lives) or (uncounted and not row.live):
        verdict.attempts.append(task_id)


def _work_lost(lives: Sequence[Life]) -> bool:
    """Whether a run went on from before what one before it had been told is stored; ``lives`` by their fences."""
    saved = 0
    for life in lives:
        if life.resumed is not None and life.resumed < saved:
            return True
        saved = max(saved, life.saved)
    return False


def _end(verdict: Verdict, row: Row, expects: Expected) -> None:
    if row.state not in FINAL:
        return
    wanted = TaskState.FAILED if expects.ends == FAILS else TaskState.SUCCEEDED
    if row.state != wanted:
        verdict.wrong_end.append(f"{row.task_id} {expects.kind}: {row.reason}")


def _effects(verdict: Verdict, expected: Mapping[str, Expected], truth: Truth, outside: Mapping[str, int]) -> None:
    for task_id, expects in expected.items():
        if not expects.effect:
            continue
        times = (truth.effects if expects.kind == "inside" else outside).get(expects.effect, 0)
        row = truth.tasks.get(task_id)
        if times > 1:
            verdict.effects_doubled.append(task_id)
        elif not times and row is not None and row.state == TaskState.SUCCEEDED:
            verdict.effects_missing.append(task_id)


def _order(verdict: Verdict, accepted: Sequence[Accepted], lives: Lives) -> None:
    for one in accepted:
        for task_id, expects in zip(one.task_ids, one.submission.expected, strict=True):
            mine = lives.get(task_id, ())
            if not mine or not expects.parents:
                continue
            began = min(life.began for life in mine)
            for parent in expects.parents:
                ends = [life.last for life in lives.get(one.task_ids[parent], ()) if life.ended]
                if not ends or min(ends) > began:
                    verdict.order.append(task_id)
                    break


def _guarded(verdict: Verdict, taken: Sequence[Act]) -> None:
    """At a receiver that checks the fence each hold acts in one go, and its number is one task's alone."""
    holder: dict[int, str] = {}
    latest = 0
    for one in taken:
        if one.fence < latest or holder.setdefault(one.fence, one.task_id) != one.task_id:
            verdict.mutex.append(one.task_id)
        latest = max(latest, one.fence)


def _mutex(verdict: Verdict, expected: Mapping[str, Expected], lives: Lives) -> None:
    by_key: dict[str, list[Life]] = defaultdict(list)
    for task_id, expects in expected.items():
        if expects.mutex_key:
            by_key[expects.mutex_key] += lives.get(task_id, ())
    for held in by_key.values():
        held.sort(key=lambda life: life.began)
        latest: Life | None = None
        for life in held:
            if latest is not None and life.task_id != latest.task_id and life.began < latest.last:
                verdict.mutex.append(life.task_id)
            if latest is None or life.last > latest.last:
                latest = life
