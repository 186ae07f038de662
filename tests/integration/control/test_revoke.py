"""Cancelling what has not begun, as Celery's ``revoke`` without ``terminate`` does: what runs goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from scheduler_ext.core.states import Outcome, TaskState
from slackwater import handler, submit
from slackwater.celery import app
from slackwater.testing.inbox import Inbox
from slackwater.testing.plugin import slackwater_inbox
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.models import LiveTask, Task
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER, ApiClient
from tests.support.hand_worker import HandWorker
from tests.support.waiting import wait_until

__all__ = ["slackwater_inbox"]
WAITING_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@handler(name="revoking.itself", bind=True)
def itself(self: Any, /, how: str, **options: Any) -> bool:
    """Be revoked while it runs; returns whether it was asked to end."""
    if how == "result":
        app.AsyncResult(self.request.id).revoke(**options)
    else:
        app.control.revoke([self.request.id] if how == "list" else self.request.id, **options)
    return bool(LiveTask._plain.get(pk=self.request.id).cancel_requested)


@pytest.mark.parametrize("how", ["result", "control", "list"])
@pytest.mark.parametrize("terminate", [False, True])
def test_a_task_that_runs_is_asked_to_end_by_terminate_alone(
    slackwater_inbox: Inbox, how: str, *, terminate: bool
) -> None:
    given = {"handler": "revoking.itself", "args": [how], "kwargs": {"terminate": True} if terminate else {}}
    task_id = submit(slackwater_inbox.tenant, given).task_ids[0]
    slackwater_inbox.run_until_idle()
    assert app.AsyncResult(str(task_id)).get(timeout=1) is terminate


def test_tasks_that_have_not_begun_are_cancelled(slackwater_inbox: Inbox) -> None:
    task = {"handler": "revoking.itself", "args": ["result"]}
    ids = [str(submit(slackwater_inbox.tenant, task).task_ids[0]) for _ in range(3)]
    app.control.revoke(ids[:2])
    app.AsyncResult(ids[2]).revoke()
    assert [app.AsyncResult(one).state for one in ids] == ["REVOKED"] * 3
    assert not slackwater_inbox.run_until_idle()


@pytest.mark.django_db
def test_over_rest_what_runs_goes_on(acme: ApiClient) -> None:
    worker, (waits, runs) = HandWorker(), (acme.task(), acme.task())
    started = worker.start(UUID(runs))
    answers = [acme.post(f"/tasks/{one}/cancel", {"waiting_only": True}) for one in (waits, runs)]
    assert [(each.status, each.body["state"], each.body["cancel_requested"]) for each in answers] == [
        (200, "cancelled", False), (202, "running", False),
    ]  # fmt: skip
    worker.end(started)
    assert acme.post(f"/tasks/{runs}/cancel", {"waiting_only": True}).status == 409
    assert acme.post(f"/tasks/{runs}/cancel", {"waiting_only": 1}).body["field"] == "waiting_only"


def begins(worker: HandWorker, task_id: UUID) -> Callable[[], Any]:
    """It begins at that moment."""
    return lambda: worker.start(task_id)


def fails(worker: HandWorker, task_id: UUID) -> Callable[[], Any]:
    """It runs, and fails at that moment: its retry waits."""
    started = worker.start(task_id)
    return lambda: worker.end(started, Outcome.FAILED)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("prepare", "found"), [(begins, TaskState.RUNNING), (fails, TaskState.CANCELLED)])
def test_what_changes_at_that_moment_runs_on_or_is_cancelled(tenant: Tenant, prepare: Any, found: TaskState) -> None:
    task_id = submit(tenant, {"handler": HANDLER}).task_ids[0]
    happens = prepare(HandWorker(), task_id)
    answers: list[TaskState] = []

    def take_back() -> None:
        try:
            answers.append(cancel(tenant.pk, task_id, waiting_only=True))
        finally:
            connection.close()

    other = threading.Thread(target=take_back)
    with transaction.atomic(), connection.cursor() as cur:
        happens()
        other.start()

        def waits() -> bool:
            cur.execute("SELECT pg_stat_clear_snapshot()")
            cur.execute(WAITING_FOR_A_LOCK)
            return bool(cur.fetchone()[0]) or not other.is_alive()

        wait_until(waits, message="it waits for the row")
        assert other.is_alive()
    other.join(20)
    live = LiveTask._plain.filter(pk=task_id).first()
    assert answers == [TaskState((live or Task._plain.get(pk=task_id)).state or 0)] == [found]
    assert live is None or not live.cancel_requested
