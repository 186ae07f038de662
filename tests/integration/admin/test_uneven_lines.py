"""One line has nearly all that waits: what pages count of another one is looked up, and not sought through all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from slackwater_resources.models import Handler
from slackwater_tasks.read import autoscaling
from slackwater_tenants.models import Plan
from tests.lab.benchmarks import filling
from tests.support import million

pytestmark = pytest.mark.django_db

MOST, FEW = 20_000, 3


@pytest.fixture
def uneven(furnished: None) -> None:
    """A long line and a short one. The statistics know the long one alone."""
    Plan.objects.create(slug="uneven", name="Uneven")
    long, short = filling.make_lines(2, plan="uneven")
    handler = Handler.objects.create(name="mail.send")
    filling.fill([long], 1, MOST, handler_id=handler.pk, wide=True)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {million.LIVE}")
    filling.fill([short], MOST + 1, MOST + FEW, handler_id=handler.pk, wide=True)


def most_read(act: Callable[[], object]) -> int:
    """The most rows of large tables that one statement about lines reads."""
    with CaptureQueriesContext(connection) as asked:
        act()
    read = [million.read([each]).rows for each in asked.captured_queries if "line_id" in each["sql"]]
    assert read
    return max(read)


@pytest.mark.parametrize("view", ["slackwater_tasks_line_changelist", "sw_live"])
def test_what_is_ready_in_each_line(page: Client, uneven: None, view: str) -> None:
    assert 2 * FEW < most_read(lambda: page.get(reverse(f"admin:{view}"))) < MOST


def test_what_asks_for_workers(uneven: None) -> None:
    assert 2 * FEW < most_read(autoscaling.work) < MOST
