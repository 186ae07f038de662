"""The one Celery task of the hot path: a token lends a slice of a pool child's time."""

from __future__ import annotations

from celery import Celery, signals

from scheduler_ext.dispatch.keys import SLICE_TASK
from scheduler_ext.worker import process_state


def lend(node_id: int) -> None:
    """Lend this child for one slice to the node's queues; a token of an earlier incarnation does the same."""
    process_state.child().lend()


def install(app: Celery) -> None:
    """Register the slice with ``app``. It sends no events: Flower sees the tasks themselves."""
    app.task(name=SLICE_TASK, ignore_result=True, acks_late=False, send_events=False, max_retries=0, shared=False)(lend)
    signals.worker_process_shutdown.connect(process_state.forget, weak=False)
