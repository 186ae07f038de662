"""Spans on their way to the collector: sent once, whatever happens to it or to who sends."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from slackwater_monitoring.models import TraceSending
from slackwater_monitoring.tracing import pending
from slackwater_tasks.models import TaskTrace
from tests.support.api import HANDLER, ApiClient
from tests.support.collector import spans
from tests.support.hand_worker import HandWorker
from tests.support.receiver import Receiver
from tests.support.tracing import HEADERS, send, sender, traced
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


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
        # A plan that would look for the oldest anew for each row, as the planner may choose: still two are given up.
        for way in ("hashjoin", "mergejoin", "hashagg", "sort", "material", "seqscan"):
            one.db.conn.execute(f"SET enable_{way} = off")
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
