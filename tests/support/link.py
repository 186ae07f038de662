"""A connection to a real server that breaks at a chosen message: a question never arrives, or an answer is unheard."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import psycopg
from django.db import connection

Dial = Callable[[Mapping[str, Any]], psycopg.Connection[Any]]
"""Opens a connection with these parameters of libpq, which lead through the link."""


def alone(params: Mapping[str, Any]) -> psycopg.Connection[Any]:
    """An autocommit connection of its own."""
    info = connection.cursor().connection.info
    return psycopg.connect(user=info.user, password=info.password, dbname=info.dbname, autocommit=True, **params)


def djangos(params: Mapping[str, Any]) -> psycopg.Connection[Any]:
    """Django's own connection of this thread, opened anew; the one after it goes straight to the server again."""
    straight = connection.get_connection_params()
    connection.close()
    with mock.patch.object(connection, "get_connection_params", return_value={**straight, **params}):
        connection.connect()
    found: psycopg.Connection[Any] = connection.connection
    return found


class Link:
    """A connection to the database by way of this process, which loses what is asked, or an answer, when told to."""

    def __init__(self, dial: Dial = alone) -> None:
        """``dial``: opens the connection; one of its own otherwise."""
        self.lose = ""
        """What becomes of the next thing asked: ``question``: it never arrives; ``answer``: it is done, unheard."""
        self.after = 0
        """So many more pass before that."""
        info = connection.cursor().connection.info
        self._server = socket.socket(socket.AF_UNIX if info.host.startswith("/") else socket.AF_INET)
        unix = f"{info.host}/.s.PGSQL.{info.port}"
        self._server.connect(unix if info.host.startswith("/") else (info.host, info.port))
        listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, args=(listener,), daemon=True)
        self._thread.start()
        params = {
            "host": "127.0.0.1",
            "port": listener.getsockname()[1],
            "sslmode": "disable",
            "gssencmode": "disable",
        }
        self.opened = dial(params)

    def _serve(self, listener: socket.socket) -> None:
        # A side may have gone while this passes on what the other said.
        with contextlib.suppress(OSError), listener, self._server, listener.accept()[0] as client:
            ends = {client: self._server, self._server: client}
            while True:
                for source in select.select(list(ends), [], [])[0]:
                    data = source.recv(65_536)
                    lost = "question" if source is client else "answer"
                    if not data or (self.lose == lost and self.after <= 0):
                        return
                    self.after -= self.lose == lost
                    ends[source].sendall(data)

    def close(self) -> None:
        """Close both sides."""
        self.opened.close()
        self._thread.join(10)


def first_uncut(was_cut: Callable[[int], bool], most: int) -> int:
    """Let each message be lost in its turn: the first number at which nothing was cut, or the last one tried."""
    return next((after for after in range(most) if not was_cut(after)), most - 1)
