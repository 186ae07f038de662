"""The spans of an ended task, made from its rows: the whole, and each time it waited, was queued and ran.

Names and attributes follow OpenTelemetry's semantic conventions for messaging, where they have a word for it: a task is
a message, its handler the destination, an attempt its processing. What is Slackwater's own is called ``slackwater.…``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from scheduler_ext.core.states import Category, Outcome, TaskState
from slackwater_tasks.runtime.trace_context import span_id

SCOPE: Final = InstrumentationScope("slackwater", "1")
SYSTEM: Final = "slackwater"
MAX_EVENTS: Final = 128
"""Events and links of one span, as OpenTelemetry limits them by default."""
MESSAGE: Final = 300
"""Characters of an error that are shown."""
# Neither the code nor the platform has failed: the attempt was paused, ended on request, or asked to run again.
NO_FAULT: Final = frozenset({Outcome.SUCCEEDED, Outcome.RETRY, Outcome.CANCELLED, Outcome.YIELDED, Outcome.PREEMPTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """An attempt, as its row has it."""

    number: int
    fence: int
    queued_at: datetime | None
    started_at: datetime
    finished_at: datetime
    outcome: Outcome
    error: str = ""
    exit_code: int | None = None
    cpu_ms: int | None = None
    peak_memory_mb: int | None = None
    worker: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """A change that belongs to no attempt, or an edit."""

    at: datetime
    state: TaskState
    reason: str
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """An ended task that belongs to a trace, with what happened since it was last sent."""

    task_id: str
    tenant: str
    """Its slug."""
    name: str
    handler: str
    """Of a script: its path, or the word ``script``."""
    is_script: bool
    category: Category
    tier: str
    priority: int
    workflow_id: str | None
    submitted_at: datetime
    began_at: datetime
    """Its submission, or when it began to run again after its end."""
    start_at: datetime | None
    finished_at: datetime
    state: TaskState
    error: str
    reason: str
    trace_id: str
    parent_id: str
    """The client's span; empty for none."""
    tracestate: str
    run: int
    """0; rises each time it runs again."""
    attempts: Sequence[AttemptRow] = ()
    events: Sequence[EventRow] = ()
    parents: Sequence[tuple[str, str, int]] = ()
    """Tasks it depends on that are traced too: task id, trace id, run."""


def spans_of(task: Traced, resource: Resource) -> list[ReadableSpan]:
    """All spans of the task; the whole first. Made again, they have the same ids and the same times."""
    return list(_Maker(task, resource).spans())


@dataclass(frozen=True, slots=True)
class _Maker:
    task: Traced
    resource: Resource

    def spans(self) -> Iterator[ReadableSpan]:
        task = self.task
        yield self._whole()
        before = task.began_at
        for attempt in task.attempts:
            taken = attempt.queued_at or attempt.started_at
            about = {"slackwater.attempt.number": attempt.number}
            yield self._part("wait", attempt.fence, before, taken, about)
            if attempt.queued_at is not None:
                yield self._part("queue", attempt.fence, taken, attempt.started_at, about | _place(attempt))
            yield self._process(attempt)
            before = attempt.finished_at
        if before < task.finished_at:  # it ended while it waited
            yield self._part("wait", -task.run, before, task.finished_at, {})

    def _whole(self) -> ReadableSpan:
        task = self.task
        about: dict[str, Any] = {
            "messaging.operation.name": "task",
            "slackwater.state": task.state.name.lower(),
            "slackwater.attempts": len(task.attempts),
            "slackwater.kind": "script" if task.is_script else "handler",
            "slackwater.priority": task.priority,
        }
        if task.start_at is not None:
            about["slackwater.start_at"] = task.start_at.isoformat()
        if task.run:
            about["slackwater.run"] = task.run + 1
        failed = task.state in {TaskState.FAILED, TaskState.EXPIRED}
        if failed:
            about["error.type"] = _outcome(task)
        return self._span(
            "task", span_id(task.task_id, "task", task.run), task.began_at, task.finished_at, about,
            kind=SpanKind.PRODUCER, parent=self._client(), events=self._events(), links=self._links(),
            status=_status(failed, task.reason or _last_line(task.error)),
        )  # fmt: skip

    def _process(self, attempt: AttemptRow) -> ReadableSpan:
        outcome = attempt.outcome
        about: dict[str, Any] = {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "slackwater.attempt.number": attempt.number,
            "slackwater.attempt.fence": attempt.fence,
            "slackwater.outcome": outcome.name.lower(),
            **_place(attempt),
        }
        used = {
            "slackwater.exit_code": attempt.exit_code,
            "slackwater.cpu_ms": attempt.cpu_ms,
            "slackwater.peak_memory_mb": attempt.peak_memory_mb,
        }
        about |= {name: value for name, value in used.items() if value is not None}
        failed = outcome not in NO_FAULT
        if failed:
            about["error.type"] = outcome.name.lower()
        return self._span(
            "process", span_id(self.task.task_id, "process", attempt.fence), attempt.started_at, attempt.finished_at,
            about, kind=SpanKind.CONSUMER, parent=self._own(), status=_status(failed, _last_line(attempt.error)),
        )  # fmt: skip

    def _part(self, what: str, number: int, start: datetime, end: datetime, about: dict[str, Any]) -> ReadableSpan:
        made = span_id(self.task.task_id, what, number)
        about = {"messaging.operation.name": what, **about}
        return self._span(what, made, start, end, about, parent=self._own())

    def _span(self, what: str, made: str, start: datetime, end: datetime, about: dict[str, Any], *,
              parent: SpanContext | None, kind: SpanKind = SpanKind.INTERNAL, status: Status | None = None,
              events: Sequence[Event] = (), links: Sequence[Link] = ()) -> ReadableSpan:  # fmt: skip
        task = self.task
        common: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": task.handler,
            "messaging.message.id": task.task_id,
            "slackwater.tenant": task.tenant,
            "slackwater.queue": task.category.name.lower(),
            "slackwater.tier": task.tier,
        }
        if task.name:
            common["slackwater.task.name"] = task.name
        if task.workflow_id is not None:
            common["messaging.message.conversation_id"] = task.workflow_id
        return ReadableSpan(
            name=f"{what} {task.handler}", context=self._context(made), parent=parent, resource=self.resource,
            attributes=common | about, events=events, links=links, kind=kind, status=status or Status(),
            # A machine's clock may be behind the database's: no span ends before it begins.
            start_time=_nanoseconds(start), end_time=_nanoseconds(max(start, end)), instrumentation_scope=SCOPE,
        )  # fmt: skip

    def _events(self) -> list[Event]:
        return [
            Event(
                f"slackwater.{event.state.name.lower()}",
                {"slackwater.reason": event.reason, **({"slackwater.actor": event.actor} if event.actor else {})},
                _nanoseconds(event.at),
            )
            for event in self.task.events[:MAX_EVENTS]
        ]  # fmt: skip

    def _links(self) -> list[Link]:
        """To the tasks it depended on."""
        return [
            Link(_context(trace_id, span_id(parent, "task", run)), {"slackwater.link": "depends_on"})
            for parent, trace_id, run in self.task.parents[:MAX_EVENTS]
        ]

    def _context(self, made: str, *, remote: bool = False) -> SpanContext:
        return _context(self.task.trace_id, made, self.task.tracestate, remote=remote)

    def _client(self) -> SpanContext | None:
        return self._context(self.task.parent_id, remote=True) if self.task.parent_id else None

    def _own(self) -> SpanContext:
        """The span of the whole task."""
        return self._context(span_id(self.task.task_id, "task", self.task.run))


def _context(trace_id: str, made: str, state: str = "", *, remote: bool = False) -> SpanContext:
    return SpanContext(
        int(trace_id, 16), int(made, 16), remote, TraceFlags(TraceFlags.SAMPLED),
        TraceState.from_header([state]) if state else None,
    )  # fmt: skip


def _place(attempt: AttemptRow) -> dict[str, str]:
    found = {"slackwater.node": attempt.node, "messaging.client.id": attempt.worker}
    return {name: value for name, value in found.items() if value}


def _outcome(task: Traced) -> str:
    """The cause of a failure: the last attempt's outcome, or the task's state where it had none."""
    return (task.attempts[-1].outcome if task.attempts else task.state).name.lower()


def _status(failed: bool, message: str) -> Status:
    return Status(StatusCode.ERROR, message[:MESSAGE]) if failed else Status()


def _last_line(text: str) -> str:
    """The last line of a traceback: the error itself."""
    return (text.strip().splitlines() or [""])[-1]


def _nanoseconds(moment: datetime) -> int:
    """Since the Unix epoch; exact to the microsecond, which a float would not be."""
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + moment.microsecond * 1_000
