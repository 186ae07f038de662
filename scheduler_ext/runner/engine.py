"""The Docker Engine API, as far as the runner needs it, over the engine's local socket. Podman's speaks it too."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import h11

ANSWER_S: Final = 30.0
MAX_ANSWER: Final = 16 << 20
_CHUNK: Final = 65_536

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class EngineError(Exception):
    """The engine refused or could not be reached; the message says why."""


class Engine:
    """One engine. Each call has a connection of its own: over a local socket that costs a tenth of a millisecond."""

    def __init__(self, host: str) -> None:
        """``host`` is ``unix:///path``, as in DOCKER_HOST; ``ValueError`` for anything else."""
        if not host.startswith("unix:///"):
            raise ValueError(f"the engine is spoken to over its local socket only, as unix:///PATH: {host!r}")
        self.path = host.removeprefix("unix://")

    async def ask(self, method: str, path: str, body: Any = None, *, absent_ok: bool = False, **query: Any) -> Any:
        """The decoded answer, ``None`` if it is empty; ``EngineError`` with the engine's own words otherwise.

        ``absent_ok``: what is asked about may be gone already, or be gone in a moment.
        """
        content = b"" if body is None else json.dumps(body).encode()
        status, answer = await self._exchange(method, _target(path, query), "application/json", content)
        if status in {404, 409} and absent_ok:
            return None
        return _decoded(status, answer)

    async def put_folder(self, container: str, path: str, name: str, owner: int) -> None:
        """Make an empty folder below a mounted volume, which only ``owner`` may enter."""
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w") as archive:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o700, owner, owner
            archive.addfile(entry)
        target = _target(f"/containers/{container}/archive", {"path": path})
        _decoded(*await self._exchange("PUT", target, "application/x-tar", held.getvalue()))

    async def attach(self, container: str) -> Streams:
        """The standard streams of a container; what it says comes in the engine's own frames: see :func:`output`."""
        reader, writer = await self._open()
        try:
            async with asyncio.timeout(ANSWER_S):
                await _upgrade(container, reader, writer)
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            writer.close()
            raise EngineError(f"the engine does not answer: {str(error) or 'too late'}") from error
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _open(self) -> Streams:
        try:
            return await asyncio.open_unix_connection(self.path, limit=1 << 20)
        except OSError as error:
            raise EngineError(f"the engine at {self.path} cannot be reached: {error}") from error

    async def _exchange(self, method: str, target: str, kind: str, content: bytes) -> tuple[int, bytes]:
        reader, writer = await self._open()
        try:
            async with asyncio.timeout(ANSWER_S):
                connection = h11.Connection(h11.CLIENT)
                headers = {"Host": "engine", "Connection": "close", "Content-Length": str(len(content))}
                if content:
                    headers["Content-Type"] = kind
                await _send(connection, writer, method, target, headers, content)
                while not isinstance(event := await _next(connection, reader), h11.Response):
                    continue
                return event.status_code, await _body(connection, reader)
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            raise EngineError(f"the engine does not answer: {str(error) or 'too late'}") from error
        finally:
            writer.close()


def _target(path: str, query: Mapping[str, Any]) -> str:
    return quote(path, safe="/:@") + (f"?{urlencode(query)}" if query else "")


async def _send(
    connection: h11.Connection, writer: asyncio.StreamWriter, method: str, target: str,
    headers: Mapping[str, str], content: bytes,
) -> None:  # fmt: skip
    events: list[Any] = [h11.Request(method=method, target=target, headers=list(headers.items()))]
    if content:
        events.append(h11.Data(data=content))
    for event in (*events, h11.EndOfMessage()):
        writer.write(connection.send(event) or b"")
    await writer.drain()


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_CHUNK))
    if isinstance(event, h11.ConnectionClosed):
        raise h11.RemoteProtocolError("it closed the connection")
    return event


async def _body(connection: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while isinstance(event := await _next(connection, reader), h11.Data):
        body += event.data
        if len(body) > MAX_ANSWER:
            raise h11.RemoteProtocolError("its answer is too long")
    return bytes(body)


def _decoded(status: int, answer: bytes) -> Any:
    value = None
    with contextlib.suppress(ValueError):
        value = json.loads(answer)
    if status >= 400:
        said = value.get("message") if isinstance(value, dict) else None
        raise EngineError(str(said or answer.decode("utf-8", "replace")[:300]))
    return value


async def _upgrade(container: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Begin to carry the container's streams on this connection; ``EngineError`` where the engine refuses."""
    connection = h11.Connection(h11.CLIENT)
    target = _target(f"/containers/{container}/attach", {"stream": 1, "stdin": 1, "stdout": 1, "stderr": 1})
    headers = {"Host": "engine", "Connection": "Upgrade", "Upgrade": "tcp", "Content-Length": "0"}
    await _send(connection, writer, "POST", target, headers, b"")
    event = await _next(connection, reader)
    if isinstance(event, h11.Response):
        _decoded(event.status_code, await _body(connection, reader))
    if not isinstance(event, h11.InformationalResponse) or event.status_code != 101:
        raise EngineError("the engine does not let a container's streams be attached")
    if connection.trailing_data[0]:
        raise EngineError("the engine spoke before the container was started")


async def output(reader: asyncio.StreamReader) -> tuple[int, bytes] | None:
    """The next piece an attached container writes: stream (1 or 2) and bytes; ``None`` at the end."""
    try:
        head = await reader.readexactly(8)
        return head[0], await reader.readexactly(int.from_bytes(head[4:], "big"))
    except (asyncio.IncompleteReadError, OSError):
        return None
