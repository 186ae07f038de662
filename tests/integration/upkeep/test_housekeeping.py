"""Retention, the deletion of a tenant, and time that does not count while something is paused."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.utils import timezone

from scheduler_ext.core.errors import Conflict
from scheduler_ext.core.states import Outcome
from slackwater_resources.models import Handler, Tier
from slackwater_tasks.control import secrets
from slackwater_tasks.ledger import sql
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.models import (  # fmt: skip
    Attempt,
    AttemptLog,
    DeadLetter,
    Dependency,
    Effect,
    Line,
    LiveTask,
    Pause,
    Secret,
    ShadowCall,
    ShadowRun,
    Task,
    TaskEvent,
    Workflow,
)
from slackwater_tasks.submission.service import submit, submit_workflow
from slackwater_tasks.upkeep import paused_time
from slackwater_tasks.upkeep.retention import delete_tenant, prune
from slackwater_tenants.models import ApiKey, Tenant
from slackwater_tenants.services import create_api_key, create_tenant, set_paused
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def db() -> Iterator[Database]:
    """A connection as upkeep has it."""
    made = Database("test housekeeping")
    yield made
    made.close()


def aged(*ids: UUID, days: int = 31) -> dict[UUID, UUID]:
    """Make tasks as old as if they had been submitted and had ended then: their ids tell the time of submission."""
    new = {}
    ago = timedelta(days=days)
    for old in ids:
        older = UUID(int=old.int - (int(ago.total_seconds() * 1000) << 80))
        new[old] = older
        with connection.cursor() as cur:
            cur.execute(
                "UPDATE slackwater_tasks_task SET id = %s, submitted_at = submitted_at - %s, finished_at = finished_at - %s "
                "WHERE id = %s",
                [older, ago, ago, old],  # type: ignore[list-item]  # psycopg adapts an interval
            )
            for table, column in [("attempt", "task_id"), ("attemptlog", "task_id"), ("taskevent", "task_id"),
                                  ("deadletter", "task_id"), ("livetask", "task_id"), ("dependency", "child_id"),
                                  ("dependency", "parent_id")]:  # fmt: skip
                cur.execute(f"UPDATE slackwater_tasks_{table} SET {column} = %s WHERE {column} = %s", (older, old))
    return new


def pasts() -> list[int]:
    """How many rows each table of the past has."""
    return [model._plain.count() for model in (Attempt, AttemptLog, DeadLetter)] + [Dependency.objects.count()]


def test_what_is_old_goes_with_all_its_past_and_what_is_live_stays(tenant: Tenant, db: Database) -> None:
    worker = HandWorker()
    failed = submit(tenant, {"handler": HANDLER, "total_attempts": 1}).task_ids[0]
    worker.end(worker.start(failed), Outcome.FAILED, logs="out")
    fresh = submit(tenant, {"handler": HANDLER}).task_ids[0]
    worker.end(worker.start(fresh))
    parent = submit(tenant, {"handler": HANDLER}).task_ids[0]
    child = submit(tenant, {"handler": HANDLER, "depends_on": [str(parent)]}).task_ids[0]
    worker.end(worker.start(parent))
    waiting = submit(tenant, {"handler": HANDLER}).task_ids[0]
    names = aged(failed, parent, waiting)
    assert pasts() == [3, 1, 1, 1]
    assert prune(db) == 1
    assert set(Task._plain.values_list("pk", flat=True)) == {fresh, names[parent], child, names[waiting]}
    assert pasts() == [2, 0, 0, 1]
    assert not TaskEvent._plain.filter(task_id=names[failed]).exists()
    worker.end(worker.start(child))
    assert prune(db) == 1, "nobody needs the parent's result any more"
    assert LiveTask._plain.count() == 1


def test_a_workflow_goes_as_a_whole(tenant: Tenant, db: Database) -> None:
    found = submit_workflow(tenant, {"tasks": [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER}]})
    worker = HandWorker()
    first, second = found.task_ids
    worker.end(worker.start(first))
    aged(first)
    Workflow._plain.update(submitted_at=timezone.now() - timedelta(days=40))
    assert prune(db) == 0, "a part of it still waits"
    worker.end(worker.start(second))
    aged(second)
    assert prune(db) == 2
    assert not Workflow._plain.exists()


def test_retention_is_the_plans_and_nought_means_for_ever(tenant: Tenant, db: Database) -> None:
    task_id = submit(tenant, {"handler": HANDLER}).task_ids[0]
    worker = HandWorker()
    worker.end(worker.start(task_id))
    aged(task_id)
    for days, gone in [(0, 0), (60, 0), (30, 1)]:
        tenant.plan.retention_days = days
        tenant.plan.save()
        assert prune(db) == gone


def test_old_effects_and_shadows_go_and_doubtful_ones_stay(tenant: Tenant, db: Database) -> None:
    long_ago = timezone.now() - timedelta(days=401)
    common: dict[str, Any] = {"tenant": tenant, "task_id": UUID(int=1), "fence": 1, "claimed_at": long_ago}
    Effect._plain.create(key="done", state=2, done_at=long_ago, **common)
    Effect._plain.create(key="new", state=2, done_at=timezone.now(), **common)
    Effect._plain.create(key="doubt", state=1, **common)
    for days in (31, 29):
        at = timezone.now() - timedelta(days=days)
        ShadowCall._plain.create(
            celery_id=str(days), at=at, due_at=at, size=0, fields={}, dropped=[], missed=0, watched=True
        )
        ShadowRun.objects.create(celery_id=str(days), retries=0, began_at=at)
    assert prune(db) == 3
    assert set(Effect._plain.values_list("key", flat=True)) == {"new", "doubt"}
    assert [row.celery_id for row in (ShadowCall._plain.get(), ShadowRun.objects.get())] == ["29", "29"]


def test_the_command_prunes_to_the_end(tenant: Tenant) -> None:
    task_id = submit(tenant, {"handler": HANDLER}).task_ids[0]
    worker = HandWorker()
    worker.end(worker.start(task_id))
    aged(task_id)
    out = io.StringIO()
    call_command("prune", "--tenant", "acme", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {"deleted": 1}


# -- a tenant goes ----------------------------------------------------------------------------------------------------
def fill(tenant: Tenant) -> None:
    """Something of everything a tenant can have."""
    worker = HandWorker(name=f"hand-{tenant.slug}")
    submit_workflow(
        tenant,
        {
            "tasks": [
                {"name": "a", "handler": HANDLER},
                {"name": "b", "handler": HANDLER, "depends_on": ["a"]},
            ]
        },
    )
    done = submit(tenant, {"handler": HANDLER, "idempotency_key": "k"}).task_ids[0]
    worker.end(worker.start(done), logs="out")
    secrets.put(tenant, "KEY", "the value")
    create_api_key(tenant, "key")
    tier = Tier.objects.create(slug="own", tenant=tenant, cpu_milli=1, memory_mb=1)
    Line._plain.create(tenant=tenant, category=2, tier=tier)


def test_a_tenant_is_deleted_with_all_its_data_and_no_other_loses_any(tenant: Tenant) -> None:
    other = create_tenant("other", "Other")
    fill(tenant)
    fill(other)
    counted = (Task, LiveTask, Attempt, AttemptLog, Workflow, Secret, Line)
    before = [model._plain.filter(tenant=other).count() for model in counted]
    assert all(before)
    out = io.StringIO()
    with pytest.raises(CommandError, match="--yes"):
        call_command("delete_tenant", "acme", stdout=out)
    call_command("delete_tenant", "acme", "--yes", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {"deleted": "acme", "tasks": 3}
    assert not Tenant.objects.filter(slug="acme").exists()
    assert [model._plain.filter(tenant=other).count() for model in counted] == before
    with connection.cursor() as cur:
        cur.execute(
            "SELECT table_name FROM information_schema.columns "
            "WHERE column_name = 'tenant_id' AND table_schema = 'public'"
        )
        for (table,) in cur.fetchall():
            cur.execute(f'SELECT count(*) FROM "{table}" WHERE tenant_id = %s', (tenant.pk,))
            assert cur.fetchone()[0] == 0, f"{table} still has rows of the tenant"


def test_a_tenant_whose_tasks_run_is_not_deleted_but_closed(tenant: Tenant) -> None:
    create_api_key(tenant, "key")
    worker = HandWorker()
    started = worker.start(submit(tenant, {"handler": HANDLER}).task_ids[0])
    with pytest.raises(Conflict, match="acme has 1 task claimed"):
        delete_tenant(tenant)
    tenant.refresh_from_db()
    assert tenant.paused
    assert ApiKey.objects.get(tenant=tenant).revoked_at is not None
    worker.end(started)
    assert delete_tenant(tenant) == 1


# -- paused time ------------------------------------------------------------------------------------------------------
def run_pauses(db: Database) -> None:
    """One tick of upkeep."""
    for job in paused_time.jobs(db):
        job.run()


def pass_time(seconds: float) -> None:
    """As if that much time had passed: everything that is noted happened that much earlier."""
    ago = timedelta(seconds=seconds)
    Pause.objects.update(since=F("since") - ago)
    LiveTask._plain.filter(latest_start__isnull=False).update(latest_start=F("latest_start") - ago)
    LiveTask._plain.filter(promote_at__lt=timezone.now() + timedelta(days=10_000)).update(
        promote_at=F("promote_at") - ago
    )


def left(task_id: UUID) -> float:
    """Seconds left until the latest start."""
    row = LiveTask._plain.get(pk=task_id)
    assert row.latest_start is not None
    return float((row.latest_start - timezone.now()).total_seconds())


def late(db: Database) -> list[str]:
    """What upkeep would give up now."""
    return [row[0] for row in db.conn.execute(sql.due.LATE, (10,)).fetchall()]


@pytest.mark.parametrize("what", ["tenant", "line", "handler"])
def test_paused_time_does_not_count(tenant: Tenant, db: Database, what: str) -> None:
    task_id = submit(tenant, {"handler": HANDLER, "delay_tolerance_s": 100, "on_late": "give_up"}).task_ids[0]
    pass_time(40)

    def pause(*, paused: bool) -> None:
        if what == "tenant":
            set_paused(tenant, paused=paused)
        elif what == "line":
            Line._plain.update(paused=paused)
        else:
            Handler.objects.filter(name=HANDLER).update(paused=paused)

    pause(paused=True)
    run_pauses(db)
    pass_time(1_000)
    run_pauses(db)
    assert late(db) == [], "it would be late by now, were it not paused"
    pause(paused=False)
    assert late(db) == [], "nor is it before the time is given back"
    run_pauses(db)
    assert left(task_id) == pytest.approx(60, abs=20)
    row = LiveTask._plain.get(pk=task_id)
    assert row.promote_at is not None
    assert row.latest_start is not None
    assert (row.latest_start - row.promote_at).total_seconds() == pytest.approx(1.0)
    assert not Pause.objects.exists()
    pass_time(61)
    assert late(db) == [str(task_id)], "from now on time passes as ever"


def test_a_task_handed_in_during_a_pause_gets_only_its_own_waiting_back(tenant: Tenant, db: Database) -> None:
    set_paused(tenant, paused=True)
    run_pauses(db)
    pass_time(500)
    task_id = submit(tenant, {"handler": HANDLER, "delay_tolerance_s": 100}).task_ids[0]
    pass_time(30)
    set_paused(tenant, paused=False)
    run_pauses(db)
    assert left(task_id) == pytest.approx(100, abs=20)


def test_two_pauses_at_once_count_once(tenant: Tenant, db: Database) -> None:
    task_id = submit(tenant, {"handler": HANDLER, "delay_tolerance_s": 100}).task_ids[0]
    set_paused(tenant, paused=True)
    run_pauses(db)
    pass_time(50)
    Handler.objects.filter(name=HANDLER).update(paused=True)
    run_pauses(db)
    pass_time(50)
    set_paused(tenant, paused=False)
    run_pauses(db)
    pass_time(50)
    Handler.objects.filter(name=HANDLER).update(paused=False)
    run_pauses(db)
    assert left(task_id) == pytest.approx(100, abs=20)


def test_another_tenants_task_is_not_moved(tenant: Tenant, db: Database) -> None:
    other = create_tenant("other", "Other")
    task_id = submit(other, {"handler": HANDLER, "delay_tolerance_s": 100}).task_ids[0]
    set_paused(tenant, paused=True)
    run_pauses(db)
    pass_time(30)
    set_paused(tenant, paused=False)
    run_pauses(db)
    assert left(task_id) == pytest.approx(70, abs=12)
