"""Rounds of the real dispatcher in the test's own process; the work of its node is done by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import redis

import slackwater_conf
from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import TaskState
from scheduler_ext.core.types import RoundResult
from scheduler_ext.core.work import Started
from scheduler_ext.dispatch.dispatcher import Dispatcher
from scheduler_ext.dispatch.queue_manager import QueueManager
from slackwater_resources.models import Tier
from slackwater_tasks.ledger import active_policies, transitions
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.models import LiveTask
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Tenant
from tests.support.hand_worker import HOLDER, HandWorker, raw_cursor
from tests.support.waiting import wait_until


class Rounds:
    """A cell with one node of ``slots`` process slots, a dispatcher, and nobody else.

    Needs ``transactional_db`` and an empty Redis: the dispatcher has a connection of its own.
    """

    def __init__(self, slots: int = 10, cpu_milli: int = 1_000_000, **conf: Any) -> None:
        self.worker = HandWorker()
        node = self.worker.node
        node.slots = {"process": slots, "script": 1}
        node.capacity = [cpu_milli, 1_000_000, 1_000_000, 100_000, 1_000_000, 1_000]
        node.save()
        self.conf = SchedulerConf.from_mapping(
            {"peak_permille": 1000, "delayable_permille": 1000, "leader_lease_s": 3600.0, **conf}
        )
        self.store = PgRoundStore(self.conf, HOLDER)
        self.queues = QueueManager(redis.Redis.from_url(slackwater_conf.conf().redis_url), self.conf)
        self.dispatcher = Dispatcher(self.store, self.queues, self.conf, HOLDER)
        assert self.dispatcher.keep_lead()
        self.running: list[Started] = []

    def close(self) -> None:
        """Close the dispatcher's connections."""
        self.store.db.close()

    def changed(self) -> None:
        """What was chosen has changed: nobody goes by what they remember."""
        active_policies.forget()
        self.store.reference.read_at = float("-inf")

    def round(self) -> RoundResult:
        """One round; what it has claimed begins to run."""
        result = self.dispatcher.run_round()
        # Unscoped: a node works for all tenants.
        queued = LiveTask.objects.unscoped().filter(state=TaskState.QUEUED).values_list("pk", "fence")
        with raw_cursor() as cur:
            claims = [(str(pk), fence) for pk, fence in queued]
            if claims:
                self.running += transitions.start_if_queued(cur, self.worker.node.pk, claims)
        return result

    def keep_room_for(self, large: Tenant) -> None:
        """Submit a task of a tenant that takes the whole node, and wait until the dispatcher keeps room for it."""
        plan = large.plan
        Tier.objects.create(slug="whole", cpu_milli=self.worker.node.capacity[0], memory_mb=1)
        plan.tiers = [*plan.tiers, "whole"]
        plan.save()
        submit(large, {"handler": "demo.echo", "tier": "whole"})

        def impatient() -> bool:
            self.round()
            return self.dispatcher._wants_ends

        wait_until(impatient, message="the large task has waited long enough")

    def held(self) -> Counter[int]:
        """Running tasks by tenant id."""
        return Counter(one.tenant_id for one in self.running)

    def end(self, ended: Sequence[Started]) -> None:
        """End some running tasks."""
        gone = {one.task_id for one in ended}
        self.worker.end(list(ended))
        self.running = [one for one in self.running if one.task_id not in gone]

    def end_of(self, tenant_id: int, count: int = 1) -> None:
        """End the tasks of a tenant that run longest."""
        self.end([one for one in self.running if one.tenant_id == tenant_id][:count])

    def served(self, count: int) -> list[UUID]:
        """Run one task after the other until ``count`` have begun; their ids in that order."""
        order: list[UUID] = []
        for _ in range(count * 3):
            self.round()
            order += [UUID(one.task_id) for one in self.running]
            self.end(self.running)
            if len(order) >= count:
                break
        return order
