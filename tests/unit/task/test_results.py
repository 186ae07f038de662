"""What a task of the ledger is in Celery's words."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, states

from scheduler_ext.core.states import FINAL, TaskState
from scheduler_ext.task import results


@pytest.mark.parametrize("state", list(TaskState))
def test_whoever_waits_for_a_result_waits_until_the_task_has_ended(state: TaskState) -> None:
    seen = results.Seen(
        task_id="01a2077b-452a-71ab-8f74-3d0063cf9484", handler="orders.ship", state=state, attempts=1, result=None,
        error="ValueError: no", reason="", progress=None, finished_at=None, args=[], kwargs={},
    )  # fmt: skip
    assert (results.meta_of(seen)["status"] in states.READY_STATES) == (state in FINAL)


def test_a_group_of_the_ledgers_tasks_does_not_ask_the_backend() -> None:
    app = Celery("results", backend="redis://127.0.0.1:1", set_as_current=False)
    ledger: Any = None
    results.install(app, ledger)
    assert app.AsyncResult("0b0e7a40-0000-4000-8000-000000000001").supports_native_join
    ours: Any = app.GroupResult("g", [app.AsyncResult("01a2077b-452a-71ab-8f74-3d0063cf9484")])
    assert not ours.supports_native_join, "it would wait for Redis, which knows nothing of them"
