"""Tests as a team writes them for its handlers, with the fixtures that Slackwater brings."""

from __future__ import annotations

from datetime import timedelta

import pytest
from celery import shared_task
from django.contrib.auth.models import Group
from django.test import TestCase
from django.utils import timezone

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import Outcome, TaskState
from slackwater import current, handler, once, submit, submit_workflow
from slackwater.celery import app
from slackwater.testing.inbox import Inbox
from slackwater.testing.plugin import slackwater_eager, slackwater_inbox
from tests.support import calling

__all__ = ["slackwater_eager", "slackwater_inbox"]
sent: list[str] = []


@handler(name="own.book")
def book(name: str) -> str:
    """Write a row, and submit what follows from it."""
    Group.objects.create(name=f"{name} {Group.objects.count() + 1}")
    current().submit("own.mail", name)
    return name.upper()


@handler(name="own.mail")
def mail(name: str) -> str:
    """Send something that cannot be taken back: once."""
    with once(f"mail {name}", outside=True, verify=lambda: name in sent) as effect:
        if effect.first:
            sent.append(name)
    return name


@handler(name="own.frail", bind=True, max_retries=3)
def frail(self: object) -> None:
    """Fail the first time."""
    if current().attempt == 1:
        raise OSError("the first time")


@shared_task(name="own.plain")
def plain(x: int) -> int:
    """An ordinary Celery task."""
    return x + 1


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


def test_what_is_submitted_waits_to_be_asserted_and_run(slackwater_inbox: Inbox) -> None:
    slackwater_inbox.assert_nothing_submitted()
    submit(slackwater_inbox.tenant, {"handler": "own.book", "args": ["ada"]})
    task = slackwater_inbox.assert_submitted("own.book", "ada")
    assert (task.state, task.tenant, Group.objects.count()) == (TaskState.READY, "tests", 0)
    with pytest.raises(AssertionError, match=r"own.book \['ada'\]"):
        slackwater_inbox.assert_submitted("own.book", "eve")
    with pytest.raises(InvalidInput, match="no worker has exported"):
        submit(slackwater_inbox.tenant, {"handler": "own.bokk"})

    runs = slackwater_inbox.run_until_idle()

    assert [(run.handler, run.outcome, run.accepted) for run in runs] == [
        ("own.book", Outcome.SUCCEEDED, True),
        ("own.mail", Outcome.SUCCEEDED, True),
    ]
    assert slackwater_inbox.of("own.book")[0].result == "ADA"
    assert sent == ["ada"]


def test_time_passes_when_told_or_when_all_else_is_done(slackwater_inbox: Inbox) -> None:
    tenant = slackwater_inbox.tenant
    submit(tenant, {"handler": "own.mail", "args": ["late"], "start_at": timezone.now() + timedelta(hours=1)})
    submit(tenant, {"handler": "own.frail", "total_attempts": 3})
    assert [run.outcome for run in slackwater_inbox.run_until_idle(jump=False)] == [Outcome.FAILED]
    slackwater_inbox.jump(timedelta(minutes=30))
    assert [run.handler for run in slackwater_inbox.run_until_idle(jump=False)] == ["own.frail"]
    assert [run.handler for run in slackwater_inbox.run_until_idle()] == ["own.mail"]
    assert {task.state for task in slackwater_inbox.submitted} == {TaskState.SUCCEEDED}


def test_each_submission_runs_at_once(slackwater_eager: Inbox) -> None:
    steps = [{"name": "one", "handler": "own.mail", "args": ["one"]}]
    steps.append({"name": "two", "handler": "own.book", "args": ["two"], "depends_on": ["one"]})
    submit_workflow(slackwater_eager.tenant, {"name": "both", "tasks": steps})
    assert sent == ["one", "two"]
    submit(slackwater_eager.tenant, {"handler": "own.book", "args": ["three"]})
    assert sent == ["one", "two", "three"]
    assert [task.state for task in slackwater_eager.submitted] == [TaskState.SUCCEEDED] * 5


class TestInDjangosTestCase(TestCase):
    """A fixture of such a class comes before the test's transaction, and its rows stay until the last test of the class."""

    inbox: Inbox

    @pytest.fixture(autouse=True)
    def _inbox(self, slackwater_inbox: Inbox) -> None:
        self.inbox = slackwater_inbox

    def _each_has_an_inbox_of_its_own(self) -> None:
        self.inbox.assert_nothing_submitted()
        submit(self.inbox.tenant, {"handler": "own.book", "args": ["ada"]})
        assert [run.accepted for run in self.inbox.run_until_idle()] == [True, True]
        assert Group.objects.count() == 1

    test_one = test_two = _each_has_an_inbox_of_its_own


def test_celery_s_own_eager_setting_is_honoured(slackwater_inbox: Inbox) -> None:
    app.conf.task_always_eager = True
    try:
        assert app.tasks[plain.name].delay(1).get() == 2
        assert app.tasks[calling.add.name].delay(2, 3).get() == 5
    finally:
        app.conf.task_always_eager = False
    slackwater_inbox.assert_nothing_submitted()
    task_id = app.tasks[calling.add.name].delay(2, 3).id
    assert str(slackwater_inbox.assert_submitted("calls.add", 2, 3).id) == task_id


@pytest.mark.parametrize(
    ("accident", "attempts", "rows", "outcomes"),
    [
        ("die_before_commit", [1, 2], 1, [Outcome.WORKER_LOST, Outcome.SUCCEEDED]),
        ("die_after_commit", [1, 2], 2, [Outcome.WORKER_LOST, Outcome.SUCCEEDED]),
        ("run_twice", [1], 2, [Outcome.SUCCEEDED]),
        ("lose_lease", [1, 1], 2, [Outcome.FAILED, Outcome.SUCCEEDED]),
    ],
)
def test_accidents(
    slackwater_inbox: Inbox, accident: str, attempts: list[int], rows: int, outcomes: list[Outcome]
) -> None:
    submit(slackwater_inbox.tenant, {"handler": "own.book", "args": ["ada"]})
    getattr(slackwater_inbox, accident)("own.book")

    runs = slackwater_inbox.run_until_idle()

    booked = [run for run in runs if run.handler == "own.book"]
    assert [run.attempt for run in booked] == attempts
    assert [run.outcome for run in booked] == outcomes
    assert Group.objects.count() == rows
    assert booked[-1].accepted
    assert slackwater_inbox.of("own.book")[0].state == TaskState.SUCCEEDED
    assert sent == ["ada"], "what is done once is done once"


def test_what_was_done_outside_survives_a_death_before_the_commit(slackwater_inbox: Inbox) -> None:
    submit(slackwater_inbox.tenant, {"handler": "own.mail", "args": ["ada"]})
    slackwater_inbox.die_before_commit("own.mail")
    assert [run.attempt for run in slackwater_inbox.run_until_idle()] == [1, 2]
    assert sent == ["ada"]


def test_an_accident_that_never_befell_fails_the_test(slackwater_inbox: Inbox) -> None:
    slackwater_inbox.run_twice("own.mail")
    with pytest.raises(AssertionError, match=r"own\.mail.*second worker"):
        slackwater_inbox.close()
    with pytest.raises(LookupError, match=r"own\.male"):
        slackwater_inbox.run_twice("own.male")
    submit(slackwater_inbox.tenant, {"handler": "own.mail", "args": ["ada"]})
    slackwater_inbox.run_until_idle()
