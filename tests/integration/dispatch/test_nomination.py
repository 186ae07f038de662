"""How far a round looks down the lines: as far as there is room and use, no further."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import TaskState
from scheduler_ext.core.types import RoundResult, WorkKind
from scheduler_ext.dispatch.dispatcher import Dispatcher
from scheduler_ext.dispatch.queue_manager import QueueManager
from slackwater.wiring import engine
from slackwater_resources.models import Handler
from slackwater_resources.services import set_handler_paused
from slackwater_tasks.ledger import fronts, sql
from slackwater_tasks.ledger.fronts import FEW, Depth
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.models import LiveTask
from slackwater_tasks.submission.service import submit_many
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import client_of, furnish
from tests.support.hand_worker import HOLDER, HandWorker

pytestmark = pytest.mark.django_db(transaction=True)
ELSEWHERE, NAP = "demo.elsewhere", "demo.nap"
LEARNT = """
INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at) VALUES (%s, 'demo.echo', 50, %s, now())
"""


class Cell:
    """A dispatcher by hand, over one node with four process slots."""

    def __init__(self) -> None:
        furnish()
        Handler.objects.create(name=ELSEWHERE)
        self.tenant = client_of("nomination").tenant
        self.node = HandWorker().node
        self.store = PgRoundStore(
            SchedulerConf(key_prefix=f"nomination-{uuid.uuid4().hex}", leader_lease_s=3600.0), HOLDER
        )
        self.dispatcher = Dispatcher(
            self.store, QueueManager(engine().redis_client(), self.store.conf), self.store.conf, HOLDER
        )
        assert self.dispatcher.keep_lead()

    def submit(self, count: int, handler: str = "demo.echo", tenant: Tenant | None = None, **fields: Any) -> None:
        submit_many(tenant or self.tenant, [{"handler": handler, **fields}] * count)

    def learn(self, micros: float, tenant: Tenant | None = None, *, known: bool = True) -> None:
        with connection.cursor() as cur:
            cur.execute(LEARNT, ((tenant or self.tenant).pk, micros))
        reference = self.store.reference
        reference.read_at = float("-inf" if known else "inf")
        reference.learnt_at = float("-inf")

    def rounds(self) -> list[RoundResult]:
        """Rounds as long as one follows another at once."""
        found = [self.dispatcher.run_round()]
        while found[-1].again:
            found.append(self.dispatcher.run_round())
        return found


@pytest.fixture
def cell() -> Iterator[Cell]:
    made = Cell()
    yield made
    made.store.db.close()


def test_where_few_find_room_few_are_looked_at(cell: Cell) -> None:
    cell.submit(1_000)  # nothing is learnt: each wants a slot of its own
    first = cell.rounds()[-1]
    assert (first.claimed, first.again) == (4, False)
    assert first.nominated <= 2 * FEW


def test_where_all_find_room_the_next_rounds_look_further_at_once(cell: Cell) -> None:
    cell.submit(1_000)
    cell.learn(5)
    found = cell.rounds()
    assert sum(result.claimed for result in found) == 1_000
    assert found[0].nominated <= 2 * FEW < found[-2].nominated
    assert len(found) <= 5


def test_short_tasks_with_a_single_attempt_hold_nothing_up_and_run_by_themselves(cell: Cell) -> None:
    """Each used to ask for a whole slot, for which the slots of all short tasks behind it were kept free."""
    cell.learn(5)
    for _ in range(10):
        cell.submit(20)
        cell.submit(1, total_attempts=1)
    assert sum(result.claimed for result in cell.rounds()) == 210
    once = {str(pk) for pk in LiveTask._plain.filter(total_attempts=1).values_list("pk", flat=True)}
    batches = []
    while batch := cell.dispatcher.queues.take(cell.node.pk, WorkKind.PROCESS)[0]:
        batches.append({task_id for task_id, _ in batch})
    assert sum(map(len, batches)) == 210
    assert sorted(len(batch) for batch in batches if batch & once) == [1] * 10
    assert max(map(len, batches)) >= 20


def test_no_more_is_looked_at_than_there_is_room_for_work_of_its_kind(cell: Cell) -> None:
    """The free process slots of a node are no reason to look at more coroutines than it has places for."""
    nap = Handler.objects.create(name=NAP, kind=WorkKind.COROUTINE).pk
    cell.node.slots, cell.node.handlers = {"process": 4, "coroutine": 400}, [*cell.node.handlers, nap]
    cell.node.save()
    cell.store.reference.read_at = float("-inf")
    cell.submit(2_000, NAP)
    first = cell.rounds()
    assert sum(result.claimed for result in first) == 380, "delayable work leaves a twentieth free"
    LiveTask._plain.filter(state=TaskState.QUEUED).delete()
    full = cell.rounds()
    assert sum(result.claimed for result in full) == 380
    assert full[-1].nominated < 500, "400, a sixteenth more and a few; not twice as many"
    cell.submit(1)
    held = LiveTask._plain.filter(state=TaskState.QUEUED)
    held.filter(pk__in=list(held.values_list("pk", flat=True)[:30])).delete()
    assert sum(result.claimed for result in cell.rounds()) == 30, "the process task stands behind a thousand"
    LiveTask._plain.filter(handler_id=nap, state=TaskState.READY).delete()
    assert sum(result.claimed for result in cell.rounds()) == 1


def test_what_cannot_start_at_the_front_does_not_hide_what_can(cell: Cell) -> None:
    """More tasks than a first look takes want a handler that no node has; one behind them can run."""
    cell.submit(3 * FEW, ELSEWHERE)
    cell.submit(1)
    cell.node.handlers = [h for h in cell.node.handlers if h != _handler(ELSEWHERE)]
    cell.node.save()
    assert sum(result.claimed for result in cell.rounds()) == 1


def test_tasks_of_a_paused_handler_do_not_hide_those_behind(cell: Cell) -> None:
    """They wait beside their line, and go on in their old order when the handler is resumed."""
    cell.submit(3 * FEW, ELSEWHERE)
    cell.submit(2)
    cell.node.handlers = [*cell.node.handlers, _handler(ELSEWHERE)]
    cell.node.save()
    pause(cell, paused=True)
    assert sum(result.claimed for result in cell.rounds()) == 2
    behind = LiveTask._plain.filter(handler_id=_handler(ELSEWHERE))
    assert set(behind.values_list("state", flat=True)) == {TaskState.BLOCKED}
    upkeep = LedgerUpkeep(cell.store.conf, lambda changes: None)
    resume = {job.name: job for job in upkeep.jobs()}["handlers resumed"]
    assert resume.run() == 0, "it is paused still"
    pause(cell, paused=False)
    assert resume.run() == 3 * FEW
    upkeep.db.close()
    assert sum(result.claimed for result in cell.rounds()) == 2, "of the four slots two are taken"
    first = list(behind.order_by("rank_group", "rank", "task_id").values_list("state", flat=True))
    assert first == [TaskState.QUEUED] * 2 + [TaskState.READY] * (3 * FEW - 2)
    assert not behind.filter(parked__isnull=False).exists()


def pause(cell: Cell, *, paused: bool) -> None:
    """Pause or resume the handler that is elsewhere; the dispatcher knows at once."""
    set_handler_paused(Handler.objects.get(name=ELSEWHERE), paused=paused)
    cell.store.reference.read_at = float("-inf")


def crowd(monkeypatch: pytest.MonkeyPatch, cell: Cell, count: int, most: int) -> list[Tenant]:
    """Tenants with a task each; more than ``most`` lines count as very many."""
    monkeypatch.setattr(fronts, "CROWD", most)
    tenants = [create_tenant(f"crowd-{number:03}", f"Crowd {number}") for number in range(count)]
    for tenant in tenants:
        cell.submit(1, tenant=tenant)
    return tenants


def test_of_very_many_lines_those_at_the_front_are_looked_at(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = crowd(monkeypatch, cell, 4 * FEW, 16)
    first = cell.dispatcher.run_round()
    assert (first.claimed, first.nominated) == (4, 4 * FEW), "how many there are is not known before"
    LiveTask._plain.filter(state=TaskState.QUEUED).delete()
    second = cell.dispatcher.run_round()
    assert second.claimed == 4
    assert second.nominated < 3 * FEW
    claimed = LiveTask._plain.filter(state=TaskState.QUEUED).values_list("tenant_id", flat=True)
    assert set(claimed) == {tenant.pk for tenant in tenants[4:8]}, "in the order in which they came"


def test_rounds_that_look_at_some_lines_come_to_all(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(monkeypatch, cell, 3 * FEW, 16)
    cell.learn(5)
    assert sum(result.claimed for result in cell.rounds()) == 3 * FEW
    cell.submit(2)
    assert sum(result.claimed for result in cell.rounds()) == 2, "with few lines all are looked at again"


@pytest.mark.parametrize("in_turn", [1, 2, 5, 6, 64])
def test_where_lines_stand_is_the_same_however_many_are_read_in_turn(cell: Cell, in_turn: int) -> None:
    tenants = [create_tenant(f"stands-{number}", f"Stands {number}") for number in range(4)]
    for tenant, count in zip(tenants, (3, 1, 1, 4), strict=True):
        cell.submit(count, tenant=tenant)
    ((*found, few),) = cell.store.db.conn.execute(sql.snapshot.FRONTS, (in_turn,)).fetchall()
    firsts = LiveTask._plain.order_by("line_id", "rank_group", "rank").distinct("line_id")
    expected = list(firsts.values_list("line_id", "rank_group", "rank"))
    assert sorted(zip(*found, strict=True)) == expected
    assert few == {1: 1, 2: 1, 5: 3, 6: 4, 64: 4}[in_turn]


def test_nothing_stands_anywhere_where_nothing_waits(cell: Cell) -> None:
    assert cell.store.db.conn.execute(sql.snapshot.FRONTS, (64,)).fetchall() == [(None, None, None, 0)]


def test_more_is_read_in_turn_while_lines_are_short() -> None:
    depth = Depth(100)
    depth.found(10_000, cut=True)
    sizes = []
    for _ in range(6):
        depth.stood(depth.in_turn)
        sizes.append(depth.in_turn)
    assert sizes[0] == 4 * FEW
    assert sizes[-1] == 8 * 10_000 + FEW, "enough for all lines"
    for _ in range(6):
        depth.stood(1)
    assert depth.in_turn == FEW


def test_tenants_that_may_start_nothing_do_not_hide_those_behind(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """They came first, and are more than a round looks at."""
    nothing = Plan.objects.create(slug="nothing", name="Nothing", max_in_flight=0)
    for tenant in crowd(monkeypatch, cell, 3 * FEW, 16):
        Tenant.objects.filter(pk=tenant.pk).update(plan=nothing)
    cell.submit(2)
    cell.store.reference.read_at = float("-inf")
    assert sum(result.claimed for result in [cell.dispatcher.run_round(), cell.dispatcher.run_round()]) == 2


def test_a_run_time_learnt_with_one_tenant_serves_the_next(cell: Cell) -> None:
    cell.learn(5)
    other = client_of("another").tenant
    cell.submit(50, tenant=other)
    assert sum(result.claimed for result in cell.rounds()) == 50


def test_what_is_learnt_while_tasks_run_alone_counts_from_the_next_round(cell: Cell) -> None:
    """A burst of a new handler's tasks need not wait until plans and lines are read anew."""
    cell.submit(2)
    assert sum(result.claimed for result in cell.rounds()) == 2
    cell.submit(500)
    cell.learn(5, known=False)
    assert sum(result.claimed for result in cell.rounds()) == 500


def test_a_tenants_own_run_time_goes_first(cell: Cell) -> None:
    other = client_of("another").tenant
    cell.learn(5)
    cell.learn(60_000_000, other)
    cell.submit(50, tenant=other)
    assert sum(result.claimed for result in cell.rounds()) == 4, "its tasks are long: one a slot"


def _handler(name: str) -> int:
    return int(Handler.objects.get(name=name).pk)
