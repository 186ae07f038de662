"""Why a task waits: each blocker is named, and the task starts when that blocker is removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import redis
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from apps.resources.models import Handler, Tier
from apps.tasks.explaining import KINDS, explain
from apps.tasks.models import LiveTask, RateLimit
from apps.tasks.round_store import PgRoundStore
from apps.tasks.services import edit, submit, submit_workflow
from apps.tasks.transitions import start_if_queued, unpark
from apps.tenants.models import Tenant
from apps.tenants.scoping import tenant_scope
from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.dispatcher import Dispatcher
from scheduler_ext.ports import Started
from scheduler_ext.queue_manager import QueueManager
from tests.support.api import HANDLER, client_of, forget_lookups, furnish
from tests.support.hand_worker import HOLDER, HandWorker, raw_cursor
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class Cell:
    """A tenant, a node with five slots, and a dispatcher whose rounds the test runs."""

    def __init__(self, client: redis.Redis) -> None:
        forget_lookups()
        furnish()
        self.client = client_of("acme")
        self.tenant: Tenant = self.client.tenant
        self.worker = HandWorker()
        self.worker.node.slots = {"process": 5}
        self.worker.node.save()
        conf = self.worker.conf
        self.store = PgRoundStore(conf, HOLDER)
        self.dispatcher = Dispatcher(self.store, QueueManager(client, conf), conf, HOLDER)

    def submit(self, **fields: Any) -> UUID:
        """One task."""
        return submit(self.tenant, {"handler": HANDLER, **fields}).task_ids[0]

    def explain(self, task_id: UUID) -> dict[str, Any]:
        """The explanation, as the tenant reads it."""
        with tenant_scope(self.tenant.pk):
            return explain(task_id)

    def kinds(self, task_id: UUID) -> list[str]:
        """The kinds of its blockers."""
        return [blocker["kind"] for blocker in self.explain(task_id)["blockers"]]

    def round(self) -> None:
        """One round, with everything read anew."""
        self.store.reference.read_at = float("-inf")
        self.dispatcher._woken = float("-inf")
        assert self.dispatcher.keep_lead()
        self.dispatcher.run_round()

    def started(self, task_id: UUID) -> list[Started]:
        """Begin a task that a round has claimed."""
        row = LiveTask.objects.unscoped().get(pk=task_id)  # the test is no tenant
        with raw_cursor() as cur:
            return start_if_queued(cur, self.worker.node.pk, [(str(task_id), row.fence)])

    def claimed(self, task_id: UUID) -> bool:
        """Whether the task is claimed after a round."""
        self.round()
        rows = LiveTask.objects.unscoped().filter(pk=task_id)  # the test is no tenant
        return bool(rows.filter(state=TaskState.QUEUED).exists())


@pytest.fixture
def cell(redis_client: redis.Redis) -> Iterator[Cell]:
    made = Cell(redis_client)
    try:
        yield made
    finally:
        made.store.db.close()


Remove = Callable[[], Any]


def sql(text: str, *values: Any) -> None:
    with connection.cursor() as cur:
        cur.execute(text, values)


def dependency(cell: Cell) -> tuple[UUID, Remove]:
    tasks = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]
    parent, child = submit_workflow(cell.tenant, {"name": "w", "tasks": tasks}).task_ids
    started = cell.worker.start(parent)
    return child, lambda: cell.worker.end(started)


def start_time(cell: Cell) -> tuple[UUID, Remove]:
    task = cell.submit(start_at="2090-01-01T00:00:00Z")
    return task, lambda: edit(cell.tenant.pk, task, {"start_at": None})


def back_off(cell: Cell) -> tuple[UUID, Remove]:
    cell.worker.conf = replace(cell.worker.conf, retry_base_s=3600.0)
    task = cell.submit()
    cell.worker.run(task, outcome=Outcome.FAILED, error="boom")
    return task, lambda: sql("UPDATE tasks_livetask SET not_before = now() WHERE task_id = %s", task)


def mutex(cell: Cell) -> tuple[UUID, Remove]:
    holder, task = cell.submit(mutex_key="door"), cell.submit(mutex_key="door")
    started = cell.worker.start(holder)

    def end() -> None:
        cell.worker.end(started)
        with raw_cursor() as cur:
            unpark(cur, [f"{cell.tenant.pk}:door"])

    return task, end


def rate(cell: Cell) -> tuple[UUID, Remove]:
    limit = RateLimit.objects.create(tenant=cell.tenant, key="bank", starts=1, per_s=3600)
    first, task = cell.submit(rate_key="bank"), cell.submit(rate_key="bank")
    assert cell.claimed(first)
    return task, lambda: RateLimit.objects.filter(pk=limit.pk).update(starts=2)


def plan_number(cell: Cell, name: str, low: int, high: int) -> Remove:
    setattr(cell.tenant.plan, name, low)
    cell.tenant.plan.save()

    def raise_it() -> None:
        setattr(cell.tenant.plan, name, high)
        cell.tenant.plan.save()

    return raise_it


def tenant_in_flight(cell: Cell) -> tuple[UUID, Remove]:
    cell.worker.start(cell.submit())
    return cell.submit(), plan_number(cell, "max_in_flight", 1, 10)


def hard_share(cell: Cell) -> tuple[UUID, Remove]:
    cell.worker.start(cell.submit())
    return cell.submit(), plan_number(cell, "maximum_permille", 200, 1000)


def peak(cell: Cell) -> tuple[UUID, Remove]:
    started = cell.worker.start(*[cell.submit() for _ in range(4)])
    return cell.submit(category="offpeak"), lambda: cell.worker.end(started[:1])


def no_slot(cell: Cell) -> tuple[UUID, Remove]:
    started = cell.worker.start(*[cell.submit() for _ in range(5)])
    return cell.submit(category="urgent"), lambda: cell.worker.end(started[:1])


def position(cell: Cell) -> tuple[UUID, Remove]:
    started = cell.worker.start(*[cell.submit() for _ in range(4)])
    before = [cell.submit() for _ in range(2)]
    task = cell.submit()

    def clear() -> None:
        cell.worker.end(started)
        cell.worker.run(*before)

    return task, clear


def tenant_paused(cell: Cell) -> tuple[UUID, Remove]:
    task = cell.submit()
    Tenant.objects.filter(pk=cell.tenant.pk).update(paused=True)
    return task, lambda: Tenant.objects.filter(pk=cell.tenant.pk).update(paused=False)


def handler_paused(cell: Cell) -> tuple[UUID, Remove]:
    task = cell.submit()
    Handler.objects.filter(name=HANDLER).update(paused=True)
    return task, lambda: Handler.objects.filter(name=HANDLER).update(paused=False)


def never_fits(cell: Cell) -> tuple[UUID, Remove]:
    Tier.objects.create(slug="huge", tenant=cell.tenant, cpu_milli=10**9, memory_mb=1)
    task = cell.submit(tier="huge")
    return task, lambda: edit(cell.tenant.pk, task, {"tier": "basic"})


def no_node(cell: Cell) -> tuple[UUID, Remove]:
    Handler.objects.create(name="demo.nowhere")

    def export() -> None:
        cell.worker.node.handlers = list(Handler.objects.values_list("pk", flat=True))
        cell.worker.node.save()

    return submit(cell.tenant, {"handler": "demo.nowhere"}).task_ids[0], export


def dispatcher(cell: Cell) -> tuple[UUID, Remove]:
    sql("UPDATE tasks_leader SET expires_at = now() - interval '1 s'")
    cell.dispatcher._renewed = float("-inf")
    return cell.submit(), cell.dispatcher.keep_lead


CASES: dict[str, Callable[[Cell], tuple[UUID, Remove]]] = {
    "dependency": dependency, "start_time": start_time, "back_off": back_off, "mutex": mutex, "rate": rate,
    "tenant_in_flight": tenant_in_flight, "hard_share": hard_share, "peak": peak, "no_slot": no_slot,
    "position": position, "paused tenant": tenant_paused, "paused handler": handler_paused,
    "never_fits": never_fits, "no_node": no_node, "dispatcher": dispatcher,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_removing_the_named_blocker_starts_the_task(cell: Cell, name: str) -> None:
    task, remove = CASES[name](cell)
    kind = name.split(maxsplit=1)[0]
    if kind != "dispatcher":
        assert kind in cell.kinds(task), "before a round"
        if kind != "position":
            assert not cell.claimed(task)
    found = cell.explain(task)
    blockers = {blocker["kind"]: blocker for blocker in found["blockers"]}
    assert kind in blockers
    assert set(blockers) <= set(KINDS)
    assert found["waiting"]
    if kind in {"mutex", "dependency"}:
        assert len(blockers[kind]["tasks"]) == 1
    if kind in {"mutex", "no_slot", "position", "peak", "dependency", "tenant_in_flight"}:
        predicted = found["predicted_start"]
        assert predicted["earliest"] <= predicted["likely"] <= predicted["latest"]
    remove()
    if kind in {"never_fits", "no_node"}:
        let_go(cell)
    wait_until(lambda: cell.claimed(task), message="it starts")
    assert cell.explain(task)["blockers"] == []


def let_go(cell: Cell) -> None:
    """What upkeep does when a node appears."""
    from apps.tasks.parking import ParkingUpkeep
    from apps.tasks.work_store import PgWorkStore

    work = PgWorkStore(cell.worker.conf, "test", cell.store.db)
    ParkingUpkeep(cell.worker.conf, cell.store.db, work, lambda changes: None).unpark_possible()


def test_the_forecast_counts_what_is_ahead(cell: Cell) -> None:
    """Five slots, runs of ten seconds: the sixteenth of those that wait starts after three more rounds of them."""
    sql(
        "INSERT INTO tasks_runtime (tenant_id, key, samples, mean_us, updated_at) VALUES (%s, %s, 50, 10e6, now())",
        cell.tenant.pk, HANDLER,
    )  # fmt: skip
    cell.worker.start(*[cell.submit() for _ in range(5)])
    tasks = [cell.submit() for _ in range(16)]
    began = timezone.now()
    found = cell.explain(tasks[-1])
    assert (timezone.now() - began).total_seconds() < 2
    likely = (found["predicted_start"]["likely"] - found["as_of"]).total_seconds()
    assert 35 <= likely <= 45
    first = (cell.explain(tasks[0])["predicted_start"]["likely"] - began).total_seconds()
    assert 5 <= first <= 11


def test_what_does_not_wait_says_so_and_what_is_not_there_is_not_found(cell: Cell) -> None:
    task = cell.submit()
    assert cell.explain(task)["summary"] == "Nothing holds it: it starts with the next round."
    started = cell.worker.start(task)
    assert cell.explain(task)["summary"] == "It runs on hand-1."
    cell.worker.end(started)
    assert (cell.explain(task)["waiting"], cell.explain(task)["summary"]) == (
        False,
        "It has ended: succeeded.",
    )
    stranger = client_of("stranger")
    with tenant_scope(stranger.tenant.pk), pytest.raises(NotFound):
        explain(task)


def test_it_is_told_over_rest_by_command_and_changes_nothing(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    task, _ = mutex(cell)
    before = list(LiveTask.objects.unscoped().values())  # the test is no tenant
    answer = cell.client.get(f"/tasks/{task}/explain")
    assert (answer.status, answer.body["blockers"][0]["kind"]) == (200, "mutex")
    call_command("explain", str(task), "--tenant", "acme", "--json")
    assert json.loads(capsys.readouterr().out)["summary"].startswith("Its mutex key door is held by")
    call_command("explain", str(task), "--tenant", "acme")
    assert "A holder ends." in capsys.readouterr().out
    assert list(LiveTask.objects.unscoped().values()) == before
