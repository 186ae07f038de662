"""Fixtures that every suite may use."""

import os
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from celery._state import get_current_app
from django.conf import settings

from slackwater.celery import app
from slackwater.settings.environment import given_database_url
from slackwater_conf import conf
from tests.support import examples
from tests.support.database import django_db_setup
from tests.support.order import pytest_collection_modifyitems

__all__ = ["django_db_setup", "pytest_collection_modifyitems"]

examples.load()


@pytest.fixture(autouse=True)
def one_celery_app() -> Iterator[None]:
    """No test leaves another Celery app current: what later ones call by their tasks would leave the ledger."""
    yield
    left = get_current_app()
    app.set_current()  # one test is at fault, not all that follow
    assert left is app, "make it with set_as_current=False"


@pytest.fixture
def redis_url() -> str:
    """The URL of this worker's Redis, for processes that a test starts."""
    return os.environ["SLACKWATER_REDIS_URL"]


@pytest.fixture
def redis_client() -> Iterator[redis.Redis]:
    """A client of this worker's Redis, empty before and after the test."""
    with redis.Redis.from_url(conf().redis_url) as client:
        client.flushdb()
        yield client
        client.flushdb()


@pytest.fixture
def database_url(db: None) -> str:
    """The URL of this worker's test database, for processes that a test starts; needs transaction=True."""
    name = settings.DATABASES["default"]["NAME"]
    return with_database(given_database_url(), str(name))


def with_database(url: str, name: str) -> str:
    """Return a libpq URL with another database in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{name}"))
