"""Waiting until a platform that was just started can be used: its API answers, and a worker is there."""

import asyncio
import contextlib
import json
from typing import Any

POLL_S = 0.1  # seconds
ANSWER_TIMEOUT_S = 10.0  # seconds
REQUEST = b"GET /readyz HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def awaited(host: str, port: int, *, patience: float) -> str:
    """What is still lacking after `patience` seconds; empty as soon as nothing is.

    The first worker of a new platform exports the handlers: until it is there, a submission that names one is refused.
    """
    lacking = "the API has not answered"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while True:
                checks = await _checks(host, port)
                if checks is not None:
                    if checks["workers"]:
                        return ""
                    lacking = "a worker is starting" if checks.get("starting") else "no worker has come"
                await asyncio.sleep(POLL_S)
    return lacking


async def _checks(host: str, port: int) -> dict[str, Any] | None:
    """What the API says of the parts of the platform; `None` while it does not answer, or is not ready itself."""
    with contextlib.suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(REQUEST)
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        if b" 200 " in head.partition(b"\r\n")[0]:
            found: dict[str, Any] = json.loads(body)["checks"]
            return found
    return None
