"""Canvases as they run: a task that goes on as one ends with its result, and errbacks are told what has failed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from celery import chain, chord, current_task, group, shared_task
from celery.exceptions import ChordError, TaskRevokedError
from celery.result import result_from_tuple

from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.task import handlers
from scheduler_ext.task.results import LedgerBackend
from slackwater import export
from slackwater.celery import app
from slackwater.testing.inbox import Inbox
from slackwater.testing.plugin import slackwater_inbox

__all__ = ["slackwater_inbox"]
pytestmark = pytest.mark.django_db
told: list[tuple[Any, ...]] = []


@shared_task(name="canvas.add")
def add(x: int, y: int) -> int:
    """The sum."""
    return x + y


@shared_task(name="canvas.total")
def total(values: list[int]) -> int:
    """The sum of a list."""
    return sum(values)


@shared_task(name="canvas.fail")
def fail(*args: Any) -> None:
    """Fail."""
    raise LookupError(f"no {len(args)}")


@shared_task(name="canvas.becomes", bind=True, acks_late=True)
def becomes(self: Any, how: str, *, left: int = 0) -> None:
    """Go on as a canvas."""
    pair: Any = group(add.s(1, 2), add.s(3, 4))
    self.replace({
        "chain": lambda: chain(add.s(1, 2), add.s(10)), "group": lambda: pair, "chord": lambda: chord(pair, total.s()),
        "last group": lambda: chain(add.s(1, 1), group(add.s(1), add.s(2))), "fails": lambda: chain(fail.si(), add.s(1)),
        "again": lambda: chain(becomes.si("chord"), add.s(5)), "ordinary": lambda: chain(add.s(1, 2), ordinary.s()),
    }[how]())  # fmt: skip


@shared_task(name="canvas.ordinary")
def ordinary(value: int) -> None:
    """No handler."""


@shared_task(name="canvas.old")
def old_errback(task_id: str) -> None:
    """Be told as Celery 3 did."""
    told.append(("old", task_id))


@shared_task(name="canvas.new")
def new_errback(request: Any, error: BaseException, trace: str, mark: str = "") -> None:
    """Be told as Celery does now."""
    assert current_task.request.id != request.id
    told.append(("new", request.id, request.task, request.args, type(error), str(error), "Traceback" in trace, mark))


@shared_task(name="canvas.own")
def own(mark: str) -> None:
    """Be told nothing."""
    told.append(("own", mark))


@shared_task(name="canvas.each", bind=True, max_retries=2)
def each(self: Any, items: list[str]) -> int:
    """Ask to be run again for each that does not go, as a mailer does for its letters."""
    for item in items:
        told.append((item, self.request.retries, self.request.headers))
        if item.startswith("bad") and self.request.retries < 2:
            self.retry([[item]], exc=OSError(item), throw=False, countdown=1)
    return len(items)


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Inbox:
    """An inbox with these tasks as handlers, for this test alone."""
    monkeypatch.setattr(handlers, "_exports", dict(handlers.exported()))
    for task in (add, total, fail, becomes, each, old_errback, new_errback, own):
        export(app.tasks[task.name])
    told.clear()
    found: Inbox = request.getfixturevalue("slackwater_inbox")
    return found


def test_a_task_goes_on_as_a_canvas_and_ends_with_its_result(inbox: Inbox) -> None:
    results = {"chain": 13, "group": [3, 7], "chord": 10, "last group": [3, 4], "again": 15}
    given = {how: becomes.delay(how) for how in results}
    after = chain(becomes.s("group"), total.s()).delay()
    runs = inbox.run_until_idle()
    assert {how: one.result for how, one in given.items()} == results
    assert after.get(timeout=1) == 10, "what follows waits for the canvas"
    mine = [run for run in runs if str(run.task_id) == given["chord"].id]
    assert [(run.attempt, run.outcome) for run in mine] == [(1, Outcome.YIELDED), (1, Outcome.SUCCEEDED)], "none spent"
    children: Any = given["chain"].children
    assert len(children) == 2
    assert {task.state for task in inbox.submitted} == {TaskState.SUCCEEDED}


def test_who_goes_on_as_what_fails_has_failed(inbox: Inbox) -> None:
    failed, refused = becomes.delay("fails"), becomes.delay("ordinary")
    inbox.run_until_idle()
    with pytest.raises(LookupError, match=r"^no 0$"):
        failed.get(timeout=1)
    assert refused.state == "FAILURE"
    assert "canvas.ordinary" in str(refused.info)


@pytest.mark.parametrize("accident", ["lose_lease", "die_after_commit", "run_twice"])
def test_an_accident_as_it_goes_on_changes_nothing(inbox: Inbox, accident: str) -> None:
    given = becomes.delay("chord")
    getattr(inbox, accident)("canvas.becomes")
    inbox.run_until_idle()
    assert given.get(timeout=1) == 10
    ran = Counter(task.handler for task in inbox.submitted)
    assert ran == {"canvas.becomes": 1, "canvas.add": 2, "canvas.total": 1}


def test_errbacks_are_told_as_celery_tells_them(inbox: Inbox) -> None:
    bad = fail.apply_async((7,), link_error=[old_errback.s(), new_errback.s("m"), own.si("mine")])
    good = add.apply_async((1, 2), link_error=own.si("never"))
    steps: Any = chain(fail.si(1), add.s(2)).apply_async(link_error=new_errback.s("chain"))
    body: Any = total.s().on_error(new_errback.s("body"))
    chord([add.s(1, 2), fail.si(1, 2)])(body)
    inbox.run_until_idle()
    assert ("old", bad.id) in told
    assert ("new", bad.id, "canvas.fail", [7], LookupError, "no 1", True, "m") in told
    assert [one[-1] for one in told if one[0] == "own"] == ["mine"]
    marks = sorted(one[-1] for one in told if one[0] == "new")
    assert marks == ["body", "chain", "m"], "an earlier step and the header of a chord are heard of"
    assert (good.state, steps.state) == ("SUCCESS", "REVOKED")


def shape(given: Any) -> Any:
    """What ``as_tuple()`` says, without the ids."""
    (_, parent), members = given
    return parent and shape(parent), members and [shape(one) for one in members]


@pytest.mark.parametrize("make", [
    lambda: chain(add.s(1, 2), add.s(3), add.si(4, 5)),
    lambda: chain(add.s(1, 2), group(add.s(3), chain(add.s(4), add.s(5)))),
    lambda: chain(add.s(1, 2), group(add.s(3)), add.s(4)),
    lambda: chain(add.s(1, 2), group(add.s(3), add.s(4)), total.s(), add.s(5)),
    lambda: chord([chain(add.s(1, 2), add.s(3)), add.s(4, 5)], total.s()),
    lambda: chord([add.s(1, 2), add.s(3, 4)], chain(total.s(), add.s(1))),
    lambda: group(chain(add.s(1, 2), add.s(3)), add.s(4, 5)),
])  # fmt: skip
def test_results_of_canvases_have_celerys_parents(inbox: Inbox, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LedgerBackend, "ensure_chords_allowed", lambda _: None)  # for freeze(), which is Celery's own
    given = make().delay()
    assert shape(given.as_tuple()) == shape(make().freeze().as_tuple())
    inbox.run_until_idle()
    again: Any = result_from_tuple(given.as_tuple(), app=app)
    assert again.as_tuple() == given.as_tuple()
    assert again.get(timeout=1) == given.get(timeout=1)
    if given.parent is not None:
        assert again.parent.get(timeout=1) == given.parent.get(timeout=1)


def test_a_long_chain_has_all_its_parents(inbox: Inbox) -> None:
    given: Any = chain(add.s(0, 1), *(add.s(1) for _ in range(150))).delay()
    assert len(list(given._parents())) == 150
    inbox.run_until_idle()
    assert given.get(timeout=1) == 151


def test_who_forgets_a_result_takes_none_from_the_steps_that_need_it(inbox: Inbox) -> None:
    given: Any = chain(add.s(1, 2), add.s(3).set(countdown=60), add.s(4)).delay()
    inbox.run_until_idle(jump=False)
    assert given.parent.parent.result == 3
    given.forget()
    inbox.run_until_idle()
    assert given.get(timeout=1) == 10
    given.forget()
    assert (given.result, given.parent.get(timeout=1)) == (None, 6)


def test_what_cannot_come_raises_what_it_failed_for(inbox: Inbox) -> None:
    steps: Any = chain(fail.si(), add.si(1, 2), add.s(3)).delay()
    beside: Any = chain(fail.si(), group(add.si(1, 2), add.si(3, 4))).delay()
    gathered: Any = chord([add.s(1, 2), chain(add.s(1, 2), fail.si(), add.s(3))], total.s()).delay()
    behind: Any = chain(group(add.s(1, 2), fail.si()), total.s(), add.s(1)).delay()
    revoked: Any = chain(add.si(1, 2), add.s(3)).delay()
    revoked.parent.revoke()
    inbox.run_until_idle()
    for given in (steps, beside, result_from_tuple(steps.as_tuple(), app=app)):
        with pytest.raises(LookupError, match=r"^no 0$"):
            given.get(timeout=1)
    for given in (gathered, behind):
        with pytest.raises(ChordError, match=r"^Dependency [-0-9a-f]{36} raised LookupError\('no 0'\)$"):
            given.get(timeout=1)
    assert (steps.state, steps.parent.state, steps.parent.parent.state) == ("REVOKED", "REVOKED", "FAILURE")
    assert isinstance(steps.get(timeout=1, propagate=False), TaskRevokedError)
    with pytest.raises(TaskRevokedError, match="what it needed did not come"):
        app.AsyncResult(steps.id, parent=steps.parent).get(timeout=1, follow_parents=False)
    with pytest.raises(TaskRevokedError, match="cancelled"):
        revoked.get(timeout=1)


def test_each_retry_of_one_run_with_arguments_of_its_own_is_run(inbox: Inbox) -> None:
    """Celery sends a message for each; of one attempt's next there is one, so the others are tasks of their own."""
    each.apply_async((["good", "bad 1", "bad 2", "bad 3"],), headers={"by": "ann"})
    inbox.run_until_idle()
    runs = Counter(item for item, _, _ in told)
    assert runs == {"good": 1, "bad 1": 3, "bad 2": 3, "bad 3": 3}, "as often as Celery would"
    assert {headers["by"] for _, _, headers in told} == {"ann"}
    assert [task.state for task in inbox.submitted] == [TaskState.SUCCEEDED] * 3
