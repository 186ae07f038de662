"""The backend of ``django.tasks``: enqueued in the caller's transaction, run, retried, read, told by signals."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.test.utils import override_settings
from django_tasks import TaskResultStatus, default_task_backend, task, task_backends
from django_tasks.base import TaskContext, TaskResult
from django_tasks.exceptions import InvalidTaskError as InvalidTask
from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
from django_tasks.signals import task_enqueued, task_finished, task_started

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import Category
from slackwater.django_tasks import NotRun, SlackwaterBackend, _backend_of, discover
from slackwater.testing.inbox import Inbox
from slackwater.testing.plugin import slackwater_eager, slackwater_inbox
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.models import Task

__all__ = ["slackwater_eager", "slackwater_inbox"]
OPTIONS: dict[str, Any] = {
    "DEFAULTS": {"execution_cap_s": 60, "total_attempts": 2, "retry": {"base_s": 0.1}},
    "QUEUES": {"mail": {"category": "urgent"}},
    "TASKS": {f"{__name__}.once_only": {"total_attempts": 1}},
}
READY, SUCCESSFUL, FAILED = TaskResultStatus.READY, TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED
told: list[tuple[str, str, int]] = []


@task()
def add(x: int, y: int = 1) -> int:
    """Add."""
    return x + y


@task()
async def awaited(x: int) -> list[int]:
    return [x]


@task(takes_context=True)
def frail(context: TaskContext, until: int) -> dict[str, Any]:
    """Fail until it is tried so often."""
    if context.attempt < until:
        raise InvalidTask(f"attempt {context.attempt}\nhas two lines")
    return {"id": context.task_result.id, "errors": len(context.task_result.errors)}


@task()
def once_only() -> None:
    raise SystemExit("out")


@task()
def unwritable() -> Any:
    return lambda: True


@task()
def nesting() -> str:
    """Enqueue another, and fail the first time."""
    made = add.enqueue(5)
    if not Task.objects.unscoped().filter(attempts_used__gt=0).exists() and len(told) < 5:
        told.append(("nested", "", 0))
        raise ValueError("the first time")
    return made.id


def tell(name: str) -> Any:
    def receive(sender: type, task_result: TaskResult[Any], **_: Any) -> None:
        assert issubclass(sender, SlackwaterBackend)
        told.append((name, str(task_result.status), task_result.attempts))

    return receive


@pytest.fixture(autouse=True)
def _backend(slackwater_inbox: Inbox) -> Iterator[None]:
    told.clear()
    tasks = {
        "missing": {"BACKEND": "does.not.exist"},
        "plain": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"},
        "default": {"BACKEND": "slackwater.django_tasks.SlackwaterBackend", "QUEUES": [], "OPTIONS": OPTIONS},
    }
    receivers = [(signal, tell(name)) for name, signal in
                 (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished))]  # fmt: skip
    for signal, receiver in receivers:
        signal.connect(receiver)
    with override_settings(TASKS=tasks):
        yield
    for signal, receiver in receivers:
        signal.disconnect(receiver)


def test_a_task_is_enqueued_run_and_read_with_what_it_was_given(slackwater_inbox: Inbox) -> None:
    later = datetime(2090, 1, 1, tzinfo=UTC)
    result = add.using(priority=-7, queue_name="mail", run_after=later).enqueue(2, y=3)
    assert (result.status, result.is_finished, result.attempts, result.args, result.kwargs) == (
        READY,
        False,
        0,
        [2],
        {"y": 3},
    )
    assert default_task_backend.get_result(result.id) == result == add.get_result(result.id)
    (stored,) = Task.objects.all()
    assert (stored.handler, stored.priority, stored.tags, stored.submitted_by) == (
        f"{__name__}.add", 465, ["queue:mail"], "django.tasks",
    )  # fmt: skip
    assert (stored.total_attempts, stored.cap_ms, Category(stored.category).name) == (2, 60_000, "URGENT")
    slackwater_inbox.run_until_idle(jump=False)
    result.refresh()
    assert result.status == READY
    slackwater_inbox.run_until_idle()
    result.refresh()
    assert (result.status, result.return_value, result.attempts, result.errors) == (SUCCESSFUL, 5, 1, [])
    assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= result.finished_at  # type: ignore[operator]
    assert told == [("enqueued", "READY", 0), ("started", "RUNNING", 1), ("finished", "SUCCESSFUL", 1)]
    with pytest.raises(TaskResultMismatch):
        awaited.get_result(result.id)
    for unknown in ("123", "01990000-0000-7000-8000-000000000001"):
        with pytest.raises(TaskResultDoesNotExist):
            add.get_result(unknown)
    with pytest.raises(InvalidInput, match="y"):
        add.enqueue(2, z=1)  # type: ignore[call-arg]


def test_it_is_part_of_the_transaction_that_is_open() -> None:
    with transaction.atomic():
        add.enqueue(1)
        transaction.set_rollback(True)
    assert not Task.objects.exists()


def test_a_failed_attempt_is_repeated_as_often_as_the_options_say(slackwater_inbox: Inbox) -> None:
    twice, never, once, odd = frail.enqueue(2), frail.enqueue(9), once_only.enqueue(), unwritable.enqueue()
    gone = add.enqueue(1)
    cancel(slackwater_inbox.tenant.pk, Task.objects.get(pk=gone.id).pk)
    slackwater_inbox.run_until_idle()
    for result in (twice, never, once, odd, gone):
        result.refresh()
    assert (twice.status, twice.attempts, twice.return_value) == (SUCCESSFUL, 2, {"id": twice.id, "errors": 1})
    assert [error.exception_class for error in twice.errors] == [InvalidTask]
    assert twice.errors[0].traceback.endswith(f"{InvalidTask.__name__}: attempt 1\nhas two lines\n")
    assert (never.status, never.attempts, len(never.errors)) == (FAILED, 2, 2)
    with pytest.raises(ValueError, match="Task failed"):
        _ = never.return_value
    assert (once.status, once.attempts, once.errors[0].exception_class) == (FAILED, 1, SystemExit)
    assert (odd.status, odd.errors[0].exception_class) == (FAILED, TypeError)
    assert (gone.status, gone.errors[0].exception_class) == (FAILED, NotRun)
    assert sorted(attempt for name, status, attempt in told if (name, status) == ("finished", "FAILED")) == [1, 2, 2]


def test_one_that_runs_again_has_failed_when_its_new_attempts_have(slackwater_inbox: Inbox) -> None:
    result = frail.enqueue(9)
    slackwater_inbox.run_until_idle()
    retry(slackwater_inbox.tenant.pk, UUID(result.id))
    slackwater_inbox.run_until_idle()
    assert [attempt for name, _, attempt in told if name == "finished"] == [2, 4]


def test_what_a_task_enqueues_is_enqueued_once_however_often_it_runs(slackwater_inbox: Inbox) -> None:
    result = nesting.enqueue()
    slackwater_inbox.run_until_idle()
    result.refresh()
    assert (result.status, result.attempts) == (SUCCESSFUL, 2)
    (inner,) = slackwater_inbox.of(f"{__name__}.add")
    assert (str(inner.id), inner.result) == (result.return_value, 6)


@pytest.mark.django_db(transaction=True)
def test_coroutines_enqueue_are_run_and_read(slackwater_inbox: Inbox) -> None:
    async def closed(story: Coroutine[Any, Any, Any]) -> Any:
        """The end of a story; the thread that asked the database for it keeps no connection."""
        try:
            return await story
        finally:
            await sync_to_async(connections.close_all)()

    async def read() -> list[TaskResult[list[int]]]:
        await result.arefresh()
        return [result, await awaited.aget_result(result.id)]

    result = asyncio.run(closed(awaited.aenqueue(3)))
    slackwater_inbox.run_until_idle()
    mine, other = asyncio.run(closed(read()))
    assert mine == other
    assert mine.return_value == [3]


def test_what_cannot_be_is_refused_when_it_is_said() -> None:
    discover()  # no module of the tests' apps has a task
    assert list(default_task_backend.check()) == []
    assert _backend_of(add.using(backend="plain")) == task_backends["default"]
    with pytest.raises(InvalidTask, match="module level"):
        task()(lambda: None)
    with pytest.raises(InvalidTask, match="priority"):
        add.using(priority=101)
    with pytest.raises(TypeError, match="Unsupported type"):
        add.enqueue(object())  # type: ignore[arg-type]
    wrong = {"RETRIES": 3, "DEFAULTS": {"tier": 7}, "QUEUES": {"mail": {"args": []}}}
    with override_settings(
        TASKS={"default": {"BACKEND": "slackwater.django_tasks.SlackwaterBackend", "OPTIONS": wrong}}
    ):
        said = [error.msg for error in task_backends["default"].check()]
    assert ["RETRIES" in said[0], "DEFAULTS: tier" in said[1], "QUEUES['mail']: args" in said[2]] == [True] * 3
