"""A client's call whose database connection breaks at any message: refused cleanly, and done once when repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from scheduler_ext.core.errors import Unavailable
from scheduler_ext.core.states import TaskState
from slackwater_tasks.models import LiveTask, Task, TaskEvent, Workflow
from slackwater_tasks.submission import group_commit
from slackwater_tasks.submission.service import Single, Submission
from slackwater_tenants.models import CurrentCounter
from tests.support.api import HANDLER, ApiClient, client_of, forget_lookups, furnish
from tests.support.link import Link, djangos, first_uncut

pytestmark = pytest.mark.django_db(transaction=True)
DIAMOND = [
    {"name": "a", "handler": HANDLER},
    {"name": "b", "handler": HANDLER, "depends_on": ["a"]},
    {"name": "c", "handler": HANDLER, "depends_on": ["a"]},
    {"name": "d", "handler": HANDLER, "depends_on": ["b", "c"]},
]


class Cut:
    """A tenant whose first call breaks at its nth message; what is refused is repeated, as a client would."""

    def __init__(self, lost: str, after: int) -> None:
        self.lost, self.after, self.was_cut = lost, after, False
        self.api: ApiClient = client_of(f"t{uuid4().hex[:12]}")

    def __call__(self, call: Callable[[], Any]) -> Any:
        """What ``call`` answers in the end; it returns None where it was refused as unavailable."""
        forget_lookups()
        link = Link(djangos)
        link.lose, link.after = self.lost, self.after
        try:
            for _ in range(3):
                if (answer := call()) is not None:
                    return answer
                self.was_cut = True
                connection.close()  # as the threads that answer do after a connection failed
            raise AssertionError("it does not go through on a connection that is whole again")
        finally:
            connection.close()
            link.close()

    def post(self, path: str, body: Any = None, *, repeated: int = 200, **headers: str) -> Any:
        """POST until it goes through; its body. ``repeated``: what it may be answered where it was done, unheard."""

        def once() -> Any:
            answer = self.api.post(path, body, **headers)
            if answer.status == 503:
                assert (answer.code, answer.headers["Retry-After"]) == ("unavailable", "2")
                return None
            assert answer.status in ({repeated} if self.was_cut else set()) | {200, 201}, answer.body
            return answer.body

        return self(once)

    def stored(self) -> list[Task]:
        """The tenant's tasks, all of them live and counted."""
        tasks = list(Task.objects.unscoped().filter(tenant=self.api.tenant))
        assert LiveTask.objects.unscoped().filter(tenant=self.api.tenant).count() == len(tasks)
        assert CurrentCounter.objects.get(tenant=self.api.tenant).unfinished == len(tasks)
        return tasks


def _task(cut: Cut) -> None:
    made = cut.post("/tasks", {"handler": HANDLER}, Idempotency_Key="once")
    assert [str(task.pk) for task in cut.stored()] == [made["id"]]


def _several(cut: Cut) -> None:
    cut.post("/tasks", [{"handler": HANDLER}] * 3, Idempotency_Key="once")
    assert len(cut.stored()) == 3


def _workflow(cut: Cut) -> None:
    made = cut.post("/workflows", {"name": "diamond", "tasks": DIAMOND}, Idempotency_Key="once")
    assert [str(row.pk) for row in Workflow.objects.unscoped().filter(tenant=cut.api.tenant)] == [made["id"]]
    names = {task.pk: task.name for task in cut.stored()}
    ready = LiveTask.objects.unscoped().filter(tenant=cut.api.tenant, state=TaskState.READY)
    assert (len(names), [names[row.pk] for row in ready]) == (4, ["a"])


def _gathered(cut: Cut) -> None:
    def once() -> Any:
        found = group_commit.submit_each(
            cut.api.tenant,
            [Single(data={"handler": HANDLER}, actor="test", idempotency_key=f"k{n}") for n in range(3)],
        )
        assert all(isinstance(one, (Submission, Unavailable)) or "connection" in str(one) for one in found), found
        return found if all(isinstance(one, Submission) for one in found) else None

    cut(once)
    assert len(cut.stored()) == 3


def _cancelled(cut: Cut) -> None:
    task_id = cut.api.task()
    cut.post(f"/tasks/{task_id}/cancel", repeated=409)
    assert Task.objects.unscoped().get(pk=task_id).state == TaskState.CANCELLED
    told = TaskEvent.objects.unscoped().filter(task_id=task_id, to_state=TaskState.CANCELLED)
    assert told.count() == 1
    assert CurrentCounter.objects.get(tenant=cut.api.tenant).unfinished == 0


@pytest.mark.parametrize("lost", ["question", "answer"])
@pytest.mark.parametrize("operation", [_task, _several, _workflow, _gathered, _cancelled])
def test_what_is_cut_at_any_message_is_refused_cleanly_and_done_once(
    operation: Callable[[Cut], None], lost: str, redis_client: Any
) -> None:
    furnish()

    def was_cut(after: int) -> bool:
        cut = Cut(lost, after)
        operation(cut)
        return cut.was_cut

    after = first_uncut(was_cut, 60)
    assert 3 < after < 59, "each message was lost in its turn, and then none"
