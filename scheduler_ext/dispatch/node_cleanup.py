"""Deletes what a killed node leaves in Redis (tokens and claims), and keys of a wrong type under its queues' names."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scheduler_ext.core.types import WorkKind
from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.keys import token_queue
from scheduler_ext.dispatch.queue_manager import QueueManager
from scheduler_ext.dispatch.refusals import Kind, refusals

if TYPE_CHECKING:
    from celery import Celery

log = logging.getLogger(__name__)


def forget_token_queues(app: Celery, node_ids: Sequence[int]) -> int:
    """Delete nodes' token queues with all that kombu keeps of them in Redis; returns how many keys there were.

    Not by kombu's own ``queue_delete``: that knows only queues which this very process has declared.
    """
    if not node_ids:
        return 0
    from kombu.exceptions import OperationalError

    connection: Any = app.connection_for_write()
    try:
        with connection:
            # kombu by itself would try again for some seconds, and upkeep has more to do.
            connection.ensure_connection(max_retries=1)
            channel = connection.default_channel
            keys: list[str] = []
            for name in map(token_queue, node_ids):
                keys += [channel._q_for_pri(name, priority) for priority in channel.priority_steps]
                keys += [channel.keyprefix_queue % name]
                if hasattr(channel, "keyprefix_binding_permanent"):  # since kombu 5.7
                    keys += [channel.keyprefix_binding_permanent % name]
            return int(channel.client.delete(*keys))
    except (*connection.connection_errors, OperationalError) as error:
        log.debug("token queues were not deleted: %s", error)
        return 0


def forget_claims(queues: QueueManager, node_ids: Sequence[int]) -> int:
    """Delete what lies in the nodes' own queues; returns how many of these there were. The ledger has the claims."""
    keys = [key for node_id in node_ids for kind in WorkKind for key in queues.keys.node_claims(node_id, kind)]
    if not keys:
        return 0
    try:
        return int(str(queues.client.delete(*keys)))
    except redis_client.RedisError as error:
        log.debug("claims were not deleted: %s", error)
        return 0


def mend_queues(connection: Any, names: Sequence[str]) -> int:
    """Delete keys under the names of a worker's queues that have another type; returns how many there were.

    Whoever can write to Redis can put a text where a list belongs; each command upon it would fail for ever.
    """
    channel = connection.default_channel
    kinds: dict[str, bytes] = {}
    for name in names:
        kinds |= {channel._q_for_pri(name, priority): b"list" for priority in channel.priority_steps}
        kinds |= {channel.keyprefix_queue % name: b"set"}
    return mend_keys(channel.client, unacknowledged(channel) | kinds)


def unacknowledged(channel: Any) -> dict[str, bytes]:
    """The keys in which a channel keeps what it has taken and not acknowledged, with their types."""
    return {channel.unacked_key: b"hash", channel.unacked_index_key: b"zset"}


def mend_keys(client: Any, kinds: Mapping[str, bytes]) -> int:
    """Delete each key that exists and has another type; returns how many there were."""
    with client.pipeline(transaction=False) as pipe:
        for key in kinds:
            pipe.type(key)
        found = pipe.execute()
    wrong = [key for (key, kind), is_ in zip(kinds.items(), found, strict=True) if is_ not in (kind, b"none")]
    if wrong:
        refusals.add(Kind.BROKEN, f"the keys {wrong} are no queues", len(wrong))
        client.delete(*wrong)
    return len(wrong)
