"""A worker is stopped with claims it has not begun: an idle one runs them long before they expire."""

from __future__ import annotations

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from tests.support.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]


def test_an_idle_worker_takes_over_what_a_stopped_one_has_not_begun(platform: Platform) -> None:
    platform.set(node_lease_s=300.0, claim_ttl_s=300.0, steal_after_s=1.0)
    stopped = platform.up()
    platform.wait(platform.submit("demo.echo", "it is active"))
    stopped.suspend()
    waiting = [platform.submit("demo.echo", n) for n in range(2)]
    for task_id in waiting:
        platform.wait(task_id, TaskState.QUEUED)
    platform.worker("w2")
    for task_id in waiting:
        assert platform.wait(task_id).state == TaskState.SUCCEEDED
    stopped.resume()
    # It finds its old claims in front of what it is given now.
    later = [platform.submit("demo.sleep", 0.5) for _ in range(4)]
    for task_id in later:
        assert platform.wait(task_id).state == TaskState.SUCCEEDED
    for task_id in waiting:
        assert [(a.node.name, a.outcome) for a in platform.attempts(task_id)] == [("w2@test", Outcome.SUCCEEDED)]
