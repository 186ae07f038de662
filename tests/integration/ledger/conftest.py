"""A cell whose rounds a test takes by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.support.api import furnish
from tests.support.rounds import Rounds


@pytest.fixture
def rounds(transactional_db: None, redis_client: redis.Redis) -> Iterator[Rounds]:
    """A cell of ten slots."""
    furnish()
    made = Rounds(slots=10)
    yield made
    made.close()
