"""A cell whose rounds the test runs: a tenant, a node with five slots, a dispatcher."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import redis
from django.db import connection

from scheduler_ext.core.states import TaskState
from scheduler_ext.core.work import Started
from scheduler_ext.dispatch.dispatcher import Dispatcher
from scheduler_ext.dispatch.queue_manager import QueueManager
from scheduler_ext.preemption.controller import TurnTaking
from slackwater_tasks.explain.explanation import explain
from slackwater_tasks.ledger.preemption_store import PgTurnStore
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.ledger.transitions import start_if_queued
from slackwater_tasks.models import LiveTask
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope
from tests.support.api import HANDLER, client_of, furnish
from tests.support.hand_worker import HOLDER, HandWorker, raw_cursor


class Cell:
    """A tenant, a node with five slots, and a dispatcher whose rounds the test runs."""

    def __init__(self, client: redis.Redis, settings: Any = None) -> None:
        self.settings = settings
        furnish()
        self.client = client_of("acme")
        self.tenant: Tenant = self.client.tenant
        self.worker = HandWorker()
        self.worker.node.slots = {"process": 5}
        self.worker.node.save()
        conf = self.worker.conf
        self.store = PgRoundStore(conf, HOLDER)
        self.dispatcher = Dispatcher(self.store, QueueManager(client, conf), conf, HOLDER)

    def configure(self, **numbers: Any) -> None:
        """Other settings, for the dispatcher and for whoever explains."""
        given = self.settings.SLACKWATER
        self.settings.SLACKWATER = {**given, "SCHEDULER": {**given.get("SCHEDULER", {}), **numbers}}
        self.dispatcher.conf = self.store.conf = replace(self.dispatcher.conf, **numbers)

    def resize(self, slots: int) -> None:
        """So many process slots."""
        self.worker.node.slots = {"process": slots}
        self.worker.node.save()

    def take_turns(self) -> None:
        """Let running tasks make room for what waits."""
        turns = PgTurnStore(self.store)
        self.dispatcher.turns = TurnTaking(turns, self.dispatcher.queues.tell_nodes, self.store.conf, self.store.share)

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


def sql(text: str, *values: Any) -> None:
    with connection.cursor() as cur:
        cur.execute(text, values)


def let_go(cell: Cell) -> None:
    """What upkeep does when a node appears, or a limit is gone."""
    from slackwater_tasks.runtime.work_store import PgWorkStore
    from slackwater_tasks.upkeep.parking import ParkingUpkeep

    work = PgWorkStore(cell.worker.conf, "test", cell.store.db)
    upkeep = ParkingUpkeep(cell.worker.conf, cell.store.db, work, lambda changes: None)
    upkeep.unpark_possible()
    upkeep.unpark_limited()
