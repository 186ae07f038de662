"""A policy switched while work waits, over the real processes: what starts next obeys it, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from scheduler_ext.core.states import TaskState
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.models import Attempt, LiveTask, PolicyChoice, RankSweep
from slackwater_tasks.submission.service import submit_many
from tests.support.platform import Platform
from tests.support.processes import ROOT, manage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

TOLERANCES = (400, 300, 500, 200)
"""Of the tasks that wait, in the order they come, in seconds."""


def order(platform: Platform, tasks: list[UUID]) -> list[int]:
    """The tolerances of the tasks in the order in which they began."""
    for task in tasks:
        assert platform.wait(task, timeout=30).state == TaskState.SUCCEEDED, platform.story(task)
    rows = Attempt.objects.unscoped().filter(task_id__in=tasks).order_by("started_at")  # the test is no tenant
    began = list(rows.values_list("task_id", flat=True))
    assert sorted(began) == sorted(tasks), "each has run once"
    return [TOLERANCES[tasks.index(task)] for task in began]


def switched_while_they_wait(platform: Platform, switch: Callable[[], object]) -> list[int]:
    """Behind a task that holds the only slot four wait; the order is switched, and then they start."""
    holder = platform.submit("demo.sleep", 120)
    platform.wait(holder, TaskState.RUNNING)
    fields = [{"handler": "demo.sleep", "args": [0.05], "delay_tolerance_s": s} for s in TOLERANCES]
    tasks = submit_many(platform.tenant, fields).task_ids
    epoch = RankSweep.objects.get().epoch
    switch()
    wait_until(
        lambda: RankSweep.objects.filter(epoch__gt=epoch, passes=0).exists(),
        message="what waits has its new places",
        timeout=30,
    )
    waiting = LiveTask.objects.unscoped().filter(pk__in=tasks)  # the test is no tenant
    assert set(waiting.values_list("state", flat=True)) == {TaskState.READY}
    cancel(platform.tenant.pk, holder)
    return order(platform, tasks)


def policies(platform: Platform, *arguments: str) -> None:
    """`manage.py policies …` as an operator runs it."""
    done = subprocess.run(
        manage("policies", *arguments), cwd=ROOT, env={**os.environ, **platform.env},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(180)
def test_what_starts_next_obeys_the_order_chosen_meanwhile(platform: Platform, admin_client: Client) -> None:
    platform.set(delayable_permille=1000, yield_after_s=3600.0)
    platform.dispatcher()
    platform.upkeep()
    platform.worker("w1", concurrency=1)
    wait_until(RankSweep.objects.exists, message="upkeep knows the order that holds")
    tasks = submit_many(
        platform.tenant,
        [{"handler": "demo.sleep", "args": [0.05], "delay_tolerance_s": s} for s in TOLERANCES],
    ).task_ids
    assert order(platform, tasks) == list(TOLERANCES), "first come, first served"

    by_command = switched_while_they_wait(platform, lambda: policies(platform, "set", "order", "deadline"))
    assert by_command == sorted(TOLERANCES), "shortest tolerance first"

    def in_the_admin() -> None:
        page = reverse("admin:slackwater_tasks_policychoice_delete", args=[PolicyChoice.objects.get().pk])
        assert admin_client.post(page, {"post": "yes"}).status_code == 302

    assert switched_while_they_wait(platform, in_the_admin) == list(TOLERANCES), "the configured order again"
