"""Sends to Redis what nobody waits for: hints, and claims that come back if they are lost."""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Sequence
from ssl import SSLSocket
from typing import Any, Final

from scheduler_ext.dispatch import redis_client

log = logging.getLogger(__name__)

MOST_ANSWERS: Final = 65_536
"""The most bytes of answers passed over at once."""


def _has_come(socket: Any) -> bool:
    """Whether there is anything to read, or an end."""
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))


class Sender:
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
            while _has_come(socket):
                if not socket.recv(MOST_ANSWERS):
                    self._give_up()
                    return True
        except redis_client.ResponseError as error:
            log.debug("hint refused: %s", error)
        except (redis_client.RedisError, OSError):
            self._give_up()
            return True
        return False

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        connection.disconnect()
