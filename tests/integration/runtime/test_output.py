"""What tasks wrote and yielded, in the ledger and over the API: in order, from any place, live, bounded, each tenant's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import StreamTooLarge
from scheduler_ext.core.work import Line, Started, Written
from scheduler_ext.task.effects import AttemptReplaced
from slackwater_api.server.application import AsgiApplication
from slackwater_tasks.models import AttemptLog
from slackwater_tasks.read import output
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tenants.models import Plan
from slackwater_tenants.scoping import tenant_scope
from tests.support.api import HANDLER, ApiClient, client_of
from tests.support.front import Visit, drive, until
from tests.support.hand_worker import HandWorker
from tests.support.streams import events_in

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


@pytest.fixture
def store() -> Iterator[PgWorkStore]:
    made = PgWorkStore(SchedulerConf(), "test output")
    yield made
    made.close()


def begun(worker: HandWorker, task_id: str) -> Started:
    one = worker.start(UUID(task_id))[0]
    return Started(one.task_id, one.fence, one.tenant_id, one.handler, "", "", [], {}, 1_000, one.attempt, "")


def wrote(task: Started, number: int, *texts: str, stream: str = "stdout", level: str = "info") -> Written:
    return Written(task, number, [Line(time.time(), stream, level, text) for text in texts])


def texts(client: ApiClient, path: str) -> list[str]:
    return [item["text"] for item in client.get(path).body["items"]]


def test_lines_are_read_in_order_from_any_place_and_searched(acme: ApiClient, store: PgWorkStore) -> None:
    worker, task_id = HandWorker(), acme.task()
    task = begun(worker, task_id)
    rows = [
        wrote(task, 1, "one", "two\x00\ud800"), wrote(task, 2, "went wrong\n  in line 3", stream="log", level="error"),
        wrote(task, 3, "last"),
    ]  # fmt: skip
    store.write(rows)
    store.write(rows)  # after a connection that broke: nothing stands twice
    path = f"/tasks/{task_id}/logs"
    found = acme.get(path).body
    assert [item["text"] for item in found["items"]] == ["one", "two\ufffd?", "went wrong\n  in line 3", "last"]
    assert {item["attempt"] for item in found["items"]} == {1}
    assert found["next_cursor"] is None
    place = found["items"][0]["place"]
    assert texts(acme, f"{path}?cursor={place}&limit=2") == ["two\ufffd?", "went wrong\n  in line 3"]
    assert texts(acme, f"{path}?level=warning") == ["went wrong\n  in line 3"]
    assert texts(acme, f"{path}?stream=stdout&text=LAST") == ["last"]
    assert [acme.get(f"{path}?{wrong}=x").status for wrong in ("stream", "cursor", "level", "fence")] == [422] * 4
    assert texts(acme, f"/logs?handler={HANDLER}&text=WRONG") == ["went wrong\n  in line 3"]
    assert texts(acme, "/logs?handler=other.one&text=wrong") == []
    other = client_of("other")
    assert (other.get(path).status, texts(other, "/logs?text=wrong")) == (404, [])


def test_a_search_goes_on_where_the_page_before_ended(acme: ApiClient, store: PgWorkStore, monkeypatch: Any) -> None:
    worker = HandWorker()
    ids = [acme.task() for _ in range(4)]
    for task_id in ids:
        task = begun(worker, task_id)
        store.write([wrote(task, 1, "found it", "not this"), wrote(task, 2, "found it again")])
    monkeypatch.setattr(output, "WINDOW_TASKS", 3)
    seen: list[str] = []
    cursor = ""
    for _ in range(10):
        page = acme.get(f"/logs?text=found&limit=3{cursor}").body
        seen += [item["task_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [task_id for task_id in reversed(ids) for _ in range(2)]


def test_a_search_looks_no_further_than_it_must(acme: ApiClient, store: PgWorkStore, monkeypatch: Any) -> None:
    worker = HandWorker()
    ids = [acme.task() for _ in range(4)]
    for task_id in ids:
        store.write([wrote(begun(worker, task_id), 1, "often" if task_id != ids[0] else "seldom")])
    monkeypatch.setattr(output, "FIRST_TASKS", 2)
    for text, limit, looks, seen in (
        ("often", 2, 1, ids[3:]), ("often", 3, 2, [ids[3], ids[2]]), ("often", 9, 2, ids[:0:-1]), ("seldom", 2, 2, ids[:1]),
    ):  # fmt: skip
        with CaptureQueriesContext(connection) as asked:
            found, _ = output.search_of(None, text, limit=limit)
        assert sum("attemptlog" in each["sql"] for each in asked.captured_queries) == looks
        assert [str(line["task_id"]) for line in found] == seen, "but the last, of which there may be more"


def test_output_of_a_release_before_is_still_read(acme: ApiClient) -> None:
    task_id = acme.task()
    common = {"task_id": task_id, "tenant": acme.tenant, "fence": 1}
    AttemptLog._plain.create(**common, stream="stderr", text="bad\n", truncated=True)
    AttemptLog._plain.create(**common, stream="stdout", text="a\nb\n")
    with tenant_scope(acme.tenant.pk):
        found = output.lines(UUID(task_id))
    assert [(line["stream"], line["text"]) for line in found] == [
        ("stderr", "bad"), ("platform", "cut here"), ("stdout", "a"), ("stdout", "b"),
    ]  # fmt: skip
    with tenant_scope(acme.tenant.pk):
        rest = output.lines(UUID(task_id), after=output.Place.read(found[1]["place"], "cursor"))
    assert [line["text"] for line in rest] == ["a", "b"]


def test_what_earlier_attempts_wrote_goes_beyond_the_bound(acme: ApiClient, store: PgWorkStore) -> None:
    Plan.objects.filter(pk=acme.tenant.plan_id).update(max_log_bytes=25)
    worker, task_id = HandWorker(), acme.task()
    first = begun(worker, task_id)
    store.write([wrote(first, number, "ten bytes.") for number in range(1, 6)])
    again = Started(first.task_id, first.fence + 1, first.tenant_id, HANDLER, "", "", [], {}, 1_000, 2, "")
    assert store.most_written(again) == 25
    assert texts(acme, f"/tasks/{task_id}/logs") == ["ten bytes.", "ten bytes."]


def test_chunks_are_kept_while_the_attempt_holds_its_task_and_the_plan_allows(
    acme: ApiClient, store: PgWorkStore
) -> None:
    worker, task_id = HandWorker(), acme.task()
    task = begun(worker, task_id)
    store.emit(task, [(1, '"a"'), (2, '{"b":1}')], 9)
    store.emit(task, [(2, '{"b":1}'), (3, "null")], 13)
    path = f"/tasks/{task_id}/chunks"
    found = acme.get(path).body["items"]
    assert [item["value"] for item in found] == ["a", {"b": 1}, None]
    assert [item["value"] for item in acme.get(f"{path}?cursor={found[0]['place']}").body["items"]] == [{"b": 1}, None]
    late = Started(task.task_id, task.fence - 1, task.tenant_id, HANDLER, "", "", [], {}, 1_000, 1, "")
    with pytest.raises(AttemptReplaced):
        store.emit(late, [(9, "1")], 1)
    with pytest.raises(StreamTooLarge):
        store.emit(task, [(9, "1")], acme.tenant.plan.max_stream_bytes + 1)
    assert len(acme.get(path).body["items"]) == 3


def test_lines_and_chunks_are_followed_live_and_from_where_one_stopped(acme: ApiClient, store: PgWorkStore) -> None:
    worker, task_id = HandWorker(), acme.task()
    task = begun(worker, task_id)
    store.write([wrote(task, 1, "one", "two")])

    async def story(front: AsgiApplication) -> None:
        lines = Visit(front, acme.text, "GET", f"/api/v1/tasks/{task_id}/logs?follow")
        resumed = Visit(front, acme.text, "GET", f"/api/v1/tasks/{task_id}/logs?follow=true&last_event_id=1.1.1")
        chunks = Visit(front, acme.text, "GET", f"/api/v1/tasks/{task_id}/chunks?follow")
        jobs = [asyncio.create_task(visit.run()) for visit in (lines, resumed, chunks)]
        await until(lambda: b"two" in lines.body and b"two" in resumed.body)
        assert not any(job.done() for job in jobs)
        await asyncio.to_thread(store.write, [wrote(task, 2, "three", stream="stderr", level="error")])
        await asyncio.to_thread(store.emit, task, [(1, '"token"')], 7)
        await until(lambda: b"three" in lines.body and b"token" in chunks.body)
        await asyncio.to_thread(store.write, [wrote(task, 3, "four")])
        await asyncio.to_thread(finish)
        await asyncio.gather(*jobs)  # they end by themselves
        told = [event.get("text", event["kind"]) for event in events_in(lines.body)]
        assert told == ["one", "two", "three", "four", "end"]
        assert [event.get("text", event["kind"]) for event in events_in(resumed.body)] == told[1:]
        assert [event["kind"] for event in events_in(chunks.body)] == ["chunk", "end"]

    def finish() -> None:
        worker.end([task])
        connections.close_all()

    drive(story)
    connections.close_all()
    assert acme.get(f"/tasks/{task_id}/logs/events", Last_Event_ID="1.3.1").status == 204
    assert client_of("other").get(f"/tasks/{task_id}/logs/events").status == 404
