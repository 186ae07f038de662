"""A real server under clients that mean ill: broken chunks, bodies that never come, connections that say nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api import HANDLER, ApiClient
from tests.support.processes import running
from tests.support.submitters import Client, free_port, is_up
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

MOST = 60


@pytest.fixture
def port(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[int]:
    """A server as ``make up`` starts it, where an address may have few connections."""
    found = free_port()
    env = {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_REDIS_URL": redis_url,
        "SLACKWATER_VAR": str(tmp_path / "var"),
        "SLACKWATER_API_CONNECTIONS_PER_ADDRESS": str(MOST),
        "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": "platform:apps:.",
    }
    command = [sys.executable, "-m", "granian", "--interface", "asginl", "--port", str(found), "--no-ws"]
    with running([*command, "slackwater.asgi:application"], env=env, name="api"):
        wait_until(lambda: is_up(found), timeout=60, message="the server answers")
        yield found


def said(port: int, request: bytes) -> tuple[int, bytes]:
    """The status and the whole of what a server says to these bytes, until it ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        found = b""
        while piece := connection.recv(65_536):
            found += piece
    return int(found.split()[1]), found


def test_what_is_wrong_is_said_at_once_and_ends_the_connection(port: int, acme: ApiClient) -> None:
    task = json.dumps({"handler": HANDLER}).encode()
    head = b"POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    key = f"Authorization: Bearer {acme.text}\r\n".encode()
    length, chunked = b"Content-Length: 99999999\r\n", b"Transfer-Encoding: chunked\r\n"
    # Each of these bodies stays incomplete: whoever would read it first would wait.
    cases = {
        "no key": (head + length + b"\r\n{", 401),
        "wrong key": (head + b"Authorization: Bearer sw_00000000_wrong\r\n" + chunked + b"\r\n1\r\n{\r\n", 401),
        "too long": (head + key + length + b"\r\n{", 413),
        "no chunk": (head + key + chunked + b"\r\nZZ\r\n{}\r\n0\r\n\r\n", 400),
        "a chunk too short": (head + key + chunked + b"\r\n5\r\n{}\r\n0\r\n\r\n", 400),
        "two keys": (head + key + key + b"Content-Length: 2\r\n\r\n{", 400),
        "two types": (head + key + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{", 400),
        "two hosts": (head + key + b"Host: evil.example\r\nContent-Length: 2\r\n\r\n{", 400),
        "two lengths": (head + key + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{", 400),
        "foreign host": (head.replace(b"127.0.0.1", b"evil.example") + key + b"Content-Length: 2\r\n\r\n{", 400),
    }
    found = {name: said(port, request) for name, (request, _) in cases.items()}
    assert {name: status for name, (status, _) in found.items()} == {name: want for name, (_, want) in cases.items()}
    # Different lengths are refused by the server itself; each of the others is a problem like any other.
    assert all(b"application/problem+json" in text for name, (_, text) in found.items() if name != "two lengths")
    whole = head + key + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(task) + task
    assert said(port, whole)[0] == 201


def test_an_address_has_so_many_connections_and_the_silent_are_ended(port: int, acme: ApiClient) -> None:
    good = Client(port, acme.text)
    assert good.submit()[0] == 201
    with contextlib.ExitStack() as open_ones:
        silent = [open_ones.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3 * MOST)]
        for n, connection in enumerate(silent):
            connection.sendall(b"POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\n"[: 1 + n % 40])
            connection.settimeout(0)

        def ended() -> int:
            assert good.submit()[0] == 201, "who sends and is answered is not among the silent"
            return sum(1 for connection in silent if _ended(connection))

        wait_until(lambda: ended() >= 2 * MOST, timeout=60, message="the excess is ended")
    good.connection.close()


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
