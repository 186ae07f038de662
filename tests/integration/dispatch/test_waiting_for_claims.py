"""What a child takes when it waits for a claim: of a crowd as much as makes a batch, else the first.

Of tasks that run beside one another it takes all that came by one call, if it has so many places.
"""

from __future__ import annotations

import asyncio
import threading
import time
from uuid import UUID, uuid4

import pytest
import redis

from scheduler_ext.conf import SHORT_US, SchedulerConf
from scheduler_ext.core.types import QueueName, WorkKind
from scheduler_ext.dispatch import redis_client as clients
from scheduler_ext.dispatch.queue_manager import QueueManager, encode

NODE = 7
CROWD_S = 30.0


@pytest.fixture
def queues(redis_client: redis.Redis) -> QueueManager:
    return QueueManager(redis_client, SchedulerConf(batch_max=4))


def push(queues: QueueManager, *expected: int, queue: QueueName = QueueName.URGENT, after_s: float = 0.0,
         kind: WorkKind = WorkKind.PROCESS) -> list[str]:  # fmt: skip
    """Push claims of tasks that are expected to run so many microseconds; their ids."""
    ids = [str(uuid4()) for _ in expected]
    time.sleep(after_s)
    key = queues.keys.claims(NODE, kind, queue)
    queues.client.rpush(key, *(encode(one, 1, us) for one, us in zip(ids, expected, strict=True)))
    return ids


def taken(queues: QueueManager, crowd_s: float = CROWD_S, wait_s: float = 20.0) -> tuple[list[str], int]:
    claims, left = queues.wait(NODE, wait_s, crowd_s=crowd_s)
    assert all(UUID(task_id).version == 4 and fence == 1 for task_id, fence in claims)
    return [task_id for task_id, _ in claims], left


def test_a_crowd_is_one_batch_and_no_larger_than_batches_are(queues: QueueManager) -> None:
    ids = push(queues, *[10] * 6)
    assert taken(queues) == (ids[:4], 1), "there may be more"
    assert taken(queues) == (ids[4:], 0)


def test_who_waited_for_long_takes_the_first_at_once(queues: QueueManager) -> None:
    ids = push(queues, 10, 10)
    assert taken(queues, crowd_s=0.0) == (ids[:1], 1)
    found: list[tuple[list[str], int]] = []
    waiting = threading.Thread(target=lambda: found.append(taken(queues, crowd_s=0.0)))
    queues.client.delete(*queues.keys.node_claims(NODE, WorkKind.PROCESS))
    waiting.start()
    late = push(queues, 10, after_s=0.2)
    waiting.join(20)
    assert found == [(late, 1)]


@pytest.mark.parametrize("expected", [0, SHORT_US + 1])
def test_a_long_task_is_taken_alone_and_by_no_batch(queues: QueueManager, expected: int) -> None:
    ids = push(queues, expected, 10, 10, expected, 10)
    assert taken(queues)[0] == ids[:1]
    assert taken(queues)[0] == ids[1:2], "the next one is taken by whoever has time for it"
    assert taken(queues) == (ids[2:3], 2)
    assert taken(queues)[0] == ids[3:4]
    assert taken(queues)[0] == ids[4:]


def test_what_makes_no_batch_lies_where_it_lay(queues: QueueManager) -> None:
    ids = push(queues, SHORT_US // 2, SHORT_US // 2 + 1, 10)
    assert taken(queues) == (ids[:2], 1)
    ids += push(queues, 10)
    assert queues.take(NODE, WorkKind.PROCESS) == ([(one, 1) for one in ids[2:]], 0)


def test_expected_work_of_the_first_counts(queues: QueueManager) -> None:
    ids = push(queues, SHORT_US - 1, 10, 10)
    assert taken(queues) == (ids[:2], 1), "a batch holds so much work, and the one that fills it"


def test_what_is_urgent_comes_first(queues: QueueManager) -> None:
    later = push(queues, 10, queue=QueueName.OFFPEAK)
    urgent = push(queues, 10)
    assert taken(queues) == (urgent, 0)
    assert taken(queues) == (later, 0)


def test_what_is_no_claim_is_refused_and_nothing_else_is_lost(queues: QueueManager) -> None:
    queues.client.rpush(queues.keys.claims(NODE, WorkKind.PROCESS, QueueName.URGENT), "junk")
    ids = push(queues, 10)
    assert taken(queues)[0] == []
    assert taken(queues)[0] == ids


def test_nothing_comes(queues: QueueManager) -> None:
    assert taken(queues, wait_s=0.1) == ([], 0)


def test_a_claim_that_was_taken_is_run_though_redis_goes_away(
    queues: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = push(queues, SHORT_US, 10)

    def away(*_: object) -> None:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(queues.client, "lpush", away)
    assert taken(queues) == (ids[:1], 1)


# -- of tasks that run beside one another -----------------------------------------------------------------------------
BESIDE = WorkKind.COROUTINE


def taken_beside(queues: QueueManager, url: str, *, most: int = 512, wait_s: float = 20.0) -> list[str]:
    async def taking() -> list[tuple[str, int]]:
        async with clients.connect_async(url) as client:
            return await queues.wait_beside(client, NODE, BESIDE, most=most, wait_s=wait_s)

    return [task_id for task_id, _ in asyncio.run(taking())]


def test_all_that_comes_by_one_call_is_taken_by_who_waits(queues: QueueManager, redis_url: str) -> None:
    found: list[list[str]] = []
    waiting = threading.Thread(target=lambda: found.append(taken_beside(queues, redis_url)))
    waiting.start()
    ids = push(queues, *[SHORT_US + 1] * 300, after_s=0.2, kind=BESIDE)
    waiting.join(20)
    assert found == [ids]


def test_no_more_are_taken_than_there_are_places_and_urgent_ones_first(queues: QueueManager, redis_url: str) -> None:
    later = push(queues, 10, 10, queue=QueueName.DELAYABLE, kind=BESIDE)
    urgent = push(queues, 0, 10, 10, kind=BESIDE)
    takes = [taken_beside(queues, redis_url, most=2) for _ in range(3)]
    assert takes == [urgent[:2], urgent[2:], later]
    assert taken_beside(queues, redis_url, wait_s=0.1) == []


def test_a_queue_that_is_no_list_is_thrown_away(queues: QueueManager, redis_url: str) -> None:
    queues.client.set(queues.keys.claims(NODE, BESIDE, QueueName.URGENT), "junk")
    ids = push(queues, 10, 10, queue=QueueName.DELAYABLE, kind=BESIDE)
    assert taken_beside(queues, redis_url) == ids
    assert queues.is_empty(NODE, BESIDE)
