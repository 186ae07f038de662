"""Graphs left in Redis for other processes: they come back as they were, or not at all."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import redis

from slackwater_tasks.graph import cache
from slackwater_tasks.graph.packed import Shape
from slackwater_tasks.ledger.hints import keys
from slackwater_tasks.models import new_id


def diamond() -> Shape:
    """One task, two that need it, and one that needs those."""
    ids = [str(task_id) for task_id in sorted(new_id() for _ in range(4))]
    ends = np.array([(0, 1), (0, 2), (1, 3), (2, 3)])
    return Shape.build(ids, [1_000_000, 0, 5_000_000, 2_000_000], ends[:, 0], ends[:, 1])


def test_a_graph_comes_back_as_it_was_left(redis_client: redis.Redis) -> None:
    shape, workflow = diamond(), new_id()
    assert cache.get(workflow, (4, 4)) is None
    assert not cache.has(workflow, (4, 4))
    cache.put(workflow, (4, 4), shape)
    found = cache.get(workflow, (4, 4))
    assert cache.has(workflow, (4, 4))
    assert found is not None
    for each in fields(Shape):
        assert getattr(found, each.name) == getattr(shape, each.name), each.name
    assert found.way(0)[0] == [0, 2, 3]
    left_ms = redis_client.pttl(keys().graph(str(workflow)))
    assert isinstance(left_ms, int)
    assert 0 < left_ms <= cache.KEPT_S * 1000


def test_a_workflow_that_has_grown_is_not_answered_from_what_it_was(redis_client: redis.Redis) -> None:
    workflow = new_id()
    cache.put(workflow, (4, 4), diamond())
    assert cache.get(workflow, (5, 4)) is None
    assert not cache.has(workflow, (4, 5))


def test_what_another_release_packed_is_left_alone(redis_client: redis.Redis) -> None:
    workflow = new_id()
    data = cache.pack(diamond(), (4, 4))
    for other in (b"SWG0" + data[4:], b"", b"SWG1", data[:4] + b"?" + data[5:]):
        redis_client.set(keys().graph(str(workflow)), other)
        assert cache.get(workflow, (4, 4)) is None
        assert not cache.has(workflow, (4, 4))
