"""A client of the API."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import running
from tests.support.submitters import AWAY, free_port, is_up
from tests.support.waiting import wait_until


@pytest.fixture
def submitters(database_url: str, tmp_path: Path, request: Any) -> Iterator[list[int]]:
    """Four servers as they run in production, on ports of their own."""
    url = AWAY if request.param == "without Redis" else request.getfixturevalue("redis_url")
    env = {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_REDIS_URL": url,
        "SLACKWATER_VAR": str(tmp_path / "var"),
        "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": "platform:apps:.",
    }
    ports = [free_port() for _ in range(4)]
    with contextlib.ExitStack() as servers:
        for port in ports:
            command = [sys.executable, "-m", "granian", "--interface", "asgi", "--port", str(port), "--no-ws"]
            servers.enter_context(running([*command, "slackwater.asgi:application"], env=env, name=f"api{port}"))
        for port in ports:
            wait_until(lambda port=port: is_up(port), timeout=60, message=f"port {port} answers")  # type: ignore[misc]
        yield ports
