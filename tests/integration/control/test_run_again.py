"""Running again what has ended, while others end or are told of an end: nobody waits for ever or is ended wrongly."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.utils.dateparse import parse_datetime

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.control import bulk
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.control.workflow_rerun import rerun
from slackwater_tasks.ledger import transitions
from slackwater_tasks.models import LiveTask, Task
from slackwater_tasks.submission.service import submit_workflow
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope
from tests.support.api import HANDLER, ApiClient
from tests.support.hand_worker import HandWorker, raw_cursor
from tests.support.rounds import Rounds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

WAITING_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def pair(tenant: Tenant) -> tuple[UUID, UUID, UUID]:
    """A workflow of a task and one that needs it: its id and theirs."""
    first = {"name": "first", "handler": HANDLER, "total_attempts": 1}
    second = {"name": "second", "handler": HANDLER, "depends_on": ["first"]}
    found = submit_workflow(tenant, {"name": "w", "tasks": [first, second]})
    assert found.workflow_id is not None
    first_id, second_id = found.task_ids
    return found.workflow_id, first_id, second_id


def end_untold(worker: HandWorker, task_id: UUID, outcome: Outcome) -> None:
    """The worker is held up between its finish and the telling of dependants."""
    started = worker.start(task_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transitions, "release", lambda *_: 0)
        worker.end(started, outcome)
    assert Task._plain.get(pk=task_id).release_pending


def state(task_id: UUID) -> TaskState:
    live = LiveTask._plain.filter(pk=task_id).first()
    return TaskState((live or Task._plain.get(pk=task_id)).state or 0)


def test_dependants_are_told_before_what_they_needed_runs_again(tenant: Tenant) -> None:
    worker = HandWorker()
    _, first, second = pair(tenant)
    end_untold(worker, first, Outcome.FAILED)
    retry(tenant.pk, first)
    assert (state(first), state(second)) == (TaskState.READY, TaskState.CANCELLED)


def test_an_end_that_was_taken_back_is_told_to_nobody(tenant: Tenant) -> None:
    worker = HandWorker()
    workflow_id, first, second = pair(tenant)
    end_untold(worker, first, Outcome.FAILED)
    assert set(rerun(tenant, workflow_id)) == {first, second}
    with raw_cursor() as cur:  # the worker wakes up and tells what it had recorded
        transitions.release(cur, [(str(first), TaskState.FAILED)])
    assert state(second) is TaskState.BLOCKED
    worker.run(first)
    worker.run(second)
    assert state(second) is TaskState.SUCCEEDED


def one(tenant: Tenant, task_id: UUID) -> None:
    retry(tenant.pk, task_id)


def many(tenant: Tenant, task_id: UUID) -> None:
    with tenant_scope(tenant.pk):
        assert bulk.retry_matching(tenant, Task.objects.filter(pk=task_id)).task_ids == [task_id]


@pytest.mark.parametrize("run_again", [one, many])
def test_what_runs_again_misses_no_telling(tenant: Tenant, run_again: Any) -> None:
    worker = HandWorker()
    _, first, second = pair(tenant)
    cancel(tenant.pk, second)
    end_untold(worker, first, Outcome.SUCCEEDED)

    def tell() -> None:
        try:
            with transaction.atomic(), raw_cursor() as cur:
                transitions.release(cur, [(str(first), TaskState.SUCCEEDED)])
        finally:
            connection.close()

    telling = threading.Thread(target=tell)
    with transaction.atomic(), connection.cursor() as cur:
        run_again(tenant, second)
        telling.start()

        def waits() -> bool:
            cur.execute("SELECT pg_stat_clear_snapshot()")
            cur.execute(WAITING_FOR_A_LOCK)
            return bool(cur.fetchone()[0]) or not telling.is_alive()

        wait_until(waits, message="the telling waits, or is over")
        waited = telling.is_alive()
    telling.join(20)
    assert state(second) is TaskState.READY
    assert waited, "an end was told while what needs it was made to run again"
    worker.run(second)


def test_a_task_of_one_attempt_runs_again_by_itself(tenant: Tenant) -> None:
    with closing(Rounds()) as rounds:
        _, first, _ = pair(tenant)
        rounds.worker.run(first, outcome=Outcome.FAILED)
        retry(tenant.pk, first)
        [head] = [head for line in rounds.store.snapshot().lines for head in line.heads]
    assert (head.task_id, head.alone) == (str(first), True)


@pytest.mark.parametrize("ask", ["tasks/{task}/retry", "workflows/{workflow}/retry"])
def test_what_is_not_due_yet_keeps_its_start(acme: ApiClient, ask: str) -> None:
    """No start before, its field says, and goes on saying; what was due runs at once."""
    later = {"start_at": "2040-01-01T00:00:00Z", "expires_at": "2040-01-02T00:00:00Z"}
    due = {"start_at": "2020-01-01T00:00:00Z"}
    for moments, then in ((later, TaskState.SCHEDULED), (due, TaskState.READY)):
        made = acme.post("/workflows", {"name": "w", "tasks": [{"name": "a", "handler": HANDLER, **moments}]}).body
        task, workflow = made["task_ids"][0], made["id"]
        assert acme.post(f"/tasks/{task}/cancel").status in {200, 202}
        assert acme.post(f"/{ask.format(task=task, workflow=workflow)}").status == 200
        live = LiveTask._plain.get(pk=task)
        assert live.state == then
        if moments is later:
            assert [live.not_before, live.expires_at] == [parse_datetime(moment) for moment in later.values()]
