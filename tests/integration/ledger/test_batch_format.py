"""What a batch reads and writes as text is what goes through PostgreSQL, to the last sign."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished
from slackwater_tasks.ledger import begins, transitions
from slackwater_tasks.models import Attempt, Task
from slackwater_tasks.submission.service import submit, submit_many
from tests.support.api import client_of, furnish
from tests.support.hand_worker import HandWorker, raw_cursor

pytestmark = pytest.mark.django_db

TEXTS = (
    "[]", "{}", "null", "true", '""', " [ ] ", "[[], {}]", '{"a": [1, {"b": null}]}', "[1, 1.0, 1.50, -0, -0.0]",
    f"[{2**63}, -{10**40}, 1e400, 1e-400, 0.1, 1.7976931348623157e308]",
    r'["\ud83d\ude00", "\u00e9", "\\u0041", "\"", "\n\t", "é😀"]', r'{"\ud83d\ude00": "a\/b"}',
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_json_of_postgresql_is_read_as_pythons_reader_reads_it(text: str) -> None:
    with connection.cursor() as cur:
        cur.execute("SELECT %s::jsonb::text", (text,))
        stored = cur.fetchone()[0]
    assert repr(begins.values([stored, stored])) == repr([json.loads(stored)] * 2)


def test_tasks_with_the_same_arguments_share_nothing() -> None:
    one, other = begins.values(['[[], {"a": []}]'] * 2)
    assert one == other == [[], {"a": []}]
    one[1]["a"].append(1)
    one[0].append(1)
    assert other == [[], {"a": []}]


def test_a_batch_begins_in_the_order_of_its_claims_each_with_its_arguments() -> None:
    furnish()
    worker, tenant = HandWorker(), client_of("batch").tenant
    given: list[tuple[list[Any], dict[str, Any]]] = [
        ([], {}), ([1, "é\\\"", None], {}), ([], {"x": 2**70, "y": [0.1]}), ([[]], {"z": {}}),
    ]  # fmt: skip
    ids = submit_many(tenant, [{"handler": "demo.echo", "args": a, "kwargs": k} for a, k in given]).task_ids
    order = [ids[n] for n in (2, 0, 3, 1)]
    claims = worker.claim(*order)
    with raw_cursor() as cur:
        started = transitions.start_if_queued(cur, worker.node.pk, claims)
        again = transitions.start_if_queued(cur, worker.node.pk, claims, again=True)
    assert [UUID(each.task_id) for each in started] == order
    assert [(each.args, each.kwargs) for each in started] == [given[n] for n in (2, 0, 3, 1)]
    assert [(each.task_id, each.args, each.kwargs, each.before) for each in again] == [
        (each.task_id, each.args, each.kwargs, each.before) for each in started
    ]


def test_a_batch_of_successes_keeps_each_result_and_each_time_to_the_microsecond() -> None:
    furnish()
    worker, tenant = HandWorker(), client_of("batch").tenant
    results = [None, '"NULL"', "null", '{"a":"\\"b\\\\c","d":[1,{}]}', '"é😀,{}"', '""']
    ids = [submit(tenant, {"handler": "demo.echo"}).task_ids[0] for _ in results]
    began = int(time.time()) - 5
    ended = [
        Finished(each.task_id, each.fence, Outcome.SUCCEEDED, began + n * 1e-6, began + 1 + n * 1e-6, result)
        for n, (each, result) in enumerate(zip(worker.start(*ids), results, strict=True))
    ]
    with raw_cursor() as cur:
        rows = transitions.succeed_if_running(cur, worker.node.pk, ended)
    assert {UUID(row[0]) for row in rows} == set(ids)
    for n, (task_id, result) in enumerate(zip(ids, results, strict=True)):
        kept = Task.objects.unscoped().get(pk=task_id).result  # unscoped: the test's own
        assert kept == (None if result is None else json.loads(result))
        attempt = Attempt.objects.unscoped().get(task_id=task_id)  # unscoped: the test's own
        first = datetime.fromtimestamp(began, UTC) + timedelta(microseconds=n)
        assert (attempt.started_at, attempt.finished_at) == (first, first + timedelta(seconds=1))
