"""A Celery task that was carried over keeps Celery's meaning: hooks, signals, request, limits and values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from celery import Celery, Task, current_task, signals
from celery._state import get_current_app
from celery.app import trace
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.states import Outcome, Repeats
from scheduler_ext.core.types import WorkKind
from scheduler_ext.core.work import Export, Started
from scheduler_ext.task import celery_json, celery_options, context, handlers, publishing
from scheduler_ext.worker.child import celery_run
from scheduler_ext.worker.child.handler_call import Bodies, End

app = Celery("test_celery_run", broker="memory://", set_as_current=False)
told: list[str] = []


class Hooked(Task):
    """Notes each call of a hook."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        told.append("call")
        return super().__call__(*args, **kwargs)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        told.append(f"before_start {task_id}")

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        told.append(f"on_success {retval}")
        raise RuntimeError("what a hook raises changes nothing")

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        told.append(f"on_failure {type(exc).__name__} {einfo.type.__name__}")

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        told.append(f"on_retry {type(exc).__name__}")

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        told.append(f"after_return {status}")


@app.task(bind=True, base=Hooked, name="run.hooked", max_retries=5)
def hooked(self: Any, how: str) -> Any:
    return ACTS[how](self)


@app.task(bind=True, name="run.bare")
def bare(self: Any, how: str) -> Any:
    return ACTS[how](self)


@app.task(name="run.values")
def values(*args: Any, **kwargs: Any) -> Any:
    seen.append((args, kwargs))
    return {"args": args, **kwargs}


def thrown(error: BaseException) -> Callable[[Any], Any]:
    def act(_: Any) -> Any:
        raise error

    return act


ACTS: dict[str, Callable[[Any], Any]] = {
    "well": lambda self: "well",
    "fails": thrown(ValueError("no")),
    "again": lambda self: self.retry(exc=OSError("away"), countdown=7),
    "ignored": thrown(Ignore()),
    "rejected": thrown(Reject("no", requeue=True)),
    "unwritable": lambda self: object(),
    "interrupted": thrown(context.TaskInterrupted()),
    "becomes": lambda self: self.replace(bare.s("well")),
    "request": lambda self: [
        self.request.hostname, self.request.correlation_id, self.request.headers, list(self.request.timelimit),
        self.request.delivery_info["routing_key"], current_task.name,
    ],
}  # fmt: skip
seen: list[Any] = []


class Ledger:
    """What a handler may ask of the ledger here."""

    def is_handler(self, name: str) -> bool:
        return False

    def parents(self, task_id: str) -> dict[str, Any]:
        return {"before": {"at": {"__type__": "datetime", "__value__": "2026-11-23T07:00:00+00:00"}}}


LEDGER: Any = Ledger()


@pytest.fixture(autouse=True)
def exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """These handlers and no others, for the time of a test."""
    monkeypatch.setattr(handlers, "_exports", {})
    monkeypatch.setitem(vars(app), "send_task", app.send_task)
    publishing.install(app, LEDGER)
    told.clear()
    seen.clear()
    for task in (hooked, bare, values):
        handlers.export(task)


@pytest.fixture
def listeners() -> Iterator[None]:
    """Receivers of all signals of a run."""

    def receiver(name: str) -> Any:
        def note(**given: Any) -> None:
            told.append(f"{name} {given.get('state') or ''}".strip())

        return note

    connected = [
        (getattr(signals, f"task_{name}"), receiver(name))
        for name in ("prerun", "postrun", "success", "failure", "retry", "revoked")
    ]
    for signal, note in connected:
        signal.connect(note, weak=False)
    yield
    for signal, note in connected:
        signal.disconnect(note)


def run(name: str, *args: Any, bodies: Any = None, **kwargs: Any) -> End:
    started = Started("t1", 1, 1, name, "", "", list(args), kwargs, 5000, 1, "", None)
    return (bodies or Bodies(app, 10_000, "w1@here")).run(started, LEDGER)


def test_hooks_and_signals_come_in_celerys_order(listeners: None) -> None:
    begin = ["prerun", "before_start t1", "call"]
    expected = {
        "well": (Outcome.SUCCEEDED, ["on_success well", "success", "after_return SUCCESS", "postrun SUCCESS"]),
        "fails": (
            Outcome.FAILED,
            ["on_failure ValueError ValueError", "failure", "after_return FAILURE", "postrun FAILURE"],
        ),
        "again": (Outcome.RETRY, ["on_retry OSError", "retry", "postrun RETRY"]),
        "ignored": (Outcome.SUCCEEDED, ["postrun IGNORED"]),
        "rejected": (Outcome.RETRY, ["postrun REJECTED"]),
        "unwritable": (
            Outcome.FAILED,
            ["on_failure EncodeError EncodeError", "failure", "after_return FAILURE", "postrun FAILURE"],
        ),
        "becomes": (Outcome.SUCCEEDED, ["postrun IGNORED", "prerun", "success", "postrun SUCCESS"]),
    }
    for how, (outcome, end) in expected.items():
        told.clear()
        assert run("run.hooked", how).outcome is outcome, how
        assert told == [*begin, *end], how


@pytest.mark.parametrize(("why", "end"), [
    (Outcome.CAP_EXCEEDED, ["on_failure TimeLimitExceeded TimeLimitExceeded", "failure", "after_return FAILURE"]),
    (Outcome.CANCELLED, ["revoked"]), (Outcome.PREEMPTED, []),
])  # fmt: skip
def test_an_interrupted_run_is_told_as_what_ended_it(listeners: None, why: Outcome, end: list[str]) -> None:
    bodies = Bodies(app, 10_000)

    def interrupt(_: Any) -> None:
        bodies.interrupt = why
        raise context.TaskInterrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ACTS, "interrupted", interrupt)
        assert run("run.hooked", "interrupted", bodies=bodies).outcome is why
    assert told[3:-1] == end


def nothing(**_: Any) -> None:
    """A receiver, and a task."""


def test_a_run_that_nobody_listens_to_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celery_run, "Told", lambda *_: pytest.fail("it was told"))
    for signal in celery_run.SIGNALS:
        monkeypatch.setattr(signal, "receivers", [])  # another test's module may listen to its own tasks
    assert run("run.bare", "well").outcome is Outcome.SUCCEEDED
    bodies = Bodies(app, 10_000)
    signals.task_postrun.connect(nothing, weak=False)
    try:
        assert not bodies._listened
        bodies.look()
        assert bodies._listened
    finally:
        signals.task_postrun.disconnect(nothing)


def test_the_request_is_filled() -> None:
    found = json.loads(run("run.bare", "request", **{celery_json.CALL: {"headers": {"who": "ann"}}}).result or "")
    assert found == ["w1@here", "t1", {"who": "ann"}, [5.0, None], "run.bare", "run.bare"]
    now: Any = current_task
    assert now._get_current_object() is None, "nothing is left of it"


def test_values_of_celerys_json_go_round() -> None:
    plain = {
        "at": datetime(2026, 11, 23, 7, tzinfo=UTC), "on": date(2026, 11, 23), "when": time(7, 30), "sum": Decimal("1.10"),
        "id": UUID(int=7), "raw": b"\xff", "text": "x",
    }  # fmt: skip
    written = json.loads(celery_json.dumps({**plain, "set": {1}}))
    end = run("run.values", [written["at"]], **written, **{celery_json.CALL: {celery_json.TYPED: True}})
    assert seen == [(([plain["at"]],), {**plain, "set": [1]})]
    assert celery_json.revived(json.loads(end.result or "")) == {"args": [[plain["at"]]], **plain, "set": [1]}
    run("run.values", written["at"])
    assert seen[-1] == ((written["at"],), {}), "what only looks like it, and is not marked, stays"
    run("run.values", {"$from": "before", "path": "at"})
    assert seen[-1] == ((datetime(2026, 11, 23, 7, tzinfo=UTC),), {}), "a parent's result comes as it was"
    assert celery_json.revived({"__type__": "datetime", "__value__": "x"})["__value__"] == "x"


def test_a_soft_limit_is_told_once_its_time_has_come() -> None:
    limit = celery_run.SoftLimit()
    limit.remind()
    limit.set(1e-9)
    with pytest.raises(SoftTimeLimitExceeded):
        limit.remind()
    limit.remind()


def test_the_terms_of_a_task_are_those_of_its_class() -> None:
    def terms(**options: Any) -> celery_options.Terms:
        app.tasks.pop("run.terms", None)
        return celery_options.terms_of(app.task(shared=False, name="run.terms", **options)(nothing))

    assert terms() == celery_options.Terms(defaults={"total_attempts": 4})
    given = {
        "max_retries": None, "time_limit": 30, "soft_time_limit": 20, "acks_late": True, "rate_limit": "1.5/m",
    }  # fmt: skip
    found = terms(**given)
    assert dict(found.defaults) == {"total_attempts": 100, "execution_cap_s": 30.0}
    assert (found.repeats, found.rate) == (Repeats.LOST, (1, 40))
    assert terms(retry_kwargs={"max_retries": 9}).defaults == {"total_attempts": 10}
    for wrong in (
        {"max_retries": 100}, {"rate_limit": "many"}, {"time_limit": 1, "soft_time_limit": 2}, {"Request": "my:Own"},
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=r"run\.terms cannot be carried over") as refused:
            terms(**wrong)
        assert refused.value.field in wrong
    slow = app.task(shared=False, name="run.slow", soft_time_limit=1)(nothing)
    with pytest.raises(ConfigurationError, match="a process of its own"):
        handlers.export(slow, kind=WorkKind.THREAD)


def test_a_priority_keeps_its_order() -> None:
    assert celery_options.priority(9, app) == 9
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(app.conf, "broker_url", "redis://localhost")
        assert [celery_options.priority(n, app) for n in (0, 9, 200)] == [9, 0, 0]


def test_what_a_worker_does_to_celerys_own_call_is_no_hook() -> None:
    """Its optimizations replace ``Task.__call__`` for all: a plain task stays on the quick way."""
    current = get_current_app()
    trace.setup_worker_optimizations(app)
    try:
        plain, own = (celery_run.Handler(task, Export(name=task.name, task=task.name)) for task in (bare, hooked))
    finally:
        trace.reset_worker_optimizations(app)
        current.set_current()
        current.set_default()
    assert (plain.hooked, plain.call) == (False, bare.run)
    assert (own.hooked, own.call) == (True, hooked)
