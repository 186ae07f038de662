"""Flower beside the workers: what it sends them by itself."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import redis

from slackwater.flower import app


def test_a_receiver_of_events_does_not_greet_the_workers(redis_client: redis.Redis, redis_url: str) -> None:
    """Each would refuse a greeting without the seal, and log it as an error at every start."""
    with redis_client.pubsub() as ear, app.connection(redis_url) as connection:
        ear.psubscribe("*celery.pidbox")
        heard = (one for one in ear.listen() if one["type"] == "pmessage")
        app.events.Receiver(connection, handlers={}, app=app).wakeup_workers()
        app.control.broadcast("ping", connection=connection)
        message: dict[str, Any] = json.loads(next(heard)["data"])
    assert json.loads(b64decode(message["body"]))["method"] == "ping", "it is the first that was sent"
