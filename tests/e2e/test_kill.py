"""What happens when things die: children, workers, dispatchers, Redis. Nothing is lost, nothing recorded twice."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from pathlib import Path

import psutil
import pytest
import redis
from django.db import connection
from django.utils import timezone

from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.worker.agent.agent import BEAT_EVERY_S
from slackwater_dashboard import live
from slackwater_monitoring.alerts.conditions import signals
from slackwater_monitoring.alerts.rules import RULES
from slackwater_resources.models import Node
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import Attempt, Leader
from slackwater_tasks.submission.service import store_script, submit_many
from tests.support.platform import BRIEF, Platform, agent_of, children_of, kill_all
from tests.support.processes import ManagedProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e


def learn(platform: Platform, handler: str = "demo.noop") -> None:
    """Let the platform learn that a handler is short, so that it is run in batches."""
    submit_many(platform.tenant, [{"handler": handler}] * 12)
    wait_until(lambda: platform.unfinished() == 0, message="the first tasks are done")
    from slackwater_tasks.models import RunTime

    wait_until(lambda: RunTime.objects.filter(key=handler, samples__gte=5).exists(), message="the run time is learnt")


def test_a_killed_child_costs_its_task_one_attempt_and_an_agent_that_dies_is_replaced(platform: Platform) -> None:
    worker = platform.up()
    task_id = platform.submit("demo.sleep", 30, total_attempts=2)
    platform.wait(task_id, TaskState.RUNNING)
    busy = [c for c in children_of(worker) if c.pid == int(running_child(platform, worker))]
    assert os.getsid(busy[0].pid) == busy[0].pid, "its share of the processors is its own"
    busy[0].kill()
    wait_until(lambda: len(platform.attempts(task_id)) == 1, message="the lost attempt is recorded")
    (attempt,) = platform.attempts(task_id)
    assert (attempt.outcome, attempt.error) == (Outcome.WORKER_LOST, "its worker process died while it ran")
    platform.wait(task_id, TaskState.RUNNING)
    assert platform.live(task_id).attempts == 1
    cancel(platform.tenant.pk, task_id)
    platform.wait(task_id)
    _an_agent_that_dies_is_replaced_and_caps_hold(platform, worker)


def _an_agent_that_dies_is_replaced_and_caps_hold(platform: Platform, worker: ManagedProcess) -> None:
    agent = agent_of(worker)
    agent.kill()
    wait_until(
        lambda: not psutil.pid_exists(agent.pid) or agent.status() == psutil.STATUS_ZOMBIE,
        message="it is gone",
    )
    task_id = platform.submit("demo.sleep", 30, execution_cap_s=1, total_attempts=1)
    task = platform.wait(task_id, timeout=20)
    assert "its execution cap was reached" in task.error


def running_child(platform: Platform, worker: object) -> str:
    """The pid of the child that holds the one running task, from what its memory maps tell: the busiest sleeper."""
    from scheduler_ext.worker.journal import BATCHES, Journal

    agent = agent_of(worker)  # type: ignore[arg-type]  # a ManagedProcess
    fds = Path(f"/proc/{agent.pid}/fd").iterdir()
    path = next(path for path in fds if "slackwater-journal" in str(path.readlink()))
    slots = 2 * BATCHES
    journal = Journal(slots, fd=os.open(path, os.O_RDWR))

    def pids() -> list[int]:
        return [journal.slot(number).pid for number in range(slots) if journal.slot(number).running()]

    return str(wait_until(pids, message="a child has noted that it runs")[0])


def test_children_killed_in_the_middle_of_batches_and_redis_emptied_leave_an_exact_account(
    platform: Platform, redis_client: redis.Redis
) -> None:
    worker = platform.up()
    learn(platform)
    _children_are_killed_in_the_middle_of_batches(platform, worker)
    _redis_is_emptied_in_the_middle(platform, redis_client)


def _children_are_killed_in_the_middle_of_batches(platform: Platform, worker: ManagedProcess) -> None:
    # The poison kills its own process: of a batch, what ran before it is done, what comes after runs elsewhere.
    poison = "demo.noop"
    ids = submit_many(platform.tenant, [{"handler": poison}] * 400).task_ids
    deadline = time.monotonic() + 20
    killed = 0
    while platform.unfinished() and time.monotonic() < deadline:
        for child in children_of(worker)[:1]:
            child.kill()
            killed += 1
        wait_until(lambda: len(children_of(worker)) >= 1, message="a new child")
        if killed >= 3:
            break
    wait_until(lambda: platform.unfinished() == 0, timeout=30, message="all are done")
    attempts = Attempt.objects.unscoped().filter(task_id__in=ids)  # the test is no tenant
    assert attempts.filter(outcome=Outcome.SUCCEEDED).count() == 400
    lost = attempts.exclude(outcome=Outcome.SUCCEEDED)
    assert all(a.outcome == Outcome.WORKER_LOST for a in lost)
    assert lost.count() <= killed, "a killed child costs at most the one task that ran"


def _redis_is_emptied_in_the_middle(platform: Platform, redis_client: redis.Redis) -> None:
    ids = submit_many(platform.tenant, [{"handler": "demo.sleep", "args": [0.002]}] * 600).task_ids
    for _ in range(4):
        before = platform.unfinished()
        redis_client.flushall()
        wait_until(lambda: platform.unfinished() < before or not before, timeout=30, message="work goes on")  # noqa: B023 - used at once
    wait_until(lambda: platform.unfinished() == 0, timeout=60, message="all are done")
    attempts = Attempt.objects.unscoped().filter(task_id__in=ids)  # the test is no tenant
    assert attempts.count() == attempts.filter(outcome=Outcome.SUCCEEDED).count() == 600


def test_a_worker_that_vanishes_loses_nothing(platform: Platform, redis_client: redis.Redis, tmp_path: Path) -> None:
    platform.set(**BRIEF)
    first = platform.up()
    assert redis_client.keys("*slackwater.node.*")
    go = tmp_path / "go"
    task_id = platform.submit("test.until", str(go), total_attempts=2)
    waiting = [platform.submit("demo.sleep", 0.05) for _ in range(5)]
    platform.wait(task_id, TaskState.RUNNING)
    kill_all(first)
    go.touch()
    platform.worker("w2")
    task = platform.wait(task_id, timeout=30)
    assert task.state == TaskState.SUCCEEDED
    assert [a.outcome for a in platform.attempts(task_id)] == [Outcome.WORKER_LOST, Outcome.SUCCEEDED]
    assert platform.attempts(task_id)[0].node_id != platform.attempts(task_id)[1].node_id
    for other in waiting:
        assert platform.wait(other).state == TaskState.SUCCEEDED
    lost = Node.objects.get(name="w1@test")
    assert lost.state == Node.State.LOST
    own = (f"*slackwater.node.{lost.pk}", f"*:claims:{lost.pk}:*")
    wait_until(lambda: not any(redis_client.keys(name) for name in own), timeout=45, message="its queues are gone")


def test_a_worker_whose_main_process_is_killed_is_lost_and_missed_though_its_agent_settles_all(
    platform: Platform,
) -> None:
    platform.set(node_lease_s=60.0)
    first = platform.up()
    task_id = platform.submit("demo.sleep", 60, total_attempts=2)
    platform.wait(task_id, TaskState.RUNNING)
    first.send(signal.SIGKILL)
    wait_until(lambda: Node.objects.get(name="w1@test").state == Node.State.LOST, message="before its lease has ended")
    assert [a.outcome for a in platform.attempts(task_id)] == [Outcome.WORKER_LOST]
    assert platform.state(task_id) is not TaskState.RUNNING, "its work goes elsewhere at once"
    (missed,) = signals({"node_failed": RULES["node_failed"]}, timezone.now())
    assert (missed.rule, missed.subject) == ("node_failed", "w1@test")
    assert [row["state"] for row in live.snapshot()["nodes"]] == ["lost"]


def test_a_worker_told_to_stop_finishes_or_hands_back(platform: Platform, tmp_path: Path) -> None:
    worker = platform.up()
    go = tmp_path / "go"
    running = platform.submit("test.until", str(go))
    queued = [platform.submit("demo.sleep", 0.2) for _ in range(40)]
    platform.wait(running, TaskState.RUNNING)
    worker.send(signal.SIGTERM)
    wait_until(lambda: Node.objects.get(name="w1@test").state == Node.State.DRAINING, message="it takes nothing new")
    go.touch()
    worker.wait()
    assert platform.wait(running).state == TaskState.SUCCEEDED
    assert [a.outcome for a in platform.attempts(running)] == [Outcome.SUCCEEDED]
    left = [t for t in queued if not platform.row(t).state]
    assert left, "some were still waiting"
    assert all(platform.state(t) is TaskState.READY for t in left)
    assert all(not platform.attempts(t) for t in left), "nobody spent an attempt"
    assert Node.objects.get(name="w1@test").state == Node.State.LEFT
    platform.worker("w2")
    for task_id in queued:
        assert platform.wait(task_id).state == TaskState.SUCCEEDED


def dispatchers() -> int:
    """Dispatchers that have a connection to this database."""
    with connection.cursor() as cur:
        cur.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name LIKE 'slackwater dispatcher%' AND datname = current_database()"
        )
        return int(cur.fetchone()[0])


def test_a_standby_takes_over_from_a_killed_or_stopped_dispatcher(platform: Platform) -> None:
    platform.set(leader_lease_s=3.0)
    first = platform.dispatcher()
    platform.upkeep()
    platform.worker()
    wait_until(lambda: Leader.objects.filter(cell="default").exists(), message="somebody leads")
    before = Leader.objects.get(cell="default")
    second = platform.dispatcher()
    wait_until(lambda: dispatchers() == 2, timeout=30, message="both dispatchers are connected")
    first.send(signal.SIGSTOP)
    assert platform.wait(platform.submit("demo.noop")).state == TaskState.SUCCEEDED
    after = Leader.objects.get(cell="default")
    assert after.epoch > before.epoch
    assert after.holder != before.holder
    first.send(signal.SIGCONT)  # the old one, woken, claims nothing
    first.wait_for("leadership of cell default lost")
    second.send(signal.SIGKILL)
    assert platform.wait(platform.submit("demo.noop")).state == TaskState.SUCCEEDED


def test_a_worker_that_sleeps_longer_than_its_lease_records_nothing_late(platform: Platform, tmp_path: Path) -> None:
    platform.set(**BRIEF)
    first = platform.up()
    go = tmp_path / "go"
    task_id = platform.submit("test.until", str(go), total_attempts=3)
    platform.wait(task_id, TaskState.RUNNING)
    first.suspend()
    platform.worker("w2")
    wait_until(lambda: Node.objects.get(name="w1@test").state == Node.State.LOST, message="the node is lost")
    platform.wait(task_id, TaskState.RUNNING)
    go.touch()
    first.resume()
    task = platform.wait(task_id, timeout=30)
    assert task.state == TaskState.SUCCEEDED
    assert [a.outcome for a in platform.attempts(task_id)] == [Outcome.WORKER_LOST, Outcome.SUCCEEDED]
    wait_until(
        lambda: Node.objects.filter(name="w1@test", state=Node.State.ACTIVE).exists(), timeout=30,
        message="the woken worker registers anew",
    )  # fmt: skip


def test_no_child_of_a_stopped_machine_acts_though_its_agent_wakes_first(platform: Platform, tmp_path: Path) -> None:
    platform.set(**BRIEF)
    platform.dispatcher()
    platform.upkeep()
    worker = platform.worker(concurrency=1)
    task_id = platform.submit("test.ticks", str(tmp_path), total_attempts=3)
    file = tmp_path / "ticks"
    wait_until(lambda: file.exists() and file.read_text(), message="it acts")
    agent, (child,) = agent_of(worker), children_of(worker)
    worker.suspend()
    node = Node.objects.get(name="w1@test")
    wait_until(lambda: Node.objects.get(pk=node.pk).state == Node.State.LOST, message="the node is lost")
    with connect() as holder, holder.transaction():
        # What its agent asks for when it wakes, whether the lease still holds, is not answered yet.
        holder.execute("LOCK TABLE slackwater_resources_node")
        agent.resume()
        time.sleep(5 * BEAT_EVERY_S)  # it is awake by then, and would have said so
        before = file.read_text()
        child.resume()
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, message="it has ended")
        assert file.read_text() == before, "without having acted"
    (tmp_path / "go").touch()
    worker.resume()
    assert platform.wait(task_id, timeout=60).state == TaskState.SUCCEEDED
    assert [a.outcome for a in platform.attempts(task_id)] == [Outcome.WORKER_LOST, Outcome.SUCCEEDED]


def test_no_script_acts_on_while_its_agent_is_stopped_for_longer_than_the_lease(platform: Platform) -> None:
    platform.set(**BRIEF)
    platform.dispatcher()
    platform.upkeep()
    worker = platform.worker()
    mark = str(4_000_000 + uuid.uuid4().int % 1_000_000)
    content = f"#!/bin/sh\n[ $SLACKWATER_ATTEMPT = 1 ] || exit 0\ntrap '' TERM; sleep {mark}; exit 1\n"
    script = store_script(platform.tenant, "acts.sh", content.encode())
    task_id = platform.submit(script=script.sha256, total_attempts=3)

    def found() -> list[psutil.Process]:
        sleeping: list[psutil.Process] = []
        for process in worker.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                sleeping += [process] if process.name() == "sleep" and mark in process.cmdline() else []
        return sleeping

    (acting,) = wait_until(found, message="it acts")
    agent = agent_of(worker)
    agent.suspend()
    wait_until(lambda: not acting.is_running() or acting.status() == psutil.STATUS_ZOMBIE, message="it has ended")
    assert agent.status() == psutil.STATUS_STOPPED, "without having been told"
    wait_until(lambda: Node.objects.get(name="w1@test").state == Node.State.LOST, message="the node is lost")
    agent.resume()
    assert platform.wait(task_id).state == TaskState.SUCCEEDED
    assert [a.outcome for a in platform.attempts(task_id)] == [Outcome.WORKER_LOST, Outcome.SUCCEEDED]
