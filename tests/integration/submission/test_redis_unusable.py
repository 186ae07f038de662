"""A Redis that cannot be used fails no submission that is stored: its caller would do it again."""

from __future__ import annotations

from typing import Any

import pytest
from celery import signature
from django.core.exceptions import ImproperlyConfigured

import slackwater
from slackwater.celery import app
from slackwater_tasks.models import Task
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER, furnish

pytestmark = pytest.mark.django_db(transaction=True)


def stored() -> int:
    """How many tasks there are."""
    return Task.objects.unscoped().count()


def test_a_hint_that_cannot_be_sent_fails_nothing(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    furnish()
    acme = create_tenant("acme", "Acme")
    there = {**settings.SLACKWATER, "TENANT": "acme"}
    settings.SLACKWATER = {**there, "REDIS_URL": "redis://127.0.0.1:1/0?no_such_option=1"}
    made = [
        signature(HANDLER, args=[1], app=app).delay().id,
        str(slackwater.submit(acme, {"handler": HANDLER}).task_ids[0]),
    ]
    slackwater.cancel(acme.pk, slackwater.submit(acme, {"handler": HANDLER}).task_ids[0])
    assert stored() == len(made) + 1
    assert "hint not sent: TypeError" in caplog.text
    assert "changes not told: TypeError" in caplog.text


def test_an_address_that_is_none_is_refused_before_anything_is_stored(settings: Any) -> None:
    furnish()
    create_tenant("acme", "Acme")
    settings.SLACKWATER = {**settings.SLACKWATER, "TENANT": "acme", "REDIS_URL": "http://x"}
    with pytest.raises(ImproperlyConfigured, match="REDIS_URL"):
        signature(HANDLER, args=[1], app=app).delay()
    assert stored() == 0
