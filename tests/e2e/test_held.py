"""Handlers held to the memory of their tier."""

from __future__ import annotations

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_resources.models import Tier
from tests.support.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
WHY = "memory: it came to hold more than its tier has"


def started(platform: Platform) -> None:
    Tier.objects.create(slug="tiny", tenant=platform.tenant, cpu_milli=100, memory_mb=48)
    platform.dispatcher()
    platform.upkeep()
    platform.worker(concurrency=1)


def test_a_handler_over_its_tier_is_ended_and_told_and_others_are_left_alone(platform: Platform) -> None:
    started(platform)
    for how in ("", "below", "stubborn"):
        over = platform.submit("test.hold", 200, 60, how, tier="tiny", total_attempts=1)
        task = platform.wait(over, timeout=30)
        assert (task.state, task.error) == (TaskState.FAILED, WHY), how
        (attempt,) = platform.attempts(over)
        assert attempt.outcome == Outcome.RESOURCE_EXCEEDED
        # The child itself holds more than this tier has: what it was given is what counts.
        fine = platform.wait(platform.submit("test.hold", 10, 1, tier="tiny"))
        assert (fine.state, fine.result) == (TaskState.SUCCEEDED, 10 << 20), fine.error
    roomy = platform.wait(platform.submit("test.hold", 200, 1, tier="basic"))
    assert roomy.state == TaskState.SUCCEEDED, "basic has 256 MiB"
    again = platform.wait(platform.submit("test.hold", 10, 1, tier="tiny"))
    assert again.state == TaskState.SUCCEEDED, "what the one before held is not its own"


def test_where_the_operator_says_so_it_is_only_measured(platform: Platform) -> None:
    platform.set(handler_memory="measured")
    started(platform)
    over = platform.submit("test.hold", 200, 1, tier="tiny", total_attempts=1)
    task = platform.wait(over)
    assert task.state == TaskState.SUCCEEDED, task.error
    (attempt,) = platform.attempts(over)
    assert attempt.peak_memory_mb is None or attempt.peak_memory_mb > 200
