"""What the commands refuse names the argument as it was given, and what they show is what the pages show."""

from __future__ import annotations

import os
import socket
import uuid

import pytest

from slackwater_resources.models import Component
from slackwater_schedules.services import create_schedule
from slackwater_tasks.models import RunTime, Task
from slackwater_tasks.read.autoscaling import wanted
from slackwater_tenants.models import Tenant
from tests.integration.management.test_commands import fail, failure, run, run_json, submitted
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tenant")]
NO_LINE = "name: acme has no line 'urgent/basic'; a line exists from its first task on"
NO_FORM = "name: must be CATEGORY/TIER, for example urgent/basic, not "


@pytest.mark.parametrize("command", ["status", "dead_letters", "workflows", "top"])
@pytest.mark.parametrize("limit", ["0", "-1", "x"])
def test_a_list_of_no_rows_is_refused(command: str, limit: str) -> None:
    told = str(failure(command, f"--limit={limit}", *(["--once"] if command == "top" else [])))
    assert told == f"Error: argument --limit: must be a whole number, at least 1, not {limit!r}"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("pause", "line", "nosuch"), 2, NO_FORM + "'nosuch'"),
        (("resume", "line", "/basic"), 2, NO_FORM + "'/basic'"),
        (("pause", "line", "urgent/basic"), 3, NO_LINE),
        (("terminate", "line", "urgent", "--yes"), 2, NO_FORM + "'urgent'"),
        (("terminate", "line", "urgent/basic", "--yes"), 3, NO_LINE),
        (("terminate", "workflow", "zzz", "--yes"), 2, f"name: 'zzz' is no id; it looks like {uuid.UUID(int=0)}"),
        (("dead_letters", "--all"), 2, "--all: goes with --retry"),
        (("create_api_key", "nosuch"), 3, "tenant: there is no tenant 'nosuch'; known are: acme"),
        (("delete_tenant", "nosuch"), 3, "slug: there is no tenant 'nosuch'; known are: acme"),
        (("usage", "--tenant", "nosuch"), 3, "--tenant: there is no tenant 'nosuch'; known are: acme"),
    ],
)
def test_the_argument_at_fault_is_named_as_it_is_given(arguments: tuple[str, ...], code: int, told: str) -> None:
    error = failure(*arguments)
    assert (str(error), error.returncode) == (told, code)


def test_a_backfill_says_which_end_it_needs(tenant: Tenant) -> None:
    daily = {"name": "nightly", "kind": "daily", "rule": {"times": ["02:30"]}, "task": {"handler": HANDLER}}
    create_schedule(tenant, daily)
    day = "2026-01-01T00:00:00Z"
    for given, missing in (((), "--start"), (("--end", day), "--start"), (("--start", day), "--end")):
        error = failure("schedules", "backfill", "nightly", *given)
        assert (str(error), error.returncode) == (f"{missing}: is needed, for example 2030-01-31T00:00:00Z", 2)
    assert "--start: must be an ISO 8601" in str(failure("schedules", "backfill", "nightly", "--start", "x"))


def test_status_names_the_process_that_admitted_a_task() -> None:
    task_id, host = submitted(), socket.gethostname()
    own = Component.objects.create(
        kind="submitter", cell="default", hostname=host, pid=os.getpid(), started_at="2026-01-01T00:00:00Z",
        beat_at="2026-01-01T00:00:00Z",
    )  # fmt: skip
    Task._plain.filter(pk=task_id).update(admitted_by=own.pk)
    assert f"submitter {host}:{os.getpid()}" in run("status", task_id)
    assert run_json("status", task_id)["admitted_by"] == own.pk
    own.delete()
    assert "admitted by" not in run("status", task_id)


def test_the_workers_wanted_are_told_in_few_digits(tenant: Tenant) -> None:
    HandWorker()
    RunTime.objects.create(tenant=tenant, key=HANDLER, samples=50, mean_us=733_333.0)
    for _ in range(7):
        submitted()
    (slots,) = [one.waiting_slots for one in wanted() if one.waiting_slots]
    shown = run("nodes", "--wanted")
    assert len(str(slots)) > len("0.123")
    assert f" {round(slots, 3)} " in shown
    assert str(slots) not in shown
    assert slots in [row["waiting_slots"] for row in run_json("nodes", "--wanted")["tiers"]]


def test_dead_letters_are_listed_as_before() -> None:
    fail(submitted())
    assert len(run_json("dead_letters", "--limit", "1")) == 1
