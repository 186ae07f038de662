"""``install`` with a URL and a key: what is sent for each call, and what is refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest
from celery import Celery, chain, chord, group
from celery.exceptions import TimeoutError as CeleryTimeoutError

import slackwater
from scheduler_ext.core.errors import ConfigurationError, InvalidInput
from scheduler_ext.task import handlers, publishing
from slackwater import durable
from slackwater.over_rest import NeedsDatabase, RestLedger

URL = "http://sw.example"


class Platform:
    """Answers submissions with ids, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []
        self.task: dict[str, Any] = {}
        self.failures = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if self.failures:
            self.failures -= 1
            return httpx.Response(503, json={"status": 503, "code": "unavailable", "detail": "not now"})
        if request.method == "GET":
            known = request.url.path.endswith(self.task.get("id", "o.elsewhere"))
            return httpx.Response(200 if known else 404, json=self.task if known else {"code": "not_found"})
        if request.method == "DELETE":
            return httpx.Response(204)
        body = json.loads(request.content or b"{}")
        ids = [_id() for _ in body.get("tasks", [1])]
        return httpx.Response(201, json={"id": ids[0], "task_ids": ids, "created": True})

    def bodies(self) -> list[dict[str, Any]]:
        """What was submitted."""
        return [json.loads(one.content) for one in self.asked if one.method == "POST"]


def _id() -> str:
    text = str(uuid4())
    return f"{text[:14]}7{text[15:]}"


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
def app(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An application with a durable task and one that is not; its broker is nowhere."""
    monkeypatch.setattr(handlers, "_patterns", ["o.*"])
    monkeypatch.setattr("slackwater.client.clients.time.sleep", lambda seconds: None)
    monkeypatch.setattr(handlers, "_exports", {})
    monkeypatch.setattr(handlers, "_functions", {})
    monkeypatch.setattr(publishing, "_home", None)
    made = Celery("over_rest", broker="memory://", set_as_current=False)
    made.conf.task_default_queue = _id()

    @made.task(name="o.add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    @made.task(name="plain.note", shared=False, ignore_result=True)
    def note(*args: Any) -> None:
        """Not durable."""

    publishing.install(made, RestLedger(URL, "sw_key", transport=httpx.MockTransport(platform)))
    vars(made).update(add=add, note=note)
    yield made
    made.close()


def test_a_single_call_is_one_task_with_the_fields_that_its_options_become(app: Any, platform: Platform) -> None:
    first = app.add.delay(1, 2)
    app.add.apply_async((1, 2), countdown=9, time_limit=7, headers={"who": "ann"}, slackwater={"tier": "regular"})
    app.send_task("o.add", (1,), {"y": datetime(2026, 1, 2, tzinfo=UTC)}, eta="2027-01-01T00:00:00")
    plain, full, typed = platform.bodies()
    assert plain == {"handler": "o.add", "args": [1, 2], "kwargs": {}}
    assert full == {
        **plain, "kwargs": {"$celery": {"headers": {"who": "ann"}}}, "start_in_s": 9.0, "execution_cap_s": 7,
        "tier": "regular",
    }  # fmt: skip
    assert typed["start_at"] == "2027-01-01T00:00:00+00:00"
    assert typed["kwargs"]["$celery"] == {"typed": True}
    assert typed["kwargs"]["y"]["__type__"] == "datetime"
    keys = {one.headers["Idempotency-Key"] for one in platform.asked}
    assert len(keys) == 3
    assert first.id[14] == "7"


def test_a_call_that_is_made_again_keeps_its_idempotency_key(app: Any, platform: Platform) -> None:
    platform.failures = 2
    app.add.delay(1, 2)
    assert len(platform.asked) == 3
    assert len({one.headers["Idempotency-Key"] for one in platform.asked}) == 1


def test_a_key_of_ones_own_is_the_requests_key(app: Any, platform: Platform) -> None:
    app.add.apply_async((1, 2), slackwater={"idempotency_key": "order-7"})
    assert platform.asked[0].headers["Idempotency-Key"] == "order-7"


def test_a_process_that_was_forked_makes_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = RestLedger(URL, "sw_key")
    mine = ledger.client
    assert ledger.client is mine
    monkeypatch.setattr("slackwater.over_rest.os.getpid", lambda: -1)
    assert ledger.client is not mine
    assert ledger.client is ledger.client


def test_a_canvas_is_one_workflow(app: Any, platform: Platform) -> None:
    add = app.add
    chained = chain(add.s(1, 2), add.s(10)).apply_async()
    several: Any = group(add.s(1, 1), add.s(2, 2)).apply_async()
    gathered = chord([add.s(1, 1), add.s(2, 2)])(add.s(3))
    one, two, three = platform.bodies()
    assert one["tasks"][1]["args"] == [{"$from": "0:o.add"}, 10]
    assert one["tasks"][1]["depends_on"] == ["0:o.add"]
    assert [task["depends_on"] for task in two["tasks"]] == [[], []]
    assert three["tasks"][2]["args"] == [{"$from": ["0:o.add", "1:o.add"]}, 3]
    assert (chained.id[14], len(several.results), gathered.id[14]) == ("7", 2, "7")


def test_a_result_is_read_over_rest(app: Any, platform: Platform) -> None:
    result = app.add.delay(1, 2)
    platform.task = {
        "id": result.id, "handler": "o.add", "state": "ready", "status": "waiting", "attempts": 0, "result": None,
        "error": None, "reason": None, "progress": None, "finished_at": None, "args": [1, 2], "kwargs": {},
        "execution_cap_s": 60.0,
    }  # fmt: skip
    assert (result.state, result.ready()) == ("PENDING", False)
    with pytest.raises(CeleryTimeoutError):
        result.get(timeout=0)
    platform.task |= {"state": "failed", "status": "failed", "attempts": 1, "error": "ValueError: no"}
    with pytest.raises(ValueError, match=r"^no$"):
        result.get(timeout=9)
    assert (result.failed(), result.successful()) == (True, False)
    result.forget()
    assert [one.url.path for one in platform.asked if one.method == "DELETE"] == [f"/api/v1/tasks/{result.id}/result"]


def test_what_cannot_be_kept_is_refused_by_name_and_nothing_is_sent(app: Any, platform: Platform) -> None:
    with pytest.raises(InvalidInput, match="colour"):
        app.add.apply_async((1, 2), colour="red")
    with pytest.raises(InvalidInput, match="task_id"):
        app.add.apply_async((1, 2), task_id="mine")
    with pytest.raises(InvalidInput, match=r"o\.add: the arguments cannot be written as JSON"):
        app.add.delay(object(), float("nan"))
    with pytest.raises(InvalidInput, match="cannot be stored"):
        app.add.starmap([(1, 2)]).apply_async()
    assert platform.bodies() == []


def test_other_tasks_go_where_they_went_and_a_name_is_asked_for_once(app: Any, platform: Platform) -> None:
    app.note.delay(1)
    assert platform.asked == []
    app.send_task("other.note")
    app.send_task("other.note")
    assert [one.url.path for one in platform.asked] == ["/api/v1/handlers/other.note"]
    assert app.connection_for_write().default_channel.queue_declare(app.conf.task_default_queue).message_count == 3


@pytest.mark.parametrize(
    "given", [{"tenant": "shop"}, {"shadow": ["o.*"]}, {"redis_url": "redis://x"}, {"database_url": "x"}]
)
def test_what_needs_the_database_is_refused_at_install(given: dict[str, Any]) -> None:
    app = Celery("refused", broker="memory://", set_as_current=False)
    with pytest.raises(ConfigurationError, match="means nothing over REST") as caught:
        slackwater.install(app, url=URL, key="sw_key", **given)
    assert caught.value.field in given
    assert publishing.of(app) is None


def test_a_key_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACKWATER_KEY", raising=False)
    app = Celery("refused", broker="memory://", set_as_current=False)
    with pytest.raises(ConfigurationError, match="SLACKWATER_KEY"):
        slackwater.install(app, url=URL)


def test_the_environment_says_where_and_who_while_there_is_no_django(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_patterns", [])
    monkeypatch.setattr(publishing, "_home", None)
    monkeypatch.setattr(durable, "_has_django", lambda: False)
    monkeypatch.setenv("SLACKWATER_URL", URL)
    monkeypatch.setenv("SLACKWATER_KEY", "sw_key")
    app = Celery("told", broker="memory://", set_as_current=False)
    slackwater.install(app)
    found = publishing.of(app)
    assert found is not None
    assert isinstance(found.ledger, RestLedger)
    assert found.ledger.client.url == URL
    assert NeedsDatabase in app.steps["worker"]


def test_a_worker_says_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert not NeedsDatabase.include_if(Any, Any)  # type: ignore[arg-type]  # neither is looked at
    assert "database_url" in caplog.text
