"""What a task of the ledger is in Celery's words."""

from __future__ import annotations

import pytest
from celery import states

from scheduler_ext.core.states import FINAL, TaskState
from scheduler_ext.task import results


@pytest.mark.parametrize("state", list(TaskState))
def test_whoever_waits_for_a_result_waits_until_the_task_has_ended(state: TaskState) -> None:
    seen = results.Seen(
        task_id="01a2077b-452a-71ab-8f74-3d0063cf9484", handler="orders.ship", state=state, attempts=1, result=None,
        error="ValueError: no", reason="", progress=None, finished_at=None, args=[], kwargs={},
    )  # fmt: skip
    assert (results.meta_of(seen)["status"] in states.READY_STATES) == (state in FINAL)
