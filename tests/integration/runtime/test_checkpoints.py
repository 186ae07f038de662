"""Checkpoints in the ledger: fenced, two kept, checksummed, each tenant's own; and what a pause does to a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection

from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.core.work import Format, Started
from scheduler_ext.task.checkpoints import CheckpointTooLarge, digest
from scheduler_ext.task.effects import AttemptReplaced
from slackwater_tasks.admin.task_form import TaskForm
from slackwater_tasks.admin.task_page import context_of
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.models import Attempt, Checkpoint, DeadLetter, LiveTask, OnLate, Resumable, Task, TaskEvent
from slackwater_tasks.read import tasks
from slackwater_tasks.runtime.checkpoints import PgCheckpoints, forget_ended
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.scoping import tenant_scope
from slackwater_tenants.services import create_tenant
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)


def task(tenant: Tenant, **fields: Any) -> UUID:
    return submit(tenant, {"handler": "demo.echo", "checkpoints": True, **fields}).task_ids[0]


_db = Database("test")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """The connection of a worker's own is closed after each test."""
    yield
    _db.close()


def store(started: Started) -> PgCheckpoints:
    return PgCheckpoints(started, _db)


def live(task_id: UUID) -> LiveTask:
    return LiveTask.objects.unscoped().get(pk=task_id)  # the test is no tenant


def numbers(task_id: UUID) -> list[int]:
    rows = Checkpoint.objects.unscoped().filter(task_id=task_id)  # the test is no tenant
    return sorted(rows.values_list("number", flat=True))


def test_the_latest_two_are_kept(tenant: Tenant) -> None:
    (started,) = HandWorker().start(task_id := task(tenant))
    assert live(task_id).alone, "it never shares a batch"
    saves = store(started)
    assert saves.load_checkpoint() is None
    assert [saves.save_checkpoint(Format.JSON, b"%d" % n) for n in range(4)] == [1, 2, 3, 4]
    assert numbers(task_id) == [3, 4]
    found = saves.load_checkpoint()
    assert found is not None
    assert (found.number, found.content) == (4, b"3")


def shown(tenant: Tenant, task_id: UUID) -> tuple[bool, Any]:
    """What the API and the admin tell of its checkpoints, and that its page does."""
    with tenant_scope(tenant.pk):
        detail = tasks.task(task_id)
    row = dict(context_of(Task._plain.select_related("live", "tenant").get(pk=task_id))["attributes"])
    found = detail["checkpoint"]
    on_page = row.get("Checkpoints", "")
    assert (f"number {found['number']}: " in on_page) if found else ("none" in on_page) is detail["checkpoints"]
    return detail["checkpoints"], found


def test_the_newest_is_shown_with_its_size_time_and_attempt(tenant: Tenant) -> None:
    worker = HandWorker()
    (started,) = worker.start(task_id := task(tenant))
    assert shown(tenant, task_id) == (True, None)
    store(started).save_checkpoint(Format.JSON, b"[1]")
    store(started).save_checkpoint(Format.JSON, b"[1, 2]")
    _, found = shown(tenant, task_id)
    saved_at = Checkpoint.objects.unscoped().get(task_id=task_id, number=2).saved_at  # the test is no tenant
    assert found == {"number": 2, "size": 6, "saved_at": saved_at, "attempt": 1}
    worker.end([started], Outcome.FAILED)
    LiveTask._plain.filter(pk=task_id).update(state=TaskState.READY, not_before=None)
    assert shown(tenant, task_id)[1]["attempt"] == 1, "the attempt that saved it, not the next"
    (second,) = worker.start(task_id)
    store(second).save_checkpoint(Format.JSON, b"[]")
    assert shown(tenant, task_id)[1]["attempt"] == 2
    plain = submit(tenant, {"handler": "demo.echo"}).task_ids[0]
    assert shown(tenant, plain) == (False, None)


def test_they_are_declared_in_the_admin_and_on_the_command_line(tenant: Tenant) -> None:
    form = TaskForm({"tenant": tenant.pk, "handler": "demo.echo", "tier": "basic", "category": "delayable",
                     "on_late": "run_first", "condition": "all_succeeded", "mutex_scope": "both",
                     "checkpoints": "on"})  # fmt: skip
    assert form.is_valid(), form.errors
    task_id = submit(tenant, form.values()).task_ids[0]
    assert shown(tenant, task_id) == (True, None)
    call_command("submit", "demo.echo", "--tenant", "acme", "--checkpoints", stdout=StringIO())
    call_command("submit", "demo.echo", "--tenant", "acme", stdout=StringIO())
    assert Resumable._plain.count() == 2


def test_a_late_attempt_cannot_save(tenant: Tenant) -> None:
    worker = HandWorker()
    (first,) = worker.start(task_id := task(tenant))
    store(first).save_checkpoint(Format.JSON, b"1")
    worker.end([first], Outcome.YIELDED)
    with pytest.raises(AttemptReplaced):
        store(first).save_checkpoint(Format.JSON, b"2")
    (second,) = worker.start(task_id)
    with pytest.raises(AttemptReplaced):
        store(first).save_checkpoint(Format.JSON, b"3")
    found = store(second).load_checkpoint()
    assert found is not None
    assert found.content == b"1"


def test_one_that_is_too_large_is_refused(tenant: Tenant) -> None:
    Plan.objects.filter(pk=tenant.plan_id).update(max_checkpoint_bytes=10)
    (started,) = HandWorker().start(task_id := task(tenant))
    with pytest.raises(CheckpointTooLarge, match="11 bytes, the plan allows 10"):
        store(started).save_checkpoint(Format.BYTES, b"x" * 11)
    assert numbers(task_id) == []


def test_damaged_ones_are_passed_over_and_told(tenant: Tenant) -> None:
    (started,) = HandWorker().start(task_id := task(tenant))
    saves = store(started)
    saves.save_checkpoint(Format.JSON, b"1")
    saves.save_checkpoint(Format.JSON, b"2")
    Checkpoint.objects.unscoped().filter(task_id=task_id).update(sha256=digest(b"other"))  # the test is no tenant
    assert saves.load_checkpoint() is None
    events = TaskEvent.objects.unscoped().filter(task_id=task_id).order_by("id")  # the test is no tenant
    assert list(events.values_list("reason", flat=True)) == [
        "checkpoint 2 is damaged: the one before it is used",
        "checkpoint 1 is damaged: it starts anew",
    ]


def test_another_tenants_checkpoint_is_not_found(tenant: Tenant) -> None:
    worker = HandWorker()
    (mine,) = worker.start(task(tenant))
    store(mine).save_checkpoint(Format.JSON, b"1")
    other = create_tenant("beta", "Beta")
    assert store(replace(mine, tenant_id=other.pk)).load_checkpoint() is None


def test_a_pause_spends_no_attempt_and_keeps_the_place(tenant: Tenant) -> None:
    worker = HandWorker()
    task_id = task(tenant, total_attempts=1, delay_tolerance_s=0.001, on_late="give_up")
    before = live(task_id)
    (started,) = worker.start(task_id)
    worker.end([started], Outcome.YIELDED, took_s=2.0)
    after = live(task_id)
    assert (after.state, after.attempts, after.node_id) == (TaskState.READY, 0, None)
    assert (after.rank_group, after.rank) == (before.rank_group, before.rank)
    assert (after.on_late, after.promote_at) == (OnLate.RUN_FIRST, None), "it has met its latest start"
    (attempt,) = Attempt.objects.unscoped().filter(task_id=task_id)  # the test is no tenant
    assert (attempt.outcome, attempt.number) == (Outcome.YIELDED, 1)
    turns = Resumable.objects.unscoped().get(pk=task_id)  # the test is no tenant
    assert 1_900 <= turns.used_ms <= 2_100
    (again,) = worker.start(task_id)
    assert again.attempt == 1
    worker.end([again])
    turns.task.refresh_from_db()
    assert (turns.task.state, turns.task.attempts_used) == (TaskState.SUCCEEDED, 1)


def test_one_that_was_cancelled_meanwhile_is_cancelled(tenant: Tenant) -> None:
    worker = HandWorker()
    (started,) = worker.start(task_id := task(tenant))
    cancel(tenant.pk, task_id)
    worker.end([started], Outcome.YIELDED)
    assert not LiveTask.objects.unscoped().filter(pk=task_id).exists()  # the test is no tenant


@pytest.mark.parametrize(
    ("fields", "outcome", "recorded"),
    [
        ({"checkpoints": False}, Outcome.YIELDED, Outcome.FAILED),
        ({"checkpoints": False}, Outcome.PREEMPTED, Outcome.PREEMPTED),
        ({"checkpoints": False, "total_attempts": 1}, Outcome.PREEMPTED, Outcome.WORKER_LOST),
        ({"checkpoints": True, "total_attempts": 1}, Outcome.PREEMPTED, Outcome.PREEMPTED),
    ],
)
def test_who_may_be_paused(tenant: Tenant, fields: dict[str, Any], outcome: Outcome, recorded: Outcome) -> None:
    worker = HandWorker()
    (started,) = worker.start(task_id := task(tenant, **fields))
    worker.end([started], outcome)
    (attempt,) = Attempt.objects.unscoped().filter(task_id=task_id)  # the test is no tenant
    assert attempt.outcome == recorded


def test_ended_tasks_leave_no_checkpoint_but_dead_letters_go_on_from_theirs(tenant: Tenant) -> None:
    worker = HandWorker()
    good, bad = task(tenant), task(tenant, total_attempts=1)
    for started in worker.start(good, bad):
        store(started).save_checkpoint(Format.JSON, b"1")
        worker.end([started], Outcome.SUCCEEDED if started.task_id == str(good) else Outcome.FAILED, error="boom")
    assert DeadLetter.objects.unscoped().filter(pk=bad).exists()  # the test is no tenant
    assert forget_ended(_db, 100) == 1
    assert (numbers(good), numbers(bad)) == ([], [1])
    retry(tenant.pk, bad)
    assert live(bad).alone
    (again,) = worker.start(bad)
    found = store(again).load_checkpoint()
    assert found is not None
    assert found.number == 1
    worker.end([again])
    assert forget_ended(_db, 100) == 1
    with connection.cursor() as cur:
        cur.execute("SELECT count(*) FROM slackwater_tasks_checkpoint")
        assert cur.fetchone()[0] == 0
