"""A node whose work a test does by hand, through the real claims and transitions, over Django's own connection."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome, TaskState, is_final
from scheduler_ext.core.types import Decision, QueueName, WorkKind
from scheduler_ext.core.work import Finished, Started
from slackwater_resources.models import Handler, Node
from slackwater_tasks.ledger import sql, transitions
from slackwater_tasks.models import LiveTask

HOLDER = "hand"


@contextmanager
def raw_cursor() -> Iterator[Any]:
    """Django's psycopg cursor, in the transaction that Django is in."""
    with connection.cursor() as wrapped:
        yield wrapped.cursor


class HandWorker:
    """Claims, starts and ends tasks one step at a time."""

    def __init__(self, name: str = "hand-1", cell: str = "default") -> None:
        self.conf = SchedulerConf(cell=cell)
        now = timezone.now()
        self.node = Node.objects.create(
            name=name,
            hostname=f"{name}.test",
            incarnation=uuid.uuid4(),
            cell=cell,
            capacity=[4_000, 8_192, 10_000, 1_000, 1_000_000, 100],
            slots={"process": 4, "script": 2},
            handlers=list(Handler.objects.values_list("pk", flat=True)),
            started_at=now,
            heartbeat_at=now,
            lease_expires_at=now + timedelta(hours=1),
        )
        with raw_cursor() as cur:
            values = {"cell": cell, "holder": HOLDER, "lease": 3_600.0, "node_lease": 10.0}
            self.epoch = int(cur.execute(sql.leadership.LEAD, values).fetchone()[0])

    def claim(self, *task_ids: UUID) -> list[tuple[str, int]]:
        """Claim ready tasks; returns them with their fences, in the order given."""
        # Unscoped: a node works for all tenants.
        rows = LiveTask.objects.unscoped().filter(pk__in=task_ids)
        decisions = [
            Decision(
                task_id=str(row.pk), line_id=row.line_id, node_id=self.node.pk, kind=WorkKind.PROCESS,
                queue=QueueName.DELAYABLE, fence=row.fence, expected_us=0, exclusive=True,
            )
            for row in sorted(rows, key=lambda row: task_ids.index(row.pk))
        ]  # fmt: skip
        with raw_cursor() as cur:
            claim = transitions.claim_if_ready
            won = claim(cur, self.conf, self.epoch, HOLDER, decisions, [1_000] * len(decisions))
            assert len(won) == len(task_ids), f"only {won} of {task_ids} could be claimed"
        return [(d.task_id, d.fence + 1) for d in decisions]

    def start(self, *task_ids: UUID) -> list[Started]:
        """Claim ready tasks and begin them."""
        claims = self.claim(*task_ids)
        with raw_cursor() as cur:
            return transitions.start_if_queued(cur, self.node.pk, claims)

    def end(
        self,
        started: Sequence[Started],
        outcome: Outcome = Outcome.SUCCEEDED,
        *,
        result: str | None = "null",
        error: str | None = None,
        logs: str = "",
        took_s: float = 0.01,
    ) -> None:
        """Record how started tasks ended, and tell their dependants."""
        now = time.time()
        ended = [
            Finished(
                task_id=one.task_id, fence=one.fence, outcome=outcome, started_at=now - took_s, finished_at=now,
                result=result if outcome is Outcome.SUCCEEDED else None, error=error, worker="child-1",
            )
            for one in started
        ]  # fmt: skip
        with raw_cursor() as cur:
            if logs:
                for one in started:
                    log = (one.task_id, one.tenant_id, one.fence, logs)
                    cur.execute(
                        "INSERT INTO slackwater_tasks_attemptlog (task_id, tenant_id, fence, stream, text, truncated) "
                        "VALUES (%s, %s, %s, 'stdout', %s, false)",
                        log,
                    )
            rows = transitions.record(cur, self.conf, self.node.pk, ended, random.Random(1))
            parents = [(row[0], TaskState(row[1])) for row in rows if row[2] and is_final(TaskState(row[1]))]
            if parents:
                transitions.release(cur, parents)

    def run(self, *task_ids: UUID, **how: Any) -> None:
        """Start tasks and end them."""
        self.end(self.start(*task_ids), **how)
