"""What happens when a server is away for a while: everybody comes back by themselves, nothing is lost or repeated."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from redis import Redis

from scheduler_ext.core.states import Outcome, TaskState
from slackwater.local.servers import EmbeddedRedis, socket_folder
from slackwater_resources.models import Node
from slackwater_tasks.ledger.connection import connect
from tests.e2e.test_kill import running_child
from tests.support.platform import BRIEF, Platform
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis of this test alone, which it may stop."""
    with EmbeddedRedis(tmp_path / "redis", socket_folder(tmp_path), durable=False) as redis:
        yield redis


@pytest.fixture
def platform(transactional_db: None, database_url: str, own_redis: EmbeddedRedis) -> Iterator[Platform]:
    """A platform on that Redis."""
    made = Platform(database_url, own_redis.url)
    try:
        yield made
    finally:
        made.close()


def test_a_worker_outlives_its_broker(platform: Platform, own_redis: EmbeddedRedis, tmp_path: Path) -> None:
    worker = platform.up()
    go = tmp_path / "go"
    running = platform.submit("test.until", str(go))
    platform.wait(running, TaskState.RUNNING)
    own_redis.stop()
    waiting = [platform.submit("demo.echo", n) for n in range(20)]
    worker.wait_for("Trying again in", timeout=20)
    own_redis.start()
    for task_id in waiting:
        assert platform.wait(task_id, timeout=40).state == TaskState.SUCCEEDED
    go.touch()
    assert platform.wait(running).state == TaskState.SUCCEEDED
    assert [a.outcome for a in platform.attempts(running)] == [Outcome.SUCCEEDED], "it went on all the time"
    assert worker.is_running()
    wait_until(lambda: platform.unfinished() == 0, message="all are done")


@contextmanager
def closed_database(url: str) -> Iterator[None]:
    """Nobody new gets into the database; who is in stays."""
    name = str(conninfo_to_dict(url)["dbname"])
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True) as conn:
        conn.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
        try:
            yield
        finally:
            conn.execute(allow.format(sql.Identifier(name), sql.SQL("true")))


def test_a_worker_that_starts_before_the_database_waits_for_it(platform: Platform, database_url: str) -> None:
    with closed_database(database_url):
        worker = platform.start_worker()
        said = worker.wait_for("the node could not be registered, trying again", timeout=30)
        assert "Traceback" not in said
    worker.wait_for("w1@test ready")
    platform.dispatcher()
    assert platform.wait(platform.submit("demo.echo", 1)).state == TaskState.SUCCEEDED


def test_a_worker_outlives_a_broker_without_memory(
    platform: Platform, own_redis: EmbeddedRedis, tmp_path: Path
) -> None:
    worker = platform.up()
    go = tmp_path / "go"
    running = platform.submit("test.until", str(go))
    platform.wait(running, TaskState.RUNNING)
    own_redis.stop()
    worker.wait_for("Trying again in", timeout=20)
    worker.suspend()
    own_redis.start()
    with Redis.from_url(own_redis.url) as client:
        client.config_set("maxmemory", "1mb")  # before the worker is connected again
        worker.resume()
        worker.wait_for("used memory > 'maxmemory'")
        waiting = [platform.submit("demo.echo", n) for n in range(5)]
        client.config_set("maxmemory", "512mb")
    for task_id in waiting:
        assert platform.wait(task_id, timeout=30).state == TaskState.SUCCEEDED
    go.touch()
    assert platform.wait(running).state == TaskState.SUCCEEDED
    assert [a.outcome for a in platform.attempts(running)] == [Outcome.SUCCEEDED]
    assert worker.is_running()


def test_a_child_whose_session_breaks_keeps_the_work_it_took(platform: Platform) -> None:
    platform.set(claim_ttl_s=60.0)
    platform.up()
    for task_id in [platform.submit("demo.sleep", 0.5) for _ in range(4)]:
        platform.wait(task_id)
    with connect() as other:
        ended = other.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'slackwater child%'"
        ).fetchone()
    assert ended is not None
    assert ended[0] >= 2
    for task_id in [platform.submit("demo.sleep", 0.2) for _ in range(8)]:
        assert platform.wait(task_id, timeout=15).state == TaskState.SUCCEEDED
        assert [a.number for a in platform.attempts(task_id)] == [1]


def test_a_record_that_waits_for_a_lock_costs_the_node_nothing(platform: Platform) -> None:
    platform.set(**BRIEF)
    worker = platform.up()
    victim = platform.submit("demo.sleep", 60, total_attempts=2)
    platform.wait(victim, TaskState.RUNNING)
    child = int(running_child(platform, worker))
    other = platform.submit("demo.sleep", 7)  # for longer than a lease, and then some
    platform.wait(other, TaskState.RUNNING)
    with connect() as holder, holder.transaction():
        holder.execute("SELECT 1 FROM slackwater_tasks_livetask WHERE task_id = %s FOR UPDATE", (victim,))
        os.kill(child, signal.SIGKILL)
        assert platform.wait(other).state == TaskState.SUCCEEDED
    assert [a.outcome for a in platform.attempts(other)] == [Outcome.SUCCEEDED]
    assert not Node.objects.filter(state=Node.State.LOST).exists(), "its lease was renewed all the time"
    wait_until(lambda: len(platform.attempts(victim)) == 1, message="the lost attempt is recorded")
    platform.wait(victim, TaskState.RUNNING)
    assert [a.outcome for a in platform.attempts(victim)] == [Outcome.WORKER_LOST]
    assert worker.is_running()
