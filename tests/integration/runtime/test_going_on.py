"""A pool child that goes on by itself: batch after batch of a line, with no claim between, and nothing lost or run twice."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery import Celery

from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.core.types import QueueName, WorkKind
from scheduler_ext.core.work import Finished
from scheduler_ext.worker import journal
from scheduler_ext.worker.agent.child_monitor import Watch
from scheduler_ext.worker.child import slice as of_slice
from scheduler_ext.worker.child.handler_call import End
from scheduler_ext.worker.child.recorder import Begun
from scheduler_ext.worker.child.slice import Child
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import Attempt, Grant, LiveTask, Task
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import submit_many
from tests.support.api import client_of, furnish
from tests.support.pool_child import lose_answers, pool_child
from tests.support.rounds import Rounds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
BATCH, TASKS = 8, 50
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
ran: Counter[int] = Counter()
app = Celery("test_going_on", broker="memory://", set_as_current=False)


@app.task(name="going.on", shared=False)  # else every other app would have it
def on(number: int) -> int:
    ran[number] += 1
    return number


@pytest.fixture
def cell(redis_client: Any) -> Iterator[Rounds]:
    furnish()
    ran.clear()
    made = Rounds()
    yield made
    made.close()


@pytest.fixture
def child(cell: Rounds, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    """A child whose node goes on with the only line."""
    with pool_child(app, cell, monkeypatch, on, lambda name: PgWorkStore(cell.conf, name, told=lambda: False)) as made:
        made.journal.unheard = True
        submit_many(client_of("going").tenant, [{"handler": "going.on", "args": [n]} for n in range(TASKS)])
        row = LiveTask.objects.unscoped().earliest("pk")  # unscoped: of one tenant
        assert row.handler_id is not None
        Grant.objects.create(
            node_id=cell.worker.node.pk, line_id=row.line_id, handler_id=row.handler_id, cell=cell.conf.cell,
            epoch=cell.dispatcher.epoch, slot_milli=2,
        )  # fmt: skip
        yield made


def first(cell: Rounds, child: Child, count: int = BATCH) -> Begun:
    """A batch that was claimed by a round, as such are: it shares a slot."""
    waiting = (
        LiveTask.objects.unscoped().filter(state=TaskState.READY).order_by("rank", "pk")
    )  # unscoped: of one tenant
    claims = cell.worker.claim(*waiting.values_list("pk", flat=True)[:count])
    LiveTask.objects.unscoped().filter(state=TaskState.QUEUED).update(slot_milli=2)  # unscoped: of one tenant
    slot = child.recorder.slot()
    slot.open(claims)
    return Begun(slot, cell.worker.node.pk, child.store.start(cell.worker.node.pk, claims), 0)


def run_on(child: Child, begun: Begun | None) -> list[int]:
    """Run a batch, and what begins in its place, until nothing does; the sizes of the batches."""
    sizes = []
    while begun is not None or child._has_begun():
        if begun is not None:
            sizes.append(child._batch(begun, last=False))
        begun = child._next_begun(0.05) if child._has_begun() else None
    wait_until(child.recorder.idle, message="all is recorded")
    return sizes


def once_each(count: int = TASKS) -> bool:
    """Whether the first so many tasks have run once each, in order, and have one attempt each; and no other has begun."""
    # Unscoped: of one tenant.
    ended = list(
        Task.objects.unscoped().filter(state=TaskState.SUCCEEDED).order_by("pk").values_list("result", flat=True)
    )
    attempts = list(Attempt.objects.unscoped().values_list("number", "fence"))
    begun = LiveTask.objects.unscoped().exclude(state=TaskState.READY).count()
    numbers = list(range(count))
    return (ended, list(ran), set(ran.values()), attempts, begun) == (numbers, numbers, {1}, [(1, 1)] * count, 0)


def test_it_goes_on_until_the_line_is_empty(cell: Rounds, child: Child) -> None:
    assert run_on(child, first(cell, child)) == [BATCH] * 6 + [TASKS - 6 * BATCH]
    assert once_each()


def test_of_two_batches_one_runs_while_the_other_is_recorded(cell: Rounds, child: Child) -> None:
    one, two = first(cell, child), first(cell, child)
    child._batch(one, last=False)
    child._batch(two, last=False)
    assert len(child._coming) == 2
    sizes = run_on(child, child._next_begun(0.05))
    assert sum(sizes) == TASKS - 2 * BATCH
    assert once_each()


@pytest.mark.parametrize("committed", [True, False])
def test_an_answer_that_is_lost_loses_nothing_and_nothing_runs_twice(
    cell: Rounds, child: Child, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """The connection breaks before the statement, or behind its commit: then what it began is taken over."""
    lose_answers(monkeypatch, child.recorder.store, committed=committed)
    sizes = run_on(child, first(cell, child))
    if committed:
        assert sizes == [BATCH] * 6 + [TASKS - 6 * BATCH]
        assert once_each()
    else:
        assert sizes == [BATCH]
        assert once_each(BATCH), "it is recorded, and nothing has begun"


def test_what_cannot_be_noted_is_recorded_and_nothing_begins(cell: Rounds, child: Child) -> None:
    """All of the journal's slots are in use: what began would be missing from it."""
    begun = first(cell, child)
    others = [child.recorder.slot() for _ in range(journal.BATCHES - 1)]
    child._batch(begun, last=False)
    (coming,) = child._coming
    assert coming.result(timeout=30) is None
    for slot in others:
        child.recorder.give_back(slot)
    wait_until(child.recorder.idle)
    assert once_each(BATCH)


def test_after_a_refusal_it_does_not_ask_again_at_once(
    cell: Rounds, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_slice, "ASK_AGAIN_S", 60.0)
    Grant.objects.all().delete()
    ran = 0
    while not child._asks:  # a batch that a busy machine has recorded in two parts asks for none
        assert run_on(child, first(cell, child)) == [BATCH]
        ran += BATCH
    child._batch(first(cell, child), last=False)
    assert not child._has_begun()
    wait_until(child.recorder.idle)
    assert once_each(ran + BATCH)


def test_it_does_not_ask_while_something_waits_in_its_queue(cell: Rounds, child: Child) -> None:
    begun = first(cell, child)
    key = cell.queues.keys.claims(cell.worker.node.pk, WorkKind.PROCESS, QueueName.DELAYABLE)
    cell.queues.client.rpush(key, b"a claim")
    child._batch(begun, last=False)
    assert not child._coming
    wait_until(child.recorder.idle)


def test_the_room_of_a_small_batch_goes_back_to_rounds(cell: Rounds, child: Child) -> None:
    """Two small ones would cost as much as two large ones, for ever."""
    child._largest = 2 * BATCH
    assert run_on(child, first(cell, child)) == [BATCH]
    assert once_each(BATCH)
    child._largest = BATCH
    assert sum(run_on(child, first(cell, child))) == TASKS - BATCH


@pytest.mark.parametrize("ends", ["last", "draining", "listened"])
def test_it_does_not_ask_when_it_is_to_end_or_somebody_listens(cell: Rounds, child: Child, ends: str) -> None:
    begun = first(cell, child)
    child.journal.draining = ends == "draining"
    child.journal.unheard = ends != "listened"
    child._batch(begun, last=ends == "last")
    assert not child._has_begun()
    wait_until(child.recorder.idle)
    assert once_each(BATCH)


def test_what_a_killed_child_was_going_on_with_is_handed_back(cell: Rounds, child: Child) -> None:
    """It was killed as its commit was under way: what it began is noted, and not to be seen yet."""
    noted, goes, gone = child.recorder.slot(), threading.Event(), threading.Event()
    batch = first(cell, child)
    assert batch.slot.index > noted.index, "the agent looks at the other first"
    now = time.monotonic()
    for number in range(BATCH):
        batch.slot.begin(number, 1000, now)
        batch.slot.end(number, now, End(Outcome.SUCCEEDED, "1").pack())
    ended = [Finished(one.task_id, one.fence, Outcome.SUCCEEDED, now, now, "1", worker="0:1") for one in batch.started]

    def note(claims: Sequence[tuple[str, int]]) -> None:
        noted.open(claims)
        goes.set()
        assert gone.wait(30)

    killed = subprocess.Popen(["/bin/true"])
    killed.wait()
    watch = Watch(cell.conf, child.journal, child.store, lambda _changes: None, {})
    with ThreadPoolExecutor(2) as pool, connect() as conn:
        going = pool.submit(child.recorder.store.record_and_go_on, cell.worker.node.pk, ended, note)
        assert goes.wait(30)
        noted.pid = batch.slot.pid = killed.pid
        settled = pool.submit(watch.look)
        wait_until(lambda: conn.execute(WAITS).fetchall()[0][0], message="the agent records what has ended")
        gone.set()
        settled.result(30)
        going.result(30)
    # Unscoped: of one tenant.
    assert Task.objects.unscoped().filter(state=TaskState.SUCCEEDED).count() == BATCH
    back = LiveTask.objects.unscoped().exclude(fence=0).values_list("state", "fence", "alone")
    assert list(back) == [(TaskState.READY, 1, False)] * BATCH


@pytest.mark.parametrize("count", [1, BATCH])
def test_what_is_to_run_behind_a_long_task_goes_back(cell: Rounds, child: Child, count: int) -> None:
    """Also where that is all of its batch: another may have begun in the place of one before it."""
    long, behind = first(cell, child, count), first(cell, child)
    sleeper = subprocess.Popen(["/bin/sleep", "60"])
    try:
        for slot in (long.slot, behind.slot):
            slot.pid = sleeper.pid
        long.slot.begin(0, 60_000, time.monotonic() - 1)
        Watch(cell.conf, child.journal, child.store, lambda _changes: None, {}).look()
    finally:
        sleeper.kill()
        sleeper.wait()
        for slot in (long.slot, behind.slot):
            slot.pid = os.getpid()
    # Unscoped: of one tenant.
    states = Counter(LiveTask.objects.unscoped().exclude(fence=0).values_list("state", flat=True))
    assert states == {TaskState.RUNNING: 1, TaskState.READY: count - 1 + BATCH}
