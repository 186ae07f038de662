"""The platform as processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.support.api import nothing_remembered
from tests.support.browser import browser, tenant
from tests.support.platform import Platform
from tests.support.runner import runner

__all__ = ["browser", "nothing_remembered", "platform", "runner", "tenant"]


@pytest.fixture
def platform(
    transactional_db: None, database_url: str, redis_url: str, redis_client: redis.Redis
) -> Iterator[Platform]:
    """A platform with nothing started yet; a test starts what it needs."""
    made = Platform(database_url, redis_url)
    try:
        yield made
    finally:
        made.close()
