"""Hints in Redis: they wake whoever waits, and losing one loses no work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from scheduler_ext.core.work import Change
from scheduler_ext.dispatch import change_feed, redis_client
from scheduler_ext.dispatch.keys import Keys
from slackwater_conf import conf

log = logging.getLogger(__name__)


@cache
def _client(url: str) -> redis_client.Redis:
    return redis_client.connect(url, socket_timeout=1.0, socket_connect_timeout=0.5)


def client() -> redis_client.Redis:
    """This process's client for what may vanish."""
    return _client(conf().redis_url)


def _publish(channel: str, message: str) -> None:
    try:
        _client(conf().redis_url).publish(channel, message)
    except redis_client.RedisError as error:
        log.debug("hint not sent: %s", error)


def keys() -> Keys:
    """The names in Redis of this installation."""
    return Keys(conf().scheduler.key_prefix)


def wake_dispatcher(cell: str) -> None:
    _publish(keys().hints(cell), "work")


def tell_node(node_id: int) -> None:
    """Tell a node to look for cancellations now."""
    _publish(keys().control(node_id), "cancel")


def tell_changes(changes: Sequence[Change | tuple[Any, ...]]) -> None:
    """Add changes of state, or other news of a task for live streams, to the feed."""
    if not changes:
        return
    try:
        change_feed.add(_client(conf().redis_url), keys(), changes)
    except redis_client.RedisError as error:
        log.debug("changes not told: %s", error)
