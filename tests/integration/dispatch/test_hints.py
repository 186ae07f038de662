"""Hints go out without waiting for an answer, and over a new connection where the last one was lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import redis

from scheduler_ext.dispatch.keys import Keys
from slackwater_conf import conf
from slackwater_tasks.ledger import hints
from slackwater_tasks.runtime.work_store import PgWorkStore


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
