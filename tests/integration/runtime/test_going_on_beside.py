"""A child that goes on by itself with coroutines: as many more begin as have ended, and nothing is lost or run twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from celery import Celery

from scheduler_ext.core.states import TaskState
from scheduler_ext.core.types import MILLI, PER_CHILD, WorkKind
from scheduler_ext.worker.child.concurrent import MANY, Beside
from slackwater_tasks.models import Attempt, Grant, LiveTask, Task
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import submit_many
from tests.support.api import client_of, furnish
from tests.support.pool_child import lose_answers, pool_child
from tests.support.rounds import Rounds

pytestmark = pytest.mark.django_db(transaction=True)
FIRST, TASKS = 20, 130
WITHIN_S = 30.0
ran: Counter[int] = Counter()
runs: list[int] = []
"""How many ran, each time one began."""
app = Celery("test_going_on_beside", broker="memory://", set_as_current=False)


@app.task(name="going.beside", shared=False)  # else every other app would have it
async def nap(number: int, fails: bool = False) -> int:
    ran[number] += 1
    runs.append(runs[-1] + 1 if runs else 1)
    try:
        await asyncio.sleep(0.01)
        if fails:
            raise ValueError(number)
        return number
    finally:
        runs.append(runs[-1] - 1)


@pytest.fixture
def cell(redis_client: Any) -> Iterator[Rounds]:
    furnish()
    ran.clear()
    runs.clear()
    made = Rounds()
    yield made
    made.close()


@pytest.fixture
def make(cell: Rounds, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Beside]]:
    """Makes what runs side by side in a child whose node goes on with the only line, of which the first so many fail."""
    with pool_child(
        app, cell, monkeypatch, nap, lambda name: PgWorkStore(cell.conf, name, told=lambda: False)
    ) as child:
        assert child.beside is not None
        child.journal.unheard = True

        def made(failing: int = 0) -> Beside:
            specs = [{"handler": "going.beside", "args": [n, n < failing]} for n in range(TASKS)]
            submit_many(client_of("going").tenant, specs)
            row = LiveTask.objects.unscoped().earliest("pk")  # unscoped: of one tenant
            assert row.handler_id is not None
            Grant.objects.create(
                node_id=cell.worker.node.pk, line_id=row.line_id, handler_id=row.handler_id, cell=cell.conf.cell,
                epoch=cell.dispatcher.epoch, slot_milli=MILLI,
            )  # fmt: skip
            assert child.beside is not None
            return child.beside

        yield made


def first(cell: Rounds, count: int = FIRST) -> list[tuple[str, int]]:
    """Claims of the first that wait."""
    waiting = (
        LiveTask.objects.unscoped().filter(state=TaskState.READY).order_by("rank", "pk")
    )  # unscoped: of one tenant
    return cell.worker.claim(*waiting.values_list("pk", flat=True)[:count])


def run(cell: Rounds, beside: Beside, claims: Sequence[tuple[str, int]], meanwhile: Any = None) -> None:
    """Run these claims, and whatever begins in their place; ``meanwhile`` is awaited beside the first."""

    async def go() -> None:
        loop = asyncio.create_task(beside._run())
        await asyncio.sleep(0)
        await beside._begin(cell.worker.node.pk, WorkKind.COROUTINE, claims)
        if meanwhile is not None:
            loop = await meanwhile(loop)
        async with asyncio.timeout(WITHIN_S):
            while beside.busy():
                await asyncio.sleep(0.005)
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop

    asyncio.run(go())
    assert not beside.table.holds(), "the journal's account is settled"


def states() -> Counter[TaskState]:
    rows = Task.objects.unscoped().values_list("state", flat=True)  # unscoped: of one tenant
    live = LiveTask.objects.unscoped().values_list("state", flat=True)
    return Counter(TaskState(state) for state in (*(row for row in rows if row is not None), *live))


def attempts() -> list[tuple[int, int]]:
    return list(Attempt.objects.unscoped().values_list("number", "fence"))  # unscoped: of one tenant


def test_it_goes_on_until_the_line_is_empty(cell: Rounds, make: Callable[..., Beside]) -> None:
    run(cell, make(), first(cell))
    assert states() == {TaskState.SUCCEEDED: TASKS}
    assert set(ran.values()) == {1}
    assert attempts() == [(1, 1)] * TASKS
    assert max(runs) == FIRST, "as many run as ran before, and never more"


def test_only_the_place_of_what_succeeded_is_taken(cell: Rounds, make: Callable[..., Beside]) -> None:
    """The room of what has failed goes back to rounds."""
    failing = FIRST - MANY
    run(cell, make(failing), first(cell))
    assert states() == {TaskState.SUCCEEDED: TASKS - failing, TaskState.FAILED: failing}
    assert set(ran.values()) == {1}
    assert max(runs[2 * FIRST :]) == MANY


@pytest.mark.parametrize("committed", [True, False])
def test_an_answer_that_is_lost_loses_nothing_and_nothing_runs_twice(
    cell: Rounds, make: Callable[..., Beside], monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """The connection breaks before the statement, or behind its commit: then what it began is taken over."""
    beside = make()
    broken = lose_answers(monkeypatch, beside.recorder.store, committed=committed)
    run(cell, beside, first(cell))
    assert set(ran.values()) == {1}
    gone = sum(ran.values())
    assert attempts() == [(1, 1)] * gone
    if committed:
        assert gone == TASKS
    else:
        assert broken[0] <= gone < TASKS
        assert states() == {TaskState.SUCCEEDED: gone, TaskState.READY: TASKS - gone}


def test_a_loop_that_fails_takes_over_what_the_one_before_had_asked_for(
    cell: Rounds, make: Callable[..., Beside], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = make()
    store = beside.recorder.store
    real = store.record_and_go_on
    asked, goes = threading.Event(), threading.Event()

    def slow(*args: Any) -> Any:
        asked.set()
        assert goes.wait(WITHIN_S)
        return real(*args)

    async def fails(loop: asyncio.Task[None]) -> asyncio.Task[None]:
        assert await asyncio.to_thread(asked.wait, WITHIN_S)
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop
        goes.set()
        return asyncio.create_task(beside._run())

    monkeypatch.setattr(store, "record_and_go_on", slow)
    run(cell, beside, first(cell), fails)
    assert states() == {TaskState.SUCCEEDED: TASKS}
    assert attempts() == [(1, 1)] * TASKS


@pytest.mark.parametrize("why", ["few", "draining", "listened", "asked in vain", "no grant"])
def test_where_it_does_not_go_on_what_ended_is_recorded(
    cell: Rounds, make: Callable[..., Beside], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    beside = make()
    count = MANY - 1 if why == "few" else FIRST
    claims = first(cell, count)
    calls: list[int] = []
    real = beside.recorder.store.record_and_go_on

    def asks(*args: Any) -> Any:
        calls.append(len(args[1]))
        return real(*args)

    monkeypatch.setattr(beside.recorder.store, "record_and_go_on", asks)
    beside.journal.draining = why == "draining"
    beside.journal.unheard = why != "listened"
    if why == "asked in vain":
        beside._asks = time.monotonic() + WITHIN_S
    elif why == "no grant":
        Grant.objects.all().delete()
    run(cell, beside, claims)
    assert states() == {TaskState.SUCCEEDED: count, TaskState.READY: TASKS - count}
    assert bool(calls) == (why == "no grant")
    assert (beside._asks > 0) == (why in ("no grant", "asked in vain"))


def test_it_takes_no_more_from_its_queue_than_it_has_room_for_until_what_ended_is_recorded(
    cell: Rounds, make: Callable[..., Beside], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger counts what has ended as running until then; else a child would run more than its part."""
    beside = make()
    free: list[int] = []
    real = beside.recorder.store.record_and_go_on

    def looks(*args: Any) -> Any:
        free.append(beside._free(WorkKind.COROUTINE) + len(args[1]) + len(beside.running) + len(beside._ended))
        return real(*args)

    monkeypatch.setattr(beside.recorder.store, "record_and_go_on", looks)
    run(cell, beside, first(cell))
    assert set(free) == {PER_CHILD[WorkKind.COROUTINE]}
