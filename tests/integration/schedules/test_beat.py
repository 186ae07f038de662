"""celery-beat with the scheduler class of ours: several at once, killed, without a database, and dead letters."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from celery import Celery
from django.conf import settings
from django.db import connection, connections
from django_celery_beat.models import IntervalSchedule, PeriodicTask, PeriodicTasks

from scheduler_ext.core.states import Outcome
from slackwater_schedules import services
from slackwater_schedules.beat import MAX_SLEEP_S, ClaimingScheduler
from slackwater_schedules.dead_letters import ACTOR, retry_due
from slackwater_schedules.models import ScheduleFire
from slackwater_tasks.models import DeadLetter, LiveTask, Task, TaskEvent
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Plan, Tenant
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker
from tests.support.processes import ManagedProcess, running
from tests.support.schedules import due, make, outcomes, rewind, state_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
QUEUE = "beat-test"


def beat(**config: Any) -> ClaimingScheduler:
    """A scheduler as a beat process has it, on an app of its own."""
    app = Celery("beats", broker=settings.CELERY_BROKER_URL, set_as_current=False)
    app.conf.update(task_default_queue=QUEUE, broker_transport_options={"socket_timeout": 5.0}, **config)
    return ClaimingScheduler(app=app)


# -- schedules -----------------------------------------------------------------------------------------------
def test_a_tick_fires_and_sleeps_no_longer_than_an_edit_may_wait(tenant: Tenant) -> None:
    scheduler = beat()
    assert scheduler.tick() == MAX_SLEEP_S
    schedule = due(tenant)
    assert 0 < scheduler.tick() <= MAX_SLEEP_S
    assert outcomes(schedule) == ["submitted"]
    soon = make(tenant, "soon", rule={"every_s": 1})
    assert scheduler.tick() <= MAX_SLEEP_S
    wait_until(lambda: scheduler.tick() and outcomes(soon)[:1] == ["submitted"])


def test_a_tick_survives_the_loss_of_the_database(tenant: Tenant) -> None:
    scheduler = beat()
    scheduler.tick()
    schedule = due(tenant)
    with connection.cursor() as cur:
        cur.execute("SELECT pg_backend_pid()")
        pid = cur.fetchone()[0]
    other = connections.create_connection("default")
    with other.cursor() as cur:
        cur.execute("SELECT pg_terminate_backend(%s)", [pid])
    other.close()
    assert 0 <= scheduler.tick() <= MAX_SLEEP_S
    wait_until(lambda: [scheduler.tick(), outcomes(schedule)][1] == ["submitted"])


def test_a_beat_that_starts_without_the_database_goes_on_when_it_is_there(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = due(tenant)
    with monkeypatch.context() as patch:
        connection.close()
        patch.setitem(connection.settings_dict, "HOST", "/nowhere")
        scheduler = beat()
        assert scheduler.tick() == MAX_SLEEP_S
        connection.close()
    scheduler.tick()
    assert outcomes(schedule) == ["submitted"]


# -- ordinary periodic tasks ---------------------------------------------------------------------------------
def periodic(name: str, seconds: int = 3600, ago: int = 7200) -> PeriodicTask:
    """An ordinary periodic task whose time has come."""
    every, _ = IntervalSchedule.objects.get_or_create(every=seconds, period=IntervalSchedule.SECONDS)
    return PeriodicTask.objects.create(
        name=name,
        task="demo.periodic",
        interval=every,
        last_run_at=datetime.now(UTC) - timedelta(seconds=ago),
    )


def drain(scheduler: ClaimingScheduler) -> None:
    """Tick until nothing is due, by what the periodic tasks are now."""
    scheduler._next_periodic = 0.0
    while scheduler.tick() == 0:
        pass


def test_an_ordinary_periodic_task_is_sent_by_one_of_two_beats(redis_client: redis.Redis) -> None:
    tasks = [periodic("one"), periodic("two")]
    PeriodicTask.objects.filter(pk=tasks[1].pk).update(last_run_at=None, date_changed=datetime(2020, 1, 1, tzinfo=UTC))
    first, second = beat(), beat()
    for scheduler in (first, second, first, second):
        drain(scheduler)
    assert redis_client.llen(QUEUE) == 2
    for task in tasks:
        task.refresh_from_db()
        assert task.total_run_count == 1
    # The second beat has learnt from the row when the task ran last: it is not due to it either.
    for task in tasks:
        assert task.last_run_at is not None
        PeriodicTask.objects.filter(pk=task.pk).update(last_run_at=task.last_run_at - timedelta(hours=2))
    PeriodicTasks.update_changed()
    for scheduler in (second, first):
        drain(scheduler)
    assert redis_client.llen(QUEUE) == 4
    first.sync()
    task.refresh_from_db()
    assert task.total_run_count == 2, "an older picture is never written over a newer row"


def test_what_the_celery_configuration_lists_is_sent_too(redis_client: redis.Redis) -> None:
    entry = {"task": "demo.periodic", "schedule": timedelta(hours=1)}
    scheduler = beat(beat_schedule={"listed": entry})
    PeriodicTask.objects.filter(name="listed").update(last_run_at=datetime.now(UTC) - timedelta(hours=2))
    PeriodicTasks.update_changed()
    drain(scheduler)
    assert redis_client.llen(QUEUE) == 1
    assert not PeriodicTask.objects.filter(name="celery.backend_cleanup").exists(), "no results are kept"


def test_a_broker_that_is_away_stops_no_schedule(tenant: Tenant) -> None:
    periodic("one")
    app = Celery("beats", broker="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.update(task_publish_retry=False, broker_transport_options={"socket_connect_timeout": 0.2})
    scheduler = ClaimingScheduler(app=app)
    schedule = due(tenant)
    scheduler.tick()
    assert outcomes(schedule) == ["submitted"]


# -- dead letters --------------------------------------------------------------------------------------------
def dead(tenant: Tenant, worker: HandWorker, **fields: Any) -> UUID:
    """A task that has used up its attempts."""
    task_id = submit(tenant, {"handler": HANDLER, "total_attempts": 1, **fields}).task_ids[0]
    worker.run(task_id, outcome=Outcome.FAILED, error="boom")
    return task_id


def make_due(*task_ids: UUID) -> None:
    """Let the time to their retry pass."""
    DeadLetter._plain.filter(pk__in=task_ids).update(next_retry_at=datetime.now(UTC) - timedelta(seconds=1))


def test_a_dead_letter_is_retried_as_often_as_its_plan_says(tenant: Tenant) -> None:
    Plan.objects.filter(pk=tenant.plan_id).update(dead_letter_retries=2, dead_letter_after_s=600)
    worker = HandWorker()
    task_id = dead(tenant, worker)
    assert retry_due() == Counter(), "its time has not come"
    for n in (1, 2):
        make_due(task_id)
        assert retry_due() == Counter(retried=1)
        assert state_of(task_id) == "READY"
        assert not DeadLetter._plain.exists()
        assert TaskEvent._plain.filter(task_id=task_id, actor=ACTOR).count() == n
        worker.run(task_id, outcome=Outcome.FAILED, error="boom")
    make_due(task_id)
    assert retry_due() == Counter({"given up": 1})
    letter = DeadLetter._plain.get()
    assert (letter.next_retry_at, letter.retries, state_of(task_id)) == (None, 2, "FAILED")
    assert retry_due() == Counter()


def test_many_beats_retry_each_dead_letter_once(tenant: Tenant) -> None:
    Plan.objects.filter(pk=tenant.plan_id).update(dead_letter_retries=1)
    worker = HandWorker()
    ids = [dead(tenant, worker) for _ in range(30)]
    make_due(*ids)

    def beats() -> int:
        total = 0
        try:
            while done := retry_due(limit=4)["retried"]:
                total += done
        finally:
            connection.close()
        return total

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(beats) for _ in range(3)]
        assert sum(future.result(60) for future in futures) == 30
    assert LiveTask._plain.count() == 30
    assert TaskEvent._plain.filter(actor=ACTOR).count() == 30


def test_a_retry_over_the_limit_is_put_off(tenant: Tenant) -> None:
    Plan.objects.filter(pk=tenant.plan_id).update(dead_letter_retries=1)
    task_id = dead(tenant, HandWorker())
    make_due(task_id)
    Plan.objects.filter(pk=tenant.plan_id).update(max_waiting=0)
    assert retry_due() == Counter({"put off": 1})
    letter = DeadLetter._plain.get()
    assert letter.next_retry_at is not None
    assert letter.next_retry_at > datetime.now(UTC)
    assert state_of(task_id) == "FAILED"


def test_a_tick_retries_dead_letters(tenant: Tenant) -> None:
    Plan.objects.filter(pk=tenant.plan_id).update(dead_letter_retries=1)
    task_id = dead(tenant, HandWorker())
    make_due(task_id)
    beat().tick()
    assert state_of(task_id) == "READY"


# -- real processes ------------------------------------------------------------------------------------------
def command() -> list[str]:
    """A real beat."""
    options = ["--pidfile=", "--loglevel", "INFO"]
    return [sys.executable, "-W", "ignore", "-m", "celery", "-A", "slackwater", "beat", *options]


def environment(database_url: str, redis_url: str) -> dict[str, str]:
    """What a beat needs to work on this test's servers."""
    return {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_REDIS_URL": redis_url,
        "DJANGO_SETTINGS_MODULE": "slackwater.settings.test",
        "SLACKWATER_SECRET_KEY": "only-for-tests",
        "SLACKWATER_LOG_LEVEL": "INFO",
        "PYTHONPATH": os.pathsep.join([".", "platform", "apps"]),
    }


@pytest.mark.e2e
def test_two_real_beats_of_which_one_is_killed_miss_nothing_and_double_nothing(
    tenant: Tenant, database_url: str, redis_url: str
) -> None:
    schedules = [make(tenant, f"s{n}", rule={"every_s": 1}) for n in range(20)]
    env = environment(database_url, redis_url)

    def fired(at_least: int) -> bool:
        return ScheduleFire._plain.filter(outcome="submitted").count() >= at_least

    with (
        running(command(), env=env, name="beat-1") as first,
        running(command(), env=env, name="beat-2") as second,
    ):
        wait_until(lambda: all_running([first, second]) and fired(60), timeout=60, message="both beats fire")
        first.send(signal.SIGKILL)
        first.wait()
        count = ScheduleFire._plain.count()
        wait_until(lambda: fired(count + 60), timeout=30, message="the other beat goes on")
        with running(command(), env=env, name="beat-3"):
            second.send(signal.SIGKILL)
            second.wait()
            count = ScheduleFire._plain.count()
            wait_until(lambda: fired(count + 60), timeout=60, message="a new beat takes over")
    for schedule in schedules:
        times = list(
            ScheduleFire._plain.filter(schedule=schedule).order_by("fire_at").values_list("fire_at", flat=True)
        )
        expected = [schedule.anchor_at + timedelta(seconds=n + 1) for n in range(len(times))]
        assert times == expected, "every second of its life, once"
    submitted = ScheduleFire._plain.filter(outcome="submitted")
    assert submitted.count() == Task._plain.count() == submitted.values("task_id").distinct().count()
    assert not ScheduleFire._plain.exclude(outcome="submitted").exists()


def all_running(processes: list[ManagedProcess]) -> bool:
    """Whether none has ended; AssertionError with its output otherwise."""
    for process in processes:
        assert process.is_running(), process.output[-4000:]
    return True


def test_a_beat_ends_at_once_when_asked(tenant: Tenant, database_url: str, redis_url: str) -> None:
    schedule = rewind(make(tenant, rule={"every_s": 3600}), 3601)
    with running(command(), env=environment(database_url, redis_url), name="beat") as process:
        wait_until(lambda: all_running([process]) and outcomes(schedule) == ["submitted"], timeout=60)
        services.pause_schedule(tenant.pk, schedule.pk)
        process.send(signal.SIGTERM)
        assert process.wait(15) == 0
