"""A dispatcher with nothing to decide: the renewal of its lead says so, and it runs rounds again when there is something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from scheduler_ext.dispatch import dispatcher as dispatching
from scheduler_ext.dispatch.dispatcher import run
from slackwater_resources.faults import FAULTS
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Tenant
from tests.support.api import furnish
from tests.support.rounds import Rounds

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cell(redis_client: Any) -> Iterator[Rounds]:
    furnish()
    made = Rounds(leader_renew_s=0.0)
    yield made
    made.close()


def test_it_rests_while_the_ledger_is_empty_and_nothing_is_given_ahead(cell: Rounds, tenant: Tenant) -> None:
    dispatcher = cell.dispatcher
    assert not dispatcher.rests(), "before it has looked"
    dispatcher.run_round()
    assert dispatcher.keep_lead()
    assert dispatcher.rests()

    submit(tenant, {"handler": "demo.echo"})
    dispatcher.keep_lead()
    assert not dispatcher.rests(), "a task is there, though no hint came"
    assert cell.round().claimed == 1
    cell.end(cell.running)
    dispatcher.run_round()
    dispatcher.keep_lead()
    assert not dispatcher.rests(), "room is given ahead, which each round looks after"


class Hints:
    """Hears what the test says, and nothing else."""

    def __init__(self, *heard: set[str]) -> None:
        self.heard = list(heard)

    def wait(self, timeout: float) -> set[str]:
        return self.heard.pop(0)


def test_a_hint_ends_the_rest(cell: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0
    hints = Hints(set(), {"work"}, set(), set(), set())
    round_ = cell.dispatcher.run_round

    def counted() -> Any:
        nonlocal rounds
        rounds += 1
        return round_()

    monkeypatch.setattr(cell.dispatcher, "run_round", counted)
    monkeypatch.setattr(dispatching, "_rest", lambda _dispatcher, said, _pause_s: bool(said.wait(0.0)))
    run(cell.dispatcher, hints, lambda: not hints.heard, FAULTS)  # type: ignore[arg-type]  # of a listener its one method
    assert rounds == 2, "the first, and that of the hint"


class Clock:
    """Hints that come at given milliseconds of a clock of their own, and a dispatcher that is asked whether it wants room."""

    def __init__(self, *hints: tuple[int, set[str]], wanted_from: int = 10_000, going_on: bool = False) -> None:
        self.now = 0.0
        self.going_on = going_on
        self.hints = list(hints)
        self.wanted_from = wanted_from
        self.asked: list[int] = []

    def wait(self, timeout: float) -> set[str]:
        if self.hints and self.hints[0][0] / 1000 <= self.now + timeout:
            at, heard = self.hints.pop(0)
            self.now = max(self.now, at / 1000)
            return heard
        self.now += timeout
        return set()

    def goes_on(self) -> bool:
        return self.going_on

    def waits_for_room(self) -> bool:
        return True

    def listen(self, *, to_room: bool) -> bool:
        assert to_room
        return False

    def wants_room(self) -> bool:
        self.asked.append(round(self.now * 1000))
        return self.now * 1000 >= self.wanted_from


@pytest.mark.parametrize(
    ("clock", "asked", "heard", "over"),
    [
        (Clock(), [], False, 100),
        (Clock((1, {"room"})), [1], False, 100),
        (Clock((1, {"room"}), (2, {"room"}), (4, {"room"}), (30, {"room"})), [1, 6, 30], False, 100),
        (Clock((1, {"room"}), (3, {"room"}), wanted_from=3), [1, 6], True, 6),
        (Clock((1, {"room"}), (3, {"room"}), (4, {"work"})), [1], True, 4),
        (Clock((1, {"room", "work"})), [], True, 1),
        (Clock((1, {"room"}), wanted_from=0), [1], True, 1),
        (Clock((98, {"room"}), (99, {"room"})), [98], False, 100),
        (Clock((10, {"work"}), (20, {"work"}), going_on=True), [], True, 50),
        (Clock((60, {"work"}), (70, {"work"}), going_on=True), [], True, 60),
        (Clock((10, {"work"}), (20, {"room"}), wanted_from=0, going_on=True), [20], True, 20),
    ],
)
def test_news_of_room_that_nobody_waits_for_is_asked_about_together(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, asked: list[int], heard: bool, over: int
) -> None:
    monkeypatch.setattr("scheduler_ext.dispatch.dispatcher.time.monotonic", lambda: clock.now)
    found = dispatching._rest(cast("Any", clock), cast("Any", clock), 0.1)
    monkeypatch.undo()
    assert (clock.asked, found, round(clock.now * 1000)) == (asked, heard, over)
