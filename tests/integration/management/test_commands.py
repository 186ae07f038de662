"""The commands: what they print for people and for programs, and the codes they end with."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from scheduler_ext.core.states import TaskState
from slackwater_monitoring.models import Usage
from slackwater_resources.models import Node
from slackwater_schedules.services import create_schedule
from slackwater_tasks.control import secrets
from slackwater_tasks.models import DeadLetter, LiveTask, MutexScope, Script, Task
from slackwater_tenants.models import ApiKey, Plan, Tenant, TenantCounter
from slackwater_tenants.services import authenticate, create_tenant
from tests.support.api import HANDLER, forget_lookups

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tenant")]
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


def run(*arguments: str) -> str:
    """What a command prints."""
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def run_json(*arguments: str) -> Any:
    """The JSON a command prints."""
    return json.loads(run(*arguments, "--json"))


def failure(*arguments: str) -> CommandError:
    """The error a command ends with."""
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value


def submitted(*arguments: str) -> str:
    """The id of a task submitted by command."""
    return str(run_json("submit", HANDLER, *arguments)["task_ids"][0])


def fail(task_id: str) -> None:
    """Make a dead letter of a task."""
    LiveTask._plain.filter(pk=UUID(task_id)).delete()
    Task._plain.filter(pk=UUID(task_id)).update(
        state=TaskState.FAILED, finished_at=timezone.now(), reason="failed: boom"
    )
    task = Task._plain.get(pk=task_id)
    DeadLetter._plain.create(task=task, tenant=task.tenant, reason="failed: boom")


def test_submit_takes_every_field_of_a_task() -> None:
    printed = run(
        "submit",
        HANDLER,
        "--name",
        "n",
        "--args",
        "[1, 2]",
        "--kwargs",
        '{"a": 1}',
        "--kwarg",
        "b=x=y",
        "--tier",
        "regular",
        "--category",
        "urgent",
        "--priority",
        "5",
        "--delay-tolerance",
        "1.5",
        "--on-late",
        "give_up",
        "--execution-cap",
        "9",
        "--total-attempts",
        "2",
        "--retry",
        '{"base_s": 1}',
        "--mutex-key",
        "m",
        "--mutex-limit",
        "2",
        "--tag",
        "t1",
        "--tag",
        "t2",
        "--start-at",
        "2100-01-01T00:00:00Z",
        "--condition",
        "all_done",
    )
    task = Task._plain.get(pk=ID.search(printed)[0])  # type: ignore[index]
    assert (task.args, task.kwargs, task.tags) == ([1, 2], {"a": 1, "b": "x=y"}, ["t1", "t2"])
    assert (task.priority, task.delay_tolerance_ms, task.cap_ms, task.submitted_by) == (
        5,
        1500,
        9000,
        "command",
    )
    child = submitted("--depends-on", str(task.pk))
    assert run_json("status", child)["depends_on"] == [str(task.pk)]


def test_submit_stores_a_script_file(tmp_path: Path) -> None:
    path = tmp_path / "hello.sh"
    path.write_text("#!/bin/sh\necho hello\n")
    task_id = run_json("submit", "--script", str(path))["task_ids"][0]
    script = Script._plain.get()
    assert (script.name, Task._plain.get(pk=task_id).script_sha256) == ("hello.sh", script.sha256)


def test_submit_reads_tasks_and_workflows_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    path.write_text(json.dumps([{"handler": HANDLER}, {"handler": HANDLER}]))
    assert len(run_json("submit", "--file", str(path))["task_ids"]) == 2
    path.write_text(json.dumps({"name": "w", "tasks": [{"name": "a", "handler": HANDLER}]}))
    workflow_id = run_json("submit", "--file", str(path))["workflow_id"]
    shown = run("status", workflow_id)
    assert "ready" in shown
    assert run_json("status", workflow_id)["counts"]["ready"] == 1


def test_an_idempotent_repeat_says_so() -> None:
    first = run("submit", HANDLER, "--idempotency-key", "k")
    again = run("submit", HANDLER, "--idempotency-key", "k")
    assert "submitted before" in again
    assert ID.search(first)[0] == ID.search(again)[0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("submit", "no.such"), 2, "handler: no worker has exported"),
        (("submit",), 2, "handler: exactly one of"),
        (("submit", HANDLER, "--args", "{"), 2, "--args: is not JSON"),
        (("submit", HANDLER, "--kwarg", "x"), 2, "--kwarg: must read NAME=VALUE"),
        (("submit", HANDLER, "--tier", "huge"), 2, "tier: there is no tier 'huge'"),
        (("submit", HANDLER, "--file", "/nowhere"), 2, "--file: cannot be read"),
        (
            ("submit", HANDLER, "--tenant", "nobody"),
            3,
            "--tenant: there is no tenant 'nobody'; known are: acme",
        ),
        (("status", str(uuid.UUID(int=0))), 3, "id: there is no task and no workflow"),
        (("cancel", str(uuid.UUID(int=0))), 3, "there is no task"),
        (("create_tenant", "acme"), 4, "slug: the tenant 'acme' exists already"),
        (("create_tenant", "No Slug"), 2, "slug: "),
        (("create_tenant", "new", "--plan", "gold"), 3, "plan: there is no plan 'gold'"),
        (("create_api_key", "acme", "--scope", "fly"), 2, "scopes: "),
        (("create_api_key", "acme", "--days", "-1"), 2, "--days: must be greater than 0"),
        (("dead_letters", "--retry"), 2, "--retry: give either ids or --all"),
        (("status", "42"), 1, "is no id"),
    ],
)
def test_errors_name_the_field_and_have_a_code(arguments: tuple[str, ...], code: int, words: str) -> None:
    error = failure(*arguments)
    assert words in str(error)
    assert error.returncode == code


def test_an_error_as_json_goes_to_standard_error() -> None:
    err = StringIO()
    with pytest.raises(SystemExit) as caught:
        call_command("submit", "no.such", "--json", stdout=StringIO(), stderr=err)
    assert caught.value.code == 2
    assert json.loads(err.getvalue())["field"] == "handler"


def test_two_tenants_must_be_told_apart() -> None:
    create_tenant("other", "Other")
    assert "--tenant: say which tenant: acme, other" in str(failure("submit", HANDLER))
    task_id = run_json("submit", HANDLER, "--tenant", "other")["task_ids"][0]
    assert failure("status", task_id, "--tenant", "acme").returncode == 3
    assert failure("cancel", task_id, "--tenant", "acme").returncode == 3


def test_status_shows_a_task_with_its_past() -> None:
    task_id = submitted("--name", "[bold]odd[/bold]")
    shown = run("status", task_id)
    assert "[bold]odd[/bold]" in shown
    assert "submitted" in shown
    assert f"{Task._plain.get().submitted_at:%Y-%m-%d %H:%M:%S} UTC" in shown
    assert [entry["to"] for entry in run_json("status", task_id)["history"]] == ["ready"]


def test_status_lists_the_latest_tasks_and_lines() -> None:
    first, second = submitted(), submitted("--category", "urgent")
    listed = run_json("status")
    assert [row["id"] for row in listed["tasks"]] == [second, first]
    assert {row["category"] for row in listed["queues"]} == {"delayable", "urgent"}
    fail(first)
    assert [row["id"] for row in run_json("status", "--state", "failed")["tasks"]] == [first]
    assert second in run("status", "--limit", "1")


def test_a_task_is_cancelled_and_runs_again() -> None:
    task_id = submitted()
    assert "cancelled" in run("cancel", task_id)
    assert failure("cancel", task_id).returncode == 4
    assert "runs again" in run("retry", task_id)
    assert run_json("status", task_id)["state"] == "ready"


def test_dead_letters_are_listed_and_retried() -> None:
    ids = [submitted(), submitted()]
    for task_id in ids:
        fail(task_id)
    assert {row["task_id"] for row in run_json("dead_letters")} == set(ids)
    assert "failed: boom" in run("dead_letters")
    assert run("dead_letters", "--retry", ids[0]) == "retried 1\n"
    assert run_json("dead_letters", "--retry", "--all") == {"retried": [ids[1]], "left": []}
    assert "no dead letters" in run("dead_letters")


def test_nodes_are_listed() -> None:
    assert "No node is registered" in run("nodes")
    now = timezone.now()
    Node.objects.create(
        name="n1",
        hostname="h1",
        incarnation=uuid.uuid4(),
        capacity=[1500, 512, 0, 0, 0, 0],
        slots={"process": 2},
        started_at=now,
        heartbeat_at=now,
        lease_expires_at=now + timedelta(minutes=1),
    )
    shown = run("nodes")
    assert "n1" in shown
    assert "1.5" in shown
    assert run_json("nodes")[0]["in_flight"] == 0
    assert run_json("nodes", "drain", "n1")["state"] == "draining"
    assert "given work again" in run("nodes", "resume", str(Node.objects.get().incarnation))
    assert Node.objects.get().state == Node.State.ACTIVE
    with pytest.raises(CommandError, match="is active, not draining"):
        run("nodes", "resume", "n1")
    with pytest.raises(CommandError, match="no node 'n2'"):
        run("nodes", "drain", "n2")


def test_a_tenant_and_a_key_are_created() -> None:
    assert run_json("create_tenant", "new", "--name", "New", "--trusted")["slug"] == "new"
    assert Tenant.objects.get(slug="new").trusted
    text = run("create_api_key", "new", "--scope", "read", "--days", "1").strip()
    key = authenticate(text)
    assert (key.tenant.slug, key.scopes) == ("new", ["read"])
    assert key.expires_at is not None
    assert text not in str(list(ApiKey.objects.values()))


def test_waiting_ends_with_its_time() -> None:
    with pytest.raises(SystemExit) as caught:
        run("submit", HANDLER, "--wait", "0.01")
    assert caught.value.code == 124


def test_a_task_is_handed_in_with_all_that_excludes_and_limits_it() -> None:
    task_id = submitted("--mutex-key", "door", "--mutex-scope", "dependent", "--rate-key", "bank")
    task = Task._plain.get(pk=UUID(task_id))
    assert (task.mutex_key, task.mutex_scope, task.rate_key) == ("door", MutexScope.DEPENDENT, "bank")
    assert "mutex_scope" in str(failure("submit", HANDLER, "--mutex-key", "door", "--mutex-scope", "all"))
    assert "webhook" in str(failure("submit", HANDLER, "--webhook", "ftp://example.org/"))


def test_a_script_that_is_not_there_is_no_hash() -> None:
    assert "there is no file ./nowhere.sh" in str(failure("submit", "--script", "./nowhere.sh"))
    assert "script store" in str(failure("submit", "--script", "a" * 64))


def test_a_mounted_folder_is_named_from_the_root() -> None:
    assert "script_root" in str(failure("create_tenant", "initech", "--script-root", "scripts"))
    assert not Tenant.objects.filter(slug="initech").exists()
    run("create_tenant", "initech", "--script-root", "/srv/initech")


def test_a_policy_is_not_chosen_for_a_cell_that_is_not_there() -> None:
    assert "there is no cell 'nowhere'; known are default" in str(
        failure("policies", "set", "order", "deadline", "--cell", "nowhere")
    )
    create_tenant("initech", "Initech", cell="berlin")
    assert "deadline" in run("policies", "set", "order", "deadline", "--cell", "berlin")


def test_what_the_plan_does_not_allow_stays_a_dead_letter_and_is_named(tenant: Tenant) -> None:
    ids = [submitted() for _ in range(3)]
    for task_id in ids:
        fail(task_id)
    TenantCounter.objects.filter(tenant=tenant).update(unfinished=0)
    Plan.objects.update(max_waiting=2)
    forget_lookups()
    found = run_json("dead_letters", "--retry", "--all")
    assert len(found["retried"]) == 2
    assert [row["task_id"] for row in found["left"]] == [row["task_id"] for row in run_json("dead_letters")]
    assert "the plan allows 2 tasks waiting" in found["left"][0]["reason"]
    shown = run("dead_letters", "--retry", "--all")
    assert "retried 0" in shown
    assert "Left as they are: 1" in shown
    # One that is named is not passed over.
    assert failure("dead_letters", "--retry", found["left"][0]["task_id"]).returncode == 5


def test_long_work_says_how_far_it_is(tenant: Tenant) -> None:
    seen: list[int] = []
    for n in range(3):
        secrets.put(tenant, f"S{n}", "the value")
    assert secrets.reseal(progress=lambda: seen.append(1)) == len(seen) == 3
    assert run_json("reseal_secrets") == {"resealed": 3}
    # Nobody looks on: no bar, and no empty lines where it would be.
    assert run("reseal_secrets") == "3 secrets are sealed under the first key\n"
    assert run("prune") == "0 rows of tasks and keys deleted\n"


def test_schedules_are_listed_shown_and_made_up_for(tenant: Tenant) -> None:
    assert "There are no schedules" in run("schedules")
    daily = {"name": "nightly", "kind": "daily", "rule": {"times": ["02:30"]}, "task": {"handler": HANDLER}}
    made = create_schedule(tenant, daily)
    assert "nightly" in run("schedules")
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        for words in (["schedules"], ["schedules", "show", "nightly"]):
            assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d JST", run(*words))
    assert [row["name"] for row in run_json("schedules")] == ["nightly"]
    found = run_json("schedules", "show", "nightly")
    assert (found["id"], len(found["next_firings"]), found["firings"]) == (str(made.pk), 10, [])
    assert "It has not fired yet" in run("schedules", "show", str(made.pk))
    days = ["--start", "2026-01-01T00:00:00Z", "--end", "2026-01-03T00:00:00Z"]
    done = run_json("schedules", "backfill", "nightly", *days)
    assert len(done["task_ids"]) == Task._plain.filter(workflow_id=done["workflow_id"]).count() == 2
    assert run("schedules", "backfill", "nightly", *days) == "nothing was missing\n"
    assert "submitted" in run("schedules", "show", "nightly")
    for wrong, code in ((["show"], 2), (["show", "no"], 3), (["backfill", "nightly", "--start", "x"], 2)):
        assert failure("schedules", *wrong).returncode == code


def test_usage_is_shown_beside_the_plan(tenant: Tenant) -> None:
    day = timezone.now().date()
    Usage._plain.create(tenant=tenant, day=day, tier="basic", category=1, attempts=7, price_micros=1_500_000)
    submitted()
    shown = run("usage")
    assert "1.500000" in shown
    assert "urgent" in shown
    found = run_json("usage", "--since", str(day), "--until", str(day))
    assert (found["usage"]["total"]["attempts"], found["limits"]["used"]["unfinished"]) == (7, 1)
    assert failure("usage", "--since", "yesterday").returncode == 2
    assert failure("usage", "--since", "2030-01-02", "--until", "2030-01-01").returncode == 2
