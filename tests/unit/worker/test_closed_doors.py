"""What comes by way of Redis without the platform's seal, or is no message at all."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest
from celery.utils.collections import AttributeDict
from celery.worker import control
from kombu.pidbox import Mailbox
from kombu.utils.json import dumps

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.seals import Seals, seals
from scheduler_ext.dispatch.messages import SEAL, Seen
from scheduler_ext.dispatch.queue_manager import decode, encode
from scheduler_ext.dispatch.refusals import Kind, Refusals
from scheduler_ext.worker import broker_guard, remote_control
from slackwater.celery import app

CONTROL: Any = app.control
ID = "0189f7ea-ae2c-7809-8aeb-b819cf5e9e7f"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "texts", lambda: ("the key",))


def test_a_seal_holds_for_what_was_sealed_only() -> None:
    ours, theirs = Seals(lambda: ("new", "old")), Seals(lambda: ("theirs",))
    mark = ours.mark("task", b"ab", b"c")
    assert ours.holds(mark, "task", b"ab", b"c")
    assert ours.holds(Seals(lambda: ("old",)).mark("task", b"ab", b"c"), "task", b"ab", b"c"), "every key opens"
    for wrong in (theirs.mark("task", b"ab", b"c"), "", mark[:-1], mark + "0", "ü" * 32, None, 7, b"x"):
        assert not ours.holds(wrong, "task", b"ab", b"c")
    assert not ours.holds(mark, "task", b"a", b"bc")
    assert not ours.holds(mark, "change", b"ab", b"c")
    with pytest.raises(ConfigurationError, match="SLACKWATER_SECRET_KEY"):
        Seals().mark("task", b"")


def test_refusals_are_counted_each_and_told_once_a_kind_and_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    told: list[tuple[Kind, int]] = []
    refusals = Refusals(lambda: now[0])
    refusals.also = lambda kind, count: told.append((kind, count))
    with caplog.at_level(logging.ERROR):
        for _ in range(1_000):
            refusals.add(Kind.CLAIM, "so\x1b[2J\nand so" + "x" * 10_000)
        refusals.add(Kind.BROKEN, "otherwise", 5)
        now[0] = 61.0
        refusals.add(Kind.CLAIM, "again")
    assert refusals.counts == {Kind.CLAIM: 1_001, Kind.BROKEN: 5}
    assert len(told) == 1_002
    assert len(caplog.records) == 3
    assert "\x1b" not in caplog.text
    assert all(len(record.getMessage()) < 400 for record in caplog.records)
    assert all(record.getMessage().isprintable() for record in caplog.records)


class Message:
    """A message as it arrives: its headers after their way through JSON."""

    def __init__(self, made: Any) -> None:
        self.headers = json.loads(json.dumps(made.headers))
        self.body: Any = dumps(made.body).encode()


def message(**more: Any) -> Message:
    given: dict[str, Any] = {"args": (1, "ü"), "kwargs": {"a": [None]}, "countdown": 5, "time_limit": 7, **more}
    return Message(app.amqp.create_task_message("id-1", "some.task", **given))


def test_a_message_is_taken_with_its_own_seal_and_once() -> None:
    seen, found = Seen(), message()
    assert seen.refusal(found) == ""
    assert seen.refusal(found) == "", "delivered again before it was acknowledged"
    seen.took(found)
    assert seen.refusal(found) == "a Celery message that was taken before"
    for name, value in {
        "task": "other.task", "id": "id-2", "eta": None, "retries": 1, "timelimit": [None, None],
    }.items():  # fmt: skip
        changed = message()
        changed.headers[name] = value
        assert "wrong seal" in seen.refusal(changed), name
    changed = message()
    changed.body = message(args=(2,)).body
    assert "wrong seal" in seen.refusal(changed)
    broken: list[Any] = [None, "x", {}, {"nonce": 1}, {"nonce": "x", "seal": 5}, {"nonce": "x", "seal": "0" * 32}, []]
    for seal in broken:
        changed = message()
        changed.headers[SEAL] = seal
        assert seen.refusal(changed), seal
    nothing: list[Any] = [None, [], "x", {}]
    for headers in nothing:
        changed.headers = headers
        assert seen.refusal(changed) == "a Celery message without this platform's seal"


def test_what_is_no_message_becomes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: dict[str, Any] = {
        "body": "", "headers": {}, "content-type": "application/json", "content-encoding": "utf-8",
        "properties": {"delivery_tag": "t", "delivery_info": {}, "body_encoding": "base64"},
    }  # fmt: skip
    assert broker_guard.load(json.dumps(whole)) == whole
    assert broker_guard.load('[{"a": 1}, "e", "r"]') == [{"a": 1}, "e", "r"], "what was not acknowledged"
    broken = ["", "not json", "{}", "[" * 100_000, '{"a":' * 100_000, None, json.dumps({**whole, "headers": []})]
    properties = whole["properties"]
    broken += [json.dumps({**whole, "properties": {**properties, part: 1}}) for part in properties]
    for item in broken:
        assert broker_guard.load(item) is broker_guard.NOTHING
    monkeypatch.setattr(broker_guard, "LARGEST", 10)
    assert broker_guard.load(json.dumps(whole)) is broker_guard.NOTHING


class Mailed:
    """A worker's mailbox that hears what is published."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        handlers = {name: self._note(name) for name in control.Panel.data}
        self.node: Any = CONTROL.mailbox.Node("w1", handlers=handlers, state=AttributeDict())
        self.node.reply = lambda *_, **__: None
        monkeypatch.setattr(Mailbox, "_publish", self._published)

    def _note(self, name: str) -> Any:
        return lambda state, **arguments: self.done.append(f"{name} {arguments}")

    def _published(self, kind: str, arguments: Any, destination: Any = None, **more: Any) -> None:
        text = json.dumps({"method": kind, "arguments": arguments, "destination": destination, "pattern": None,
                           "matcher": None})  # fmt: skip
        self.last = json.loads(text)

    def sealed(self, kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """A command as the platform's own app sends it."""
        CONTROL.mailbox._publish(kind, arguments, ("w1",))
        return dict(self.last)


def test_only_the_platforms_commands_do_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    mailed = Mailed(monkeypatch)
    plain = {"destination": None, "pattern": None, "matcher": None}
    for name in control.Panel.data:
        mailed.node.handle_message({"method": name, "arguments": {}, **plain})
    assert {line.partition(" ")[0] for line in mailed.done} == remote_control.LOOKS
    mailed.done.clear()
    sealed = mailed.sealed("revoke", {"task_id": ID})
    for changed in (
        {**sealed, "method": "terminate"}, {**sealed, "destination": ["w1", "w2"]},
        {**sealed, "arguments": {**sealed["arguments"], "task_id": "other"}},
        {**sealed, "arguments": {**sealed["arguments"], remote_control.SEAL: "x"}},
    ):  # fmt: skip
        mailed.node.handle_message(changed)
    assert mailed.done == []
    mailed.node.handle_message(sealed)
    mailed.node.handle_message(sealed)
    assert mailed.done == [f"revoke {{'task_id': '{ID}'}}"], "once"
    late = mailed.sealed("shutdown", {})
    then = time.time() + 2 * remote_control.VALID_S
    monkeypatch.setattr(time, "time", lambda: then)
    mailed.node.handle_message(late)
    assert len(mailed.done) == 1


@pytest.mark.parametrize("body", [
    None, [], "ping", {}, {"method": 5}, {"method": "nothing"}, {"method": "ping", "arguments": []},
    {"method": "ping", "destination": "w1"}, {"method": "ping", "destination": [[]]}, {"method": "ping", "more": 1},
    {"method": "ping", "reply_to": {"exchange": "slackwater", "routing_key": "slackwater"}},
    {"method": "ping", "reply_to": "x"}, {"method": "ping", "pattern": 5, "matcher": "glob"},
])  # fmt: skip
def test_a_command_in_no_form_is_refused(monkeypatch: pytest.MonkeyPatch, body: Any) -> None:
    mailed = Mailed(monkeypatch)
    mailed.node.handle_message(body)
    assert mailed.done == []


def test_entries_that_are_no_claims_are_passed_over() -> None:
    good = encode(ID, 7, 12)
    found = decode([
        b"x", good, b"", b"1:2:3", good, f"1:{ID}:-1".encode(), f"1:{ID}:99999999999".encode(), b"\xff\xfe",
        f"1:{ID.upper()}:7".encode(), encode(ID, 8, 0), b"1:" + b"a" * 100_000,
    ])  # fmt: skip
    assert found == [(ID, 7), (ID, 8)]
    assert decode([]) == decode([b"x"]) == decode(iter([good + b"\n", good + b":" + good])) == []
