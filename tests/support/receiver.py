"""A receiver of webhooks: a real HTTP server in a thread, that answers as a test says and keeps what came."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)

    @property
    def event(self) -> str:
        """What it tells."""
        return str(self.json["type"])


@dataclass
class Receiver:
    """Where it listens, what it got, and what it answers: (status, headers) for the nth request."""

    port: int = 0
    got: list[Received] = field(default_factory=list)
    answer: Callable[[int], tuple[int, dict[str, str]]] = lambda _: (204, {})

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}/hook?x=1"

    def events(self) -> list[str]:
        """The names of the events that came, in order."""
        return [one.event for one in self.got]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver for the length of a ``with``."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, headers = receiver.answer(len(receiver.got))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
