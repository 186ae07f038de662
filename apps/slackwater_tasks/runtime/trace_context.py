"""Traces of clients, kept with their tasks. ``apps/slackwater_monitoring/tracing`` makes and sends the spans.

Only where a collector is configured; else nothing here asks or stores anything. The ids of a task's spans are made from
the task's own, so they are known before the spans exist, and whoever makes them again makes the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from slackwater_conf import conf
from slackwater_tasks.ledger.copy_format import insert

if TYPE_CHECKING:
    from slackwater_tasks.ledger.rows import Accepted

COLUMNS: Final = ("task_id", "tenant_id", "trace_id", "parent_id", "sampled", "tracestate", "export_at")
MAX_STATE: Final = 512
"""The longest ``tracestate`` that is passed on; a longer one is dropped whole, as the standard allows."""
HEADERS: Final = "SELECT trace_id, sampled, tracestate FROM slackwater_tasks_tasktrace WHERE task_id = %s"
AGAIN: Final = """
UPDATE slackwater_tasks_tasktrace SET run = run + 1, export_at = clock_timestamp(),
    since = CASE WHEN export_at IS NULL THEN clock_timestamp() ELSE since END
WHERE task_id = ANY(%s) AND sampled
"""
EXPORT_NOW: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""To be sent as soon as the task has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """The span of a client under which a task belongs."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits; empty where the task begins the trace."""
    sampled: bool
    """Whether the trace is recorded."""
    state: str = ""
    """``tracestate``: what tracing systems pass on to each other."""


def is_on() -> bool:
    """Whether a collector is configured."""
    return bool(conf().trace_endpoint)


# -- what comes in ----------------------------------------------------------------------------------------------------
def current() -> TraceContext | None:
    """The span in which this code runs, by OpenTelemetry's API; ``None`` without one, or without a collector."""
    if not is_on():
        return None
    from opentelemetry.trace import get_current_span

    return _of_span(get_current_span())


def of_request(meta: Mapping[str, Any]) -> TraceContext | None:
    """The trace a request belongs to: of an instrumented API its own span, else by its W3C headers.

    A header that is none is ignored, as the standard has it.
    """
    if not is_on():
        return None
    found = current()
    header = meta.get("HTTP_TRACEPARENT")
    if found is not None or not header:
        return found
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": header, "tracestate": meta.get("HTTP_TRACESTATE", "")}
    return _of_span(get_current_span(TraceContextTextMapPropagator().extract(carrier)))


def _of_span(span: Any) -> TraceContext | None:
    found = span.get_span_context()
    if not found.is_valid:
        return None
    state = found.trace_state.to_header() if found.trace_state else ""
    return TraceContext(
        trace_id=f"{found.trace_id:032x}", span_id=f"{found.span_id:016x}", sampled=bool(found.trace_flags.sampled),
        state=state if len(state) <= MAX_STATE else "",
    )  # fmt: skip


# -- what is kept -----------------------------------------------------------------------------------------------------
def wanted(tasks: Sequence[Accepted], trace: TraceContext | None) -> bool:
    """Whether :func:`write` would write anything."""
    return trace is not None or (is_on() and any(_drawn(task.id) for task in tasks))


def write(
    cur: Any, tenant_id: int, tasks: Sequence[Accepted], trace: TraceContext | None, workflow_id: UUID | None
) -> None:
    """Write whose trace the tasks belong to; without one, some begin a trace, as the settings' ratio has it.

    A workflow begins one trace for all its tasks, or none.
    """
    if trace is not None:
        chosen = tasks
    elif not is_on():
        return
    elif workflow_id is not None:
        chosen = tasks if _drawn(workflow_id) else ()
    else:
        chosen = [task for task in tasks if _drawn(task.id)]
    rows = []
    for task in chosen:
        one = trace or _begun(workflow_id or task.id)
        rows.append(
            (task.id, tenant_id, one.trace_id, one.span_id, one.sampled, one.state, EXPORT_NOW if one.sampled else None)
        )
    insert(cur, "slackwater_tasks_tasktrace", COLUMNS, rows)


def _drawn(made: UUID) -> bool:
    """Whether this id is in the traced part. It is hashed first: ids made together differ only by a counter."""
    ratio: float = conf().trace_ratio
    if ratio <= 0:
        return False
    return int.from_bytes(blake2b(made.bytes, digest_size=8).digest(), "big") < ratio * 2.0**64


def _begun(made: UUID) -> TraceContext:
    return TraceContext(trace_id=_digest(f"trace:{made}", 16), span_id="", sampled=True)


def run_again(cur: Any, ids: Sequence[UUID]) -> None:
    """Note that tasks are live again: what they do from now on is another span of the same trace.

    Where what they did before was not sent yet, it will be told together with the rest.
    """
    if is_on():
        cur.execute(AGAIN, (list(ids),))


# -- ids of spans -----------------------------------------------------------------------------------------------------
def span_id(task_id: str, what: str, number: int) -> str:
    """The id of a task's span: ``task`` by its run; ``wait``, ``queue`` and ``process`` by the attempt's fence."""
    return _digest(f"{what}:{task_id}:{number}", 8)


def _digest(text: str, size: int) -> str:
    found = blake2b(text.encode(), digest_size=size).hexdigest()
    return found if found.strip("0") else found[:-1] + "1"  # all zeros would be no id


# -- what a running task is given -------------------------------------------------------------------------------------
def headers(task_id: str, fence: int, row: Sequence[Any] | None) -> dict[str, str]:
    """W3C headers under which a running attempt continues the trace; ``row`` as :data:`HEADERS` returns it."""
    if row is None or row[0] is None:
        return {}
    trace_id, sampled, state = row
    parent = f"00-{trace_id}-{span_id(task_id, 'process', fence)}-{int(sampled):02x}"
    return {"traceparent": parent, **({"tracestate": state} if state else {})}


def of_running(cur: Any, task_id: str, fence: int) -> TraceContext | None:
    """The span of a running attempt, for what it submits; ``None`` if its task belongs to no trace."""
    if not is_on():
        return None
    cur.execute(HEADERS, (task_id,))
    row = cur.fetchone()
    if row is None:
        return None
    trace_id, sampled, state = row
    return TraceContext(trace_id=trace_id, span_id=span_id(task_id, "process", fence), sampled=sampled, state=state)
