"""Hints in Redis: they wake whoever waits, and losing one loses no work."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from scheduler_ext.core.types import QueueName, WorkKind
from scheduler_ext.core.work import Change
from scheduler_ext.dispatch import change_feed, redis_client
from scheduler_ext.dispatch.keys import Keys
from scheduler_ext.dispatch.queue_manager import ROOM, encode
from slackwater_conf import conf
from slackwater_tasks.ledger.rows import Place

log = logging.getLogger(__name__)


@cache
def _client(url: str) -> redis_client.Redis:
    return redis_client.connect(url, socket_timeout=1.0, socket_connect_timeout=0.5)


def client() -> redis_client.Redis:
    """This process's client for what may vanish."""
    return _client(conf().redis_url)


@cache
def _connection(url: str, _pid: int) -> redis_client.DirectConnection:
    """The connection of this process: one that was forked shares neither its parent's lock nor its connection."""
    return redis_client.DirectConnection(_client(url))


def _send(*commands: Sequence[Any]) -> bool:
    """Whether they are on their way."""
    try:
        _connection(conf().redis_url, os.getpid()).send(*commands)
    except redis_client.RedisError as error:
        log.debug("hint not sent: %s", error)
        return False
    except Exception as error:  # noqa: BLE001 - what it tells of is stored, and who called would do it again
        log.warning("hint not sent: %s: %s", type(error).__name__, error)
        return False
    return True


def keys() -> Keys:
    """The names in Redis of this installation."""
    return _keys(conf().scheduler.key_prefix)


_keys = cache(Keys)  # asked for with each hint


def wake_dispatcher(cell: str) -> None:
    _send(("PUBLISH", keys().hints(cell), "work"))


def tell_room(cell: str) -> None:
    """Tell the dispatcher that a node has free room, or that little is left of what is given ahead."""
    _send(_room(cell))


def _room(cell: str) -> Sequence[Any]:
    return "PUBLISH", keys().hints(cell), ROOM


def hand_over(place: Place, claims: Sequence[tuple[str, int]], cell: str) -> bool:
    """Push claims (task id, fence) of an opening to their node; False while Redis is away.

    What is lost on the way is taken back like any other claim that nobody begins. Where few places are left the
    dispatcher is told.
    """
    queue = keys().claims(place.node_id, WorkKind(place.kind), QueueName(place.queue))
    push = ("RPUSH", queue, *(encode(task_id, fence, place.expected_us) for task_id, fence in claims))
    return _send(push, _room(cell)) if place.low else _send(push)


def tell_node(node_id: int) -> None:
    """Tell a node to look for cancellations now."""
    _send(("PUBLISH", keys().control(node_id), "cancel"))


def tell_changes(changes: Sequence[Change | tuple[Any, ...]]) -> None:
    """Add changes of state, or other news of a task for live streams, to the feed."""
    if not changes:
        return
    try:
        change_feed.add(_client(conf().redis_url), keys(), changes)
    except redis_client.RedisError as error:
        log.debug("changes not told: %s", error)
    except Exception as error:  # noqa: BLE001 - they are stored, and who called would make them again
        log.warning("changes not told: %s: %s", type(error).__name__, error)
