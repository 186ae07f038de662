"""Traced tasks, and the sending of their spans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from slackwater_monitoring.tracing.exporter import SpanSender
from slackwater_tasks.models import TaskTrace
from tests.support.api import HANDLER, ApiClient

TRACE = "0af7651916cd43dd8448eb211c80319c"


CLIENT = "b7ad6b7169203331"


PARENT = f"00-{TRACE}-{CLIENT}-01"


HEADERS = {"traceparent": PARENT, "tracestate": "vendor=1"}


OFF = {"TRACE_ENDPOINT": "", "TRACE_RATIO": 0.0, "TRACE_BACKLOG": 100}


@contextmanager
def sender() -> Iterator[SpanSender]:
    made = SpanSender(poll_s=0.02)
    try:
        yield made
    finally:
        made.stop()


def send() -> int:
    """Send all that is due, once; returns how many tasks were tried."""
    with sender() as one:
        return one.send()


def traced(acme: ApiClient, headers: dict[str, str] = HEADERS, **fields: Any) -> UUID:
    answer = acme.post("/tasks", {"handler": HANDLER, **fields}, **headers)
    assert answer.status == 201, answer.body
    return UUID(answer.body["id"])


def row(task_id: UUID) -> TaskTrace:
    return TaskTrace._plain.get(pk=task_id)
