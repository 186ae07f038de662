"""The platform on a Redis group: its master is killed while tasks run, another takes over, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.dispatch import redis_client
from tests.support.platform import Platform
from tests.support.sentinel import SentinelGroup
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture
def redis_group(tmp_path: Path) -> Iterator[SentinelGroup]:
    with SentinelGroup(tmp_path / "group") as made:
        yield made


@pytest.fixture
def platform(transactional_db: None, database_url: str, redis_group: SentinelGroup) -> Iterator[Platform]:
    """A platform on that group."""
    made = Platform(database_url, redis_group.url)
    try:
        yield made
    finally:
        made.close()


def test_nothing_is_lost_when_the_master_fails(platform: Platform, redis_group: SentinelGroup, tmp_path: Path) -> None:
    worker = platform.up()
    first = [platform.submit("demo.echo", n) for n in range(5)]
    assert [platform.wait(task_id).state for task_id in first] == [TaskState.SUCCEEDED] * 5
    go = tmp_path / "go"
    running = platform.submit("test.until", str(go))
    platform.wait(running, TaskState.RUNNING)
    gone = redis_group.kill_master()
    waiting = [platform.submit("demo.sleep", 0.1) for _ in range(20)]
    wait_until(lambda: redis_group.master() != gone, message="the replica is master")
    for task_id in waiting:
        assert platform.wait(task_id, timeout=60).state == TaskState.SUCCEEDED
        assert [a.outcome for a in platform.attempts(task_id)] == [Outcome.SUCCEEDED]
    go.touch()
    assert platform.wait(running).state == TaskState.SUCCEEDED
    assert [a.outcome for a in platform.attempts(running)] == [Outcome.SUCCEEDED], "it went on all the time"
    assert worker.is_running()
    with redis_client.connect(redis_group.url, socket_timeout=5.0) as client:
        assert client.ping()
