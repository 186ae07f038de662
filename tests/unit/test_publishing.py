"""An application with an installation publishes no message for a handler, by whichever way of Celery's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery._state import get_current_app
from celery.exceptions import Retry

from scheduler_ext.core.errors import ConfigurationError, InvalidInput
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import NEVER_AGAIN, Started
from scheduler_ext.task import handlers, publishing
from scheduler_ext.task.in_flight import GOES_ON
from scheduler_ext.task.steps import Step, Stored
from scheduler_ext.worker.child.handler_call import Bodies, End
from scheduler_ext.worker.consumer import OpenConsumer
from tests.support import calling

app = Celery("test_publishing", broker="memory://", set_as_current=False)
app.conf.task_ignore_result = True


@app.task(name="p.add")
def add(x: int, y: int) -> int:
    return x + y


@app.task(name="p.plain")
def plain(*args: Any) -> None:
    """No handler."""


@app.task(bind=True, name="p.act", max_retries=2)
def act(self: Any, /, how: str, **given: Any) -> Any:
    return ACTS[how](self, **given)


@app.task(bind=True, name="p.wide")
def wide(self: Any, /, how: str, **given: Any) -> Any:
    return ACTS[how](self, **given)


def swallowed(self: Any) -> str:
    try:
        self.retry(countdown=3)
    except Retry:
        return "well"
    return "not raised"


def fails(self: Any) -> None:
    raise ValueError("no")


ACTS: dict[str, Callable[..., Any]] = {
    "retry": lambda self: self.retry(countdown=3),
    "quiet": lambda self: self.retry(countdown=3, throw=False) and None,
    "swallowed": swallowed,
    "changed": lambda self: self.retry(countdown=3, kwargs={"how": "done"}),
    "late": lambda self: self.retry(countdown=3, expires=9),
    "done": lambda self: "done",
    "fails": fails,
    "exhausted": lambda self: self.retry(max_retries=0),
    "delay": lambda self: add.delay(1, 2).id,
    "replace": lambda self: self.replace(add.s(20, 22)),
    "replace_plain": lambda self: self.replace(plain.s()),
    "replace_group": lambda self: self.replace(group(add.s(1, 2), add.s(3, 4))),
    "replace_again": lambda self: self.replace(wide.s("retry")),
    "replace_changed": lambda self: self.replace(wide.s("changed")),
    "own_id": lambda self: add.apply_async((1, 2), task_id=self.request.id),
}


class Ledger:
    """Notes what is submitted."""

    def __init__(self) -> None:
        self.taken: list[tuple[Any, Any]] = []
        self.rewritten: list[Any] = []

    def is_handler(self, name: str) -> bool:
        """Another process has one that this process has not."""
        return name == "p.elsewhere"

    def submit(self, signature: Any, running: Any) -> Stored:
        """As many ids as a group has members."""
        self.taken.append((signature, running is not None))
        ids = [f"id{n}" for n in range(len(signature.tasks) if isinstance(signature, group) else 1)]
        steps = tuple(Step(one, None) for one in ids)
        return Stored(Step(ids, None, steps) if isinstance(signature, group) else steps[0], {one: one for one in ids})

    def parents(self, task_id: str) -> dict[str, Any]:
        """None."""
        return {}

    def look(self, task_id: str) -> None:
        """It has none."""

    def go_on_as(self, canvas: Any, running: Any) -> None:
        """Note the canvas."""
        assert running is not None
        self.taken.append((canvas, "goes on"))

    def release(self) -> None:
        """It holds nothing open."""

    def rewrite(self, task: Started, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Note new arguments."""
        self.rewritten.append((args, kwargs))


@pytest.fixture
def sent() -> list[str]:
    """Names of the messages that were published."""
    return []


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> Iterator[Ledger]:
    """The application with an installation, for the time of a test."""
    monkeypatch.setattr(handlers, "_exports", {})
    for task in (add, act, wide):
        handlers.export(task)

    def send(name: str, *_: Any, **__: Any) -> Any:
        sent.append(name)
        return app.AsyncResult("message")

    monkeypatch.setitem(vars(app), "send_task", send)
    monkeypatch.setattr(publishing, "_home", None)
    made = Ledger()
    given: Any = made
    publishing.install(app, given)
    yield made
    assert not publishing.retries, "nothing is remembered of a run that has ended"


def run(ledger: Any, how: str, attempt: int = 1, task: str = "p.act") -> End:
    started = Started("t1", 1, 1, task, "", "", [], {"how": how}, 1000, attempt, "", None)
    bodies = Bodies(app, 10_000)
    ends = [bodies.run(started, ledger), bodies.run_in_thread(started, ledger)]
    assert ends[0].outcome is ends[1].outcome
    return ends[0]


@pytest.mark.parametrize("how", ["retry", "quiet", "swallowed", "replace_again"])
def test_a_retry_is_the_outcome_of_its_attempt(ledger: Ledger, sent: list[str], how: str) -> None:
    end = run(ledger, how)
    assert (end.outcome, end.retry_in_s) == (Outcome.RETRY, 3.0)
    assert not sent
    assert not ledger.taken
    assert not ledger.rewritten


def test_a_retry_may_change_its_arguments(ledger: Ledger) -> None:
    assert run(ledger, "changed").outcome is Outcome.RETRY
    assert ledger.rewritten == [([], {"how": "done"})] * 2
    end = run(ledger, "replace_changed")
    assert end.outcome is Outcome.FAILED
    assert "its retry cannot change its arguments" in (end.error or "")


@pytest.mark.parametrize(("how", "why"), [("late", "expires"), ("own_id", "the id of the running task")])
def test_what_cannot_be_kept_fails_the_attempt(ledger: Ledger, sent: list[str], how: str, why: str) -> None:
    end = run(ledger, how)
    assert end.outcome is Outcome.FAILED
    assert why in (end.error or "")
    assert not sent


@pytest.mark.parametrize(("how", "attempt", "task", "last"), [
    ("fails", 1, "p.act", False), ("fails", 2, "p.act", False), ("fails", 3, "p.act", True),
    ("retry", 3, "p.act", True), ("exhausted", 1, "p.act", True), ("fails", 9, "p.wide", False),
])  # fmt: skip
def test_a_task_is_tried_as_often_as_it_says(ledger: Ledger, how: str, attempt: int, task: str, *, last: bool) -> None:
    end = run(ledger, how, attempt, task)
    assert end.outcome is Outcome.FAILED
    assert (end.retry_in_s == NEVER_AGAIN) is last


def test_a_replacement_runs_in_place(ledger: Ledger, sent: list[str]) -> None:
    assert json.loads(run(ledger, "replace").result or "") == 42
    assert run(ledger, "replace_plain").outcome is Outcome.SUCCEEDED
    assert not ledger.taken
    assert run(ledger, "replace_group").outcome is Outcome.YIELDED, "it waits for the canvas it goes on as"
    assert [kind for _, kind in ledger.taken] == ["goes on"] * 2
    assert not sent


def test_what_a_handler_calls_is_handed_in(ledger: Ledger, sent: list[str]) -> None:
    assert json.loads(run(ledger, "delay").result or "") == "id0"
    assert [inside for _, inside in ledger.taken] == [True, True]
    assert not sent


@pytest.mark.parametrize("publish", [
    lambda: add.delay(1, 2), lambda: add.s(1, 2).delay(), lambda: app.send_task("p.elsewhere"),
    lambda: chain(add.s(1, 2), add.s(3)).delay(), lambda: chain(add.s(1, 2), add.s(3)).apply_async(link=add.s(4)),
    lambda: chord([add.s(1, 2)])(add.si(1, 2)),
    lambda: group([plain.s(), chain(plain.s(), add.s(1))]).delay(),
])  # fmt: skip
def test_a_handler_is_never_published(ledger: Ledger, sent: list[str], publish: Callable[[], Any]) -> None:
    publish()
    assert len(ledger.taken) == 1
    assert not sent


def test_the_refusal_of_a_map_says_what_to_write(ledger: Ledger, sent: list[str]) -> None:
    for made in (add.map([1]), add.starmap([(1, 2)])):
        with pytest.raises(InvalidInput, match=r"starmap and chunks of p\.add cannot be stored; write a group"):
            made.delay()
    assert not sent


@pytest.mark.parametrize("publish", [
    lambda: plain.apply_async(link=add.s(1)), lambda: plain.apply_async(link_error=[add.s(1)]),
    lambda: add.map([(1, 2)]).delay(), lambda: group(add.s(1, 2)).apply_async(link=add.s(4)),
    lambda: add.apply_async((1, 2), task_id="mine"), lambda: app.send_task("p.add", (1, 2), group_id="g"),
    lambda: app.send_task("p.plain", chain=[add.s(1)]), lambda: group(add.s(1)).apply_async((2,)),
    lambda: group(add.s(1, 2)).apply_async(slackwater={"tier": "basic"}),
])  # fmt: skip
def test_what_would_run_it_beside_the_ledger_is_refused(
    ledger: Ledger, sent: list[str], publish: Callable[[], Any]
) -> None:
    with pytest.raises(InvalidInput):
        publish()
    assert not sent
    assert not ledger.taken


@pytest.mark.parametrize(
    ("option", "wrong"), [("countdown", "soon"), ("eta", 5), ("expires", "never"), ("priority", -1)]
)
def test_a_wrong_option_is_named_as_the_call_names_it(ledger: Ledger, option: str, wrong: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        add.apply_async((1, 2), **{option: wrong})
    assert refused.value.field == option
    assert repr(wrong) in refused.value.message
    assert not ledger.taken


def test_other_tasks_go_where_they_went(ledger: Ledger, sent: list[str]) -> None:
    plain.delay()
    app.send_task("p.unknown")
    group(plain.s(), plain.s()).delay()
    assert sent == ["p.plain", "p.unknown", "p.plain", "p.plain"]
    assert not ledger.taken


@app.task(name="p.declared.early", acks_late=True)
def declared() -> None:
    """A handler by its name alone."""


@app.task(name="p.declared.never", max_retries=500)
def impossible() -> None:
    """What cannot be carried over."""


def test_a_pattern_makes_a_task_durable(ledger: Ledger, sent: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_patterns", [])
    declared.delay()
    handlers.declare(["p.declared.*", "celery.*"])
    declared.delay()
    app.send_task("p.declared.elsewhere")
    app.send_task("celery.chunks")
    assert sent == ["p.declared.early", "celery.chunks"]
    assert [signature.task for signature, _ in ledger.taken] == ["p.declared.early", "p.declared.elsewhere"]
    export = handlers.of_task("p.declared.early")
    assert export is not None
    assert export.idempotent, "acks_late says so"
    with pytest.raises(ConfigurationError, match=r"p\.declared\.never cannot be carried over: max_retries"):
        handlers.export_declared(app)


def test_each_step_of_a_canvas_is_exported(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_patterns", ["p.declared.*"])
    chain(add.s(1, 2), declared.si()).delay()
    assert handlers.find("p.declared.early") is not None, "the ledger is to know what it declares"


@pytest.mark.parametrize(("embed", "headers", "taken"), [
    ({}, {"id": "m1", "eta": "2026-11-23T08:00:00+00:00"}, True), ({"callbacks": None, "chain": None}, {"id": "m1"}, True),
    ({"chord": {"task": "p.add"}}, {"id": "m1"}, False), ({}, {"id": "m1", "group": "g"}, False),
    ({}, {"id": "m1", GOES_ON: True}, False),
])  # fmt: skip
def test_a_message_from_before_is_submitted(
    ledger: Ledger, embed: dict[str, Any], headers: dict[str, Any], *, taken: bool
) -> None:
    told: list[str] = []
    message: Any = SimpleNamespace(
        payload=((1, 2), {}, embed), headers=headers, ack_log_error=lambda *_: told.append("ack"),
    )  # fmt: skip
    consumer: Any = SimpleNamespace(app=app, connection_errors=(), timer=None)
    OpenConsumer.take_over(consumer, "p.add", lambda *_: told.append("as before"), message, None)
    assert told == (["ack"] if taken else ["as before"])
    assert len(ledger.taken) == taken
    if taken:
        own = ledger.taken[0][0].options
        assert own["slackwater"] == {"idempotency_key": "celery:message:m1"}
        assert own.get("eta") == headers.get("eta")


@app.task(name="p.often", autoretry_for=(OSError,), retry_kwargs={"max_retries": 10})
def often() -> None:
    """What Celery repeats by itself."""


@pytest.mark.parametrize(("headers", "told", "attempts"), [
    ({"retries": 4}, "ack", 7), ({"retries": "2"}, "ack", 9), ({"retries": "x"}, "rejected", None),
    ({"timelimit": 30}, "rejected", None),
])  # fmt: skip
def test_a_message_from_before_keeps_its_retries_or_is_refused(
    ledger: Ledger, headers: dict[str, Any], told: str, attempts: int | None
) -> None:
    found: list[str] = []
    message: Any = SimpleNamespace(
        payload=((), {}, {}), headers={"id": "m1", **headers}, ack_log_error=lambda *_: found.append("ack"),
        reject_log_error=lambda *_: found.append("rejected"),
    )  # fmt: skip
    consumer: Any = SimpleNamespace(app=app, connection_errors=(), timer=None)
    OpenConsumer.take_over(consumer, "p.often", None, message, None)
    assert found == [told]
    assert [signature.options["slackwater"].get("total_attempts") for signature, _ in ledger.taken] == [attempts] * (
        told == "ack"
    )


def test_applications_without_an_installation_are_left_alone(ledger: Ledger) -> None:
    other = Celery("other", broker="memory://", set_as_current=False)
    other.conf.task_ignore_result = True
    task: Any = other.task(name="p.add", shared=False, typing=False)(fails)
    assert task.delay(1, 2).id != "id0"
    group(task.s(1, 2)).delay()
    assert not ledger.taken


def test_another_current_application_publishes_nothing_durable(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers.export(calling.add)
    handlers.export(calling.again)
    usual = get_current_app()
    other = Celery("second", broker="memory://")  # what is made last is current
    try:
        published: list[str] = []
        monkeypatch.setattr(other.amqp, "send_task_message", lambda _, name, *__, **___: published.append(name))
        one: Any = calling.add
        assert one.app is other
        result = one.delay(1, 2)
        assert (result.id, result.app) == ("id0", app)
        calling.again.apply_async(("folder", "line"), countdown=3)
        group(one.s(1, 2), one.s(3, 4)).delay()
        chain(one.s(1, 2), one.s(3)).delay()
        other.send_task("calls.add", (1, 2))
        assert [inside for _, inside in ledger.taken] == [False] * 5
        calling.plain.delay("folder", "line")
        monkeypatch.setattr(handlers, "_patterns", ["far.*"])
        Celery("third", broker="memory://", set_as_current=False).send_task("far.away")
        assert published == ["calls.plain"]
        assert len(ledger.taken) == 6
    finally:
        usual.set_current()
