"""Sending one webhook: look the host up, refuse private addresses, connect to just that address, follow nothing.

A client of our own, and a small one: the address that was checked must be the one that is connected to, the whole
exchange must end in time, and of the answer only its status is of interest.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from slackwater_tasks.submission.public_address import is_public
from slackwater_tasks.submission.webhook_address import Target

ANSWER_BYTES = 32_768
"""Of the answer's head; a longer one is an error. Its body is not read."""
MAX_RETRY_AFTER_S = 86_400.0


class NotSent(Exception):
    """The webhook could not be delivered; the message says why, in words for its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The receiver's answer."""

    status: int
    retry_after_s: float | None = None

    @property
    def is_good(self) -> bool:
        """Whether it accepted the webhook."""
        return 200 <= self.status < 300


async def post(target: Target, headers: Mapping[str, str], body: bytes, *, private: bool, seconds: float) -> Answer:
    """Send ``body``; ``NotSent`` when no answer comes in time, or the host may not be sent to."""
    try:
        async with asyncio.timeout(seconds):
            address = await _resolve(target, private=private)
            return await _exchange(target, address, headers, body)
    except TimeoutError:
        raise NotSent(f"no answer within {seconds:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise NotSent(f"its certificate is not valid: {error.verify_message}") from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise NotSent(f"no connection: {_words(error)}") from None


def _words(error: Exception) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "it ended before an answer came"
    return str(getattr(error, "strerror", None) or type(error).__name__)[:200]


async def _resolve(target: Target, *, private: bool) -> str:
    """The one address to connect to. A host with any private address is refused: names may be made to change."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise NotSent(f"the host is not known: {error.strerror}") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses:
        raise NotSent("the host is not known")
    if not private and not all(map(is_public, addresses)):
        raise NotSent("the host leads to a private network, where nothing is sent")
    return addresses[0]


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _exchange(target: Target, address: str, headers: Mapping[str, str], body: bytes) -> Answer:
    secure = {"ssl": _tls(), "server_hostname": target.host} if target.secure else {}
    reader, writer = await asyncio.open_connection(address, target.port, limit=ANSWER_BYTES, **secure)  # type: ignore[arg-type]
    try:
        lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.authority}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1") + body)
        await writer.drain()
        return await _answer(reader)
    finally:
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError, TimeoutError):
            writer.transport.abort()


async def _answer(reader: asyncio.StreamReader) -> Answer:
    """The final status; interim ones (1xx) are passed over."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise NotSent("its answer is no HTTP that we understand") from None
        status_line, *rest = head.decode("latin-1").split("\r\n")
        version, _, code = status_line.partition(" ")
        if not version.startswith("HTTP/1.") or not code[:3].isdecimal():
            raise NotSent("its answer is no HTTP that we understand")
        if int(code[:3]) >= 200:
            return Answer(status=int(code[:3]), retry_after_s=_retry_after(rest))


def _retry_after(lines: list[str]) -> float | None:
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "retry-after" and value.strip().isdecimal():
            return min(MAX_RETRY_AFTER_S, float(value.strip()[:9]))
    return None
