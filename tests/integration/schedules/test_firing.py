"""Schedules on the real database: each firing once, whatever beats, edits, limits and broken templates do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection, transaction

from slackwater_schedules import services
from slackwater_schedules.firing import fire_due, prune_fires, seconds_to_next
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_tasks.models import LiveTask, Task
from slackwater_tenants.models import CurrentCounter, Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER, furnish
from tests.support.schedules import FIRES, due, fire_again, make, outcomes, rewind, state_of, tasks_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db
Outcome = ScheduleFire.Outcome


# -- firing -----------------------------------------------------------------------------------------------------------
def test_a_due_schedule_submits_its_task(tenant: Tenant) -> None:
    template = {
        "handler": HANDLER,
        "args": ["$fire_at", {"by": ["$schedule"]}],
        "kwargs": {"cost": "$5"},
        "tags": ["x"],
    }
    schedule = due(tenant, task=template)
    first = schedule.next_fire_at
    assert first is not None
    assert fire_due() == Counter(schedules=1, submitted=1)
    fire = FIRES.get(schedule=schedule)
    assert (fire.fire_at, fire.due_at, fire.outcome, fire.version) == (first, first, "submitted", 1)
    assert 1000 <= fire.lateness_ms < 10_000
    assert fire.task_id is not None
    task = Task._plain.get(pk=fire.task_id)
    assert (task.tenant, task.name, task.submitted_by, task.tags) == (
        tenant,
        "nightly",
        "schedule:nightly",
        ["x"],
    )
    assert task.get_category_display() == "periodic"
    assert task.args == [first.isoformat().replace("+00:00", "Z"), {"by": ["nightly"]}]
    assert task.kwargs == {"cost": "$5"}
    schedule.refresh_from_db()
    assert schedule.next_fire_at == schedule.next_due_at == first + timedelta(hours=1)
    assert fire_due() == Counter()


def test_a_schedule_without_a_time_runs_at_once_and_once(tenant: Tenant) -> None:
    schedule = make(tenant, kind="once", rule={})
    assert fire_due() == Counter(schedules=1, submitted=1)
    schedule.refresh_from_db()
    assert (schedule.next_fire_at, schedule.next_due_at) == (None, None)
    assert fire_due() == Counter()


def test_the_beat_knows_how_long_to_sleep(tenant: Tenant) -> None:
    assert seconds_to_next() is None
    make(tenant)
    ahead = seconds_to_next()
    assert ahead is not None
    assert 3500 < ahead <= 3600
    due(tenant, "other")
    ahead = seconds_to_next()
    assert ahead is not None
    assert ahead < 0


def test_jitter_delays_each_firing_by_its_own_part(tenant: Tenant) -> None:
    made = [make(tenant, f"s{n}", jitter_s=600) for n in range(20)]
    delays = {s.next_due_at - s.next_fire_at for s in made if s.next_due_at and s.next_fire_at}
    assert len(delays) > 15
    assert all(timedelta() <= delay < timedelta(seconds=600) for delay in delays)
    fires = [s.next_fire_at for s in made]
    assert max(f for f in fires if f) - min(f for f in fires if f) < timedelta(seconds=10)


@pytest.mark.django_db(transaction=True)
def test_many_due_at_once_are_submitted_together(tenant: Tenant, django_assert_max_num_queries: Any) -> None:
    other = create_tenant("other", "Other")
    for each in (tenant, other):
        due(each, "first")  # what a process looks up once
    fire_due()
    for n in range(60):
        due(tenant if n % 2 else other, f"s{n}")
    with django_assert_max_num_queries(30):
        assert fire_due() == Counter(schedules=60, submitted=60)
    names = set(Task._plain.filter(tenant=tenant).values_list("submitted_by", flat=True))
    assert names == {"schedule:first", *(f"schedule:s{n}" for n in range(60) if n % 2)}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"missed": "skip"}, ["missed"] * 5 + ["submitted"]),
        ({"missed": "one"}, ["missed"] * 5 + ["submitted"]),
        ({"missed": "all", "missed_limit": 2}, ["missed"] * 4 + ["submitted"] * 2),
        ({"missed": "window", "missed_window_s": 3 * 3600 + 60}, ["missed"] * 2 + ["submitted"] * 4),
        ({"missed": "skip", "missed_after_s": 6 * 3600}, ["submitted"] * 6),
    ],
)
def test_every_missed_firing_has_a_row(tenant: Tenant, policy: dict[str, Any], expected: list[str]) -> None:
    schedule = rewind(make(tenant, **policy), 6 * 3600 + 5)
    fire_due()
    assert outcomes(schedule) == expected
    assert fire_due() == Counter()


def test_more_missed_than_one_pass_takes(tenant: Tenant) -> None:
    began = time.monotonic()
    schedule = rewind(make(tenant, rule={"every_s": 1}, missed="one"), 2_500)
    while fire_due()["schedules"]:
        pass
    found = outcomes(schedule)
    assert len(found) >= 2_500
    # The latest, and what came while this test ran.
    assert found.count("submitted") <= 2 + (time.monotonic() - began)
    assert set(found[:2_400]) == {"missed"}


# -- any number of beats ----------------------------------------------------------------------------------------------
def in_threads(works: list[Callable[[], Any]]) -> list[Any]:
    """Run at once, each on a connection of its own; returns the results."""
    barrier = threading.Barrier(len(works))

    def one(work: Callable[[], Any]) -> Any:
        try:
            barrier.wait(20)
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(60) for future in [pool.submit(one, work) for work in works]]


@pytest.mark.django_db(transaction=True)
def test_many_beats_fire_each_due_schedule_once(tenant: Tenant) -> None:
    tenants = [tenant, *(create_tenant(f"t{n}", "T") for n in range(3))]
    for n in range(240):
        due(tenants[n % 4], f"s{n}", jitter_s=0)

    def beat() -> int:
        total = 0
        while (ahead := seconds_to_next()) is not None and ahead <= 0:
            total += fire_due(limit=7)["submitted"]
        return total

    fired = in_threads([beat] * 4)
    assert sum(fired) == 240
    assert FIRES.count() == Task._plain.count() == LiveTask._plain.count() == 240
    assert FIRES.filter(outcome="submitted").values("schedule").distinct().count() == 240
    assert [CurrentCounter.objects.get(tenant=t).unfinished for t in tenants] == [60] * 4


@pytest.mark.django_db(transaction=True)
def test_a_beat_that_dies_before_its_commit_loses_nothing(tenant: Tenant) -> None:
    schedule = due(tenant)
    fired, die = threading.Event(), threading.Event()
    backend: list[int] = []

    def doomed() -> str:
        try:
            with transaction.atomic():
                with connection.cursor() as cur:
                    cur.execute("SELECT pg_backend_pid()")
                    backend.append(cur.fetchone()[0])
                assert fire_due()["submitted"] == 1
                fired.set()
                assert die.wait(20)
        except DatabaseError as error:
            return type(error).__name__
        finally:
            connection.close()
        return "committed"

    with ThreadPoolExecutor(1) as pool:
        beat = pool.submit(doomed)
        assert fired.wait(20)
        assert fire_due() == Counter(), "the row is held by the first beat"
        assert not FIRES.exists()
        with connection.cursor() as cur:
            cur.execute("SELECT pg_terminate_backend(%s)", [backend[0]])
        die.set()
        assert beat.result(30) != "committed"
    wait_until(lambda: fire_due()["submitted"] == 1)
    assert outcomes(schedule) == ["submitted"]
    assert Task._plain.count() == 1


def test_a_beat_that_is_stopped_inside_a_batch_loses_it_soon(tenant: Tenant) -> None:
    due(tenant)
    fire_due()
    with connection.cursor() as cur:
        cur.execute("SHOW idle_in_transaction_session_timeout")
        assert cur.fetchone()[0] == "8s", "a standby takes over within 10 s"


@pytest.mark.django_db(transaction=True)
def test_the_shorter_patience_ends_with_the_batch(tenant: Tenant) -> None:
    due(tenant)
    fire_due()
    with connection.cursor() as cur:
        cur.execute("SHOW idle_in_transaction_session_timeout")
        assert cur.fetchone()[0] != "8s"


@pytest.mark.django_db(transaction=True)
def test_an_edit_waits_for_the_beat_that_fires_and_keeps_what_it_fired(tenant: Tenant) -> None:
    schedule = due(tenant, task={"handler": HANDLER, "name": "old"})
    holding, release = threading.Event(), threading.Event()

    def beat() -> None:
        try:
            with transaction.atomic():
                fire_due()
                holding.set()
                assert release.wait(20)
        finally:
            connection.close()

    def edit() -> int:
        try:
            changes = {"task": {"handler": HANDLER, "name": "new"}}
            return services.update_schedule(tenant.pk, schedule.pk, changes).version
        finally:
            connection.close()

    def blocked() -> bool:
        with connection.cursor() as cur:
            cur.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return bool(cur.fetchone()[0])

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(beat)
        assert holding.wait(20)
        second = pool.submit(edit)
        wait_until(blocked, message="the edit waits for the beat")
        assert not second.done()
        release.set()
        first.result(20)
        assert second.result(20) == 2
    fire_again(schedule)
    names = [Task._plain.get(pk=task_id).name for task_id in tasks_of(schedule)]
    assert names == ["old", "new"]
    assert list(FIRES.order_by("fire_at").values_list("version", flat=True)) == [1, 2]


# -- what cannot be submitted -----------------------------------------------------------------------------------------
def test_one_refused_firing_stops_no_other(tenant: Tenant) -> None:
    for n in range(9):
        due(tenant, f"s{n}")
    bad = due(tenant, "bad", task={"handler": HANDLER, "tier": "premium"})
    Plan.objects.filter(pk=tenant.plan_id).update(tiers=["basic"])
    assert fire_due() == Counter(schedules=10, submitted=9, failed=1)
    fire = FIRES.get(schedule=bad)
    assert (fire.outcome, fire.task_id) == ("failed", None)
    assert fire.error.startswith("tier: ")
    bad.refresh_from_db()
    assert bad.next_due_at is not None, "it is tried again at its next time"


def test_a_tenant_at_its_limit_fails_alone(tenant: Tenant) -> None:
    poor = create_tenant("poor", "Poor", plan_slug=Plan.objects.create(slug="small", name="S", max_waiting=3).slug)
    for n in range(8):
        due(poor, f"p{n}")
        due(tenant, f"a{n}")
    assert fire_due() == Counter(schedules=16, submitted=11, failed=5)
    assert Task._plain.filter(tenant=poor).count() == CurrentCounter.objects.get(tenant=poor).unfinished == 3
    errors = set(FIRES.filter(outcome="failed").values_list("error", flat=True))
    assert all("3 tasks waiting" in error for error in errors)


@pytest.mark.django_db(transaction=True)
def test_many_tenants_due_at_once_are_submitted_together(django_assert_max_num_queries: Any) -> None:
    """Also those whose limit, template or overlap needs them to go by themselves: it costs the others nothing."""
    furnish()
    many = [create_tenant(f"t{n}", f"T {n}") for n in range(40)]
    small = Plan.objects.create(slug="small", name="S", max_waiting=3)
    poor, broken, careful = many[7], many[20], many[33]
    Tenant.objects.filter(pk=poor.pk).update(plan=small)
    for tenant in many:
        due(tenant, "first")
    assert fire_due() == Counter(schedules=40, submitted=40)
    made = [due(tenant, f"s{n}") for tenant in many for n in range(3)]
    bad = due(broken, "bad", task={"handler": HANDLER, "tier": "premium"})
    Tenant.objects.filter(pk=broken.pk).update(plan=Plan.objects.create(slug="plain", name="P", tiers=["basic"]))
    queued = due(careful, "queued", overlap="queue_one")
    with django_assert_max_num_queries(140):
        assert fire_due() == Counter(schedules=122, submitted=120, failed=2)
    tasks_by_tenant = {tenant.pk: Task._plain.filter(tenant=tenant).count() for tenant in many}
    assert tasks_by_tenant == {tenant.pk: 4 for tenant in many} | {poor.pk: 3, careful.pk: 5}
    counters = dict(CurrentCounter.objects.values_list("tenant_id", "unfinished"))
    assert counters == tasks_by_tenant
    assert LiveTask._plain.count() == sum(tasks_by_tenant.values())
    failed = dict(FIRES.filter(outcome="failed").values_list("tenant_id", "error"))
    assert set(failed) == {poor.pk, broken.pk}
    assert "3 tasks waiting" in failed[poor.pk]
    assert failed[broken.pk].startswith("tier: ")
    assert outcomes(bad) == ["failed"]
    for schedule in made:
        for task_id in tasks_of(schedule):
            task = Task._plain.get(pk=task_id)
            assert (task.tenant_id, task.submitted_by) == (schedule.tenant_id, f"schedule:{schedule.name}")
    fire_again(queued)
    assert len(tasks_of(queued)) == 2
    assert state_of(tasks_of(queued)[1]) == "BLOCKED", "it waits for the one before"


def test_a_rule_that_is_none_any_more_is_stopped(tenant: Tenant) -> None:
    broken, fine = due(tenant, "broken"), due(tenant, "fine")
    Schedule._plain.filter(pk=broken.pk).update(time_zone="UTC", rule={"every_s": "often"})
    assert fire_due() == Counter(schedules=2, submitted=1, failed=1)
    broken.refresh_from_db()
    assert broken.next_due_at is None
    assert "rule.every_s" in FIRES.get(schedule=broken).error
    assert outcomes(fine) == ["submitted"]


# -- housekeeping -----------------------------------------------------------------------------------------------------
def test_old_firings_are_pruned(tenant: Tenant) -> None:
    schedule = due(tenant)
    fire_due()
    fire_again(schedule)
    FIRES.filter(pk=FIRES.order_by("fire_at").values_list("pk", flat=True)[0]).update(
        fired_at=datetime.now(UTC) - timedelta(days=100)
    )
    assert prune_fires(90 * 86_400, 10) == 1
    assert FIRES.count() == 1


def test_the_claim_goes_by_its_index(tenant: Tenant) -> None:
    made = make(tenant)
    values = {field.attname: getattr(made, field.attname) for field in Schedule._meta.concrete_fields}
    Schedule._plain.bulk_create(Schedule(**values | {"id": uuid4(), "name": f"s{n}"}) for n in range(2_000))
    with connection.cursor() as cur:
        cur.execute("ANALYZE slackwater_schedules_schedule")
        cur.execute(
            "EXPLAIN SELECT * FROM slackwater_schedules_schedule WHERE next_due_at <= statement_timestamp() "
            "ORDER BY next_due_at, tenant_id LIMIT 200 FOR UPDATE SKIP LOCKED"
        )
        plan = "\n".join(row[0] for row in cur.fetchall())
    assert "slackwater_schedule_due" in plan
    assert "Sort" not in plan
