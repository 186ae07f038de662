"""Clients' traces: kept with their tasks, completed from the ledger, sent once whatever happens to the collector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

from scheduler_ext.core.states import Outcome
from slackwater_monitoring.models import TraceSending
from slackwater_monitoring.tracing import pending
from slackwater_monitoring.tracing.exporter import SpanSender
from slackwater_tasks.control.workflows import add_subtasks
from slackwater_tasks.models import TaskTrace
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.runtime.attempt import own_connection
from slackwater_tasks.runtime.task_backend import PgTaskBackend
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import store_script, submit_workflow
from slackwater_tasks.upkeep.retention import delete_tenant
from tests.support.api import HANDLER, ApiClient, client_of, forget_lookups, furnish
from tests.support.collector import Seen, endpoint, spans
from tests.support.hand_worker import HandWorker
from tests.support.receiver import Receiver, receiving
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CLIENT}-01"
HEADERS = {"traceparent": PARENT, "tracestate": "vendor=1"}
OFF = {"TRACE_ENDPOINT": "", "TRACE_RATIO": 0.0, "TRACE_BACKLOG": 100}


@pytest.fixture
def collector(settings: Any) -> Iterator[Receiver]:
    with receiving() as receiver:
        settings.SLACKWATER = {**settings.SLACKWATER, **OFF, "TRACE_ENDPOINT": endpoint(receiver)}
        yield receiver


@pytest.fixture
def acme() -> ApiClient:
    forget_lookups()
    furnish()
    return client_of("acme")


@pytest.fixture
def worker(acme: ApiClient) -> HandWorker:
    return HandWorker()


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


def test_nothing_is_lost_while_the_collector_is_away(
    acme: ApiClient, worker: HandWorker, collector: Receiver, settings: Any
) -> None:
    ids = {str(traced(acme)) for _ in range(3)}
    worker.run(*map(UUID, ids))
    collector.answer = lambda _: (401, {})
    with sender() as one:
        one.start()
        wait_until(lambda: len(collector.got) >= 2, message="it tries again")
        state = TraceSending.objects.get()
        assert (state.sent, state.error) == (0, "it answered 401")
        assert state.failing_since is not None
        page = Client().get("/metrics").content.decode()
        assert "slackwater_trace_failing_seconds" in page
        assert "slackwater_trace_failing_seconds 0.0\n" not in page
        collector.answer = lambda _: (200, {})
        wait_until(lambda: TraceSending.objects.get().sent == 3, message="all are sent")
    assert {span.about["messaging.message.id"] for span in spans(collector)} == ids
    assert TraceSending.objects.get().failing_since is None
    page = Client().get("/metrics").content.decode()
    assert 'slackwater_traced_tasks_total{outcome="sent"} 3.0' in page
    assert "slackwater_trace_failing_seconds 0.0\n" in page


def test_a_sender_that_dies_leaves_its_tasks_to_another_which_makes_the_same_spans(
    acme: ApiClient, worker: HandWorker, collector: Receiver
) -> None:
    worker.run(traced(acme))
    with sender() as dying:
        claimed = pending.claim(dying.db.conn, pending.Cursor(), 10)
        assert dying._export(pending.read(dying.db.conn, claimed))
    first = spans(collector)
    assert send() == 0, "it is the dead one's until its lease is over"
    TaskTrace._plain.update(export_at="2020-01-01T00:00:00Z")
    collector.got.clear()
    assert send() == 1
    assert spans(collector) == first


def test_what_the_collector_does_not_take_harms_nothing_else(
    acme: ApiClient, worker: HandWorker, collector: Receiver
) -> None:
    ids = [traced(acme) for _ in range(3)]
    worker.run(*ids)
    collector.answer = lambda n: (400 if n in {1, 3} else 200, {})  # the batch, and the second of the three
    assert send() == 3
    state = TraceSending.objects.get()
    assert (state.sent, state.refused, state.error) == (2, 1, "")
    assert len(collector.got) == 4
    assert send() == 0


def test_the_backlog_is_bounded_and_its_oldest_given_up(
    acme: ApiClient, worker: HandWorker, collector: Receiver, settings: Any
) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "TRACE_BACKLOG": 2}
    ids = [traced(acme) for _ in range(4)]
    waiting = traced(acme)
    worker.run(*ids)
    with sender() as one:
        assert one.bound() == 2
        assert one.bound() == 0
    state = TraceSending.objects.get()
    assert (state.backlog, state.dropped) == (2, 2)
    worker.run(waiting)
    assert send() == 3
    sent = {span.about["messaging.message.id"] for span in spans(collector)}
    assert sent == {str(ids[2]), str(ids[3]), str(waiting)}


def test_ended_tasks_are_found_behind_many_that_wait(
    acme: ApiClient, worker: HandWorker, collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "MAX_LOOKED_AT", 4)
    acme.post("/tasks", [{"handler": HANDLER}] * 10, **HEADERS)
    last = traced(acme)
    worker.run(last)
    with sender() as one:
        assert [one.send() for _ in range(5)] == [0, 0, 1, 0, 0]


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


FILL = """
INSERT INTO slackwater_tasks_tasktrace (task_id, tenant_id, trace_id, parent_id, sampled, tracestate, export_at)
SELECT gen_random_uuid(), 1, repeat('a', 32), '', true, '', CASE WHEN n <= %s THEN to_timestamp(0) END
FROM generate_series(1, %s) AS n
"""


@pytest.mark.parametrize("analyzed", [False, True])
def test_what_was_sent_long_ago_is_not_walked_through(analyzed: bool) -> None:
    params: dict[str, Any] = {
        "after": pending.FIRST,
        "upto": pending.FIRST.replace("0", "f"),
        "look": 10_000,
        "most": 200,
        "lease": 1.0,
    }
    with connection.cursor() as cur:
        cur.execute("TRUNCATE slackwater_tasks_tasktrace")
        cur.execute(FILL, (20, 20_000))
        if analyzed:
            cur.execute("ANALYZE slackwater_tasks_tasktrace")
        for statement in (pending.SEEN, pending.CLAIM):
            cur.execute(f"EXPLAIN {statement}", params)
            plan = "\n".join(row[0] for row in cur.fetchall())
            assert "slackwater_trace_pending" in plan, plan
            assert "Seq Scan on slackwater_tasks_tasktrace" not in plan, plan
