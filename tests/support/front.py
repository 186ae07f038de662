"""The ASGI front without a server: requests made by hand, stories driven on a loop of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Self
from uuid import UUID

from django.db import connections
from django.utils import timezone

from scheduler_ext.core.states import TaskState
from slackwater_api.server.application import AsgiApplication
from slackwater_tasks.models import LiveTask, Task


async def nobody(scope: Any, receive: Any, send: Any) -> None:
    """The site behind the front."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"site"})


class Visit:
    """One request to the front, with a client that may leave."""

    def __init__(self, front: AsgiApplication, key: str, method: str, path: str, *chunks: bytes) -> None:
        self.left = asyncio.Event()
        self.status = 0
        self.body = b""
        path, _, query = path.partition("?")
        self._messages = [
            {"type": "http.request", "body": chunk, "more_body": n + 1 < len(chunks)} for n, chunk in enumerate(chunks)
        ] or [{"type": "http.request", "body": b"", "more_body": False}]
        length = str(sum(map(len, chunks))).encode()
        headers = [(b"host", b"localhost"), (b"content-length", length)]
        if key:
            headers.append((b"authorization", f"Bearer {key}".encode()))
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [*headers, (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }
        self.front = front

    async def _receive(self) -> dict[str, Any]:
        if self._messages:
            return self._messages.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")

    async def run(self) -> Self:
        """Make the request."""
        await self.front(self._scope, self._receive, self._send)
        return self

    @property
    def json(self) -> Any:
        """The answer."""
        return json.loads(self.body)


def drive(story: Callable[[AsgiApplication], Coroutine[Any, Any, None]]) -> None:
    """Run a story against a front of its own, and end the front's threads and connections with it."""
    front = AsgiApplication(nobody)

    async def whole() -> None:
        try:
            async with asyncio.timeout(30):
                await story(front)
        finally:
            front.live.close()

    try:
        asyncio.run(whole())
    finally:
        front.close()


def finish(task_id: str) -> None:
    """End a task in the ledger, and tell nobody."""
    LiveTask._plain.filter(pk=UUID(task_id)).delete()
    Task._plain.filter(pk=UUID(task_id)).update(state=TaskState.SUCCEEDED, finished_at=timezone.now(), result=42)
    connections.close_all()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until something is so."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)
