"""A worker's side of the broker goes on whatever lies under the broker's names."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Producer, Queue

from scheduler_ext.worker.broker_guard import guarded


@pytest.mark.parametrize("how", ["ack", "reject", "requeue"])
def test_a_message_that_cannot_be_let_go_of_does_not_stop_the_next(
    redis_url: str, redis_client: redis.Redis, how: str
) -> None:
    taken: list[int] = []

    def take(body: Any, message: Any) -> None:
        taken.append(body["n"])
        if body["n"] < 3:
            redis_client.set("unacked", "no such thing")
        if body["n"] == 2:
            redis_client.set("unacked_index", "no such thing")
        getattr(message, how)() if taken.count(body["n"]) == 1 else message.ack()

    connection: Any
    with Connection(redis_url) as connection:
        transport = guarded(connection.get_transport_cls())
        connection.get_transport_cls, connection._transport = lambda: transport, None
        channel = connection.channel()
        queue = Queue("guarded", channel=channel)
        for n in range(5):
            Producer(channel).publish({"n": n}, routing_key="guarded", declare=[queue], serializer="json")
        with Consumer(channel, [queue], callbacks=[take], prefetch_count=1):
            while 4 not in taken:
                try:
                    connection.drain_events(timeout=10)
                except socket.timeout:  # noqa: UP041 - kombu's
                    break
                except connection.channel_errors:
                    redis_client.delete("unacked", "unacked_index")  # a new connection would do so
    assert [n for i, n in enumerate(taken) if n not in taken[:i]] == [0, 1, 2, 3, 4]
