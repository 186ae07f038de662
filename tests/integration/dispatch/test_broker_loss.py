"""The loss of the broker's connection, with the real client libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from scheduler_ext.worker.consumer import Consumer
from slackwater.local.servers import EmbeddedRedis, socket_folder


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis of this test alone, which it may stop."""
    with EmbeddedRedis(tmp_path / "redis", socket_folder(tmp_path), durable=False) as redis:
        yield redis


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_unacknowledged_messages_of_a_lost_broker_do_not_end_the_worker(own_redis: EmbeddedRedis) -> None:
    app = Celery("test", broker=own_redis.url, set_as_current=False)
    consumer: Any = Consumer.__new__(Consumer)
    consumer.app, consumer.connection = app, app.connection_for_read()
    consumer.qos_global = False
    consumer.connection.SimpleQueue("tokens").put("token")
    assert consumer.connection.default_channel.basic_get("tokens") is not None  # taken, not acknowledged
    # The links of two channels are in use when they break, as an event loop's are: closing the first one raises.
    for channel in (consumer.connection.default_channel, consumer.connection.channel()):
        queue = channel.queue_declare("tokens").queue
        channel.basic_consume(queue, no_ack=False, callback=lambda message: None, consumer_tag=f"tag {id(channel)}")
        channel.client.connection = channel.client.connection_pool.get_connection()
        channel._brpop_start()
    own_redis.stop()
    consumer.on_connection_error_after_connected(ConnectionError("gone"))
    assert consumer.connection is None
