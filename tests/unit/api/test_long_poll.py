"""Waiting for the end of a task."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from slackwater_api.live.change_feed import Feed
from slackwater_api.live.long_poll import Waiters


@pytest.mark.parametrize("seconds", [0.0, 1e-100, 1e-3])
def test_a_wait_ends_in_time_however_short_it_is(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    async def heard(feed: Feed) -> None:
        feed._connected.set()

    async def nobody(*_: Any) -> list[Any]:
        return []

    async def wait() -> None:
        feed = Feed(nobody)
        waiters = Waiters(nobody, feed)
        for _ in range(3):
            async with asyncio.timeout(20):
                await waiters.until_final(uuid4(), seconds)
        assert len(waiters) == 0
        waiters.close()

    monkeypatch.setattr(Feed, "_follow", heard)
    asyncio.run(wait())
