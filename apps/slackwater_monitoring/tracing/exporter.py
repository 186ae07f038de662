"""Sending spans by OTLP over HTTP, in a thread of upkeep's own: a collector that hangs delays none of its jobs.

While the collector is away tasks wait in the ledger, up to a bound; the pauses between tries grow to a minute. What it
refuses for itself alone is given up, and counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from slackwater_conf import conf
from slackwater_monitoring.outbox import SendingThread
from slackwater_monitoring.tracing import pending
from slackwater_monitoring.tracing.spans import Traced, spans_of

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
BATCH: Final = 200
"""Tasks of one request: some thousand spans."""
MAX_PAUSE_S: Final = 60.0
BOUND_EVERY_S: Final = 60.0
MAX_DOUBLINGS: Final = 10
"""Failures in a row after which the pause grows no more."""
NOT_TAKEN: Final = frozenset({400, 413, 422})
"""Answers that reject the data; the collector itself works."""


@dataclass(slots=True)
class _Answer:
    """The collector's last answer."""

    status: int | None = None

    def note(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self.status = response.status_code


def resource() -> Resource:
    """The origin of the spans: from OpenTelemetry's variables, else the platform's name."""
    found = Resource.create()
    if str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        found = found.merge(Resource({SERVICE_NAME: "slackwater"}))
    return found


class SpanSender(SendingThread):
    """Sends the spans of ended tasks as long as it runs."""

    name = "traces"

    def __init__(self, *, poll_s: float = POLL_S) -> None:
        super().__init__(poll_s=poll_s)
        self.backlog: int = conf().trace_backlog
        self._answer = _Answer()
        session = requests.Session()
        session.hooks["response"].append(self._answer.note)
        # Headers, certificates, compression and the time limit are the exporter's to read from its variables.
        self._exporter = OTLPSpanExporter(endpoint=conf().trace_endpoint, session=session)
        self._resource = resource()
        self._cursor = pending.Cursor()
        self._failures = 0
        self._bound_at = 0.0

    def stop(self) -> None:
        """End; what is claimed is sent by another process when its lease is over."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library left it out
        super().stop()

    def step(self) -> float:
        """Send one batch; the pauses grow while the collector is away."""
        found = self.send()
        self._bound()
        if self._failures:
            return min(MAX_PAUSE_S, self.poll_s * 2.0 ** min(self._failures, MAX_DOUBLINGS))
        return 0.0 if found == BATCH else self.poll_s

    def send(self) -> int:
        """Send one batch; returns how many tasks it had."""
        claimed = pending.claim(self.db.conn, self._cursor, BATCH)
        if not claimed:
            return 0
        tasks = pending.read(self.db.conn, claimed)
        if not tasks or self._export(tasks):
            self._took(claimed, tasks, refused=0)
        elif self._answer.status in NOT_TAKEN:
            self._one_by_one(claimed, tasks)
        else:
            self._failed(claimed)
        return len(claimed)

    def _export(self, tasks: Sequence[Traced]) -> bool:
        spans = [span for task in tasks for span in self._spans(task)]
        self._answer.status = None
        return not spans or self._exporter.export(spans) is SpanExportResult.SUCCESS

    def _spans(self, task: Traced) -> list[ReadableSpan]:
        """The task's spans; none for a task with malformed rows, which must not hold up the others."""
        try:
            return spans_of(task, self._resource)
        except (ValueError, TypeError, OverflowError):
            log.exception("the spans of the task %s cannot be made", task.task_id)
            return []

    def _one_by_one(self, claimed: Sequence[pending.Claimed], tasks: Sequence[Traced]) -> None:
        """Send the tasks of a refused batch one by one, to find the one that the collector refuses."""
        by_id = {one.task_id: one for one in claimed}
        refused = 0
        for task in tasks:
            if not self._export([task]):
                if self._answer.status not in NOT_TAKEN:
                    self._failed(list(by_id.values()))
                    return
                refused += 1
                log.error("the collector does not take the spans of the task %s: %s", task.task_id, self._answer.status)
            self._took([by_id.pop(task.task_id)], [task], refused=refused)
            refused = 0
        pending.done(self.db.conn, list(by_id.values()), [])  # deleted meanwhile

    def _took(self, claimed: Sequence[pending.Claimed], tasks: Sequence[Traced], *, refused: int) -> None:
        def work(conn: Any) -> None:
            pending.done(conn, claimed, tasks)
            pending.count(conn, sent=len(tasks) - refused, refused=refused)

        self.db.repeatable(work)
        if self._failures:
            log.info("the collector takes traces again")
        self._failures = 0

    def _failed(self, claimed: Sequence[pending.Claimed]) -> None:
        why = f"it answered {self._answer.status}" if self._answer.status else "it cannot be reached"
        if not self._failures:
            log.warning("traces wait for the collector at %s: %s", conf().trace_endpoint, why)
        self._failures += 1
        self._cursor = pending.Cursor()
        pending.later(self.db.conn, claimed)
        pending.count(self.db.conn, error=why)

    def _bound(self) -> None:
        """Keep the backlog within its bound, and note its size."""
        now = time.monotonic()
        if now < self._bound_at:
            return
        self._bound_at = now + BOUND_EVERY_S
        self.bound()

    def bound(self) -> int:
        """Give up tasks beyond the backlog's bound, oldest first; returns how many."""
        waiting, dropped = pending.bound(self.db.conn, self.backlog)
        pending.note(self.db.conn, backlog=waiting, dropped=dropped)
        if dropped:
            log.error("the traces of %s tasks were given up: the collector is away for too long", dropped)
        return dropped
