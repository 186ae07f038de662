"""What is left in Redis by nodes that are gone: deleted, and never waited for."""

from __future__ import annotations

import time

import pytest
import redis
from celery import Celery

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.types import QueueName, WorkKind
from scheduler_ext.dispatch.keys import token_queue
from scheduler_ext.dispatch.node_cleanup import forget_claims, forget_token_queues
from scheduler_ext.dispatch.queue_manager import QueueManager
from slackwater.local.servers.folders import free_port
from slackwater_conf import conf


def test_only_what_is_of_these_nodes_goes(redis_client: redis.Redis) -> None:
    queues = QueueManager(redis_client, SchedulerConf())
    app = Celery(broker=conf().redis_url, set_as_current=False)
    for node_id in (7, 8):
        redis_client.rpush(token_queue(node_id), "token")
        redis_client.sadd(f"_kombu.binding.{token_queue(node_id)}", "x")
        redis_client.sadd(f"_kombu.binding_permanent.{token_queue(node_id)}", "x")
        redis_client.rpush(queues.keys.claims(node_id, WorkKind.SCRIPT, QueueName.URGENT), "claim")
    assert forget_token_queues(app, [7, 9]) == 3
    assert forget_claims(queues, [7, 9]) == 1
    assert forget_token_queues(app, [7, 9]) + forget_claims(queues, [7, 9]) == 0
    assert forget_token_queues(app, []) + forget_claims(queues, []) == 0
    assert len(redis_client.keys("*8*")) == 4
    assert not redis_client.keys("*7*")


@pytest.mark.timeout(30)
def test_a_broker_that_is_away_holds_nobody_up() -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    began = time.monotonic()
    with redis.Redis.from_url(url) as client:
        assert forget_claims(QueueManager(client, SchedulerConf()), [7]) == 0
    assert forget_token_queues(Celery(broker=url, set_as_current=False), [7]) == 0
    assert time.monotonic() - began < 10
