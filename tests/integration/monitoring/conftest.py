"""A collector of spans, and a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.api import ApiClient
from tests.support.collector import endpoint
from tests.support.hand_worker import HandWorker
from tests.support.receiver import Receiver, receiving
from tests.support.tracing import OFF


@pytest.fixture
def collector(settings: Any) -> Iterator[Receiver]:
    with receiving() as receiver:
        settings.SLACKWATER = {**settings.SLACKWATER, **OFF, "TRACE_ENDPOINT": endpoint(receiver)}
        yield receiver


@pytest.fixture
def worker(acme: ApiClient) -> HandWorker:
    return HandWorker()
