"""A cell for explanations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support.cell import Cell


@pytest.fixture
def cell(redis_client: redis.Redis, settings: Any) -> Iterator[Cell]:
    made = Cell(redis_client, settings)
    try:
        yield made
    finally:
        made.store.db.close()
