"""What a worker takes off its broker: an item that is no message is thrown away, not stumbled over.

Kombu trusts what lies in its queues. One item that is no JSON, or lacks a part, ended the worker with all it ran.
"""

from __future__ import annotations

import logging
from functools import cache
from queue import Empty
from typing import Any, Final

import kombu.transport.redis as redis_transport
from kombu.utils import json as kombu_json

from scheduler_ext.dispatch.refusals import Kind, refusals

log = logging.getLogger(__name__)

LARGEST: Final = 16 << 20
"""Bytes of a message: what is larger is not even read as JSON, which takes a multiple of it in memory."""
NOTHING: Final[dict[str, Any]] = {"properties": None}
"""Not an empty object: a missing name counts with kombu as an error of the connection, which would be made anew."""


def load(text: Any) -> Any:
    """An item of the broker; one that cannot be a message becomes ``NOTHING``, which is refused where it arrives."""
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


@cache
def guarded(transport: type[Any]) -> type[Any]:
    """A transport of Redis whose channels survive what they are sent."""

    class Channel(transport.Channel):  # type: ignore[misc, name-defined]  # a class known only now
        def _brpop_read(self, **options: Any) -> Any:
            return self._survive(super()._brpop_read, **options)

        def _receive_one(self, connection: Any) -> Any:
            return self._survive(super()._receive_one, connection)

        def _survive(self, read: Any, *args: Any, **options: Any) -> Any:
            try:
                return read(*args, **options)
            except (Empty, *self.connection.connection_errors, *self.connection.channel_errors):
                raise
            except Exception as error:
                refusals.add(Kind.BROKEN, f"an item of the broker that is no message ({type(error).__name__})")
                raise Empty from error

    vars(redis_transport)["loads"] = load
    return type("GuardedTransport", (transport,), {"Channel": Channel})
