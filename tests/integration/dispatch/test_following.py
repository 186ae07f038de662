"""A success is recorded and its only dependant begun by one statement, or the dependant is left to those before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from scheduler_ext.core.states import EdgeOutcome, Outcome, RunCondition, TaskState
from scheduler_ext.core.work import Finished, Started
from slackwater_resources.models import Handler, Node
from slackwater_tasks.control.lines import set_line_paused
from slackwater_tasks.ledger import transitions
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import Attempt, Dependency, Leader, Line, LiveTask, Opening, Task, TaskEvent
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import submit_workflow
from slackwater_tenants.models import CurrentCounter, Tenant
from slackwater_tenants.services import set_paused
from tests.support.api import client_of, furnish
from tests.support.rounds import Rounds

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"handler": "demo.echo"}


class Chain:
    """A running task, one that waits for it, and an opening for that."""

    def __init__(self, name: str, *more: dict[str, Any], **fields: Any) -> None:
        """``fields``: those of the dependant; ``more``: further tasks."""
        self.tenant: Tenant = client_of(name).tenant
        tasks = [{**ECHO, "name": "first"}, {**ECHO, "name": "second", "depends_on": ["first"], **fields}, *more]
        ids = submit_workflow(self.tenant, {"tasks": tasks}).task_ids
        self.first, self.second = ids[:2]
        self.cell = Rounds(slots=10)
        self.work = PgWorkStore(self.cell.conf, "test")
        assert self.cell.round().claimed
        self.cell.round()
        self.running = next(one for one in self.cell.running if one.task_id == str(self.first))
        self.node = self.cell.worker.node

    def ended(self) -> Finished:
        now = time.time()
        return Finished(str(self.first), self.running.fence, Outcome.SUCCEEDED, now, now, '{"n":1}', worker="1")

    def follow(self, finished: Finished | None = None, fence: int = 1) -> Started | None:
        changes, begun = self.work.record_and_follow(self.node.pk, finished or self.ended(), (str(self.second), fence))
        if finished is None:
            assert next((change[0], change[1]) for change in changes) == (str(self.first), TaskState.SUCCEEDED)
            assert Task.objects.unscoped().get(pk=self.first).state == TaskState.SUCCEEDED  # unscoped: of one task
        live = LiveTask.objects.unscoped().filter(tenant=self.tenant).count()  # unscoped: of one tenant
        assert CurrentCounter.objects.get(tenant=self.tenant).unfinished == live
        return begun

    def live(self) -> LiveTask:
        return LiveTask.objects.unscoped().get(pk=self.second)  # unscoped: of one task

    def change(self, **fields: Any) -> None:
        """Change the dependant."""
        LiveTask.objects.unscoped().filter(pk=self.second).update(**fields)  # unscoped: of one task

    def close(self) -> None:
        self.work.close()
        self.cell.close()


@pytest.fixture
def chain(redis_client: Any) -> Iterator[Callable[..., Chain]]:
    furnish()
    made: list[Chain] = []

    def make(*more: dict[str, Any], **fields: Any) -> Chain:
        made.append(Chain("follow", *more, **fields))
        return made[-1]

    yield make
    for each in made:
        each.close()


def edge(chain: Chain) -> int:
    return int(Dependency.objects.get(parent=chain.first, child=chain.second).outcome)


def test_the_only_dependant_begins_as_its_parent_is_recorded(chain: Callable[..., Chain]) -> None:
    made = chain({**ECHO, "name": "third", "depends_on": ["second"]}, args=["a"], execution_cap_s=7)
    assert made.running.next_claim() == (str(made.second), 1)
    unfinished = CurrentCounter.objects.get(tenant=made.tenant).unfinished
    places = Opening.objects.get().places
    begun = made.follow()
    assert begun is not None
    assert (begun.task_id, begun.fence, begun.attempt, begun.handler) == (str(made.second), 1, 1, "demo.echo")
    assert (begun.args, begun.cap_ms, begun.name, begun.tenant_id) == (["a"], 7_000, "second", made.tenant.pk)
    third = LiveTask.objects.unscoped().get(pending=1).pk  # unscoped: of one tenant
    assert begun.next_claim() == (str(third), 1), "and what may follow that"
    row = made.live()
    assert (row.state, row.fence, row.pending, row.node_id, row.batch) == (TaskState.RUNNING, 1, 0, made.node.pk, 1)
    assert row.queued_at is not None
    assert row.started_at is not None
    assert edge(made) == EdgeOutcome.SUCCEEDED
    assert not Task.objects.unscoped().get(pk=made.first).release_pending  # unscoped: of one task
    assert CurrentCounter.objects.get(tenant=made.tenant).unfinished == unfinished - 1
    assert Opening.objects.get().places == places - 1
    told = TaskEvent.objects.unscoped().filter(task_id=made.second)  # unscoped: of one task
    assert list(told.values_list("from_state", "to_state", "fence", "actor")) == [
        (TaskState.BLOCKED, TaskState.READY, 0, "release")
    ]
    assert Attempt.objects.unscoped().get(task_id=made.first).outcome == Outcome.SUCCEEDED  # unscoped: of one task
    now = time.time()
    made.work.record(made.node.pk, [Finished(begun.task_id, 1, Outcome.SUCCEEDED, now, now, worker="1")])
    assert Task.objects.unscoped().get(pk=made.second).attempts_used == 1  # unscoped: of one task


def test_it_goes_once_only(chain: Callable[..., Chain]) -> None:
    made = chain()
    ended = made.ended()
    assert made.follow(ended) is not None
    assert made.work.record_and_follow(made.node.pk, ended, (str(made.second), 1)) == ([], None)
    assert made.live().fence == 1
    (begun,) = made.work.start(made.node.pk, [(str(made.second), 1)], again=True)
    assert begun.task_id == str(made.second), "whoever had no answer finds what had begun"
    assert made.work.start(made.node.pk, [(str(made.second), 1)]) == []


@pytest.mark.parametrize("how", ["fence", "node", "lost"])
def test_who_does_not_hold_the_parent_neither_records_nor_begins(chain: Callable[..., Chain], how: str) -> None:
    made = chain()
    ended, node_id = made.ended(), made.node.pk
    if how == "fence":
        ended.fence += 1
    elif how == "node":
        node_id += 1
    else:
        made.work.hand_back(node_id, [(str(made.first), made.running.fence)], running=True, reason="lost")
    assert made.work.record_and_follow(node_id, ended, (str(made.second), 1)) == ([], None)
    assert (made.live().state, made.live().pending) == (TaskState.BLOCKED, 1)
    assert Task.objects.unscoped().get(pk=made.first).state is None  # unscoped: of one task


REFUSED: dict[str, tuple[Callable[[Chain], object], TaskState]] = {
    "cancel": (lambda made: made.change(cancel_requested=True), TaskState.QUEUED),
    "expired": (lambda made: made.change(expires_at=timezone.now()), TaskState.QUEUED),
    "a key": (lambda made: made.change(mutex_key="k"), TaskState.READY),
    "a rate": (lambda made: made.change(rate_key="r"), TaskState.READY),
    "later": (lambda made: made.change(not_before=timezone.now().replace(year=2099)), TaskState.SCHEDULED),
    "alone": (lambda made: made.change(alone=True), TaskState.READY),
    "another fence": (lambda made: made.change(fence=3), TaskState.QUEUED),
    "no places": (lambda _: Opening.objects.update(places=0), TaskState.READY),
    "another node's": (lambda _: Opening.objects.update(node_id=10**6), TaskState.READY),
    "a coroutine's": (lambda _: Opening.objects.update(kind="coroutine"), TaskState.QUEUED),
    "another leader": (lambda _: Leader.objects.update(epoch=10**6), TaskState.READY),
    "draining": (lambda made: Node.objects.filter(pk=made.node.pk).update(state="draining"), TaskState.READY),
    "tenant": (lambda made: set_paused(made.tenant, paused=True), TaskState.READY),
    "line": (lambda _: set_line_paused(Line.objects.unscoped().get(), paused=True), TaskState.READY),
    "handler": (lambda _: Handler.objects.update(paused=True), TaskState.READY),
}  # fmt: skip


@pytest.mark.parametrize("how", REFUSED)
def test_what_may_not_begin_here_is_left_to_the_release(chain: Callable[..., Chain], how: str) -> None:
    made = chain()
    change, then = REFUSED[how]
    change(made)
    assert made.follow() is None
    assert made.live().state == then
    assert edge(made) == EdgeOutcome.SUCCEEDED


@pytest.mark.parametrize("without", ["hashjoin", "mergejoin", "nestloop", "material", "hashjoin, nestloop"])
@pytest.mark.parametrize("places", [0, 1])
def test_the_end_is_counted_whatever_the_plan(chain: Callable[..., Chain], without: str, places: int) -> None:
    """Where it finds no opening, too: the parts that look for one may then be done last."""
    made = chain()
    Opening.objects.update(places=places)
    for kind in without.split(", "):
        made.work.db.conn.execute(f"SET enable_{kind} = off")
    assert (made.follow() is not None) == bool(places)


def test_a_node_whose_lease_is_over_begins_nothing(chain: Callable[..., Chain]) -> None:
    made = chain()
    Node.objects.filter(pk=made.node.pk).update(lease_expires_at=timezone.now())
    assert made.follow() is None
    assert made.live().state == TaskState.READY


def test_a_condition_that_does_not_hold_ends_it(chain: Callable[..., Chain]) -> None:
    made = chain()
    made.change(condition=RunCondition.ANY_FAILED)
    assert made.follow() is None
    assert Task.objects.unscoped().get(pk=made.second).state == TaskState.SKIPPED  # unscoped: of one task


def test_one_of_two_dependants_does_not_go_first(chain: Callable[..., Chain]) -> None:
    made = chain({**ECHO, "name": "third", "depends_on": ["first"]})
    assert made.running.next_claim() is None
    assert made.follow() is None
    states = LiveTask.objects.unscoped().values_list("state", flat=True)  # unscoped: of all tenants
    assert list(states) == [TaskState.QUEUED, TaskState.QUEUED]


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
def test_the_last_of_several_parents_takes_it_along_if_all_succeeded(
    chain: Callable[..., Chain], outcome: Outcome
) -> None:
    made = chain({**ECHO, "name": "beside"}, depends_on=["first", "beside"])
    (beside,) = [one for one in made.cell.running if one.name == "beside"]
    assert made.running.next_claim() is None, "it waits for another, too"
    now = time.time()
    made.change(condition=RunCondition.ALL_SUCCEEDED)
    ended = Finished(beside.task_id, beside.fence, outcome, now, now, worker="1", retry_in_s=-1.0)
    made.work.record(made.node.pk, [ended])
    assert made.live().pending == 1
    begun = made.follow()
    if outcome is Outcome.SUCCEEDED:
        assert begun is not None
    else:
        assert begun is None
        assert Task.objects.unscoped().get(pk=made.second).state == TaskState.CANCELLED  # unscoped: of one task


@contextmanager
def held(table: str, column: str, value: UUID | int) -> Iterator[None]:
    """A row that somebody else has locked."""
    with connect() as other, other.transaction():
        other.execute(f"SELECT 1 FROM {table} WHERE {column} = %s FOR UPDATE", (value,))
        yield


def test_it_waits_for_nobody_who_holds_the_opening(chain: Callable[..., Chain]) -> None:
    made = chain()
    with held("slackwater_tasks_opening", "node_id", made.node.pk):
        assert made.follow() is None
        assert made.live().state == TaskState.READY


def test_it_waits_for_nobody_who_holds_the_dependant(chain: Callable[..., Chain]) -> None:
    made = chain()
    sql, ended = made.work.db.conn, made.ended()
    with held("slackwater_tasks_livetask", "task_id", made.second):
        rows, begun, _ = transitions.follow_if_running(sql, made.node.pk, ended, (str(made.second), 1))
        assert (rows[0][2], begun) == (True, None), "recorded, and to be released"
    made.work.follow_up(rows)
    assert made.live().state == TaskState.QUEUED


def test_the_platform_tells_who_listens(chain: Callable[..., Chain]) -> None:
    made = chain()
    with connection.cursor() as cur:
        cur.execute(
            "INSERT INTO slackwater_tasks_listener (tenant_id, events) VALUES (%s, 2147483647)", (made.tenant.pk,)
        )
        assert made.follow() is not None
        cur.execute("SELECT task_id, state FROM slackwater_tasks_outbox ORDER BY state, task_id")
        found = {(task_id, state) for task_id, state in cur.fetchall()}
    assert {(made.first, int(TaskState.SUCCEEDED)), (made.second, int(TaskState.RUNNING))} <= found
