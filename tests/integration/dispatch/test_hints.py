"""Hints go out without waiting for an answer, over a new connection where one was lost, and to who waits for them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

import pytest
import redis

from scheduler_ext.dispatch import dispatcher
from scheduler_ext.dispatch.change_feed import Reader
from scheduler_ext.dispatch.dispatcher import HintListener
from scheduler_ext.dispatch.keys import Keys
from scheduler_ext.dispatch.queue_manager import QueueManager
from slackwater_conf import conf
from slackwater_tasks.ledger import hints
from slackwater_tasks.runtime.work_store import PgWorkStore
from tests.support.waiting import wait_until


def heard(listening: Any, wanted: int) -> list[bytes]:
    """The next ``wanted`` hints."""
    found: list[bytes] = []
    while len(found) < wanted:
        message = listening.get_message(ignore_subscribe_messages=True, timeout=30.0)
        assert message is not None, f"{found} came, {wanted} were wanted"
        found.append(message["data"])
    return found


def test_each_hint_arrives_and_a_lost_connection_costs_none(redis_client: redis.Redis) -> None:
    channel = Keys(conf().scheduler.key_prefix).hints("cell")
    with redis_client.pubsub() as listening:
        listening.subscribe(channel)
        listening.get_message(timeout=5.0)
        for _ in range(3):
            hints.wake_dispatcher("cell")
        assert heard(listening, 3) == [b"work"] * 3
        redis_client.client_kill_filter(_type="normal", skipme=True)
        hints.wake_dispatcher("cell")
        assert heard(listening, 1) == [b"work"]
        PgWorkStore(replace(conf().scheduler, cell="cell"), "test").tell_room()
        assert heard(listening, 1) == [b"room"], "a child's batches have left room"


@pytest.mark.parametrize("limit_s", [None, 5.0])
def test_whoever_tells_of_changes_waits_for_no_answer(redis_client: redis.Redis, limit_s: float | None) -> None:
    with redis.Redis.from_url(conf().redis_url, socket_timeout=limit_s) as client:
        queues = QueueManager(client, replace(conf().scheduler, cell="cell"))
        with redis_client.pubsub() as listening:
            listening.subscribe(queues.keys.room("cell"))
            listening.get_message(timeout=5.0)
            for n in range(3):
                queues.tell([(f"task {n}", 5, 1, None, None, None, 1.0)], room=n == 1)
            redis_client.client_kill_filter(_type="normal", skipme=True)
            queues.tell([("task 3", 5, 1, None, None, None, 1.0)], room=True)
            assert heard(listening, 2) == [b"room"] * 2
        wait_until(lambda: redis_client.xlen(queues.keys.changes()) == 4)
        reader, entries = Reader(), cast("Any", redis_client.xrange(queues.keys.changes()))
        found = [reader.read(int(time.time() * 1000), fields) for _, fields in entries]
        assert [each and each[0][0][0] for each in found] == [f"task {n}" for n in range(4)]


def test_while_redis_is_away_nobody_is_told() -> None:
    with redis.Redis(host="127.0.0.1", port=1) as nobody:
        queues = QueueManager(nobody, conf().scheduler)
        queues.tell([("task", 5, 1, None, None, None, 1.0)], room=True)
        queues.tell([], room=True)
        queues.tell([], room=False)


def listened(redis_client: redis.Redis, channel: str) -> int:
    """How many listen to a channel."""
    ((_, number),) = redis_client.pubsub_numsub(channel)
    return int(number)


def test_free_room_is_heard_of_only_where_it_is_waited_for(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "QUIET_S", 0.0)
    scheduler = replace(conf().scheduler, cell="cell")
    queues = QueueManager(redis_client, scheduler)
    listening = HintListener(conf().redis_url, queues.keys, "cell")
    try:
        listening.wait(0.01)
        assert not listening.listen(to_room=True), "as it has from the beginning"
        queues.tell([], room=True)
        assert listening.wait(30.0) == {"room"}
        assert not listening.listen(to_room=False)
        wait_until(lambda: not listened(redis_client, queues.keys.room("cell")), message="nobody listens")
        queues.tell([], room=True)
        hints.wake_dispatcher("cell")
        assert listening.wait(30.0) == {"work"}
        PgWorkStore(scheduler, "test").tell_room()
        assert listening.wait(30.0) == {"room"}, "who asks for more is always heard"
        hints.wake_dispatcher("cell")
        wait_until(listening._pubsub.connection.can_read, message="it has come")
        assert listening.listen(to_room=True), "what came free before was not heard"
        queues.tell([], room=True)
        assert listening.wait(30.0) == {"work"}, "what came meanwhile is not lost"
        assert listening.wait(30.0) == {"room"}
        redis_client.client_kill_filter(_type="pubsub", skipme=True)
        wait_until(
            lambda: listening.wait(0.01) or listened(redis_client, queues.keys.room("cell")), message="it is back"
        )
    finally:
        listening.close()


def test_it_listens_for_a_while_after_room_was_waited_for(redis_client: redis.Redis) -> None:
    keys = Keys(conf().scheduler.key_prefix)
    listening = HintListener(conf().redis_url, keys, "cell")
    try:
        listening.wait(0.01)
        for _ in range(3):
            assert not listening.listen(to_room=False)
        assert listened(redis_client, keys.room("cell")) == 1
        listening._waited -= dispatcher.QUIET_S
        assert not listening.listen(to_room=False)
        wait_until(lambda: not listened(redis_client, keys.room("cell")))
        assert listening.listen(to_room=True)
        assert listened(redis_client, keys.room("cell")) == 1
    finally:
        listening.close()


def test_without_redis_it_waits_and_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "QUIET_S", 0.0)
    listening = HintListener("redis://127.0.0.1:1/0", Keys("sw"), "cell")
    assert listening.wait(0.01) == frozenset()
    assert not listening.listen(to_room=False)
    assert listening.listen(to_room=True)
    assert listening.wait(0.01) == frozenset()
