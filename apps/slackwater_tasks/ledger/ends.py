"""How ended attempts are written: as columns, with the reason in a line, and with the back-off before the next one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.retry import RetryPolicy
from scheduler_ext.core.states import Repeats, TaskState
from scheduler_ext.core.work import NEVER_AGAIN, Finished
from slackwater_tasks.ledger import sql


def columns(ended: Sequence[Finished]) -> dict[str, list[Any]]:
    """The parameters that say how attempts ended, each a list."""
    return {
        "ids": [f.task_id for f in ended],
        "outcomes": [int(f.outcome) for f in ended],
        "started": [f.started_at for f in ended],
        "finished": [f.finished_at for f in ended],
        "errors": [f.error or "" for f in ended],
        "exits": [f.exit_code for f in ended],
        "workers": [f.worker for f in ended],
        "cpus": [f.cpu_ms for f in ended],
        "memories": [f.peak_memory_mb for f in ended],
        "disks": [f.peak_disk_mb for f in ended],
    }


def reason(finished: Finished, state: TaskState) -> str:
    """Why a task ended without success: the outcome and the last line of its error, in 200 characters."""
    if state is TaskState.SUCCEEDED:
        return ""
    word = finished.outcome.name.lower().replace("_", " ")
    lines = (finished.error or "").strip().splitlines()
    text = f"{word}: {lines[-1]}" if lines else word
    return text if len(text) <= 200 else f"{text[:199]}…"


def retry_policy(conf: SchedulerConf, own: dict[str, Any] | None) -> RetryPolicy:
    """The back-off of a task: its own numbers over the platform's."""
    base = RetryPolicy(base_s=conf.retry_base_s)
    return RetryPolicy.from_mapping(own, default=base) if own else base


def split_failed(cur: Any, conf: SchedulerConf, node_id: int, failed: Sequence[Finished], rng: random.Random,
                 ) -> tuple[list[tuple[Finished, TaskState]], list[tuple[Finished, float]]]:  # fmt: skip
    """Which failed attempts end their task, and which run again after how many seconds."""
    by_id = {f.task_id: f for f in failed}
    locked = cur.execute(
        sql.finish.LOCK_RUNNING, {"ids": list(by_id), "fences": [f.fence for f in failed], "node": node_id}
    ).fetchall()
    final: list[tuple[Finished, TaskState]] = []
    again: list[tuple[Finished, float]] = []
    for task_id, _fence, attempts, total, cancelled, earlier, own, repeats in locked:
        finished = by_id[task_id]
        if cancelled:
            final.append((finished, TaskState.CANCELLED))
        elif (
            attempts + 1 >= total or finished.retry_in_s == NEVER_AGAIN or not Repeats(repeats).after(finished.outcome)
        ):
            final.append((finished, TaskState.FAILED))
        elif finished.retry_in_s is not None:
            again.append((finished, finished.retry_in_s))
        else:
            again.append((finished, retry_policy(conf, own).delay(attempts + 1 - earlier, rng.random)))
    return final, again
