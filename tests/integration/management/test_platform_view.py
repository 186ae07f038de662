"""What operators see on the terminal: of all tenants or of one, once or again and again."""

from __future__ import annotations

import json
from importlib import import_module
from uuid import UUID

import pytest
from django.core.management import CommandError

from slackwater.management.console import PlatformCommand
from slackwater_tasks.models import AttemptLog
from slackwater_tasks.submission.service import submit_workflow
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.integration.management.test_commands import fail, run, run_json, submitted
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tenant")]


def test_the_whole_platform_is_shown_or_one_tenant() -> None:
    create_tenant("other", "Other")
    mine, theirs = (run_json("submit", HANDLER, "--tenant", slug)["task_ids"][0] for slug in ("acme", "other"))
    workflow = submit_workflow(
        Tenant.objects.get(slug="other"), {"name": "flow", "tasks": [{"name": "a", "handler": HANDLER}]}
    )
    assert {(row["id"], row["tenant"]) for row in run_json("status")["tasks"]} >= {(mine, "acme"), (theirs, "other")}
    assert run_json("status", theirs)["id"] == theirs
    assert theirs in run("status"), "an id stands on one line"
    fail(theirs)
    assert [row["tenant"] for row in run_json("dead_letters")] == ["other"]
    assert run_json("dead_letters", "--tenant", "acme") == []
    assert theirs in run("dead_letters")
    assert [row["tenant"] for row in run_json("tenants")] == ["other", "acme"]
    assert "acme" in run("tenants")
    (row,) = run_json("workflows")
    wanted = (str(workflow.workflow_id), "other", "waiting", {"ready": 1})
    assert (row["id"], row["tenant"], row["status"], row["counts"]) == wanted
    assert run_json("workflows", "--tenant", "acme") == []
    assert "1 ready" in run("workflows")


def test_top_shows_who_runs_what() -> None:
    task_id = submitted("--name", "long")
    assert "Nothing runs" in run("top", "--once")
    HandWorker().start(UUID(task_id))
    shown = run("top", "--once")
    assert task_id in shown
    assert "hand-1" in shown
    (row,) = run_json("top", "--once", "--tenant", "acme")["running"]
    assert (row["tenant"], row["node"], row["name"]) == ("acme", "hand-1", "long")
    (row,) = run_json("tenants")
    assert (row["held_percent"], row["entitled_percent"]) == (25, 100), "of the four slots of its kind"
    assert row["waited_for_percent"] is None, "it has nothing ready"
    submitted("--name", "waits")
    submitted("--name", "waits too")
    for found in (run_json("tenants"), run_json("top", "--once")["tenants"]):
        assert [each["waited_for_percent"] for each in found] == [50], "what is ready, of the four slots"
    assert "50 %" in run("tenants")


def test_a_watch_shows_the_same_again_until_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def slept(seconds: float) -> None:
        if len(pauses) == 2:
            raise KeyboardInterrupt
        pauses.append(seconds)

    pauses: list[float] = []
    monkeypatch.setattr(PlatformCommand, "pause", staticmethod(slept))
    assert run("nodes", "--watch", "3").count("No node is registered") == 3
    assert pauses == [3, 3]
    with pytest.raises(CommandError, match="no number of seconds"):
        run("nodes", "--watch", "x")


@pytest.mark.parametrize(
    "command",
    ["nodes drain hand-1", "dead_letters --retry --all", "schedules backfill nightly", "policies set order fifo"],
)
def test_what_changes_something_is_not_done_again_and_again(command: str) -> None:
    with pytest.raises(CommandError, match="--watch: goes with what is shown"):
        run(*command.split(), "--watch")


def test_what_takes_long_tells_that_it_goes_on_where_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = ("terminate", "tenant", "--tenant", "acme", "--yes")
    assert "ending" not in run(*stop)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    assert "ending" in run(*stop)


SHOWING = [
    "top",
    "status",
    "explain",
    "dead_letters",
    "nodes",
    "policies",
    "workflows",
    "workflow_report",
    "tenants",
    "schedules",
    "usage",
]


@pytest.mark.parametrize("command", SHOWING)
def test_what_shows_something_is_there_for_programs_and_goes_on_where_asked(command: str) -> None:
    module = import_module(f"slackwater.management.commands.{command}")
    options = module.Command().create_parser("manage.py", command).format_help()
    assert "--json" in options
    assert "--watch" in options


def test_output_is_shown_with_its_time_and_followed_to_the_end(tenant: Tenant) -> None:
    task_id = submitted()
    assert "printed and logged nothing" in run("status", task_id, "--logs")
    marks = [[0, "log", "warning", 1], [1_000, "stdout", "info", 0]]
    AttemptLog._plain.create(
        task_id=task_id, tenant=tenant, fence=1, attempt=1, number=1, text="odd\n[x]\nlast", marks=marks
    )
    shown = run("status", task_id, "--logs")
    assert "#1 log    warning odd\n[x]" in shown
    assert [line["text"] for line in run_json("status", task_id, "--logs")["logs"]] == ["odd\n[x]", "last"]
    fail(task_id)
    assert run("status", task_id, "--logs", "--follow").splitlines()[-1].endswith("#1 stdout info    last")
    followed = run("status", task_id, "--logs", "--follow", "--json").splitlines()
    assert [json.loads(line)["text"] for line in followed] == ["odd\n[x]", "last"], "one object a line"


def test_the_nodes_of_a_tenant_are_those_of_its_cell(tenant: Tenant) -> None:
    HandWorker()
    HandWorker(cell="elsewhere")
    assert {row["cell"] for row in run_json("nodes")} == {tenant.cell, "elsewhere"}
    assert [row["cell"] for row in run_json("nodes", "--tenant", tenant.slug)] == [tenant.cell]
    with pytest.raises(CommandError, match="there is no tenant 'nobody'"):
        run("nodes", "--tenant", "nobody")
    with pytest.raises(CommandError, match="goes with the list"):
        run("nodes", "drain", "hand-1", "--tenant", tenant.slug)
