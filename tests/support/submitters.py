"""Submitters as they run in production, and clients of theirs."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any

from tests.support.api import HANDLER

AWAY = "redis://127.0.0.1:1/0"


# -- several submitters -----------------------------------------------------------------------------------------------
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_up(port: int) -> bool:
    try:
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        asked.request("GET", "/readyz")
        return asked.getresponse().status == 200
    except OSError:
        return False
    finally:
        asked.close()


class Client:
    """One client with a connection of its own."""

    def __init__(self, port: int, key: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.last: dict[str, str] = {}
        self.body: Any = None

    def submit(self, task: Any = None) -> tuple[int, float]:
        """Submit a task: the status, and how many seconds it took."""
        began = time.perf_counter()
        text = json.dumps(task or {"handler": HANDLER})
        self.connection.request("POST", "/api/v1/tasks", text, self.headers)
        response = self.connection.getresponse()
        self.body = json.loads(response.read())
        took = time.perf_counter() - began
        self.last = {name.lower(): value for name, value in response.getheaders()}
        return response.status, took
