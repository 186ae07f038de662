"""A task that is edited after a round's claim has begun is not claimed on what it was before; the next round claims it."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from scheduler_ext.core.states import TaskState
from scheduler_ext.core.types import Decision, QueueName, WorkKind
from slackwater_tasks.ledger import transitions
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import LiveTask
from slackwater_tasks.submission.service import submit_many
from tests.support.api import client_of, furnish
from tests.support.hand_worker import HOLDER, HandWorker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def _waiting() -> bool:
    with connection.cursor() as cur:
        cur.execute(WAITING)
        return bool(cur.fetchone()[0])


def _decision(row: LiveTask, node_id: int) -> Decision:
    return Decision(
        task_id=str(row.pk), line_id=row.line_id, node_id=node_id, kind=WorkKind.PROCESS, queue=QueueName.DELAYABLE,
        fence=row.fence, expected_us=0, exclusive=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "changed", ["priority = 7", "state = 4, fence = 1, node_id = %(node)s", "cancel_requested = true"]
)
def test_what_changes_while_a_claim_waits_is_left_as_it_is(changed: str) -> None:
    furnish()
    worker, tenant = HandWorker(), client_of("edited").tenant
    ids = submit_many(tenant, [{"handler": "demo.echo"}] * 3).task_ids
    node = worker.node.pk
    decisions = [_decision(LiveTask.objects.unscoped().get(pk=each), node) for each in ids]  # unscoped: of all tenants
    won: list[set[str]] = []
    holder, claimer = connect(), connect(hot=True)

    def claim() -> None:
        found = transitions.claim_if_ready(claimer, worker.conf, worker.epoch, HOLDER, decisions, [1_000] * 3)
        won.append(found)

    # Whoever holds the leader's row holds the claim up after it has begun: what it sees is from before the edit.
    with holder.transaction():
        holder.execute("SELECT 1 FROM slackwater_tasks_leader FOR UPDATE")
        thread = threading.Thread(target=claim)
        thread.start()
        wait_until(_waiting, message="the claim waits for the leader's row")
        with connection.cursor() as cur:
            cur.execute(
                f"UPDATE slackwater_tasks_livetask SET {changed} WHERE task_id = %(id)s",
                {"id": ids[1], "node": node},
            )
    thread.join()
    assert won == [{str(ids[0]), str(ids[2])}]
    rows = {row.pk: row for row in LiveTask.objects.unscoped().filter(pk__in=ids)}  # unscoped: of all tenants
    assert [rows[each].fence for each in (ids[0], ids[2])] == [1, 1]
    edited = rows[ids[1]]
    if edited.state == TaskState.READY:
        assert (edited.fence, edited.node_id) == (0, None)
        assert transitions.claim_if_ready(claimer, worker.conf, worker.epoch, HOLDER, [decisions[1]], [1_000]) == {
            str(ids[1])
        }
    else:
        assert (edited.state, edited.fence, edited.slot_milli) == (TaskState.QUEUED, 1, 1_000)
    holder.close()
    claimer.close()
