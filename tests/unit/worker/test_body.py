"""A handler is called as Celery would call it, whatever ran before it in the same child."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from celery import Celery

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Started
from scheduler_ext.task import context, handlers, network_ports
from scheduler_ext.worker.child.handler_call import Bodies, End

app = Celery("test_body", broker="memory://", set_as_current=False)
seen: list[Any] = []
ORDERS: dict[str, int] = {}


@app.task(bind=True, name="body.about")
def about(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    request = self.request
    found = {
        "id": request.id, "retries": request.retries, "args": request.args, "kwargs": request.kwargs,
        "direct": request.called_directly, "root": request.root_id, "mark": getattr(request, "mark", None),
    }  # fmt: skip
    request.mark = "left by the run before"
    return found


@app.task(bind=True, name="body.again", max_retries=5)
def again(self: Any) -> None:
    raise self.retry(countdown=7)


@app.task(bind=True, name="body.outer")
def outer(self: Any, *, deeper: bool = True) -> list[Any]:
    self.request.mark = "outer" if deeper else "inner"
    inner = self(deeper=False) if deeper else []
    return [*inner, self.request.id, self.request.mark]


@app.task(name="body.nothing")
def nothing() -> None:
    seen.append(context.current().task_id)


@app.task(name="body.serving")
def serving() -> list[int]:
    return list(context.current().ports)


@app.task(name="body.fails")
def fails(*, chained: bool = False) -> None:
    try:
        ORDERS["order"]
    except LookupError as error:
        if chained:
            raise ValueError("no order") from error
        raise


@app.task(name="body.afails")
async def afails() -> None:
    raise LookupError("no such order")


@app.task(name="body.yields")
def yields() -> Iterator[int]:
    yield from (ORDERS["order"] for _ in range(1))


@pytest.fixture(autouse=True)
def exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """These handlers and no others, for the time of a test."""
    monkeypatch.setattr(handlers, "_exports", {})
    seen.clear()
    for task in (about, again, outer, nothing, serving, fails, afails, yields):
        handlers.export(task)


class Ledger:
    """What a handler may ask of the ledger here."""

    def upstream(self, task_id: str) -> dict[str, Any]:
        """It has no parents."""
        return {}

    parents = upstream

    def backend(self, task: Started) -> Ledger:
        """What a handler may ask beyond its own row is asked of the same."""
        return self

    def ports(self) -> int:
        """How many its tier has."""
        return 2


LEDGER: Any = Ledger()


def started(name: str, task_id: str = "t1", attempt: int = 1, args: Sequence[Any] = (), **kwargs: Any) -> Started:
    return Started(task_id, 1, 1, name, "", "", list(args), kwargs, 1000, attempt, "", None)


def run(bodies: Bodies, task: Started) -> End:
    return bodies.run(task, LEDGER)


def value(end: End) -> Any:
    assert end.outcome is Outcome.SUCCEEDED, end
    return json.loads(end.result or "null")


def test_each_run_has_a_request_of_its_own() -> None:
    bodies = Bodies(app, 10_000)
    first = value(run(bodies, started("body.about", "t1", 1, [1], key="v")))
    then = value(run(bodies, started("body.about", "t2", 3)))
    same = {"direct": False, "mark": None}
    assert first == {"id": "t1", "retries": 0, "args": [1], "kwargs": {"key": "v"}, "root": "t1", **same}
    assert then == {"id": "t2", "retries": 2, "args": [], "kwargs": {}, "root": "t2", **same}


def test_nothing_of_a_request_is_left_afterwards() -> None:
    bodies = Bodies(app, 10_000)
    run(bodies, started("body.about", "t1"))
    assert app.tasks["body.about"].request.id is None


def test_a_call_inside_a_task_leaves_its_request_alone() -> None:
    assert value(run(Bodies(app, 10_000), started("body.outer", "t1"))) == ["t1", "inner", "t1", "outer"]


def test_retry_asks_for_its_delay() -> None:
    bodies = Bodies(app, 10_000)
    for attempt in (1, 2):
        end = run(bodies, started("body.again", attempt=attempt))
        assert (end.outcome, end.retry_in_s) == (Outcome.RETRY, 7.0)


def test_a_thread_has_a_request_of_its_own() -> None:
    bodies = Bodies(app, 10_000)
    run(bodies, started("body.about", "t1"))
    found: list[End] = []
    thread = threading.Thread(target=lambda: found.append(bodies.run_in_thread(started("body.about", "t2"), LEDGER)))
    thread.start()
    thread.join()
    assert value(found[0])["id"] == "t2"


def test_an_unknown_handler_fails() -> None:
    end = run(Bodies(app, 10_000), started("body.unknown"))
    assert end.outcome is Outcome.FAILED
    assert "body.unknown" in (end.error or "")


def lines_of(end: End) -> list[str]:
    """The functions that a stored error names, in order, and how it ends."""
    assert end.outcome is Outcome.FAILED
    lines = (end.error or "").splitlines()
    return [line.rpartition(" in ")[2] for line in lines if line.startswith("  File")] + [lines[-1]]


@pytest.mark.parametrize("how", ["run", "run_in_thread"])
def test_a_stored_traceback_begins_with_the_handlers_own_lines(how: str) -> None:
    call = getattr(Bodies(app, 10_000), how)
    assert lines_of(call(started("body.fails"), LEDGER)) == ["fails", "KeyError: 'order'"]
    assert lines_of(call(started("body.yields"), LEDGER)) == ["yields", "<genexpr>", "KeyError: 'order'"]
    chained = call(started("body.fails", chained=True), LEDGER)
    assert lines_of(chained) == ["fails", "fails", "ValueError: no order"]
    assert "the direct cause" in (chained.error or "")


def test_so_does_that_of_a_coroutine() -> None:
    end = asyncio.run(Bodies(app, 10_000).run_coroutine(started("body.afails"), LEDGER))
    assert lines_of(end) == ["afails", "LookupError: no such order"]


def test_what_ours_alone_has_raised_keeps_its_lines() -> None:
    end = run(Bodies(app, 10_000), started("body.fails", args=[1]))
    assert "takes 0 positional arguments" in lines_of(end)[-1]
    assert len(lines_of(end)) > 1


def test_the_context_is_the_tasks_own_and_gone_afterwards() -> None:
    run(Bodies(app, 10_000), started("body.nothing", "t9"))
    assert seen == ["t9"]
    with pytest.raises(context.NotInTask):
        context.current()


@pytest.mark.parametrize("how", ["run", "run_in_thread"])
def test_ports_are_held_while_the_handler_runs(how: str) -> None:
    bodies = Bodies(app, 10_000)
    first = value(getattr(bodies, how)(started("body.serving"), LEDGER))
    assert len(set(first)) == 2
    assert not network_ports.held
    run(bodies, started("body.nothing"))
    assert not network_ports.held
