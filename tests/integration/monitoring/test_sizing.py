"""Hints of smaller tiers, from what attempts were measured to use."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished
from slackwater_monitoring.models import Sizing
from slackwater_monitoring.right_sizing import percentile
from slackwater_monitoring.usage import KEPT_RUNS
from slackwater_resources.models import Tier
from slackwater_tasks.ledger import transitions
from tests.support.admin import staff
from tests.support.api import ApiClient, client_of, forget_lookups, furnish
from tests.support.hand_worker import HandWorker, raw_cursor
from tests.support.usage import settle

pytestmark = pytest.mark.django_db(transaction=True)
Use = tuple[int, int | None, int | None]


@pytest.fixture
def acme() -> ApiClient:
    furnish()
    for slug, disk in (("basic", 100), ("regular", 200), ("premium", 400)):
        Tier.objects.filter(slug=slug, tenant=None).update(disk_mb=disk, iops=0, bandwidth_kbps=0, ports=0)
    Tier.objects.filter(slug="basic").update(memory_mb=256, cpu_milli=250)
    return client_of("acme")


def ran(client: ApiClient, uses: Sequence[Use], tier: str = "premium", outcome: Outcome = Outcome.SUCCEEDED) -> None:
    """Attempts of one second each that were measured to use (CPU ‰, memory MiB, disk MiB)."""
    worker = HandWorker(f"hand-{time.monotonic_ns()}")
    ids = [UUID(client.task(tier=tier, total_attempts=1)) for _ in uses]
    now = time.time()
    ended = [
        Finished(one.task_id, one.fence, outcome, now - 1, now, None, None, 0, None, cpu, memory, "x", disk)
        for one, (cpu, memory, disk) in zip(worker.start(*ids), uses, strict=True)
    ]
    with raw_cursor() as cur:
        transitions.record(cur, worker.conf, worker.node.pk, ended, random.Random(1))
    settle()


def hints(client: ApiClient) -> list[dict[str, Any]]:
    answer = client.get("/usage/hints")
    assert answer.status == 200, answer.body
    return list(answer.body["items"])


def test_who_asked_for_premium_and_used_basic_is_told(acme: ApiClient) -> None:
    ran(acme, [(200, 100, 50)] * 19 + [(240, 300, 90)])
    (hint,) = hints(acme)
    updated = hint.pop("updated_at")
    assert updated
    assert hint == {
        "kind": "handler", "name": "demo.echo", "tier": "premium", "suggested_tier": "basic", "runs": 20,
        "runs_over": 1, "p95": {"cpu_milli": 200, "memory_mb": 100, "disk_mb": 50},
    }  # fmt: skip
    assert client_of("other").get("/usage/hints").body["items"] == []
    # Two of twenty above: basic would not have held 95 of 100 any more.
    ran(acme, [(200, 300, 50)])
    assert hints(acme)[0]["suggested_tier"] == "regular"


@pytest.mark.parametrize(
    ("uses", "suggested"),
    [
        ([(200, 100, 50)] * 19, None),  # too few
        ([(900, 100, 50)] * 20, None),  # its CPU is used
        ([(200, 2_000, 50)] * 20, None),  # its memory is used
        ([(200, 100, 300)] * 20, None),  # its disk is used
        ([(200, 100, 150)] * 20, "regular"),  # its disk is too much for basic
        ([(200, None, None)] * 20, None),  # nobody knows its memory
    ],
)
def test_the_smallest_that_holds_everything_is_named(acme: ApiClient, uses: list[Use], suggested: str | None) -> None:
    ran(acme, uses)
    assert [hint["suggested_tier"] for hint in hints(acme)] == ([suggested] if suggested else [])


def test_a_tier_of_the_same_memory_does_for_what_has_no_measured_memory(acme: ApiClient) -> None:
    Tier.objects.create(slug="slow", tenant=acme.tenant, cpu_milli=250, memory_mb=4_096, disk_mb=400)
    forget_lookups()
    ran(acme, [(200, None, None)] * 20)
    assert hints(acme)[0]["suggested_tier"] == "slow"


def test_who_was_ended_for_too_much_is_not_told_to_take_less(acme: ApiClient) -> None:
    ran(acme, [(200, 256, 50)] * 20, tier="basic", outcome=Outcome.RESOURCE_EXCEEDED)
    assert hints(acme) == []
    assert Sizing._plain.get().exceeded == 20


def test_only_the_last_runs_count(acme: ApiClient) -> None:
    ran(acme, [(900, 4_000, 300)] * 20)
    assert hints(acme) == []
    ran(acme, [(100, 100, 10)] * KEPT_RUNS)
    row = Sizing._plain.get()
    assert (row.runs, len(row.cpu_milli), len(row.memory_mb)) == (20 + KEPT_RUNS, KEPT_RUNS, KEPT_RUNS)
    assert hints(acme)[0]["suggested_tier"] == "basic"


def test_operators_see_all_tenants_hints(acme: ApiClient, page: Client) -> None:
    ran(acme, [(200, 100, 50)] * 20)
    text = page.get(reverse("admin:sw_sizes")).content.decode()
    assert "demo.echo" in text
    assert "<td>premium</td><td>basic</td>" in text
    assert staff("slackwater_tasks.view_task").get(reverse("admin:sw_sizes")).status_code == 403


@pytest.mark.parametrize(("count", "rank"), [(1, 1), (19, 19), (20, 19), (21, 20), (100, 95), (200, 190)])
def test_nearest_rank(count: int, rank: int) -> None:
    assert percentile(range(1, count + 1)) == rank
