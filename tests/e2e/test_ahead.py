"""While a batch runs the next one is started; what lies behind a task that suddenly takes long runs elsewhere."""

from __future__ import annotations

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.models import RunTime
from slackwater_tasks.submission.service import submit_many
from tests.support.platform import Platform
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

SHORT = {"handler": "demo.sleep", "args": [0.005]}


def test_nothing_waits_behind_a_task_that_takes_longer_than_all_before(platform: Platform) -> None:
    platform.up()
    submit_many(platform.tenant, [SHORT] * 12)
    wait_until(lambda: platform.unfinished() == 0, message="the first tasks are done")
    wait_until(
        lambda: RunTime.objects.filter(key="demo.sleep", samples__gte=5).exists(),
        message="its time is learnt",
    )
    for before in range(4):  # wherever in its batch the long one comes
        long = {"handler": "demo.sleep", "args": [60.0]}
        ids = submit_many(platform.tenant, [SHORT] * (40 + before) + [long] + [SHORT] * 60).task_ids
        held = ids[40 + before]
        wait_until(lambda: platform.unfinished() == 1, message="all but the long one are done")
        platform.wait(held, TaskState.RUNNING)
        cancel(platform.tenant.pk, held)
        assert platform.wait(held, timeout=20).state == TaskState.CANCELLED
        short = [platform.row(task_id) for task_id in ids if task_id != held]
        assert {row.state for row in short} == {TaskState.SUCCEEDED}
        assert {row.attempts_used for row in short} == {1}
    assert {a.outcome for a in platform.attempts(ids[-1])} == {Outcome.SUCCEEDED}
