"""The judge of a torture run sees each kind of damage: a harness that sees none proves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from tests.lab.torture import faults, record
from tests.lab.torture.clients import Accepted, Tally
from tests.lab.torture.judge import Side, Verdict, judge
from tests.lab.torture.ledger import Attempt, Row, Truth
from tests.lab.torture.record import Life
from tests.lab.torture.report import bars, passed, percentile, table
from tests.lab.torture.run import Options, Recovery, Result
from tests.lab.torture.workload import Expected, Submission, workload


def row(task_id: str, state: TaskState = TaskState.SUCCEEDED, used: int = 1, total: int = 3) -> Row:
    return Row(
        task_id=task_id, state=state, attempts_used=used, total_attempts=total, live=False, submitted_by="key:x",
        reason="",
    )  # fmt: skip


def life(task_id: str, fence: int, began: float, last: float, *, ended: bool = True) -> Life:
    return Life(task_id, fence, began, 1, last, ended, {1})


class Case:
    """Two tasks that went well; a test spoils one thing."""

    def __init__(self, **second: object) -> None:
        first, then = Expected(kind="short"), Expected(kind="short", **second)  # type: ignore[arg-type]  # fields by name
        self.accepted = [Accepted(Submission(number=1, path="", body=None, expected=(first, then)), ["a", "b"])]
        self.truth = Truth(tasks={"a": row("a"), "b": row("b")})
        for task_id in ("a", "b"):
            self.truth.attempts[task_id] = [Attempt(number=1, fence=1, outcome=Outcome.SUCCEEDED)]
        self.lives = {"a": [life("a", 1, 1.0, 2.0)], "b": [life("b", 1, 3.0, 4.0)]}
        self.outside: dict[str, int] = {}

    def verdict(self) -> Verdict:
        return judge(self.accepted, self.truth, self.lives, self.outside)[0]


def test_nothing_at_fault() -> None:
    case = Case(parents=(0,), mutex_key="k")
    assert case.verdict().clean()
    side = judge(case.accepted, case.truth, case.lives, {})[1]
    assert (side.accepted, side.finished, side.runs, side.repeated) == (2, 2, 2, 0)


def test_lost() -> None:
    case = Case()
    del case.truth.tasks["b"]
    assert case.verdict().lost == ["b"]
    case = Case()
    case.lives["b"][0].ended = False
    assert case.verdict().lost == ["b"], "recorded as succeeded, though it never came to its end"


def test_stuck_and_wrong_ends() -> None:
    case = Case(ends="failed")
    assert [found.split()[0] for found in case.verdict().wrong_end] == ["b"]
    case.truth.tasks["b"] = row("b", TaskState.QUEUED)
    assert case.verdict().stuck == ["b"]


def test_run_twice_and_recorded_twice() -> None:
    case = Case()
    case.truth.attempts["b"].append(Attempt(number=2, fence=2, outcome=Outcome.SUCCEEDED))
    case.truth.tasks["b"] = row("b", used=2)
    case.lives["b"].append(life("b", 2, 3.5, 5.0))
    verdict = case.verdict()
    assert (verdict.at_the_same_time, verdict.recorded_twice, verdict.attempts) == (["b"], ["b"], [])
    case.lives["b"][1] = life("b", 2, 4.0, 5.0)
    assert case.verdict().at_the_same_time == [], "one after the other"


@pytest.mark.parametrize(
    ("outcome", "cut", "at_fault"),
    [
        (Outcome.WORKER_LOST, (3.1, 4.5), []),
        (Outcome.WORKER_LOST, (5.5, 9.0), ["b"]),
        (Outcome.FAILED, (3.1, 4.5), ["b"]),
    ],
)
def test_only_a_run_lost_behind_a_cut_link_may_go_on_beside_the_next(
    outcome: Outcome, cut: tuple[float, float], at_fault: list[str]
) -> None:
    case = Case()
    case.truth.attempts["b"] = [
        Attempt(number=1, fence=1, outcome=outcome),
        Attempt(number=2, fence=2, outcome=Outcome.SUCCEEDED),
    ]
    case.truth.tasks["b"] = row("b", used=2)
    case.lives["b"] = [life("b", 1, 3.0, 6.0), life("b", 2, 5.0, 7.0)]
    verdict, side = judge(case.accepted, case.truth, case.lives, {}, [cut])
    assert (verdict.at_the_same_time, side.behind_a_cut) == (at_fault, 1 - len(at_fault))
    assert judge(case.accepted, case.truth, case.lives, {})[0].at_the_same_time == ["b"], "nobody was cut off"


def test_submitted_twice_and_counters() -> None:
    case = Case()
    case.truth.tasks["c"] = row("c")
    case.truth.counted = (1, 0)
    verdict = case.verdict()
    assert (verdict.submitted_twice, len(verdict.counters)) == (["c"], 1)


def test_effects() -> None:
    case = Case(effect="e")
    assert case.verdict().effects_missing == ["b"]
    case.outside = {"e": 2}
    assert case.verdict().effects_doubled == ["b"]
    case.outside = {"e": 1}
    assert case.verdict().clean()


@pytest.mark.parametrize("began", [1.5, 0.5])
def test_order(began: float) -> None:
    case = Case(parents=(0,))
    case.lives["b"] = [life("b", 1, began, 4.0)]
    assert case.verdict().order == ["b"]


def test_mutex() -> None:
    case = Case(mutex_key="k")
    other = Expected(kind="mutex", mutex_key="k")
    case.accepted.append(Accepted(Submission(number=2, path="", body=None, expected=(other,)), ["c"]))
    case.truth.tasks["c"] = row("c")
    case.truth.attempts["c"] = [Attempt(number=1, fence=1, outcome=Outcome.SUCCEEDED)]
    case.lives["c"] = [life("c", 1, 3.5, 3.6)]
    assert case.verdict().mutex == ["c"]


def test_a_receiver_that_checks_the_fence_takes_each_hold_in_one_go(tmp_path: Path) -> None:
    (tmp_path / record.GUARDED).mkdir()
    asked = [("a", 7), ("a", 7), ("b", 9), ("a", 7), ("b", 9), ("c", 12)]
    answers = [record.act(tmp_path, "k", fence, task_id) for task_id, fence in asked]
    assert answers == [True, True, True, False, True, True]
    acts = record.acts(tmp_path)
    assert [(one.task_id, one.fence) for one in acts["k"]] == asked
    case = Case()
    assert judge(case.accepted, case.truth, case.lives, {}, acts=acts)[0].clean()
    record.act(tmp_path, "k", 12, "d")  # the number of somebody else's hold
    verdict = judge(case.accepted, case.truth, case.lives, {}, acts=record.acts(tmp_path))[0]
    assert verdict.mutex == ["d"]
    careless = {"k": [record.Act("b", 9, taken=True), record.Act("a", 7, taken=True)]}
    assert judge(case.accepted, case.truth, case.lives, {}, acts=careless)[0].mutex == ["a"]


def test_attempts_miscounted() -> None:
    case = Case()
    case.truth.attempts["b"] = [Attempt(number=2, fence=1, outcome=Outcome.SUCCEEDED)]
    assert case.verdict().attempts == ["b"], "a gap"
    case = Case()
    case.lives["b"].insert(0, life("b", 0, 2.0, 2.5, ended=False))
    assert case.verdict().attempts == ["b"], "a run nobody counted"
    case.truth.handed_back = {("b", 0)}
    assert case.verdict().clean(), "handed back with an event"


def test_a_turn_that_made_room_spends_no_attempt() -> None:
    case = Case()
    case.truth.attempts["b"].insert(0, Attempt(number=1, fence=0, outcome=Outcome.YIELDED))
    case.lives["b"].insert(0, life("b", 0, 2.0, 2.5, ended=False))
    assert case.verdict().clean()
    assert judge(case.accepted, case.truth, case.lives, {})[1].yields == 1
    case.truth.attempts["b"][0] = Attempt(number=1, fence=0, outcome=Outcome.WORKER_LOST)
    assert case.verdict().attempts == ["b"]


def test_work_lost_beyond_the_last_checkpoint() -> None:
    case = Case()
    case.truth.attempts["b"].insert(0, Attempt(number=1, fence=0, outcome=Outcome.YIELDED))
    first, then = life("b", 0, 2.0, 2.5, ended=False), case.lives["b"][0]
    first.resumed, first.saved, then.resumed = 0, 7, 7
    case.lives["b"].insert(0, first)
    assert case.verdict().clean()
    then.resumed = 8  # it was stored, and killed before it could say so
    assert case.verdict().clean()
    then.resumed = 6
    assert case.verdict().work == ["b"]
    then.resumed = 0
    assert case.verdict().work == ["b"]


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    witness = record.Witness(tmp_path)
    for what, fence in (("B", 1), ("R0", 1), ("C3", 1), ("S", 1), ("B", 2), ("R3", 2), ("E", 2)):
        witness.note(what, "t", fence)
    first, second = record.read(tmp_path)["t"]
    assert (first.fence, first.ended, second.ended) == (1, False, True)
    assert 0 < first.began <= first.last <= second.began
    assert not first.overlaps(second)
    assert (first.resumed, first.saved, second.resumed, second.saved) == (0, 3, 3, 0)


def test_the_seed_draws_the_run() -> None:
    made = [list(workload(300, 5, "/x")) for _ in range(2)]
    assert made[0] == made[1] != list(workload(300, 6, "/x"))
    assert sum(len(s.expected) for s in made[0]) >= 300
    kinds = {expects.kind for s in made[0] for expects in s.expected}
    assert kinds >= {
        "short",
        "long",
        "flaky",
        "failing",
        "capped",
        "mutex",
        "guarded",
        "inside",
        "outside",
        "graph",
        "steps",
    }


def test_every_fault_comes_before_any_comes_again() -> None:
    import random

    kinds = faults.plan(len(faults.FAULTS) * 2, random.Random(1))
    assert sorted(kinds[: len(faults.FAULTS)]) == sorted(faults.FAULTS)


def test_percentiles() -> None:
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.5, 0.99)] == [2.0, 3.0]
    assert percentile([], 0.5) == 0.0


def result(recovery_s: Sequence[float | None], *calls: tuple[float, int]) -> Result:
    tally = Tally()
    for seconds, tries in ((0.1, 1), *calls):
        tally.add(seconds, tries)
    return Result(
        Options(tasks=1, faults=len(recovery_s), seed=1), Verdict(), Side(**{f.name: 1 for f in fields(Side)}),
        [Recovery("k", "v", 0.0, seconds) for seconds in recovery_s], tally, Tally(), Counter(), 1.0, [], [],
    )  # fmt: skip


def test_a_slow_or_unreachable_platform_misses_its_bars_and_fails_where_there_were_enough_faults() -> None:
    good = result([1.0] * 100, (9.9, 20))
    assert all(bars(good).values())
    assert passed(good)
    assert "PASSED" in table(good)
    for bad, missed in (
        (result([1.0] * 98 + [15.1] * 2), "recovery p99 at most 15 s"),
        (result([1.0] * 100, *[(0.1, 1)] * 200, (10.1, 30)), "no outage over 10 s"),
        (result([1.0] * 100, (0.1, 1), (11.0, 30)), "99 % of submissions and of status calls succeed"),
    ):
        assert not bars(bad)[missed]
        assert not passed(bad)
        assert [line.split()[-1] for line in table(bad).splitlines() if line.startswith(missed)] == ["MISSED"]
    assert passed(result([1.0] * 8 + [20.0])), "of nine faults the 99th percentile is the maximum"
    assert not passed(result([1.0] * 8 + [None])), "not mended at all"


def test_a_call_that_the_end_finds_unanswered_counts_when_it_had_its_time() -> None:
    tally = Tally()
    tally.leave(3.0, 4)
    assert tally.asked == 0
    tally.leave(12.0, 40)
    assert (tally.asked, tally.failed, tally.longest_s) == (1, 1, 12.0)
