"""How many workers an autoscaler is told to run: exact for a known backlog, nought when there is nothing to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import redis
from django.core.management import call_command
from django.db import connection
from django.test import Client

from slackwater_resources.models import Node, Tier
from slackwater_tasks.read.autoscaling import by_cell, wanted
from tests.support.api import HANDLER, forget_lookups
from tests.support.cell import Cell

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cell(redis_client: redis.Redis) -> Iterator[Cell]:
    made = Cell(redis_client)
    Tier.objects.filter(tenant=None).update(disk_mb=0, iops=0, bandwidth_kbps=0, ports=0)
    # Eight process slots; its 4 CPUs hold sixteen of basic, eight of regular and four of premium.
    Node.objects.update(slots={"process": 8, "script": 2}, capacity=[4_000, 65_536, 0, 0, 0, 0])
    yield made
    made.store.db.close()


def learn(cell: Cell, mean_s: float) -> None:
    with connection.cursor() as cur:
        cur.execute(
            "INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at) VALUES (%s, %s, 50, %s, now())",
            (cell.tenant.pk, HANDLER, mean_s * 1e6),
        )


def workers() -> dict[str, int]:
    return {one.tier: one.workers for one in wanted()}


def test_an_idle_cell_asks_for_none(cell: Cell) -> None:
    assert workers() == {"basic": 0, "premium": 0, "regular": 0}
    assert by_cell(wanted()) == {"default": 0}
    cell.submit(start_at="2090-01-01T00:00:00Z")
    assert workers() == {"basic": 0, "premium": 0, "regular": 0}
    text = Client().get("/metrics").content.decode()
    assert 'slackwater_wanted_workers{cell="default",tier="basic"} 0.0' in text
    assert 'slackwater_cell_wanted_workers{cell="default"} 0.0' in text


def test_what_nothing_is_known_of_asks_for_a_slot_each(cell: Cell) -> None:
    for _ in range(13):
        cell.submit(tier="premium")
    # 13 slots at a ratio of 1.25 are 16.25; a worker holds four.
    assert workers() == {"basic": 0, "premium": 5, "regular": 0}
    cell.worker.start(cell.submit(tier="regular"))
    # What runs counts too: a slot and a quarter, of eight.
    assert workers() == {"basic": 0, "premium": 5, "regular": 1}
    # Together 16.25 / 4 + 1.25 / 8 workers.
    assert by_cell(wanted()) == {"default": 5}


def test_known_run_times_ask_for_what_begins_them_within_a_minute(cell: Cell) -> None:
    for _ in range(120):
        cell.submit()
    learn(cell, 6.0)
    # 720 s of work within 60 s are 12 slots, 15 with the ratio: two workers of eight.
    (basic,) = [one for one in wanted() if one.tier == "basic"]
    assert (basic.ready, basic.waiting_slots, basic.per_worker, basic.workers) == (120, 12.0, 8, 2)
    with connection.cursor() as cur:
        cur.execute("UPDATE slackwater_tasks_runtime SET mean_us = 3600e6")
    assert workers()["basic"] == 19  # a slot each, however long: 150 of eight


def test_the_last_worker_tells_the_size_of_the_next(cell: Cell) -> None:
    for _ in range(8):
        cell.submit()
    assert workers()["basic"] == 2
    Node.objects.update(state="left")
    assert workers()["basic"] == 2
    Node.objects.all().delete()
    assert workers()["basic"] == 10


def test_the_names_of_tenants_own_tiers_are_not_told(cell: Cell) -> None:
    Tier.objects.create(slug="their-secret", tenant=cell.tenant, cpu_milli=4_000, memory_mb=1)
    forget_lookups()
    cell.submit(tier="their-secret")
    text = Client().get("/metrics").content.decode()
    assert 'slackwater_wanted_workers{cell="default",tier="own"} 2.0' in text
    assert "their-secret" not in text


def test_what_is_paused_asks_for_none(cell: Cell) -> None:
    cell.submit()
    cell.tenant.paused = True
    cell.tenant.save()
    assert workers()["basic"] == 0


def test_the_command_and_the_metrics_tell_the_same(cell: Cell) -> None:
    for _ in range(13):
        cell.submit(tier="premium")
    out = StringIO()
    call_command("nodes", "--wanted", "--json", stdout=out)
    shown: dict[str, Any] = json.loads(out.getvalue())
    assert shown["cells"] == [{"cell": "default", "workers": 5}]
    assert [(row["tier"], row["ready"], row["workers"]) for row in shown["tiers"]] == [
        ("basic", 0, 0), ("premium", 13, 5), ("regular", 0, 0),
    ]  # fmt: skip
    assert 'slackwater_wanted_workers{cell="default",tier="premium"} 5.0' in Client().get("/metrics").content.decode()
    out = StringIO()
    call_command("nodes", "--wanted", stdout=out)
    assert "premium" in out.getvalue()
