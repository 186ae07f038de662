"""Time slices and pre-emption on real workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
import redis

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.dispatch.dispatcher import Dispatcher
from scheduler_ext.dispatch.queue_manager import QueueManager
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.preemption.controller import TurnTaking
from slackwater_resources.models import Tier
from slackwater_tasks.ledger.preemption_store import PgTurnStore
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.models import Resumable, RunTime
from slackwater_tasks.submission.service import submit, submit_many
from slackwater_tenants.models import Plan
from slackwater_tenants.services import create_tenant
from tests.e2e.test_checkpoints import counting_handler, counting_script, outcomes, wait_for_checkpoint
from tests.support.platform import FAST, Platform
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e


def test_a_slice_that_is_over_lets_another_task_by(platform: Platform) -> None:
    Tier.objects.update(iops=5_000)  # at fewer, reading an interpreter that nobody has read lately takes the slice
    platform.set(order_policy="round_robin", delayable_permille=1000)
    platform.dispatcher()
    platform.upkeep()
    platform.worker("w1", concurrency=1, SLACKWATER_SCRIPT_SLOTS="1")
    for make in (counting_handler, counting_script):
        _a_slice_that_is_over_lets_another_task_by(platform, make)


def _a_slice_that_is_over_lets_another_task_by(platform: Platform, make: Callable[[Platform, int], UUID]) -> None:
    long = make(platform, 160)
    wait_for_checkpoint(long, 1)
    other = make(platform, 4)
    assert platform.wait(other, timeout=30).state == TaskState.SUCCEEDED
    assert platform.state(long) in {TaskState.READY, TaskState.QUEUED, TaskState.RUNNING}, "it goes on later"
    task = platform.wait(long, timeout=120)
    result: Any = task.result
    assert (task.state, task.attempts_used) == (TaskState.SUCCEEDED, 1), platform.story(long)
    assert result["from"] > 0
    assert outcomes(platform, long) == [Outcome.YIELDED, Outcome.SUCCEEDED]
    turns = Resumable.objects.unscoped().get(pk=long)  # the test is no tenant
    assert turns.level == 1, "it used up one slice"
    assert turns.used_ms > 1_900, "the first turn counts against its cap"


def test_short_work_passes_a_long_task_under_arrival_order(platform: Platform) -> None:
    platform.set(yield_after_s=1.0, delayable_permille=1000)
    platform.dispatcher()
    platform.upkeep()
    platform.worker("w1", concurrency=1)
    learnt = submit_many(platform.tenant, [{"handler": "demo.sleep", "args": [0.05]}] * 8).task_ids
    for task_id in learnt:
        platform.wait(task_id)
    wait_until(
        lambda: RunTime.objects.filter(key="demo.sleep", samples__gte=5).exists(),
        message="its time is learnt",
    )
    long = counting_handler(platform, 120)
    wait_for_checkpoint(long, 1)
    short = platform.submit("demo.sleep", 0.05)
    assert platform.wait(short, timeout=15).state == TaskState.SUCCEEDED
    assert outcomes(platform, long) == [Outcome.YIELDED]
    assert platform.wait(long, timeout=60).state == TaskState.SUCCEEDED
    assert platform.row(long).attempts_used == 1


def test_a_task_that_is_asked_while_nobody_waits_is_not_asked(platform: Platform) -> None:
    platform.set(order_policy="round_robin", yield_after_s=0.5)
    platform.dispatcher()
    platform.worker("w1", concurrency=1)
    alone = counting_handler(platform, 60)
    assert platform.wait(alone, timeout=30).state == TaskState.SUCCEEDED
    assert outcomes(platform, alone) == [Outcome.SUCCEEDED]


def test_a_pool_that_starves_is_given_its_share(platform: Platform, redis_client: redis.Redis) -> None:
    platform.upkeep()
    platform.worker("w1", concurrency=2)
    conf = SchedulerConf.from_mapping({**FAST, "delayable_permille": 1000})
    share = share_policy("fair", {"starvation_s": 1})
    store, queues = PgRoundStore(conf, "test"), QueueManager(redis_client, conf)
    dispatcher = Dispatcher(store, queues, conf, "test", share)
    dispatcher.turns = TurnTaking(PgTurnStore(store), queues.tell_nodes, conf, lambda: share)

    def decided(state: Any) -> bool:
        """One more round, and whether it has come to ``state``."""
        assert dispatcher.keep_lead()
        dispatcher.run_round()
        return bool(state())

    first = platform.submit("demo.sleep", 60, priority=5)
    wait_until(lambda: decided(lambda: platform.state(first) is TaskState.RUNNING), message="the first runs")
    second = platform.submit("demo.sleep", 60)
    wait_until(lambda: decided(lambda: platform.state(second) is TaskState.RUNNING), message="the second runs")
    Plan.objects.create(slug="half", name="Half", guaranteed_permille=500)
    beta = create_tenant("beta", "Beta", "half")
    began = time.monotonic()
    mine = submit(beta, {"handler": "demo.sleep", "args": [0.2]}).task_ids[0]
    wait_until(
        lambda: decided(lambda: platform.state(mine) is TaskState.SUCCEEDED),
        message="it got its share",
        timeout=20,
    )
    assert time.monotonic() - began >= 1.0, "not before the starvation delay"
    assert platform.state(first) is TaskState.RUNNING, "the one of higher priority goes on"
    assert outcomes(platform, second) == [Outcome.PREEMPTED]
    live = platform.live(second)
    assert live.attempts == 0, "it spends no attempt"
    store.db.close()
