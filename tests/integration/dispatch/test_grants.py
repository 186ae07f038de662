"""A node that goes on by itself: what it begins in the place of what has ended, and when it may not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from scheduler_ext.core.states import Event, Outcome, TaskState
from scheduler_ext.core.types import WorkKind
from scheduler_ext.core.work import Finished, Started
from scheduler_ext.round.grants import IN_HAND
from slackwater_resources.models import Handler, Node
from slackwater_tasks.control.lines import set_line_paused
from slackwater_tasks.ledger.openings import SEEN, Granted
from slackwater_tasks.models import Attempt, Grant, Leader, Line, Listener, LiveTask, RateLimit, Task
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import submit, submit_many
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import set_paused
from tests.integration.dispatch.test_nomination import LEARNT
from tests.support.api import client_of, furnish
from tests.support.rounds import Rounds

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"handler": "demo.echo"}
MANY = 700


class Floods(Rounds):
    """A cell whose tenants have hundreds of short tasks waiting."""

    def __init__(self, *slugs: str, batch_max: int = 32) -> None:
        furnish()
        super().__init__(slots=2, batch_max=batch_max)
        self.work = PgWorkStore(self.conf, "child", told=Listener.objects.exists)
        self.noted: list[tuple[str, int]] = []
        self.tenants = [client_of(slug).tenant for slug in slugs or ("flood",)]
        for tenant in self.tenants:
            with connection.cursor() as cur:
                cur.execute(LEARNT, (tenant.pk, 100.0))
            submit_many(tenant, [ECHO] * MANY)
        self.changed()

    def close(self) -> None:
        super().close()
        self.work.db.close()

    def flood(self) -> None:
        """Rounds until the node goes on by itself, and lacks no batch for either slot."""
        for _ in range(10):
            self.round()
            if Grant.objects.count() == len(self.tenants) and len(self.running) > 3 * self.conf.batch_max:
                return
        raise AssertionError((Grant.objects.count(), len(self.running)))

    def go_on(self, ended: Sequence[Started]) -> list[Started]:
        """Record these, and what the node begins in their place."""
        now = time.time()
        done = [Finished(one.task_id, one.fence, Outcome.SUCCEEDED, now, now, worker="0:1") for one in ended]
        changes, begun = self.work.record_and_go_on(self.worker.node.pk, done, self.noted.extend)
        assert {change[0] for change in changes} == {one.task_id for one in ended}
        gone = {one.task_id for one in ended}
        self.running = [one for one in self.running if one.task_id not in gone] + begun
        return begun

    def waiting(self, tenant: Tenant | None = None) -> list[str]:
        """The ids of what waits, in order."""
        rows = LiveTask.objects.unscoped().filter(state=TaskState.READY)  # unscoped: of all tenants
        of_one = rows.filter(tenant=tenant) if tenant else rows
        return [str(each) for each in of_one.order_by("rank_group", "rank", "task_id").values_list("pk", flat=True)]


@pytest.fixture
def made(redis_client: Any) -> Iterator[Callable[..., Floods]]:
    cells: list[Floods] = []

    def make(*slugs: str, **how: Any) -> Floods:
        cells.append(Floods(*slugs, **how))
        cells[-1].flood()
        return cells[-1]

    yield make
    for each in cells:
        each.close()


@pytest.fixture
def cell(made: Callable[..., Floods]) -> Floods:
    return made()


def held() -> int:
    # Unscoped: of all tenants.
    return sum(LiveTask.objects.unscoped().filter(state=TaskState.RUNNING).values_list("slot_milli", flat=True))


def test_as_many_begin_as_ended_the_first_that_wait(cell: Floods) -> None:
    first, before, ended = cell.waiting()[:10], held(), cell.running[:10]
    begun = cell.go_on(ended)
    assert [one.task_id for one in begun] == first
    assert [(one.fence, one.attempt, one.handler) for one in begun] == [(1, 1, "demo.echo")] * 10
    assert cell.noted == [(task_id, 1) for task_id in first], "the journal has them before they have surely begun"
    assert held() == before
    # Unscoped: of all tenants.
    row = LiveTask.objects.unscoped().get(pk=first[0])
    assert (row.state, row.fence, row.node_id, row.batch) == (TaskState.RUNNING, 1, cell.worker.node.pk, 10)
    assert row.queued_at == row.started_at
    assert (
        Task.objects.unscoped().filter(pk__in=[one.task_id for one in ended], state=TaskState.SUCCEEDED).count() == 10
    )
    again = cell.go_on(begun)
    assert Attempt.objects.unscoped().filter(task_id__in=first).count() == len(again) == 10


def test_each_line_goes_on_with_as_many_as_ended_of_it(made: Callable[..., Floods]) -> None:
    cell = made("one", "two")
    one, two = (tenant.pk for tenant in cell.tenants)
    holds = cell.held()
    mix = [each for each in cell.running if each.tenant_id == one][:3] + [
        each for each in cell.running if each.tenant_id == two
    ][:7]
    first = cell.waiting(cell.tenants[0])[:3] + cell.waiting(cell.tenants[1])[:7]
    begun = cell.go_on(mix)
    assert Counter(each.tenant_id for each in begun) == {one: 3, two: 7}
    assert {each.task_id for each in begun} == set(first)
    assert cell.held() == holds


def test_where_a_line_has_less_the_room_is_free_again(cell: Floods) -> None:
    left = cell.waiting()
    LiveTask.objects.unscoped().filter(pk__in=left[4:]).delete()  # unscoped: of all tenants
    before = len(cell.running)
    assert len(cell.go_on(cell.running[:10])) == 4
    assert len(cell.running) == before - 6


def test_it_takes_no_more_room_than_ended(cell: Floods) -> None:
    """What is learnt meanwhile of a handler may have made its tasks longer."""
    Grant.objects.update(slot_milli=4)
    assert {each.slot_milli for each in LiveTask.objects.unscoped().filter(state=TaskState.RUNNING)} == {2}  # of all
    before = held()
    assert len(cell.go_on(cell.running[:11])) == 5
    assert held() == before - 2


@pytest.mark.parametrize(("held", "grants"), [(1000, 2), (2, 1000), (1000, 1000)])
def test_a_whole_slot_and_a_part_of_one_are_not_exchanged(cell: Floods, held: int, grants: int) -> None:
    """What took a slot of its own was no batch's; and coroutines, each of which has a whole slot, have those to themselves."""
    Grant.objects.update(slot_milli=grants)
    LiveTask.objects.unscoped().filter(state=TaskState.RUNNING).update(slot_milli=held)  # unscoped: of all tenants
    begun = cell.go_on(cell.running[:6])
    assert len(begun) == (6 if held == grants else 0)
    ids = [one.task_id for one in begun]
    assert set(LiveTask.objects.unscoped().filter(pk__in=ids).values_list("slot_milli", flat=True)) <= {1000}


@pytest.mark.parametrize(
    "changes",
    [
        {"alone": True}, {"total_attempts": 1}, {"mutex_key": "1:k"}, {"rate_key": "k"}, {"last_node": 1},
        {"cancel_requested": True}, {"expires_at": timezone.now() - timedelta(hours=1)}, {"handler_id": -1},
        {"state": TaskState.SCHEDULED},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_what_a_round_has_more_to_ask_about_is_left_to_it(cell: Floods, changes: dict[str, Any]) -> None:
    first, *others = cell.waiting()[:4]
    LiveTask.objects.unscoped().filter(pk=first).update(**changes)  # unscoped: of all tenants
    assert [one.task_id for one in cell.go_on(cell.running[:3])] == others


def lead_by_another(cell: Floods) -> None:
    Leader.objects.update(epoch=cell.dispatcher.epoch + 1)


def lease_over(_cell: Floods) -> None:
    Node.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def leader_gone(_cell: Floods) -> None:
    Leader.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def line_paused(cell: Floods) -> None:
    set_line_paused(Line.objects.unscoped().get(tenant=cell.tenants[0]), paused=True)  # unscoped: of one tenant


@pytest.mark.parametrize(
    "happens",
    [
        lead_by_another,
        lease_over,
        leader_gone,
        line_paused,
        lambda cell: set_paused(cell.tenants[0], paused=True),
        lambda _cell: Handler.objects.filter(name="demo.echo").update(paused=True),
        lambda _cell: Node.objects.update(state="draining"),
        lambda _cell: Grant.objects.update(handler_id=-1),
        lambda _cell: Grant.objects.all().delete(),
        lambda cell: Listener.objects.create(tenant=cell.tenants[0], events=int(Event.SUCCEEDED)),
    ],
    ids=[
        "another leads", "lease", "leader", "line", "tenant", "handler", "draining", "other handler", "none", "listened",
    ],
)  # fmt: skip
def test_where_it_does_not_hold_any_more_what_ended_is_recorded_and_nothing_begins(
    cell: Floods, happens: Callable[[Floods], Any]
) -> None:
    happens(cell)
    waits = cell.waiting()
    assert cell.go_on(cell.running[:5]) == []
    assert cell.waiting() == waits


def test_nothing_is_recorded_and_nothing_begins_where_it_cannot_be_noted(cell: Floods) -> None:
    waits, ended = cell.waiting(), cell.running[:5]

    def full(_claims: Any) -> None:
        raise MemoryError

    now = time.time()
    done = [Finished(one.task_id, one.fence, Outcome.SUCCEEDED, now, now, worker="0:1") for one in ended]
    with pytest.raises(MemoryError):
        cell.work.record_and_go_on(cell.worker.node.pk, done, full)
    assert cell.waiting() == waits
    assert len(cell.go_on(ended)) == 5, "as if nothing had happened"


def test_rounds_claim_nothing_more_for_it_until_a_batch_is_missing(cell: Floods) -> None:
    assert cell.dispatcher.waits_for_room(), "what it lacks a batch of comes when it tells of room"
    full = IN_HAND * 2 * cell.conf.batch_max
    assert cell.round().claimed == 0
    cell.end(cell.running[: len(cell.running) + cell.conf.batch_max - 1 - full])
    assert cell.round().claimed == 0
    cell.end(cell.running[:1])
    first = cell.waiting()[: cell.conf.batch_max]
    assert cell.round().claimed == cell.conf.batch_max
    assert {one.task_id for one in cell.running[-cell.conf.batch_max :]} == set(first)
    assert len(cell.running) == full


def test_what_a_round_decided_on_may_have_begun_meanwhile(cell: Floods, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then others of the line are claimed: it is as many as there is room for, and not certain ones."""
    cell.end(cell.running[: cell.conf.batch_max])
    claim = cell.store.claim

    def late(epoch: int, decisions: Any) -> Any:
        cell.go_on(cell.running[:40])
        return claim(epoch, decisions)

    monkeypatch.setattr(cell.store, "claim", late)
    waits = cell.waiting()
    assert cell.round().claimed == cell.conf.batch_max
    claimed = cell.queues.clear(cell.worker.node.pk)[-cell.conf.batch_max :]
    assert [task_id for task_id, _ in claimed] == waits[40 : 40 + cell.conf.batch_max]


def test_another_line_ends_it_at_the_next_round_and_gets_its_part(cell: Floods) -> None:
    newcomer = client_of("newcomer").tenant
    with connection.cursor() as cur:
        cur.execute(LEARNT, (newcomer.pk, 100.0))
    submit_many(newcomer, [ECHO] * MANY)
    cell.round()
    assert not Grant.objects.exists(), "the first holds all"
    for _ in range(20):
        cell.round()
        if Grant.objects.count() == 2:
            break
        cell.end(cell.running[: cell.conf.batch_max])
    holds = cell.held()
    assert abs(holds[newcomer.pk] - holds[cell.tenants[0].pk]) <= SEEN
    begun = cell.go_on([one for one in cell.running if one.tenant_id == newcomer.pk][:5])
    assert {one.tenant_id for one in begun} == {newcomer.pk}


def test_an_urgent_task_ends_it_and_starts_at_once(cell: Floods) -> None:
    (urgent,) = submit(cell.tenants[0], {**ECHO, "category": "urgent"}).task_ids
    cell.round()
    assert not Grant.objects.exists()
    assert str(urgent) in {one.task_id for one in cell.running}


def test_a_rate_of_theirs_ends_it_and_one_of_others_does_not(cell: Floods) -> None:
    RateLimit.objects.create(tenant=client_of("other").tenant, starts=5, per_s=60)
    cell.changed()
    cell.round()
    assert Grant.objects.exists()
    handler = Handler.objects.get(name="demo.echo")
    RateLimit.objects.create(tenant=cell.tenants[0], handler=handler, starts=5, per_s=60)
    cell.changed()
    cell.round()
    assert not Grant.objects.exists()


def test_it_ends_with_what_waits(cell: Floods) -> None:
    LiveTask.objects.unscoped().filter(pk__in=cell.waiting()).delete()  # unscoped: of all tenants
    cell.round()
    assert not Grant.objects.exists()


def test_grants_are_written_when_they_change_and_now_and_then(cell: Floods) -> None:
    cell.round()
    Grant.objects.all().delete()  # as when PostgreSQL crashed: the table is not logged
    cell.round()
    assert not Grant.objects.exists(), "they are as they were"
    cell.store.granted._written = float("-inf")
    cell.round()
    assert Grant.objects.count() == 1


def test_now_and_then_enough_is_looked_at_to_tell_who_is_behind() -> None:
    granted = Granted()
    assert granted.heads() == 0
    granted.now = (object(), object())  # type: ignore[assignment]  # only their number counts
    assert (granted.heads(), granted.heads()) == (SEEN, 0)


def test_claims_go_through_the_nodes_queue(cell: Floods) -> None:
    cell.queues.clear(cell.worker.node.pk)
    cell.end(cell.running[: cell.conf.batch_max])
    cell.dispatcher.run_round()
    taken, left = cell.queues.take(cell.worker.node.pk, WorkKind.PROCESS)
    assert (len(taken), left) == (cell.conf.batch_max, 0), "one batch"
    assert {fence for _, fence in taken} == {1}
    assert {UUID(task_id) for task_id, _ in taken} == set(
        # Unscoped: of all tenants.
        LiveTask.objects.unscoped().filter(state=TaskState.QUEUED).values_list("pk", flat=True)
    )
