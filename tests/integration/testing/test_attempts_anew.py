"""What runs again has its attempts anew: its retries, its back-off and its own limits begin again, its numbers go on."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from celery import shared_task
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from scheduler_ext.core.states import TaskState
from scheduler_ext.task import handlers
from slackwater import current, export, handler, submit
from slackwater.celery import app
from slackwater.testing.inbox import Inbox
from slackwater.testing.plugin import slackwater_inbox
from slackwater_schedules import dead_letters
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.models import Attempt, DeadLetter, LiveTask, Task

__all__ = ["slackwater_inbox"]
seen: list[tuple[int, int]] = []
"""Of each run: the number of the attempt, and the retries that Celery's request tells."""


def fails(task: Any) -> None:
    seen.append((current().attempt, task.request.retries))
    raise OSError("as always")


@shared_task(name="anew.retries", bind=True, max_retries=2)
def retries(self: Any) -> None:
    """Ask to be run again, for ever."""
    seen.append((current().attempt, self.request.retries))
    raise self.retry(countdown=1)


@shared_task(
    name="anew.by_itself", bind=True, autoretry_for=(OSError,), retry_kwargs={"max_retries": 2, "countdown": 1}
)
def by_itself(self: Any) -> None:
    """Fail, and be retried for that."""
    fails(self)


@handler(name="anew.limited", bind=True, max_retries=2)
def limited(self: Any) -> None:
    """Fail."""
    fails(self)


@handler(name="anew.fails", bind=True)
def plain(self: Any) -> None:
    """Fail."""
    fails(self)


@shared_task(name="anew.more", bind=True, max_retries=1)
def more(self: Any) -> None:
    """Ask for more attempts than it was submitted with."""
    seen.append((current().attempt, self.request.retries))
    raise self.retry(countdown=1, max_retries=2)


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Inbox:
    """An inbox with these tasks as handlers, for this test alone."""
    monkeypatch.setattr(handlers, "_exports", dict(handlers.exported()))
    for name in ("anew.retries", "anew.by_itself", "anew.more"):
        export(app.tasks[name])
    seen.clear()
    found: Inbox = request.getfixturevalue("slackwater_inbox")
    return found


def run_out(inbox: Inbox, name: str, **fields: Any) -> UUID:
    task_id = submit(inbox.tenant, {"handler": name, **fields}).task_ids[0]
    inbox.run_until_idle()
    assert Task._plain.get(pk=task_id).state == TaskState.FAILED
    return task_id


@pytest.mark.parametrize(("name", "total"), [
    ("anew.retries", 3), ("anew.by_itself", 3), ("anew.more", 2), ("anew.limited", 3), ("anew.limited", 5),
])  # fmt: skip
def test_a_task_of_celerys_that_runs_again_is_retried_as_often_as_before(inbox: Inbox, name: str, total: int) -> None:
    task_id = run_out(inbox, name, total_attempts=total)
    assert seen == [(1, 0), (2, 1), (3, 2)]
    for runs in (2, 3):
        retry(inbox.tenant.pk, task_id)
        assert app.AsyncResult(str(task_id)).state == "PENDING"
        inbox.run_until_idle()
        assert seen[-3:] == [(3 * runs - 2, 0), (3 * runs - 1, 1), (3 * runs, 2)]
    ended = Task._plain.get(pk=task_id)
    assert (ended.state, ended.attempts_used, ended.total_attempts) == (TaskState.FAILED, 9, max(total, 3))
    assert sorted(Attempt._plain.filter(task_id=task_id).values_list("number", flat=True)) == list(range(1, 10))


def test_a_result_counts_the_retries_since_it_ran_again(inbox: Inbox) -> None:
    task_id = run_out(inbox, "anew.retries", total_attempts=3)
    retry(inbox.tenant.pk, task_id)
    inbox.run_until_idle(jump=False)
    result = app.AsyncResult(str(task_id))
    assert (result.state, result.retries) == ("RETRY", 1)


def test_pages_say_of_how_many_attempts_it_has_had_some(inbox: Inbox) -> None:
    task_id = run_out(inbox, "anew.limited", total_attempts=3)
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root", password="x"))
    page = f"/admin/slackwater_tasks/task/{task_id}/change/"
    assert "3 ended, of 3" in client.get(page).content.decode()
    retry(inbox.tenant.pk, task_id)
    inbox.run_until_idle(jump=False)
    assert "4 ended, of 6" in client.get(page).content.decode()
    inbox.run_until_idle()
    assert "6 ended, of 6" in client.get(page).content.decode()


def test_a_dead_letter_that_is_retried_by_itself_has_its_attempts_anew(inbox: Inbox) -> None:
    task_id = run_out(inbox, "anew.limited", total_attempts=3)
    DeadLetter._plain.filter(task_id=task_id).update(next_retry_at=timezone.now())
    assert dead_letters.retry_due()
    inbox.run_until_idle()
    assert seen[-3:] == [(4, 0), (5, 1), (6, 2)]


def test_the_back_off_begins_anew(inbox: Inbox) -> None:
    pauses = {"base_s": 100, "factor": 3, "jitter": 0}
    task = {"handler": "anew.fails", "total_attempts": 3, "retry": pauses}
    task_id = submit(inbox.tenant, task).task_ids[0]
    for _ in range(2):
        for wait_s in (100, 300):
            inbox.run_until_idle(jump=False)
            not_before = LiveTask._plain.get(pk=task_id).not_before
            assert not_before is not None
            assert (not_before - timezone.now()).total_seconds() == pytest.approx(wait_s, abs=20)
            inbox.jump(wait_s)
        inbox.run_until_idle(jump=False)
        retry(inbox.tenant.pk, task_id)
