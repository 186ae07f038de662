"""Hints in Redis: they wake whoever waits, and losing one loses no work."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from functools import cache
from ssl import SSLSocket
from typing import Any, Final

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


MOST_ANSWERS: Final = 65_536
"""The most bytes of answers passed over at once."""


class _Sender:
    """Sends hints over a connection of its own, and waits for no answer: the next hint reads what came meanwhile.

    To wait for Redis after each commit took a fifth of what submitting a lone task takes; to parse each answer, and to pack
    what is the same each time, half of what is left.
    """

    def __init__(self, client: redis_client.Redis) -> None:
        self._pool = client.connection_pool
        self._lock = threading.Lock()
        self._connection: Any = None
        self._known: dict[tuple[Sequence[Any], ...], Any] = {}

    def send(self, *commands: Sequence[Any]) -> None:
        """Send commands; ``RedisError`` when Redis is away. A connection lost since the last ones is opened anew."""
        with self._lock:
            if self._connection is None or self._is_lost():
                # Not out of the pool: what it wants to be asked differs from one release of redis-py to the next.
                self._connection = self._pool.connection_class(**self._pool.connection_kwargs)
            try:
                self._connection.send_packed_command(self._packed(commands), check_health=False)
            except redis_client.RedisError:
                self._give_up()
                raise

    def _packed(self, commands: tuple[Sequence[Any], ...]) -> Any:
        if len(commands) > 1 or commands[0][0] != "PUBLISH":
            return self._connection.pack_commands(commands)
        if commands not in self._known:  # for one of a few channels, the same each time
            self._known[commands] = self._connection.pack_commands(commands)
        return self._known[commands]

    def _is_lost(self) -> bool:
        """Whether the connection is; answers that have come are passed over."""
        socket = self._connection._sock
        try:
            if isinstance(socket, SSLSocket):  # what comes may be no answer, and to read it would be to wait
                while self._connection.can_read(timeout=0):
                    self._connection.read_response()
                return False
            # Past the socket object, which waits for what has not come yet; below it, as it has a timeout, nothing does.
            while os.read(socket.fileno(), MOST_ANSWERS):
                pass
        except BlockingIOError:
            return False
        except redis_client.ResponseError as error:
            log.debug("hint refused: %s", error)
            return False
        except (redis_client.RedisError, OSError):
            pass
        self._give_up()
        return True

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        connection.disconnect()


@cache
def _sender(url: str, _pid: int) -> _Sender:
    """The sender of this process: one that was forked shares neither its parent's lock nor its connection."""
    return _Sender(_client(url))


def _send(*commands: Sequence[Any]) -> bool:
    """Whether they are on their way."""
    try:
        _sender(conf().redis_url, os.getpid()).send(*commands)
    except redis_client.RedisError as error:
        log.debug("hint not sent: %s", error)
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
