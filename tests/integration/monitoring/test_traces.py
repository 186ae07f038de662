"""Clients' traces: kept with their tasks, completed from the ledger, sent once whatever happens to the collector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

from scheduler_ext.core.states import Outcome
from slackwater_monitoring.tracing import pending
from slackwater_tasks.control.workflows import add_subtasks
from slackwater_tasks.models import TaskTrace
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.runtime.attempt import own_connection
from slackwater_tasks.runtime.task_backend import PgTaskBackend
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import store_script, submit_workflow
from slackwater_tasks.upkeep.retention import delete_tenant
from tests.support.api import HANDLER, ApiClient
from tests.support.collector import Seen, spans
from tests.support.hand_worker import HandWorker
from tests.support.receiver import Receiver
from tests.support.tracing import CLIENT, HEADERS, OFF, PARENT, TRACE, row, send, sender, traced

pytestmark = pytest.mark.django_db(transaction=True)


def asked(acme: ApiClient, **headers: str) -> list[str]:
    """The statements of a submission that Django's connection sees: an ordinary one needs none of its own."""
    with CaptureQueriesContext(
        connection,
    ) as caught:
        traced(acme, headers)
    return [query["sql"] for query in caught.captured_queries if "tasks_" in query["sql"]]


def test_a_clients_trace_goes_from_submission_to_finish(
    acme: ApiClient, worker: HandWorker, collector: Receiver
) -> None:
    worker.conf = replace(worker.conf, retry_base_s=0.0)
    task_id = traced(acme, name="resize")
    worker.run(task_id, outcome=Outcome.FAILED, error="Traceback\nValueError: no")
    assert send() == 0, "it has not ended"
    worker.run(task_id, result="7")
    assert send() == 1
    found = spans(collector)
    assert [span.what for span in found] == ["task", "wait", "queue", "process", "wait", "queue", "process"]
    assert {(span.trace_id, span.state, span.service) for span in found} == {(TRACE, "vendor=1", "slackwater")}
    whole, runs = found[0], [span for span in found if span.what == "process"]
    assert (whole.name, whole.parent_id, whole.kind) == (f"task {HANDLER}", CLIENT, "producer")
    assert all(span.parent_id == whole.span_id for span in found[1:])
    assert [(run.is_error, run.message, run.kind) for run in runs] == [
        (True, "ValueError: no", "consumer"), (False, "", "consumer")
    ]  # fmt: skip
    about = runs[1].about
    assert about["messaging.message.id"] == str(task_id)
    assert (about["slackwater.tenant"], about["slackwater.attempt.number"], about["slackwater.node"]) == (
        "acme", 2, "hand-1"
    )  # fmt: skip
    assert (whole.about["slackwater.state"], whole.about["slackwater.attempts"]) == ("succeeded", 2)
    task = acme.get(f"/tasks/{task_id}").body
    attempts = acme.get(f"/tasks/{task_id}/attempts").body["items"]
    # Of a run the test's own worker only says how long it took.
    assert whole.start <= min(span.start for span in found if span.what != "process")
    assert whole.end == max(span.end for span in found)
    assert task["submitted_at"][:19] == _second(whole.start)
    assert [one["number"] for one in attempts] == [1, 2]
    assert send() == 0, "it is sent once"


def _second(nanoseconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(nanoseconds // 10**9, UTC).isoformat()[:19]


def test_without_a_header_or_a_collector_nothing_is_asked_or_kept(
    acme: ApiClient, collector: Receiver, settings: Any
) -> None:
    asked(acme)  # looks up what is remembered from then on
    ordinary = asked(acme)
    assert not TaskTrace._plain.exists()
    settings.SLACKWATER = {**settings.SLACKWATER, **OFF}
    assert asked(acme, **HEADERS) == asked(acme) == ordinary
    assert not TaskTrace._plain.exists()


@pytest.mark.parametrize(
    "header",
    ["", "x", f"00-{'0' * 32}-{CLIENT}-01", f"ff-{TRACE}-{CLIENT}-01", f"00-{TRACE}-01", PARENT.upper()],
)
def test_a_header_that_is_none_is_ignored(acme: ApiClient, collector: Receiver, header: str) -> None:
    traced(acme, {"traceparent": header})
    assert not TaskTrace._plain.exists()


def test_a_trace_that_is_not_recorded_is_passed_on_and_not_sent(
    acme: ApiClient, worker: HandWorker, collector: Receiver
) -> None:
    task_id = traced(acme, {"traceparent": f"00-{TRACE}-{CLIENT}-00", "tracestate": "x" * 600})
    (started,) = worker.start(task_id)
    handed = PgTaskBackend(started).trace()
    own_connection().close()
    assert handed == {"traceparent": f"00-{TRACE}-{trace_context.span_id(str(task_id), 'process', started.fence)}-00"}
    worker.end([started])
    assert send() == 0
    assert collector.got == []


def test_lists_workflows_and_what_a_task_hands_in_belong_to_the_trace(
    acme: ApiClient, worker: HandWorker, collector: Receiver
) -> None:
    acme.post("/tasks", [{"handler": HANDLER}] * 20, **HEADERS)
    body = {
        "name": "w",
        "tasks": [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}],
    }
    made = acme.post("/workflows", body, **HEADERS).body
    more = acme.post(f"/workflows/{made['id']}/tasks", {"tasks": [{"name": "c", "handler": HANDLER}]}, **HEADERS)
    assert more.status == 201
    assert TaskTrace._plain.filter(trace_id=TRACE, parent_id=CLIENT, sampled=True).count() == 23
    a, b = map(UUID, made["task_ids"])
    (started,) = worker.start(a)
    (child,) = add_subtasks(started, [{"handler": HANDLER}], join=False)
    running = trace_context.span_id(str(a), "process", started.fence)
    assert (row(child).trace_id, row(child).parent_id) == (TRACE, running)
    worker.end([started])
    worker.run(b)
    assert send() == 2
    whole = {span.about["messaging.message.id"]: span for span in spans(collector) if span.what == "task"}
    assert whole[str(b)].links == [whole[str(a)].span_id]
    assert whole[str(a)].about["messaging.message.conversation_id"] == made["id"]
    assert running in {span.span_id for span in spans(collector)}


def test_code_that_submits_hands_on_its_own_span(acme: ApiClient, collector: Receiver) -> None:
    with TracerProvider().get_tracer("a client").start_as_current_span("upload") as span:
        made = submit_workflow(acme.tenant, {"tasks": [{"name": "a", "handler": HANDLER}]})
        inside = traced(acme, HEADERS)  # an instrumented API: its own span is the nearer one
    for task_id in (made.task_ids[0], inside):
        own = span.get_span_context()
        assert (row(task_id).trace_id, row(task_id).parent_id) == (
            format_trace_id(own.trace_id), format_span_id(own.span_id)
        )  # fmt: skip


def test_a_part_of_what_comes_without_a_trace_begins_one(
    acme: ApiClient, worker: HandWorker, collector: Receiver, settings: Any
) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "TRACE_RATIO": 0.5}
    assert acme.post("/tasks", [{"handler": HANDLER}] * 60).status == 201
    some = TaskTrace._plain.count()
    assert 10 < some < 50
    settings.SLACKWATER = {**settings.SLACKWATER, "TRACE_RATIO": 1.0}
    alone = traced(acme, {})
    made = submit_workflow(
        acme.tenant, {"tasks": [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER}]}
    )
    assert TaskTrace._plain.count() == some + 3
    one, two = map(row, made.task_ids)
    assert one.trace_id == two.trace_id != row(alone).trace_id
    worker.run(alone)
    assert send() == 1
    assert next((span.trace_id, span.parent_id) for span in spans(collector)) == (row(alone).trace_id, "")


def test_what_runs_again_is_sent_again_with_what_is_new(
    acme: ApiClient, worker: HandWorker, collector: Receiver
) -> None:
    task_id = traced(acme, total_attempts=1)
    worker.run(task_id, outcome=Outcome.FAILED, error="boom")
    assert send() == 1
    first = spans(collector)
    collector.got.clear()
    assert acme.post(f"/tasks/{task_id}/retry").status == 200
    assert send() == 0
    worker.run(task_id)
    assert send() == 1
    again = spans(collector)
    assert [span.what for span in again] == ["task", "wait", "queue", "process"]
    assert not _ids(first) & _ids(again)
    assert (again[0].trace_id, again[0].parent_id, again[0].about["slackwater.run"]) == (TRACE, CLIENT, 2)
    assert again[0].start > first[0].end
    assert again[3].about["slackwater.attempt.number"] == 2


def _ids(found: list[Seen]) -> set[str]:
    return {span.span_id for span in found}


def test_what_ran_again_before_it_was_sent_is_told_as_one(
    acme: ApiClient, worker: HandWorker, collector: Receiver
) -> None:
    task_id = traced(acme, total_attempts=1)
    worker.run(task_id, outcome=Outcome.FAILED, error="boom")
    assert acme.post(f"/tasks/{task_id}/retry").status == 200
    worker.run(task_id)
    assert send() == 1
    found = spans(collector)
    assert [span.what for span in found] == ["task", "wait", "queue", "process", "wait", "queue", "process"]
    assert found[0].start == found[1].start
    assert found[0].end == found[-1].end


def test_a_row_that_is_not_as_it_should_be_holds_up_no_other(
    acme: ApiClient, worker: HandWorker, collector: Receiver
) -> None:
    broken, good = traced(acme), traced(acme)
    TaskTrace._plain.filter(pk=broken).update(trace_id="no hexadecimal number")
    worker.run(broken, good)
    assert send() == 2
    assert {span.about["messaging.message.id"] for span in spans(collector)} == {str(good)}
    assert send() == 0


def test_a_task_that_runs_again_while_it_is_sent_is_not_forgotten(
    acme: ApiClient, worker: HandWorker, collector: Receiver
) -> None:
    task_id = traced(acme, total_attempts=1)
    worker.run(task_id, outcome=Outcome.FAILED, error="boom")
    with sender() as one:
        claimed = pending.claim(one.db.conn, pending.Cursor(), 10)
        tasks = pending.read(one.db.conn, claimed)
        assert acme.post(f"/tasks/{task_id}/retry").status == 200
        pending.done(one.db.conn, claimed, tasks)
    worker.run(task_id)
    assert send() == 1


def test_a_script_finds_its_trace_in_its_environment(acme: ApiClient, worker: HandWorker, collector: Receiver) -> None:
    script = store_script(acme.tenant, "x.sh", b"true\n")
    with_trace = UUID(acme.post("/tasks", {"script": script.sha256}, **HEADERS).body["id"])
    without = UUID(acme.post("/tasks", {"script": script.sha256}).body["id"])
    store = PgWorkStore(worker.conf, "test")
    try:
        (started,) = worker.start(with_trace)
        made = trace_context.span_id(str(with_trace), "process", started.fence)
        assert store.script(str(with_trace)).trace == {
            "traceparent": f"00-{TRACE}-{made}-01", "tracestate": "vendor=1"
        }  # fmt: skip
        worker.start(without)
        assert store.script(str(without)).trace == {}
    finally:
        store.close()


def test_traces_go_with_their_tenant(acme: ApiClient, collector: Receiver) -> None:
    traced(acme)
    delete_tenant(acme.tenant)
    assert not TaskTrace._plain.exists()
