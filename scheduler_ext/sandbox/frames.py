"""Messages over a stream of bytes: a JSON object and, beside it, bytes that need no encoding.

Eight bytes say how long the two are (unsigned, 32 bits each, the most significant byte first), then they follow.
Between a worker and its runner, and between a runner and what it has started, be that in a container or in a machine.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

_HEAD: Final = struct.Struct(">II")
MAX_JSON: Final = 1 << 20
MAX_CONTENT: Final = 256 << 20

Frame = tuple[dict[str, Any], bytes]


class FrameError(Exception):
    """The other side does not follow the protocol; the message says how."""


def pack(message: Mapping[str, Any], content: bytes = b"") -> bytes:
    """Encode one frame; ``FrameError`` if it is too long for the other side."""
    text = json.dumps(message).encode()
    if len(text) > MAX_JSON:
        raise FrameError(f"a message has {len(text)} bytes, at most {MAX_JSON} are taken")
    if len(content) > MAX_CONTENT:
        raise FrameError(f"a content has {len(content)} bytes, at most {MAX_CONTENT} are taken")
    return _HEAD.pack(len(text), len(content)) + text + content


def _lengths(head: bytes, most: int) -> tuple[int, int]:
    text, content = _HEAD.unpack(head)
    if text > MAX_JSON or content > most:
        raise FrameError(f"a frame has {text} and {content} bytes, at most {MAX_JSON} and {most} are taken")
    return text, content


def _message(text: bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a message is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError("a message is no JSON object")
    return message


class Parser:
    """Decodes frames from bytes as they arrive. ``most``: bytes of a frame's content."""

    def __init__(self, most: int = MAX_CONTENT) -> None:
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """All frames that are complete; ``FrameError`` for bytes that are no frame."""
        self._buffer += data
        found: list[Frame] = []
        while len(self._buffer) >= _HEAD.size:
            text, content = _lengths(bytes(self._buffer[: _HEAD.size]), self._most)
            middle, end = _HEAD.size + text, _HEAD.size + text + content
            if len(self._buffer) < end:
                break
            found.append((_message(bytes(self._buffer[_HEAD.size : middle])), bytes(self._buffer[middle:end])))
            del self._buffer[:end]
        return found


async def read(reader: asyncio.StreamReader, most: int = MAX_CONTENT) -> Frame | None:
    """Read the next frame; ``None`` when the other side is gone, ``FrameError`` when it sends no frames."""
    try:
        text, content = _lengths(await reader.readexactly(_HEAD.size), most)
        return _message(await reader.readexactly(text)), await reader.readexactly(content)
    except (asyncio.IncompleteReadError, OSError):
        return None


def split(content: bytes, sizes: Sequence[Any]) -> list[bytes]:
    """Split contents that were sent as one; ``FrameError`` when their sizes do not add up."""
    if any(not isinstance(size, int) or size < 0 for size in sizes) or sum(sizes) != len(content):
        raise FrameError("the parts of a content have other sizes than were announced")
    found, at = [], 0
    for size in sizes:
        found.append(content[at : at + size])
        at += size
    return found
