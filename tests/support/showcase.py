"""A small platform with a row of everything, for tests that open every page."""

from __future__ import annotations

import zlib
from datetime import timedelta

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from scheduler_ext.core.states import Outcome
from slackwater_monitoring.models import Alert, Delivery, ReceiptPage, Subscription
from slackwater_resources.models import Component, Handler
from slackwater_schedules import services as schedules
from slackwater_schedules.models import ScheduleFire
from slackwater_tasks.models import (
    Artifact,
    BulkOperation,
    PolicyChoice,
    RankSweep,
    RateLimit,
    RunTime,
    Task,
    WorkflowTemplate,
)
from slackwater_tasks.submission import service
from slackwater_tenants.models import Pool, Tenant
from slackwater_tenants.services import create_api_key, create_tenant
from tests.support.admin import submit
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

ERROR = 'Traceback (most recent call last):\n  File "report.py", line 7, in run\nValueError: no address for <nobody>'


def furnish_everything(tenant: Tenant) -> None:
    """Tasks in all states, and a row in every table that has a page."""
    worker = HandWorker("node-1.rack-7.eu-central")
    _tasks(tenant, worker)
    _clients(tenant)
    _around(tenant)
    _beat()


def _tasks(tenant: Tenant, worker: HandWorker) -> None:
    done = submit(tenant, name="monthly report", tags=["nightly"], kwargs={"month": "2026-10", "to": ["a@example.org"]})
    worker.run(done, result='{"pages": 12, "sent": true}', logs="reading\nwriting\n", took_s=3.4)
    for n in range(3):
        failed = submit(tenant, name=f"invoice {n}", total_attempts=1)
        worker.run(failed, outcome=Outcome.FAILED, error=ERROR)
    worker.start(submit(tenant, name="backup of a customer's data with quite a long name"))
    for n in range(6):
        submit(tenant, name=f"mail {n}", tier="regular", priority=n)
    names = ("extract", "clean", "enrich", "load", "report")
    tasks = [
        {"name": name, "handler": HANDLER, "depends_on": list(names[max(0, n - 1) : n])} for n, name in enumerate(names)
    ]
    made = service.submit_workflow(tenant, {"name": "nightly import", "tasks": tasks}, actor="user:ann")
    worker.run(made.task_ids[0])
    service.store_script(tenant, "job.sh", b"#!/bin/sh\necho hi\n")
    task = Task.objects.unscoped().get(pk=done)
    Artifact._plain.create(
        task=task, tenant=tenant, name="report.pdf", size=3, sha256="0" * 64, content=b"pdf", fence=1
    )
    RunTime.objects.create(tenant=tenant, key=HANDLER, samples=40, mean_us=3.4e6, long_us=9e6)


def _clients(tenant: Tenant) -> None:
    other = create_tenant("globex", "Globex Corporation of Springfield")
    create_api_key(tenant, "continuous integration")
    submit(other, name="ledger post", category="urgent")
    pool = Pool.objects.create(slug="batch", guaranteed=20)
    Tenant.objects.filter(pk=other.pk).update(pool=pool, paused=True)
    events = ["task.failed", "task.succeeded", "workflow.succeeded"]
    hook = Subscription._plain.create(tenant=tenant, url="https://example.org/hooks/slackwater", events=events)
    Delivery._plain.create(
        tenant=tenant, subscription=hook, event="task.failed", payload="{}", tries_left=3, attempts=1,
        log=[{"at": timezone.now().timestamp(), "status": 502, "error": "Bad Gateway", "ms": 31}],
    )  # fmt: skip
    template = {"tasks": [{"name": "a", "handler": HANDLER}]}
    WorkflowTemplate._plain.create(tenant=tenant, name="import", version=1, parameters={}, workflow=template)
    now = timezone.now()
    ReceiptPage._plain.create(
        tenant=tenant, first=1, last=4, since=now, until=now, charged_micros=1_250_000, before=b"", head=b"", key_id="k",
        signature=b"", body=zlib.compress(b""),
    )  # fmt: skip
    made = schedules.create_schedule(
        tenant, {"name": "daily report", "kind": "daily", "rule": {"times": ["07:30"]}, "task": {"handler": HANDLER}}
    )
    ScheduleFire._plain.create(
        tenant=tenant, schedule=made, fire_at=now, due_at=now, fired_at=now, lateness_ms=12, outcome="submitted",
        task_id=Task.objects.unscoped().filter(name="monthly report").values_list("pk", flat=True).get(), version=1,
    )  # fmt: skip


def _around(tenant: Tenant) -> None:
    now = timezone.now()
    for kind in Component.Kind.values:
        Component.objects.create(kind=kind, cell="default", hostname="host-1.test", pid=7, started_at=now, beat_at=now)
    Alert.objects.create(
        rule="node_lost", cell="default", subject="node-2", detail="not heard for 31 s", since=now - timedelta(minutes=9),
        last_seen_at=now, raised_at=now,
    )  # fmt: skip
    PolicyChoice.objects.create(kind="order", policy="fifo", tenant=tenant)
    RankSweep.objects.create(cell="default")
    BulkOperation.objects.create(
        kind="cancel", what="state ready, tenant globex", reason="the release was withdrawn", actor="user:root", total=120,
        done=75, passed=1,
    )  # fmt: skip
    RateLimit.objects.create(tenant=tenant, handler=Handler.objects.get(name=HANDLER), starts=100, per_s=60)
    root = User.objects.filter(is_superuser=True).first()
    Group.objects.create(name="operators")
    if root is not None:
        kind_of = ContentType.objects.get_for_model(Tenant)
        LogEntry.objects.create(
            user=root, content_type=kind_of, object_id=str(tenant.pk), object_repr=tenant.slug, action_flag=CHANGE,
            change_message='[{"changed": {"fields": ["Weight"]}}]',
        )  # fmt: skip


def _beat() -> None:
    every = IntervalSchedule.objects.create(every=5, period="minutes")
    PeriodicTask.objects.create(name="tidy up", task="celery.backend_cleanup", interval=every)
    CrontabSchedule.objects.create(minute="5", hour="4")
    ClockedSchedule.objects.create(clocked_time=timezone.now())
    SolarSchedule.objects.create(event="sunrise", latitude=52.5, longitude=13.4)
