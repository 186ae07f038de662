"""Requests written by hand, and clients that hold connections: what no HTTP library would send."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.lab.attack.ground import Ground


@dataclass(frozen=True, slots=True)
class Said:
    """What came back: the first status (0: nothing), how many answers, and whether the server ended the connection."""

    status: int
    count: int
    ended: bool


def address(ground: Ground) -> tuple[str, int]:
    """Where the API listens."""
    parts = urlsplit(ground.url)
    return parts.hostname or "", parts.port or 0


def exchange(ground: Ground, method: str, path: str, *headers: str, body: bytes = b"", wait: float = 10.0) -> Said:
    """Send one request with just these headers and its Host, and listen until the server ends, or for ``wait``."""
    host, port = address(ground)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{port}", *headers]
    with socket.create_connection((host, port), timeout=wait) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return listen(connection)


def listen(connection: socket.socket) -> Said:
    """All that comes until the server ends the connection or its time-out is over."""
    found, ended = b"", True
    try:
        while piece := connection.recv(65_536):
            found += piece
    except TimeoutError:
        ended = False
    except ConnectionError:
        pass
    answers = found.split(b"HTTP/1.1 ")[1:]
    return Said(int(answers[0][:3]) if answers else 0, len(answers), ended)


@contextlib.contextmanager
def slow_clients(ground: Ground, count: int, head: bytes) -> Iterator[None]:
    """``count`` clients that hold a connection each and send ``head`` byte by byte, without end, and anew when ended."""
    stopping = threading.Event()

    def drip() -> None:
        held: list[tuple[socket.socket, int]] = []
        while not stopping.is_set():
            while len(held) < count and not stopping.is_set():
                with contextlib.suppress(OSError):
                    made = socket.create_connection(address(ground), timeout=5.0)
                    made.settimeout(0)
                    held.append((made, 0))
            held = [(one, sent + 1) for one, sent in held if _one_more(one, head, sent)]
            stopping.wait(0.5)
        for one, _ in held:
            one.close()

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(30)


def _one_more(connection: socket.socket, head: bytes, sent: int) -> bool:
    try:
        connection.send(head[sent : sent + 1] or b"x")
        if connection.recv(1, socket.MSG_PEEK) == b"":
            raise ConnectionResetError
    except BlockingIOError:
        return True
    except OSError:
        connection.close()
        return False
    connection.close()
    return False


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123 - a line of a file in memory
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) * 1024


def percentile(times: list[float], part: float) -> float:
    """The time that ``part`` of them stay below."""
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


def timed_submissions(ground: Ground, seconds: float) -> list[float]:
    """How long each submission of one good client takes, on a connection of its own, for so long."""
    import http.client

    host, port = address(ground)
    found: list[float] = []
    until = time.monotonic() + seconds
    key = {"Authorization": f"Bearer {ground.setting('SLACKWATER_KEY')}", "Content-Type": "application/json"}
    client = http.client.HTTPConnection(host, port, timeout=30)
    with contextlib.closing(client):
        while time.monotonic() < until:
            began = time.perf_counter()
            client.request("GET", "/api/v1/limits", headers=key)
            answer = client.getresponse()
            answer.read()
            if answer.status != 200:
                raise ConnectionError(f"a good client was answered {answer.status}")
            found.append(time.perf_counter() - began)
            time.sleep(0.01)
    return found
