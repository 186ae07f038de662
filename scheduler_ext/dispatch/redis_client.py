"""Redis clients by URL: one server, or a group that Sentinel watches.

``redis://``, ``rediss://`` and ``unix://`` are those of redis-py. A group is named by its sentinels, which are asked
for the master whenever a connection is opened::

    sentinel://:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/DATABASE?master=NAME&sentinel_password=PASSWORD

``PASSWORD`` (with a user before the colon where there is one) is that of the servers, percent-encoded; ``master`` is
``mymaster`` when not given.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from ssl import SSLSocket
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

if TYPE_CHECKING:
    import redis
    import redis.asyncio
    from redis import Redis, RedisError, ResponseError

__all__ = [
    "DirectConnection",
    "Group",
    "Redis",
    "RedisError",
    "ResponseError",
    "check_url",
    "connect",
    "connect_async",
    "group",
]

log = logging.getLogger(__name__)

SCHEME = "sentinel://"
ONE_SERVER: Final = ("redis://", "rediss://", "unix://")
PORT = 26379
MASTER = "mymaster"
SENTINEL_TIMEOUT_S = 1.0
"""Seconds a sentinel has to answer before the next is asked."""
DIRECT_TIMEOUT_S: Final = 1.0
"""So long a direct connection waits for Redis, where its client says nothing."""
MOST_ANSWERS: Final = 65_536
"""The most bytes of answers passed over at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of servers with sentinels."""

    sentinels: tuple[tuple[str, int], ...]
    master: str = MASTER
    username: str | None = None
    password: str | None = None
    database: int = 0
    sentinel_password: str | None = None

    @property
    def asking(self) -> dict[str, Any]:
        found: dict[str, Any] = {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
        return found | ({"password": self.sentinel_password} if self.sentinel_password else {})

    @property
    def servers(self) -> dict[str, Any]:
        return {"username": self.username, "password": self.password, "db": self.database}

    def broker_url(self) -> str:
        """The same group in kombu's spelling."""
        user = quote(self.username or "", safe="")
        secret = f"{user}:{quote(self.password, safe='')}@" if self.password else ""
        return ";".join(f"{SCHEME}{secret}{_host(h)}:{p}/{self.database}" for h, p in self.sentinels)

    def broker_options(self) -> dict[str, Any]:
        """The options that kombu's transport needs beside it."""
        return {"master_name": self.master, "sentinel_kwargs": self.asking}


def group(url: str) -> Group | None:
    """The group a URL names; ``None`` if it names one server. ``ValueError`` says what is wrong with it."""
    if not url.startswith(SCHEME):
        return None
    parts = urlsplit(url)
    secret, _, hosts = parts.netloc.rpartition("@")
    user, _, password = secret.partition(":")
    options = dict(parse_qsl(parts.query))
    if unknown := set(options) - {"master", "sentinel_password"}:
        raise ValueError(f"{SCHEME} knows no {min(unknown)!r}, only master and sentinel_password")
    sentinels = tuple(_address(text) for text in hosts.split(",") if text)
    if not sentinels:
        raise ValueError(f"{SCHEME} names no sentinel: {SCHEME}HOST:PORT,HOST:PORT/0?master=NAME")
    database = parts.path.strip("/") or "0"
    if not database.isdecimal():
        raise ValueError(f"{SCHEME} wants a number for the database, not {database!r}")
    return Group(
        sentinels=sentinels, master=options.get("master", MASTER), username=unquote(user) or None,
        password=unquote(password) or None, database=int(database),
        sentinel_password=options.get("sentinel_password"),
    )  # fmt: skip


def check_url(url: str) -> None:
    """Whether a client can be made of it: ``ValueError`` says what is wrong, without the password it may hold."""
    if group(url) is not None:
        return
    if not url.startswith(ONE_SERVER):
        raise ValueError(f"it must begin with {', '.join(ONE_SERVER)} or {SCHEME}")
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise ValueError("its port must be a number from 0 to 65535") from None


def _address(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"{SCHEME} has a sentinel without a host: {text!r}")
    return parts.hostname, parts.port or PORT


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def __getattr__(name: str) -> Any:
    """Import ``Redis`` and its errors when first needed: the library takes as long to load as all else together."""
    if name not in ("Redis", "RedisError", "ResponseError"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import redis

    return getattr(redis, name)


def connect(url: str, **options: Any) -> Redis:
    """A client of the server, or of the group's present master; opens no connection yet."""
    import redis.sentinel

    found = group(url)
    if found is None:
        return redis.Redis.from_url(url, **options)
    sentinel: Any = redis.sentinel.Sentinel(found.sentinels, sentinel_kwargs=found.asking)  # type: ignore[no-untyped-call]  # no types
    made: Redis = sentinel.master_for(found.master, **found.servers, **options)
    return made


def connect_async(url: str, **options: Any) -> redis.asyncio.Redis:
    """The same for coroutines."""
    import redis.asyncio.sentinel

    found = group(url)
    if found is None:
        return redis.asyncio.Redis.from_url(url, **options)
    sentinel: Any = redis.asyncio.sentinel.Sentinel(found.sentinels, sentinel_kwargs=found.asking)  # type: ignore[no-untyped-call]  # no types
    made: redis.asyncio.Redis = sentinel.master_for(found.master, **found.servers, **options)
    return made


class DirectConnection:
    """A connection of its own for what is said over and over: a client's many options for each call cost more than the call.

    It waits for no answer where none is wanted: what is said next passes over those that came meanwhile. To wait for Redis after
    each commit took a fifth of what submitting a lone task takes; to parse each answer, and to pack what is the same each
    time, half of what is left.
    """

    def __init__(self, client: Redis) -> None:
        """``client``: whose server and options it takes."""
        self._pool = client.connection_pool
        self._options = {**self._pool.connection_kwargs}
        # Without a time limit to look for answers would be to wait for them.
        self._options["socket_timeout"] = self._options.get("socket_timeout") or DIRECT_TIMEOUT_S
        self._lock = threading.Lock()
        self._connection: Any = None
        self._known: dict[tuple[Sequence[Any], ...], Any] = {}

    def send(self, *commands: Sequence[Any]) -> None:
        """Send commands; ``RedisError`` when Redis is away. A connection lost since the last ones is opened anew."""
        with self._lock:
            self._say(commands)

    def ask(self, command: Sequence[Any]) -> Any:
        """The answer to a command, as the server gives it; for one that asks all the time. It may be one that waits."""
        with self._lock:
            self._say((command,))
            try:
                return self._connection.read_response()
            except _errors().ResponseError:
                raise
            except BaseException:  # a signal's too: its answer is to come, and is not the next one's
                self._give_up()
                raise

    def _say(self, commands: tuple[Sequence[Any], ...]) -> None:
        if self._connection is None or self._is_lost():
            # Not out of the pool: what it wants to be asked differs from one release of redis-py to the next.
            self._connection = self._pool.connection_class(**self._options)
        try:
            self._connection.send_packed_command(self._packed(commands), check_health=False)
        except _errors().RedisError:
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
        except _errors().ResponseError as error:
            log.debug("hint refused: %s", error)
            return False
        except (_errors().RedisError, OSError):
            pass
        self._give_up()
        return True

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        connection.disconnect()


def _errors() -> Any:
    import redis

    return redis
