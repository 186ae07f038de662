"""A task for which the dispatcher has left room is claimed by the statement that stores it, and by nothing less."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from django.db import connection, transaction
from django.utils import timezone

from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.core.types import QueueName, WorkKind
from scheduler_ext.core.work import Finished
from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.dispatcher import HintListener
from slackwater_conf import conf
from slackwater_resources.models import Handler
from slackwater_tasks.control.lines import set_line_paused
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.ledger import hints, openings
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.ledger.round_recorder import RoundWatcher
from slackwater_tasks.models import Attempt, Leader, Line, LiveTask, Opening, RateLimit, TaskEvent
from slackwater_tasks.read import shares
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import submit, submit_many, submit_workflow
from slackwater_tasks.submission.store import openings_missed
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import set_paused
from tests.support.api import client_of, furnish
from tests.support.rounds import Rounds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"handler": "demo.echo"}


@pytest.fixture
def made(redis_client: Any) -> Iterator[Callable[..., Rounds]]:
    furnish()
    cells: list[Rounds] = []

    def make(**conf: Any) -> Rounds:
        cells.append(Rounds(**conf))
        return cells[-1]

    yield make
    for each in cells:
        each.close()


def open_for(cell: Rounds, tenant: Tenant, **fields: Any) -> None:
    """Let a task come and end, and a round leave room for the next."""
    submit(tenant, {**ECHO, **fields})
    assert cell.round().claimed == 1
    cell.end(cell.running)
    cell.queues.clear(cell.worker.node.pk)
    cell.round()
    openings_missed.forget()


def state_of(task_id: UUID) -> TaskState:
    return TaskState(LiveTask.objects.unscoped().get(pk=task_id).state)  # unscoped: of all tenants


def stored(tenant: Tenant, **fields: Any) -> TaskState:
    openings_missed.forget()
    return state_of(submit(tenant, {**ECHO, **fields}).task_ids[0])


def places() -> list[int]:
    return list(Opening.objects.values_list("places", flat=True))


def test_a_task_that_finds_room_is_claimed_as_it_is_stored(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=4), client_of("direct").tenant
    open_for(cell, tenant)
    assert places() == [2], "half of the slots"
    (task_id,) = submit(tenant, ECHO).task_ids
    row = LiveTask.objects.unscoped().get(pk=task_id)  # unscoped: of all tenants
    assert (row.state, row.fence, row.node_id, row.slot_milli) == (TaskState.QUEUED, 1, cell.worker.node.pk, 1000)
    assert row.queued_at is not None
    assert row.claim_expires_at is not None
    assert timedelta(seconds=2) < row.claim_expires_at - row.queued_at < timedelta(seconds=4)

    def pushed() -> bool:
        return cell.queues.take(cell.worker.node.pk, WorkKind.PROCESS)[0] == [(str(task_id), 1)]

    wait_until(pushed, message="its claim is in the node's queue")
    assert cell.round().claimed == 0, "no round decides on it again"
    cell.end(cell.running)
    attempt = Attempt.objects.unscoped().get(task_id=task_id)  # unscoped: of all tenants
    assert (attempt.fence, attempt.number, attempt.queued_at) == (1, 1, row.queued_at)


def test_the_first_get_the_places_and_none_that_comes_later_passes_the_rest(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=4), client_of("many").tenant
    open_for(cell, tenant)
    ids = submit_many(tenant, [ECHO] * 3).task_ids
    assert [state_of(each) for each in ids] == [TaskState.QUEUED, TaskState.QUEUED, TaskState.READY]
    assert stored(tenant) is TaskState.READY
    claims = [(str(task_id), 1) for task_id in ids[:2]]
    wait_until(lambda: cell.queues.clear(cell.worker.node.pk) == claims, message="their claims are in the node's queue")
    assert cell.round().claimed == 2, "those that wait"
    assert len(cell.running) == 4


def test_what_takes_room_given_ahead_is_counted_and_what_is_taken_back_is_not(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=8), client_of("counted").tenant
    cell.dispatcher.watch = RoundWatcher(cell.conf, cell.store)
    open_for(cell, tenant)
    assert cell.store.ahead.claimed == 0, "the first waited for a round"
    ahead = 0
    for many in (1, 2, 5):
        ids = submit_many(tenant, [ECHO] * many).task_ids
        ahead += sum(state_of(each) is TaskState.QUEUED for each in ids)
        cell.round()
        assert cell.store.ahead.claimed == ahead
    assert 3 <= ahead < 8, "the last ones were too many"
    cell.end(cell.running)
    for _ in range(2):
        cell.round()
    assert sum(places()) > 0
    cell.store.withdraw()
    cell.round()
    assert cell.store.ahead.claimed == ahead, "nobody had claimed those"
    cell.dispatcher.watch._written = float("-inf")
    cell.round()
    (told,) = shares.rounds()
    assert (told["claims"], told["ahead"]) == (9, ahead)


def test_what_cannot_be_given_to_its_node_goes_to_a_round(
    made: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, tenant = made(slots=4), client_of("away").tenant
    open_for(cell, tenant)
    nobody = redis.Redis(host="127.0.0.1", port=1)
    monkeypatch.setattr(hints, "_connection", lambda *_: redis_client.DirectConnection(nobody))
    (task_id,) = submit(tenant, ECHO).task_ids
    row = LiveTask.objects.unscoped().get(pk=task_id)  # unscoped: of all tenants
    assert (row.state, row.fence, row.node_id) == (TaskState.READY, 1, None)
    event = TaskEvent.objects.unscoped().get(task_id=task_id)  # unscoped: of all tenants
    assert (event.from_state, event.to_state, event.reason) == (
        TaskState.QUEUED, TaskState.READY, "handed back unbegun: its node could not be told"
    )  # fmt: skip
    assert cell.round().claimed == 1
    assert cell.running[-1].fence == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"mutex_key": "k"}, {"rate_key": "k"}, {"total_attempts": 1}, {"category": "offpeak"}, {"priority": 5, "tier": "regular"},
        {"start_at": "2099-01-01T00:00:00Z"}, {"handler": "demo.other"},
    ],
    ids=lambda fields: next(iter(fields)),
)  # fmt: skip
def test_only_what_the_room_was_left_for_takes_it(made: Callable[..., Rounds], fields: dict[str, Any]) -> None:
    cell, tenant = made(slots=4), client_of("others").tenant
    Handler.objects.create(name="demo.other")
    open_for(cell, tenant)
    assert stored(tenant, **fields) in {TaskState.READY, TaskState.SCHEDULED}
    assert stored(tenant, priority=5) is TaskState.QUEUED


def test_nothing_is_claimed_in_a_transaction_of_the_callers(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=4), client_of("inside").tenant
    open_for(cell, tenant)
    with transaction.atomic():
        assert stored(tenant) is TaskState.READY
        assert cell.dispatcher.run_round().claimed == 0, "and no round waits for it"
    assert stored(tenant) is TaskState.QUEUED


def test_a_dependant_is_claimed_as_its_parent_is_recorded(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=6), client_of("chained").tenant
    tasks = [{**ECHO, "name": "first"}, {**ECHO, "name": "second", "depends_on": ["first"]},
             {**ECHO, "name": "third", "depends_on": ["second"], "mutex_key": "k"}]  # fmt: skip
    _, second, third = submit_workflow(tenant, {"tasks": tasks}).task_ids
    work = PgWorkStore(cell.conf, "test")
    assert cell.round().claimed == 1
    cell.queues.clear(cell.worker.node.pk)
    cell.round()
    (running,) = cell.running
    now = time.time()
    work.record(
        cell.worker.node.pk, [Finished(running.task_id, running.fence, Outcome.SUCCEEDED, now, now, worker="1")]
    )
    assert (state_of(second), state_of(third)) == (TaskState.QUEUED, TaskState.BLOCKED)
    wait_until(
        lambda: cell.queues.clear(cell.worker.node.pk) == [(str(second), 1)], message="its claim is in the queue"
    )
    told = (
        TaskEvent.objects.unscoped().filter(task_id=second).values_list("from_state", "to_state", "fence")
    )  # of one task
    assert list(told) == [(TaskState.BLOCKED, TaskState.READY, 0)]
    started = work.start(cell.worker.node.pk, [(str(second), 1)])
    assert [one.fence for one in started] == [1]
    work.record(cell.worker.node.pk, [Finished(str(second), 1, Outcome.SUCCEEDED, now, now, worker="1")])
    assert state_of(third) is TaskState.READY, "its key is for a round to decide"
    work.close()


def test_what_is_paused_lost_or_led_by_another_claims_nothing(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=10), client_of("paused").tenant
    open_for(cell, tenant)
    line, node = Line.objects.unscoped().get(tenant=tenant), cell.worker.node  # unscoped: the tenant is named
    handler = Handler.objects.filter(name="demo.echo")
    set_paused(tenant, paused=True)
    assert stored(tenant) is TaskState.READY
    set_paused(tenant, paused=False)
    set_line_paused(line, paused=True)
    assert stored(tenant) is TaskState.READY
    set_line_paused(line, paused=False)
    handler.update(paused=True)
    assert stored(tenant) is TaskState.READY
    handler.update(paused=False)
    moved = type(tenant).objects.filter(pk=tenant.pk)
    moved.update(cell="elsewhere")
    assert stored(tenant) is TaskState.READY
    moved.update(cell=tenant.cell)
    type(node).objects.filter(pk=node.pk).update(state="draining")
    assert stored(tenant) is TaskState.READY
    type(node).objects.filter(pk=node.pk).update(state="active", lease_expires_at=timezone.now())
    assert stored(tenant) is TaskState.READY
    type(node).objects.filter(pk=node.pk).update(lease_expires_at=timezone.now() + timedelta(hours=1))
    Leader.objects.update(epoch=99)
    assert stored(tenant) is TaskState.READY
    Leader.objects.update(epoch=cell.dispatcher.epoch, expires_at=timezone.now())
    assert stored(tenant) is TaskState.READY
    Leader.objects.update(expires_at=timezone.now() + timedelta(hours=1))
    assert stored(tenant) is TaskState.QUEUED


def test_a_task_that_waits_for_room_takes_back_what_was_given_ahead(made: Callable[..., Rounds]) -> None:
    cell, first, second = made(slots=1), client_of("first").tenant, client_of("second").tenant
    open_for(cell, first)
    assert places() == [1]
    (other,) = submit(second, ECHO).task_ids
    assert cell.round().claimed == 1
    assert state_of(other) is TaskState.RUNNING
    assert stored(first) is TaskState.READY
    assert max(places()) <= 0


def test_a_limit_of_tasks_in_flight_holds_over_both_ways(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=8), client_of("limited").tenant
    tenant.plan.max_in_flight = 3
    tenant.plan.save()
    cell.changed()
    open_for(cell, tenant)
    for _ in range(6):
        submit(tenant, ECHO)
        cell.round()
        assert cell.held()[tenant.pk] <= 3
    assert cell.held()[tenant.pk] == 3
    cell.end(cell.running)
    cell.round()
    assert cell.held()[tenant.pk] == 3


def test_a_change_of_what_was_decided_on_takes_it_back(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=8), client_of("changed").tenant
    open_for(cell, tenant)
    assert places() == [4]
    tenant.plan.max_in_flight = 1
    tenant.plan.save()
    cell.changed()
    cell.round()
    assert sum(places()) == 1
    cell.worker.node.handlers = []
    cell.worker.node.state = "draining"
    cell.worker.node.save()
    cell.round()
    assert sum(places()) == 0


def test_a_new_leader_begins_anew(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=4), client_of("led").tenant
    open_for(cell, tenant)
    with connection.cursor() as cur:
        cur.execute("UPDATE slackwater_tasks_leader SET epoch = epoch + 1")
    cell.store._epoch = cell.dispatcher.epoch = cell.dispatcher.epoch + 1
    assert stored(tenant) is TaskState.READY
    assert cell.round().claimed == 1
    cell.end(cell.running)
    cell.round()
    assert stored(tenant) is TaskState.QUEUED


def test_of_two_who_come_at_once_for_one_place_one_gets_it_and_the_dispatcher_waits_for_nobody(
    made: Callable[..., Rounds],
) -> None:
    cell, tenant = made(slots=1), client_of("raced").tenant
    open_for(cell, tenant)
    found: list[TaskState] = []

    def submit_one() -> None:
        found.append(stored(tenant))
        connection.close()

    with connect() as held, held.transaction():
        held.execute("UPDATE slackwater_tasks_opening SET places = places - 1")  # as a statement that stores does
        late = threading.Thread(target=submit_one)
        late.start()
        wait_until(lambda: _waiting() == 1, message="the other waits for the row")
        cell.store.withdraw()
        assert cell.dispatcher.run_round().claimed == 0
        assert places() == [1], "what is being claimed stays as it is"
    late.join(30)
    assert found == [TaskState.READY]


def test_who_is_claiming_is_waited_for_and_what_is_left_of_it_is_added_to(
    made: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, tenant = made(slots=16), client_of("awaited").tenant
    open_for(cell, tenant)
    assert places() == [4]
    Opening.objects.update(places=2)
    assert not cell.dispatcher.wants_room(), "half is left"
    with connect() as held, held.transaction():
        held.execute("UPDATE slackwater_tasks_opening SET places = places - 1")  # as a statement that stores does
        cell.dispatcher.run_round()
        assert places() == [2], "not for long"
        monkeypatch.setattr(openings, "PATIENCE", "30s")
        late = threading.Thread(target=cell.dispatcher.run_round)
        late.start()
        wait_until(lambda: _waiting() == 1, message="the dispatcher waits for the row")
    late.join(30)
    assert places() == [5]
    assert not cell.dispatcher.wants_room()


def test_an_opening_that_cannot_be_widened_is_looked_at_again_at_its_next_half(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=4), client_of("full").tenant
    open_for(cell, tenant)
    assert places() == [2]
    for left in (1, 0):
        assert stored(tenant) is TaskState.QUEUED
        assert places() == [left]
        assert cell.dispatcher.wants_room() is (left == 0)
        cell.round()
        assert not cell.dispatcher.wants_room(), "a round has seen that there is no more"


def _waiting() -> int:
    with connection.cursor() as cur:
        cur.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return int(cur.fetchone()[0])


def test_the_second_of_a_line_finds_an_opening_once_there_is_room(made: Callable[..., Rounds]) -> None:
    cell, known, new = made(slots=8), client_of("known").tenant, client_of("new").tenant
    open_for(cell, known)
    assert stored(known) is TaskState.QUEUED
    assert not cell.dispatcher.wants_room(), "nothing new"
    assert stored(new) is TaskState.READY
    cell.round()
    assert cell.dispatcher.wants_room(), "none is given ahead to what has come for the first time"
    cell.round()
    assert not cell.dispatcher.wants_room()
    assert stored(new) is TaskState.QUEUED


def test_what_has_a_rate_is_left_to_rounds_and_nobody_else_is(made: Callable[..., Rounds]) -> None:
    cell, limited, free = made(slots=8), client_of("rated").tenant, client_of("unrated").tenant
    open_for(cell, limited)
    assert places() == [4]
    RateLimit.objects.create(tenant=limited, starts=3, per_s=3600)
    cell.changed()
    cell.round()
    assert stored(limited) is TaskState.READY
    for _ in range(4):
        submit(limited, ECHO)
    cell.round()
    assert cell.held()[limited.pk] <= 3
    open_for(cell, free)
    assert stored(free) is TaskState.QUEUED


def test_what_runs_again_waits_for_a_round(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=4), client_of("again").tenant
    (task_id,) = submit(tenant, ECHO).task_ids
    cell.round()
    cell.worker.end(cell.running, Outcome.CANCELLED)
    cell.running.clear()
    cell.round()
    assert max(places()) > 0
    retry(tenant.pk, task_id)
    assert state_of(task_id) is TaskState.READY
    assert cell.round().claimed == 1


def test_where_none_was_found_none_is_looked_for_at_once(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=4), client_of("missed").tenant
    open_for(cell, tenant)
    line = Line.objects.unscoped().get(tenant=tenant)  # unscoped: the tenant is named
    key = (line.pk, Handler.objects.get(name="demo.echo").pk, False)
    openings_missed.note(key, missed=True)
    (task_id,) = submit(tenant, ECHO).task_ids
    assert (state_of(task_id), places()) == (TaskState.READY, [2])
    wait_until(lambda: openings_missed.may_be_there(key), message="it is looked for again")
    assert state_of(submit(tenant, ECHO).task_ids[0]) is TaskState.QUEUED


def test_urgent_work_goes_through_the_urgent_queue(made: Callable[..., Rounds]) -> None:
    cell, tenant = made(slots=4), client_of("urgent").tenant
    open_for(cell, tenant, category="urgent")
    (opening,) = Opening.objects.all()
    assert opening.queue == QueueName.URGENT
    assert stored(tenant, category="urgent") is TaskState.QUEUED
    assert stored(tenant) is TaskState.READY


def test_news_of_free_room_starts_a_round_only_where_it_changes_anything(made: Callable[..., Rounds]) -> None:
    cell, tenant, other = made(slots=2), client_of("quiet").tenant, client_of("other").tenant
    open_for(cell, tenant)
    assert not cell.dispatcher.wants_room(), "nothing waits, and there is room for what may come"
    listening = HintListener(conf().redis_url, cell.queues.keys, cell.conf.cell)
    listening.wait(0.01)  # it subscribes
    cell.queues.tell([], room=True)
    assert listening.wait(30.0) == {"room"}
    submit(other, ECHO)
    assert listening.wait(30.0) == {"work"}
    listening.close()
    assert cell.dispatcher.wants_room(), "it is ready"
    cell.round()
    cell.round()
    assert cell.dispatcher.wants_room(), "one of the two slots is taken, and one of the two finds none given ahead"
