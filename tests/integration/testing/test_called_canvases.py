"""What a canvas is called with, and canvases that hold no task or one that is not durable: as Celery has them, or refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import chain, chord, group, shared_task

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.task import handlers
from slackwater import export
from slackwater.celery import app
from slackwater.testing.inbox import Inbox
from slackwater.testing.plugin import slackwater_inbox
from slackwater_tasks.models import Task

__all__ = ["slackwater_inbox"]
pytestmark = pytest.mark.django_db


@shared_task(name="called.one")
def one(*values: Any) -> Any:
    """The last that was given."""
    return values[-1]


@shared_task(name="called.body")
def body(*values: Any) -> Any:
    """All that was given."""
    return list(values)


@shared_task(name="called.ordinary")
def ordinary(*_: Any) -> None:
    """No handler."""


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Inbox:
    """An inbox with these tasks as handlers, for this test alone."""
    monkeypatch.setattr(handlers, "_exports", dict(handlers.exported()))
    for task in (one, body):
        export(app.tasks[task.name])
    found: Inbox = request.getfixturevalue("slackwater_inbox")
    return found


def with_options() -> dict[str, tuple[bool, bool, bool]]:
    """Whether each task starts later, expires, and has another priority, by the argument it was given."""
    rows = Task.objects.unscoped().order_by("pk")  # whoever's they are
    return {row.args[-1]: (row.start_at is not None, row.expires_at is not None, row.priority != 0) for row in rows}


ALL, LATER, NONE = (True, True, True), (False, True, True), (False, False, False)


@pytest.mark.parametrize(("make", "expected"), [
    (lambda: chain(one.s("a"), one.s("b")), {"a": ALL, "b": NONE}),
    (lambda: chain(chain(one.s("a"), one.s("b")), one.s("c")), {"a": ALL, "b": NONE, "c": NONE}),
    (lambda: group(one.s("a"), chain(one.s("b"), one.s("c"))), {"a": ALL, "b": ALL, "c": NONE}),
    (lambda: chord([one.s("a"), one.s("b")], body.s("c")), {"a": ALL, "b": ALL, "c": LATER}),
    (lambda: chord([one.s("a")], chain(body.s("b"), one.s("c"))), {"a": ALL, "b": LATER, "c": NONE}),
    (lambda: chain(group(one.s("a"), one.s("b")), body.s("c"), one.s("d")), {"a": ALL, "b": ALL, "c": LATER, "d": NONE}),
    (lambda: chain(one.s("a"), group(one.s("b"), one.s("c"))), {"a": ALL, "b": NONE, "c": NONE}),
])  # fmt: skip
@pytest.mark.parametrize("said", ["by the call", "of the canvas"])
def test_the_options_of_a_canvas_reach_the_tasks_that_celery_gives_them(
    inbox: Inbox, make: Any, expected: dict[str, Any], said: str
) -> None:
    options = {"countdown": 60, "expires": 600, "priority": 3}
    canvas, before = make(), make()
    if said == "by the call":
        canvas.apply_async(**options)
    else:
        canvas.set(**options).delay()
    assert with_options() == expected
    if said == "by the call":
        assert canvas == before, "the canvas may be called again"
    inbox.run_until_idle()


def test_what_a_canvas_is_called_with_goes_before_what_its_signatures_say(inbox: Inbox) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    first: Any = one.s("a")
    chain(first.set(eta=due + timedelta(hours=5), priority=2), one.s("b")).apply_async(eta=due, time_limit=7)
    row = Task.objects.unscoped().order_by("pk")[0]  # whoever's it is
    assert (row.start_at, row.cap_ms) == (due, 7_000)
    assert row.priority


@pytest.mark.parametrize(("option", "value"), [
    ("countdown", "soon"), ("eta", 5), ("expires", "never"), ("priority", -1), ("colour", "red"), ("task_id", "mine"),
    ("slackwater", {"tier": "basic"}), ("interval", 1),
])  # fmt: skip
@pytest.mark.parametrize("make", [
    lambda: chain(one.s("a"), one.s("b")), lambda: group(one.s("a")), lambda: chord([one.s("a")], body.s()),
])  # fmt: skip
def test_what_a_canvas_cannot_be_called_with_is_refused_by_its_name(
    inbox: Inbox, make: Any, option: str, value: Any
) -> None:
    with pytest.raises(InvalidInput) as refused:
        make().apply_async(**{option: value})
    assert refused.value.field == option
    inbox.assert_nothing_submitted()


@pytest.mark.parametrize(("make", "result", "tasks"), [
    (lambda: chord([])(body.s(1)), [[], 1], 1),
    (lambda: chord([], body.s(1)).delay(), [[], 1], 1),
    (lambda: chord([])(body.si(1)), [1], 1),
    (lambda: chord([group([])])(chain(body.s(1), body.s())), [[[], 1]], 2),
    (lambda: chord([one.s(1), group([])], body.s()).delay(), [[1]], 2),
    (lambda: chain(group([]) | body.s(1), one.s()).delay(), [[], 1], 2),
    (lambda: chain(group([]), body.s(1)).delay(), [1], 1),
    (lambda: chain(one.s(1), chord([], body.s(2))).delay(), [[], 2], 2),
    (lambda: chain(one.s(1), group([]), body.s(2)).delay(), [1, 2], 2),
])  # fmt: skip
def test_what_holds_no_task_is_as_in_celery(inbox: Inbox, make: Any, result: Any, tasks: int) -> None:
    """The body of a chord with an empty header is called with an empty list; elsewhere what is empty is left out."""
    given = make()
    inbox.run_until_idle()
    assert given.get(timeout=1) == result
    assert len(inbox.submitted) == tasks


def test_the_body_of_an_empty_chord_waits_for_what_the_chord_follows(inbox: Inbox) -> None:
    first: Any = one.s(1)
    given: Any = chain(first.set(countdown=60), chord([], body.s(2))).delay()
    inbox.run_until_idle(jump=False)
    assert given.state == "PENDING"
    inbox.run_until_idle()
    assert given.get(timeout=1) == [[], 2]
    assert given.parent.results == []


def test_an_empty_group_has_an_empty_result(inbox: Inbox) -> None:
    given: Any = group([]).delay()
    bodies: Any = chord([])(body.s())
    assert (given.results, bodies.parent.results) == ([], [])
    assert chord([])(body.s(), countdown=60).state == "PENDING"
    assert [run.handler for run in inbox.run_until_idle(jump=False)] == ["called.body"]


@pytest.mark.parametrize("call", [
    lambda: chain(one.s(1), ordinary.s()).delay(), lambda: group(ordinary.s(), one.s(1)).delay(),
    lambda: chord([one.s(1)])(ordinary.s()), lambda: one.apply_async((1,), link=ordinary.s()),
    lambda: one.apply_async((1,), link_error=ordinary.s()),
])  # fmt: skip
def test_who_mixes_in_a_task_that_is_not_durable_is_told_which_and_what_to_do(inbox: Inbox, call: Any) -> None:
    with pytest.raises(InvalidInput, match=r"called\.ordinary is not durable, .*: name it in DURABLE") as refused:
        call()
    assert refused.value.field == "canvas"
    inbox.assert_nothing_submitted()
