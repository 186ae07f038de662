"""Guards what a worker takes from its broker: an item that is not a message is dropped and ends nothing.

Kombu trusts what lies in its queues. One item that is no JSON, or lacks a part, ended the worker with all it ran.
"""

from __future__ import annotations

import logging
from functools import cache
from queue import Empty
from typing import Any, Final

import kombu.transport.redis as redis_transport
from kombu.transport import virtual
from kombu.utils import json as kombu_json

from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.node_cleanup import mend_keys, unacknowledged
from scheduler_ext.dispatch.refusals import Kind, refusals

log = logging.getLogger(__name__)

LARGEST: Final = 16 << 20
"""The most bytes of a message: a larger one is not even parsed, which would take a multiple of it in memory."""
NOTHING: Final[dict[str, Any]] = {"properties": None}
"""Not an empty object: a missing name counts with kombu as an error of the connection, which would be made anew."""


def load(text: Any) -> Any:
    """Read an item of the broker; one that cannot be a message becomes ``NOTHING``, which is refused on arrival."""
    try:
        found = kombu_json.loads(text) if len(text) <= LARGEST else NOTHING
    except (ValueError, TypeError, RecursionError):
        return NOTHING
    return found if not isinstance(found, dict) or _is_message(found) else NOTHING


def _is_message(found: dict[str, Any]) -> bool:
    """Whether it has the parts of a message, each of its type."""
    properties = found.get("properties")
    return (
        isinstance(properties, dict)
        and isinstance(properties.get("delivery_tag"), str)
        and isinstance(properties.get("delivery_info"), dict)
        and isinstance(properties.get("body_encoding"), (str, type(None)))
        and isinstance(found.get("headers"), dict)
        and isinstance(found.get("body"), (str, type(None)))
        and isinstance(found.get("content-type"), (str, type(None)))
        and isinstance(found.get("content-encoding"), (str, type(None)))
    )


class _ForgivingQoS(redis_transport.QoS):
    """What a worker has taken; it can release a message that Redis no longer holds as it should.

    A message that could not be acknowledged would count as taken for ever, and soon no other would be taken.
    """

    def ack(self, delivery_tag: Any) -> None:
        self._let_go(super().ack, delivery_tag)

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        self._let_go(super().reject, delivery_tag, requeue)

    def _let_go(self, how: Any, delivery_tag: Any, *args: Any) -> None:
        try:
            how(delivery_tag, *args)
        except redis_client.ResponseError:
            channel: Any = self.channel
            with channel.conn_or_acquire() as client:
                mend_keys(client, unacknowledged(channel))
            virtual.QoS.ack(self, delivery_tag)


class _ForgivingChannel(redis_transport.Channel):
    """Reads an item that is no message as if nothing had come."""

    def _brpop_read(self, **options: Any) -> Any:
        return self._survive(super()._brpop_read, **options)  # type: ignore[misc]  # not in kombu's stubs

    def _receive_one(self, connection: Any) -> Any:
        return self._survive(super()._receive_one, connection)  # type: ignore[misc]  # not in kombu's stubs

    def _survive(self, read: Any, *args: Any, **options: Any) -> Any:
        transport: Any = self.connection
        try:
            return read(*args, **options)
        except (Empty, *transport.connection_errors, *transport.channel_errors):
            raise
        except Exception as error:
            refusals.add(Kind.BROKEN, f"an item of the broker that is no message ({type(error).__name__})")
            raise Empty from error


@cache
def guarded(transport: type[Any]) -> type[Any]:
    """A Redis transport whose channels survive whatever they are sent."""
    vars(redis_transport)["loads"] = load
    qos = type("QoS", (_ForgivingQoS, transport.Channel.QoS), {})
    channel = type("Channel", (_ForgivingChannel, transport.Channel), {"QoS": qos})
    return type("GuardedTransport", (transport,), {"Channel": channel})
