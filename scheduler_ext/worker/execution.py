"""Celery tasks of our own: a token lends a slice of a pool child's time, and killed runs are told to who listens."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from celery import Celery, signals

from scheduler_ext.core.states import Outcome
from scheduler_ext.dispatch.keys import KILLED_TASK, SLICE_TASK
from scheduler_ext.worker import process_state


def lend(node_id: int) -> None:
    """Lend this child to the node's queues for one slice; a token of an earlier incarnation does the same."""
    process_state.child().lend()


def tell_killed(node_id: int, task_id: str, tenant_id: int, outcome: int) -> None:
    """Tell the hooks of a task, and who listens, that its run was killed; the process that ran it cannot any more."""
    process_state.child().bodies.tell_killed(task_id, tenant_id, Outcome(outcome))


def is_news(record: logging.LogRecord) -> bool:
    """Whether Celery's line tells something: not of each token, for a worker lends its children all day."""
    told = record.args
    return not (record.levelno <= logging.INFO and isinstance(told, Mapping) and told.get("name") == SLICE_TASK)


def install(app: Celery) -> None:
    """Register them with ``app``. They send no events: Flower sees the tasks themselves; and no line of a log."""
    for name in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(name).addFilter(is_news)
    for name, function in ((SLICE_TASK, lend), (KILLED_TASK, tell_killed)):
        app.task(name=name, ignore_result=True, acks_late=False, send_events=False, max_retries=0, shared=False)(
            function
        )
    signals.worker_process_shutdown.connect(process_state.forget, weak=False)
