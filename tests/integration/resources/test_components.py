"""The platform's own processes tell that they are there, and which of them admitted a task is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from slackwater_dashboard import live
from slackwater_resources import components
from slackwater_resources.components import KEPT_DAYS, Heartbeat
from slackwater_resources.models import Component
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.models import Task
from slackwater_tasks.submission.service import submit, submit_many
from slackwater_tenants.models import Tenant
from tests.support.api import furnish
from tests.support.waiting import wait_until


@pytest.fixture
def heartbeat(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heartbeat]:
    """This process, registered as a submitter; it beats once."""
    monkeypatch.setattr(components, "BEAT_S", 3600.0)
    monkeypatch.setattr(components, "JOIN_TIMEOUT_S", 30.0)
    furnish()
    made = Heartbeat("submitter", "default", Database("test heartbeat")).start()
    try:
        wait_until(lambda: components.own.id, message="it is registered")
        yield made
    finally:
        made.stop()
        components.own.id = None


def registered() -> int | None:
    return components.own.id


def overview(page: Client) -> list[dict[str, Any]]:
    live._memory = live._Memory()
    found: list[dict[str, Any]] = page.get(reverse("admin:sw_live")).json()["components"]
    return found


def test_it_registers_tells_and_leaves(heartbeat: Heartbeat, page: Client) -> None:
    one = Component.objects.get()
    assert (one.kind, one.cell, one.pid, one.left_at) == ("submitter", "default", os.getpid(), None)
    assert [(c["kind"], c["alive"]) for c in overview(page)] == [("submitter", True)]
    listed = reverse("admin:slackwater_resources_component_changelist")
    assert "alive" in page.get(listed).content.decode()
    Component.objects.update(beat_at=timezone.now() - timedelta(minutes=1))
    assert [c["alive"] for c in overview(page)] == [False]
    assert "silent" in page.get(listed).content.decode()
    heartbeat.stop()
    assert Component.objects.get().left_at is not None
    assert overview(page) == []


def test_one_that_was_cleared_away_registers_anew(heartbeat: Heartbeat) -> None:
    old = Component.objects.get().pk
    Component.objects.filter(pk=old).update(beat_at=timezone.now() - timedelta(days=KEPT_DAYS + 1))
    other = Heartbeat("beat", "default", Database("test other"))
    components.own.id = None
    other._tell(last=False)
    assert not Component.objects.filter(pk=old).exists()
    components.own.id = old
    other._tell(last=False)
    assert registered() is None, "it was not heard"
    other._tell(last=False)
    assert Component.objects.filter(pk=registered() or 0).exists()
    other.db.close()


def test_a_task_says_who_admitted_it(heartbeat: Heartbeat, tenant: Tenant, page: Client) -> None:
    alone = submit(tenant, {"handler": "demo.echo"}).task_ids
    many = submit_many(tenant, [{"handler": "demo.echo"}] * 20).task_ids
    own = components.own.id
    found = Task.objects.unscoped().filter(pk__in=[*alone, *many])  # the test is no tenant
    assert {task.admitted_by for task in found} == {own}
    shown = page.get(reverse("admin:slackwater_tasks_task_change", args=[alone[0]])).content.decode()
    assert str(Component.objects.get()) in shown
    components.own.id = None
    nobody = submit(tenant, {"handler": "demo.echo"}).task_ids
    assert Task.objects.unscoped().get(pk=nobody[0]).admitted_by is None  # the test is no tenant
    components.own.id = own
    listed = f"{reverse('admin:slackwater_tasks_task_changelist')}?admitted_by={own}"
    assert f'href="{listed}"' in page.get(reverse("admin:slackwater_resources_component_changelist")).content.decode()
    rows = page.get(listed).content.decode()
    assert str(alone[0]) in rows
    assert str(nobody[0]) not in rows
