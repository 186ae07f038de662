"""The spans of an ended task, made from its rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

from scheduler_ext.core.states import Category, Outcome, TaskState
from slackwater_monitoring.tracing.spans import AttemptRow, EventRow, Traced, spans_of
from slackwater_tasks.runtime.trace_context import span_id

AT = datetime(2030, 1, 1, 12, 0, 0, 123_457, tzinfo=UTC)
TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
ID = "0190b0a0-0000-7000-8000-000000000001"
WHO = Resource({"service.name": "slackwater"})


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def attempt(number: int, queued: float, started: float, finished: float, outcome: Outcome, **more: Any) -> AttemptRow:
    return AttemptRow(
        number=number, fence=number + 1, queued_at=after(queued), started_at=after(started),
        finished_at=after(finished), outcome=outcome, **more,
    )  # fmt: skip


def traced(**more: Any) -> Traced:
    values: dict[str, Any] = {
        "task_id": ID, "tenant": "acme", "name": "resize", "handler": "photo.resize", "is_script": False,
        "category": Category.URGENT, "tier": "basic", "priority": 7, "workflow_id": None, "submitted_at": AT,
        "began_at": AT, "start_at": None, "finished_at": after(9), "state": TaskState.SUCCEEDED, "error": "",
        "reason": "", "trace_id": TRACE, "parent_id": CLIENT, "tracestate": "vendor=1", "run": 0,
        "attempts": [
            attempt(1, 1, 2, 3, Outcome.FAILED, error="Traceback …\n  line\nValueError: no", node="n1", worker="w1"),
            attempt(2, 6, 7, 9, Outcome.SUCCEEDED, cpu_ms=12),
        ],
    }  # fmt: skip
    return Traced(**(values | more))


def spans(task: Traced) -> list[ReadableSpan]:
    return spans_of(task, WHO)


def times(span: ReadableSpan) -> tuple[float, float]:
    """Seconds after ``AT``, exactly."""
    zero = int(AT.replace(microsecond=0).timestamp()) * 10**9 + AT.microsecond * 1000
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.start_time - zero) / 1e9, (span.end_time - zero) / 1e9


def hexadecimal(span: ReadableSpan) -> tuple[str, str, str | None]:
    assert span.context is not None
    parent = f"{span.parent.span_id:016x}" if span.parent else None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", parent


def test_a_retried_task_is_one_span_with_each_wait_queue_and_run_below_it() -> None:
    found = spans(traced())
    assert [(span.name, *times(span)) for span in found] == [
        ("task photo.resize", 0, 9),
        ("wait photo.resize", 0, 1), ("queue photo.resize", 1, 2), ("process photo.resize", 2, 3),
        ("wait photo.resize", 3, 6), ("queue photo.resize", 6, 7), ("process photo.resize", 7, 9),
    ]  # fmt: skip
    ids = [hexadecimal(span) for span in found]
    assert {trace for trace, _, _ in ids} == {TRACE}
    assert [parent for _, _, parent in ids] == [CLIENT] + [ids[0][1]] * 6
    assert len({made for _, made, _ in ids}) == 7
    assert [span.kind for span in found] == [
        SpanKind.PRODUCER, SpanKind.INTERNAL, SpanKind.INTERNAL, SpanKind.CONSUMER,
        SpanKind.INTERNAL, SpanKind.INTERNAL, SpanKind.CONSUMER,
    ]  # fmt: skip
    assert all(span.context is not None and span.context.trace_state.to_header() == "vendor=1" for span in found)


def test_attributes_and_status_tell_what_happened_where() -> None:
    found = spans(traced())
    whole, first, second = found[0], found[3], found[6]
    assert dict(whole.attributes or {}) == {
        "messaging.system": "slackwater", "messaging.destination.name": "photo.resize", "messaging.message.id": ID,
        "messaging.operation.name": "task", "slackwater.tenant": "acme", "slackwater.queue": "urgent",
        "slackwater.tier": "basic", "slackwater.task.name": "resize", "slackwater.state": "succeeded",
        "slackwater.attempts": 2, "slackwater.kind": "handler", "slackwater.priority": 7,
    }  # fmt: skip
    assert whole.status.status_code is StatusCode.UNSET
    about = dict(first.attributes or {})
    assert (about["slackwater.attempt.number"], about["slackwater.outcome"], about["error.type"]) == (
        1,
        "failed",
        "failed",
    )
    assert (about["slackwater.node"], about["messaging.client.id"]) == ("n1", "w1")
    assert (about["messaging.operation.type"], about["slackwater.attempt.fence"]) == ("process", 2)
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "ValueError: no")
    about = dict(second.attributes or {})
    assert about["slackwater.cpu_ms"] == 12
    assert "error.type" not in about
    assert second.status.status_code is StatusCode.UNSET


def test_the_same_rows_make_the_same_spans() -> None:
    assert [span.to_json() for span in spans(traced())] == [span.to_json() for span in spans(traced())]
    other = spans(traced(task_id="0190b0a0-0000-7000-8000-000000000002"))
    assert not {hexadecimal(s)[1] for s in other} & {hexadecimal(s)[1] for s in spans(traced())}
    # A running attempt was told this id before its span existed.
    assert hexadecimal(spans(traced())[3])[1] == span_id(ID, "process", 2)


def test_a_task_that_ended_while_it_waited_has_no_run() -> None:
    found = spans(traced(attempts=[], state=TaskState.EXPIRED, reason="its latest start passed"))
    assert [(span.name, *times(span)) for span in found] == [
        ("task photo.resize", 0, 9),
        ("wait photo.resize", 0, 9),
    ]
    assert (found[0].status.status_code, found[0].status.description) == (
        StatusCode.ERROR,
        "its latest start passed",
    )
    assert dict(found[0].attributes or {})["error.type"] == "expired"
    late = replace(traced(), finished_at=after(12), state=TaskState.CANCELLED)
    assert [(span.name, *times(span)) for span in spans(late)][-1] == ("wait photo.resize", 9, 12)
    assert spans(late)[0].status.status_code is StatusCode.UNSET


def test_a_clock_that_is_behind_makes_no_span_that_ends_before_it_begins() -> None:
    found = spans(traced(attempts=[attempt(1, 2, 1, 0.5, Outcome.SUCCEEDED)], finished_at=after(0.5)))
    assert all(end >= start for start, end in map(times, found))


def test_what_is_no_fault_is_no_error() -> None:
    for outcome in Outcome:
        span = spans(traced(attempts=[attempt(1, 1, 2, 9, outcome)]))[3]
        fault = outcome not in {
            Outcome.SUCCEEDED, Outcome.RETRY, Outcome.CANCELLED, Outcome.YIELDED, Outcome.PREEMPTED,
        }  # fmt: skip
        assert (span.status.status_code is StatusCode.ERROR) == fault, outcome
        assert ("error.type" in (span.attributes or {})) == fault


def test_what_runs_again_is_another_span_of_the_same_trace() -> None:
    again = spans(traced(run=1, began_at=after(4), attempts=[attempt(2, 6, 7, 9, Outcome.SUCCEEDED)]))
    assert hexadecimal(again[0])[1] != hexadecimal(spans(traced())[0])[1]
    assert times(again[0]) == (4, 9)
    assert dict(again[0].attributes or {})["slackwater.run"] == 2


def test_events_and_parents_are_shown_within_bounds() -> None:
    event = EventRow(at=after(1), state=TaskState.READY, reason="edited", actor="key:x")
    found = spans(traced(events=[event] * 200, parents=[("0190b0a0-0000-7000-8000-000000000003", TRACE, 0)]))[0]
    assert len(found.events) == 128
    assert (found.events[0].name, dict(found.events[0].attributes or {})) == (
        "slackwater.ready", {"slackwater.reason": "edited", "slackwater.actor": "key:x"}
    )  # fmt: skip
    (link,) = found.links
    assert f"{link.context.span_id:016x}" == span_id("0190b0a0-0000-7000-8000-000000000003", "task", 0)
