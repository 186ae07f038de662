"""Health and metrics."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from scheduler_ext.core.states import TaskState
from slackwater_resources.models import Node
from slackwater_tasks.models import Leader, LiveTask
from tests.support.api import client_of, furnish


def test_healthz_asks_nothing() -> None:
    # Without the mark django_db, pytest-django refuses every query.
    assert Client().get("/healthz").json() == {"status": "ok"}


@pytest.mark.django_db
def test_readyz_tells_of_each_part() -> None:
    now = timezone.now()
    Leader.objects.create(cell="default", holder="x", renewed_at=now, expires_at=now - timedelta(seconds=1))
    answer = Client().get("/readyz")
    assert answer.status_code == 200
    checks = answer.json()["checks"]
    assert (checks["database"]["ok"], checks["redis"]["ok"], checks["dispatchers"]) == (
        True,
        True,
        {"default": False},
    )
    assert checks["workers"] == {}


@pytest.mark.django_db
def test_readyz_counts_the_workers_that_are_there() -> None:
    now = timezone.now()
    for name, state, lease_s in (
        ("a", "active", 9),
        ("b", "active", 9),
        ("c", "active", -1),
        ("d", "draining", 9),
        ("e", "starting", 9),
    ):
        Node.objects.create(
            name=name, hostname="h", incarnation=uuid.uuid4(), state=state, capacity=[1, 1, 0, 0, 0, 0],
            slots={}, handlers=[], started_at=now, heartbeat_at=now,
            lease_expires_at=now + timedelta(seconds=lease_s),
        )  # fmt: skip
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["workers"]) == (200, {"default": 2})
    assert answer.json()["checks"]["starting"] == {"default": 1}


@pytest.mark.django_db
def test_readyz_stays_ready_without_redis_for_submissions_need_none(settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "REDIS_URL": "redis://127.0.0.1:1/0"}
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["redis"]["ok"]) == (200, False)


@pytest.mark.django_db
def test_readyz_is_503_without_the_tables() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE slackwater_tasks_leader RENAME TO elsewhere")
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "not ready")


def metrics() -> dict[tuple[str, ...], Any]:
    """The samples by name and labels."""
    text = Client().get("/metrics").content.decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.django_db
def test_metrics_tell_what_the_ledger_holds_in_a_fixed_number_of_queries() -> None:
    furnish()
    acme = client_of("acme")
    now = timezone.now()
    node = Node.objects.create(
        name="n", hostname="h", incarnation=uuid.uuid4(), capacity=[1500, 512, 0, 0, 0, 0], slots={}, started_at=now,
        heartbeat_at=now, lease_expires_at=now + timedelta(minutes=1), stats={"refused": {"claim": 7}},
    )  # fmt: skip
    ids = [acme.task(), acme.task(category="urgent"), acme.task()]
    LiveTask._plain.filter(pk=UUID(ids[0])).update(state=TaskState.RUNNING, node=node)
    with CaptureQueriesContext(connection) as queries:
        found = metrics()
    assert found["slackwater_tasks_unfinished",] == 3
    assert found["slackwater_tasks_waiting",] == 2
    assert found["slackwater_submitted_total", "acme"] == 3
    assert found["slackwater_tasks_in_flight", "delayable", "running"] == 1
    assert found["slackwater_lines_active", "urgent"] == 1
    assert -10 < found["slackwater_lateness_seconds", "urgent"] < 0
    assert found["slackwater_capacity", "cpu_milli", "default"] == 1500
    assert found["slackwater_nodes", "active", "default"] == 1
    assert found["slackwater_refused_from_redis", "claim"] >= 7
    assert not [
        labels
        for labels in found
        if ("acme" in labels and "share" not in labels[0] and "submitted" not in labels[0]) or ids[0] in labels
    ]
    assert (
        found["slackwater_share_entitled", "acme", "default"],
        found["slackwater_jain_index", "default", "dominant_resource"],
    ) == (1, 1)
    acme.task()
    with CaptureQueriesContext(connection) as more:
        metrics()
    assert len(more) == len(queries) <= 29


@pytest.mark.django_db
def test_metrics_can_be_closed_by_a_token(settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "METRICS_TOKEN": "open-sesame"}
    assert Client().get("/metrics").status_code == 401
    assert Client().get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert Client().get("/metrics", headers={"Authorization": "Bearer open-sesame"}).status_code == 200
