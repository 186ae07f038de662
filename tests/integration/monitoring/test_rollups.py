"""Figures over time: each attempt counted once in each span, sums that agree, a bounded number of rows."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_monitoring.models import Rollup
from slackwater_monitoring.rollups import exposition, fill, layout, read
from slackwater_monitoring.rollups.layout import OTHERS, Dimension, Place
from slackwater_resources.models import Node
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import Attempt, Task, TaskTrace
from tests.support.api import HANDLER, client_of, forget_lookups, furnish
from tests.support.hand_worker import HandWorker
from tests.support.usage import ended, settle

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _furnished() -> None:
    forget_lookups()
    furnish()


def sample() -> int:
    with connect() as conn, conn.transaction():
        return fill.sample(conn)


def moved_back(seconds: float) -> None:
    """What has happened becomes older, so that its span is over."""
    earlier = timedelta(seconds=seconds)
    for row in Attempt._plain.all():
        Attempt._plain.filter(pk=row.pk).update(
            queued_at=row.started_at - earlier,
            started_at=row.started_at - earlier,
            finished_at=row.finished_at - earlier,
        )
    for task in Task._plain.all():
        at = task.finished_at and task.finished_at - earlier
        Task._plain.filter(pk=task.pk).update(submitted_at=task.submitted_at - earlier, finished_at=at)


def totals_of(window: str, by: str) -> dict[str, tuple[int, int]]:
    found = read.charts(window, by)["series"]
    return {one["key"]: (one["total"]["ended"], one["total"]["failed"]) for one in found}


def scraped(accept: str = "") -> dict[tuple[str, ...], float]:
    """The samples of ``/metrics`` by name and the values of their labels, sorted."""
    text = Client().get("/metrics", headers={"Accept": accept}).content.decode()
    parse = openmetrics if "openmetrics" in accept else text_string_to_metric_families
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def test_every_chart_tells_the_same_and_by_each_dimension_it_adds_up() -> None:
    acme, other = client_of("acme"), client_of("other")
    worker = HandWorker("node-1")
    for _ in range(3):
        worker.run(UUID(acme.task()), took_s=2.0)
    worker.run(UUID(acme.task(category="urgent", total_attempts=1)), outcome=Outcome.FAILED, error="no")
    worker.run(UUID(other.task()), took_s=40.0)
    gone = UUID(other.task())
    other.post(f"/tasks/{gone}/cancel")
    other.task()
    moved_back(120)
    ended()
    ended()  # a second time adds nothing
    for window in ("5min", "1h"):
        assert totals_of(window, "all") == {"all": (5, 1)}
        assert totals_of(window, "tenant") == {"acme": (4, 1), "other": (1, 0)}
        assert totals_of(window, "handler") == {HANDLER: (5, 1)}
        assert totals_of(window, "node") == {"node-1": (5, 1)}
        assert totals_of(window, "category") == {"delayable": (4, 0), "urgent": (1, 1)}
    (shown,) = read.charts("5min", "all")["series"]
    assert sum(shown["ended"]) * 10 == pytest.approx(5)
    assert 30 < shown["total"]["run_time"]["p95"] <= 60
    total = read.totals()[Dimension.ALL][""]
    assert {state.name: n for state, n in layout.finished(total).items() if n} == {
        "SUCCEEDED": 4, "FAILED": 1, "CANCELLED": 1,
    }  # fmt: skip
    assert (total[Place.STARTED], layout.ended(total)) == (5, 5)
    assert set(read.totals()[Dimension.TENANT]) == {"acme", "other"}
    exported = scraped()
    assert exported["slackwater_attempts_total", "delayable", "succeeded"] == 4
    assert exported["slackwater_handler_finished_total", *sorted([HANDLER, "cancelled"])] == 1
    assert exported["slackwater_tenant_run_seconds_count", "acme"] == 4
    assert exported["slackwater_node_run_seconds_bucket", "60.0", "node-1"] == 5
    page = Client()
    page.force_login(User.objects.create_superuser("root"))
    answer = page.get(reverse("admin:sw_charts"), {"window": "5min", "by": "node"})
    assert [one["key"] for one in answer.json()["series"]] == ["node-1"]
    assert page.get(reverse("admin:sw_charts"), {"window": "5y"}).status_code == 404


def test_what_ended_just_now_is_in_every_window_and_its_rate_is_of_the_time_that_has_passed() -> None:
    acme, worker = client_of("acme"), HandWorker("node-1")
    for _ in range(4):
        worker.run(UUID(acme.task()))
    moved_back(30)
    settle()
    for window, (step, _) in read.WINDOWS.items():
        found = read.charts(window, "all")
        (shown,) = found["series"]
        assert shown["total"]["ended"] == 4, window
        assert max(shown["ended"]) >= 4 / step, window
        assert len(found["at"]) == len(shown["ended"]) == read.WINDOWS[window][1]


def test_queues_and_slots_are_sampled_once_however_many_upkeeps_look() -> None:
    acme, other = client_of("acme"), client_of("other")
    settle()  # the mark is there
    HandWorker("node-1").start(UUID(acme.task()))
    for _ in range(3):
        other.task(category="urgent")
    threads = [threading.Thread(target=sample) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sample() == 0  # not due yet
    rows = {(Dimension(row.dimension), row.key): row.numbers for row in Rollup.objects.filter(grain=layout.EVER)}
    assert rows[Dimension.ALL, ""][Place.SAMPLES] == 1
    waiting = {key: numbers[Place.WAITING] for key, numbers in rows.items() if numbers[Place.WAITING]}
    assert waiting == {
        (Dimension.ALL, ""): 3, (Dimension.TENANT, str(other.tenant.pk)): 3, (Dimension.HANDLER, HANDLER): 3,
        (Dimension.NODE, layout.NONE): 3, (Dimension.CATEGORY, "urgent"): 3,
    }  # fmt: skip
    used = {
        key: (n[Place.USED_MILLI], n[Place.SLOTS_MILLI]) for (kind, key), n in rows.items() if kind == Dimension.SLOT
    }
    assert used == {"process": (1000, 4000), "script": (0, 2000)}


def test_what_stands_ahead_at_a_node_fills_its_slots_and_no_others() -> None:
    acme = client_of("acme")
    settle()
    busy, gone, idle = HandWorker("node-1"), HandWorker("node-2"), HandWorker("node-3")
    busy.start(*[UUID(acme.task()) for _ in range(4)])
    busy.claim(*[UUID(acme.task()) for _ in range(3)])
    gone.start(UUID(acme.task()))
    Node.objects.filter(pk=gone.node.pk).update(state=Node.State.LOST)
    idle.start(UUID(acme.task()))
    sample()
    (row,) = Rollup.objects.filter(grain=layout.EVER, dimension=Dimension.SLOT, key="process")
    assert (row.numbers[Place.USED_MILLI], row.numbers[Place.SLOTS_MILLI]) == (5_000, 8_000)


def test_keys_beyond_the_most_are_added_up_and_idle_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_KEYS", 2)
    monkeypatch.setattr(layout, "PLACES_KEPT_FREE", 1)
    clients = [client_of(f"client-{n}") for n in range(4)]
    worker = HandWorker("node-1")
    for n, client in enumerate(clients):
        for _ in range(4 - n):
            worker.run(UUID(client.task()))
    moved_back(120)
    settle()
    assert totals_of("1h", "tenant") == {"client-0": (4, 0), "client-1": (3, 0), OTHERS: (3, 0)}
    with connect() as conn:
        fill.forget(conn, 100)
    assert set(read.totals()[Dimension.TENANT]) == {"client-0", OTHERS}
    worker.run(UUID(clients[3].task()))
    settle()
    assert set(read.totals()[Dimension.TENANT]) == {"client-0", "client-3", OTHERS}


def test_rows_go_when_their_time_is_over_and_what_is_older_is_not_written() -> None:
    acme = client_of("acme")
    HandWorker("node-1").run(UUID(acme.task()))
    moved_back(2 * 3_600)
    settle()
    assert set(Rollup.objects.values_list("grain", flat=True)) == {0, 60, 600, 3_600}
    old = timezone.now() - timedelta(days=3)
    Rollup.objects.filter(grain=60).update(at=old)
    with connect() as conn:
        assert fill.forget(conn, 100) == 5
    assert not Rollup.objects.filter(grain=60).exists()


def test_late_starts_are_late_and_traces_of_late_attempts_are_exemplars() -> None:
    acme = client_of("acme")
    task_id = UUID(acme.task())
    HandWorker("node-1").run(task_id)
    Task._plain.filter(pk=task_id).update(latest_start=timezone.now() - timedelta(hours=1), state=TaskState.SUCCEEDED)
    TaskTrace._plain.create(task_id=task_id, tenant=acme.tenant, trace_id="a" * 32, sampled=True)
    settle()
    assert read.totals()[Dimension.ALL][""][Place.LATE] == 1
    exposition.SUBMIT.observe(0.02)
    exposition.REFUSED.labels("429").inc()
    found = scraped("application/openmetrics-text; version=1.0.0")
    assert found["slackwater_late_total", "delayable"] == 1
    assert found["slackwater_refused_total", "429"] >= 1
    text = Client().get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}).content.decode()
    shown = [line for line in text.splitlines() if "# {trace_id" in line]
    assert {line.split("{")[0] for line in shown} == {
        f"slackwater_{name}_seconds_bucket" for name in ("start_delay", "queue", "run")
    }


def test_a_task_that_makes_room_and_goes_on_has_started_once() -> None:
    """Its turns share the number of the attempt."""
    acme, worker = client_of("acme"), HandWorker("node-1")
    task_id = UUID(acme.task(total_attempts=1, checkpoints=True))
    for outcome in (Outcome.YIELDED, Outcome.PREEMPTED, Outcome.FAILED):
        worker.run(task_id, outcome=outcome)
    retry(acme.tenant.pk, task_id)
    worker.run(task_id)
    settle()
    total = read.totals()[Dimension.ALL][""]
    assert (total[Place.STARTED], total[Place.RETRIED], sum(layout.histogram(total, layout.DELAYS))) == (4, 1, 1)
    assert [row["started"] for row in acme.get("/usage").body["on_time"]] == [1]
    receipts = acme.get("/receipts").body["items"]
    assert [(one["attempt"], one["kept"]["before"] is None) for one in receipts] == [
        (1, False), (1, True), (1, True), (2, True),
    ]  # fmt: skip
