"""The client and the tenants' command on the real API: what they submit is stored, what they read is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connections

import slackwater
from scheduler_ext.core.states import TaskState
from slackwater.cli import command
from slackwater.client import AsyncClient, Client
from slackwater_api.server.application import AsgiApplication
from slackwater_tasks.ledger.hints import tell_changes
from tests.support.api import HANDLER, ApiClient
from tests.support.front import drive, finish, until
from tests.support.usage import ended

# The real handler closes connections between requests.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]
URL = "http://testserver"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def client(acme: ApiClient) -> Client:
    return Client(URL, acme.text, transport=httpx.WSGITransport(app=get_wsgi_application()), retries=0)


@pytest.fixture
def run(acme: ApiClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command as a shell would: exit code, what it prints, what it complains of."""
    monkeypatch.setenv("SLACKWATER_URL", URL)
    monkeypatch.setenv("SLACKWATER_KEY", acme.text)

    def call(*words: str) -> tuple[int, str, str]:
        code = command.main(words, transport=httpx.WSGITransport(app=get_wsgi_application()))
        return code, *capsys.readouterr()

    return call


def test_tasks_and_workflows_are_submitted_read_changed_and_cancelled(client: Client) -> None:
    made = client.submit(HANDLER, args=[1], name="one", priority=3, idempotency_key="once")
    assert client.submit(HANDLER, args=[1], name="one", priority=3, idempotency_key="once") == {
        **made,
        "created": False,
    }
    assert client.get(made["id"])["priority"] == 3
    assert client.quote(HANDLER)["tasks"] == 1
    assert client.edit(made["id"], priority=7)["priority"] == 7
    assert client.explain(made["id"])["waiting"] is True
    assert client.status(made["id"])["state"] == "ready"
    assert next(client.history(made["id"]))["to"] == "ready"
    several = client.submit_many([{"handler": HANDLER, "name": f"n{n}"} for n in range(3)])
    assert [task["name"] for task in client.tasks(name_pattern="n*", sort="submitted_at")] == [
        "n0",
        "n1",
        "n2",
    ]
    assert client.cancel_matching(name_pattern="n*", dry_run=True)["task_ids"] == several["task_ids"]
    noted = client.submit(HANDLER, name="noted", metadata={"i": "3", "by": "me, too"})["id"]
    assert [task["id"] for task in client.tasks(metadata={"i": "3", "by": "me, too"})] == [noted]
    assert list(client.tasks(metadata={"i": "4"})) == []
    assert client.cancel_matching(metadata={"i": "3"}, dry_run=True)["task_ids"] == [noted]
    assert client.cancel(made["id"], reason="no more")["state"] == "cancelled"
    with pytest.raises(slackwater.TaskFailed, match="no more"):
        client.result(made["id"], timeout_s=0)
    assert client.retry(made["id"])["state"] == "ready"
    finish(made["id"])
    assert client.result(made["id"]) == 42

    graph = client.submit_workflow(
        [{"handler": HANDLER, "name": "a"}, {"handler": HANDLER, "name": "b", "depends_on": ["a"]}],
        name="g",
        tags=["t"],
        metadata={"run": "7"},
    )
    assert [one["id"] for one in client.workflows(metadata={"run": "7"})] == [graph["id"]]
    assert client.workflow(graph["id"])["counts"]["blocked"] == 1
    assert [one["id"] for one in client.workflows(tag="t")] == [graph["id"]]
    assert {one["name"] for one in client.workflow_tasks(graph["id"])} == {"a", "b"}
    assert client.cancel_workflow(graph["id"])["cancelled"] == 2


def test_schedules_webhooks_scripts_usage_and_any_other_address(client: Client, acme: ApiClient) -> None:
    schedule = client.create_schedule(
        name="nightly", kind="daily", rule={"times": ["03:00"]}, task={"handler": HANDLER}
    )
    assert client.edit_schedule(schedule["id"], paused=True)["paused"] is True
    assert [one["name"] for one in client.schedules()] == ["nightly"]
    assert UUID(client.run_schedule(schedule["id"])["task_id"] or "")
    client.delete_schedule(schedule["id"])
    hook = client.create_webhook(url="https://hooks.example.org/x", events=["task.failed"])
    assert hook["secret"]
    assert [one["id"] for one in client.webhooks()] == [hook["id"]]
    assert client.store_script("hello.sh", "echo hello\n")["size"] == 11
    assert client.usage()["items"] == []
    assert client.whoami()["name"] == "Acme"
    assert list(client.dead_letters()) == []
    assert client.limits()["plan"]
    assert any(one["name"] == HANDLER for one in client.handlers())
    key = client.request("POST", "/keys", {"name": "other", "scopes": ["read"]}, idempotency_key="k")
    assert client.request("POST", "/keys", {"name": "other", "scopes": ["read"]}, idempotency_key="k") == key
    assert len(list(client.pages("/keys"))) == 2
    with pytest.raises(slackwater.InvalidInput) as caught:
        client.request("POST", "/tasks", {"handler": HANDLER, "agrs": [1]})
    assert isinstance(caught.value, slackwater.ApiError)
    assert caught.value.suggestion == [{"op": "move", "from": "/agrs", "path": "/args"}]
    with pytest.raises(slackwater.NotFound):
        client.get(schedule["id"])


def test_a_coroutine_waits_and_follows_on_the_servers_own_front(acme: ApiClient) -> None:
    task_id, other = acme.task(), acme.task()

    async def story(front: AsgiApplication) -> None:
        async with AsyncClient(URL, acme.text, transport=httpx.ASGITransport(app=front), retries=0) as client:
            following = asyncio.create_task(_kinds(client, task_id))
            await until(lambda: len(front.live.streams) == 1 and front.live.feed.is_connected)
            waiting = asyncio.create_task(client.result(other))
            tell_changes([(task_id, int(TaskState.RUNNING), acme.tenant.pk, None)])
            tell_changes([(task_id, int(TaskState.SUCCEEDED), acme.tenant.pk, None)])
            assert await following == ["ready", "running", "succeeded"]
            await asyncio.to_thread(finish, other)
            tell_changes([(other, int(TaskState.SUCCEEDED), acme.tenant.pk, None)])
            assert await waiting == 42
            assert {one["id"] async for one in client.tasks()} == {task_id, other}
            assert [one async for one in client.tasks(metadata={"i": "3"})] == []
            await asyncio.to_thread(finish, task_id)
            assert [line async for line in client.follow_logs(task_id)] == []

    drive(story)
    connections.close_all()


async def _kinds(client: AsyncClient, task_id: str) -> list[str]:
    return [event.data["state"] async for event in client.events(task_id=task_id)]


def test_the_command_submits_shows_cancels_and_says_by_its_exit_code_what_became_of_it(
    run: Command, acme: ApiClient, tmp_path: Path
) -> None:
    code, said, _ = run(
        "submit", HANDLER, "1", "evil\x9b2J", "--kwarg", "x=[3]", "--name", "n", "--priority", "5", "--tag", "t"
    )
    task_id = said.strip()
    assert code == 0
    task = json.loads(run("status", task_id, "--json")[1])
    assert (task["args"], task["kwargs"], task["priority"], task["tags"]) == ([1, "evil\x9b2J"], {"x": [3]}, 5, ["t"])
    assert "evil\\x9b2J" in run("status", task_id)[1]
    assert "evil\\u009b2J" in run("status", task_id, "--json")[1]
    assert task_id in run("status", "--tag", "t", "--state", "ready")[1]
    assert "nothing" in run("status", "--state", "failed")[1]
    assert json.loads(run("explain", task_id, "--json")[1])["waiting"] is True
    assert "why" in run("explain", task_id)[1]
    assert run("status", task_id, "--wait", "0")[0] == 124
    assert run("cancel", task_id, "--reason", "enough")[0] == 0
    assert run("status", task_id, "--wait")[0] == 10
    assert run("logs", task_id)[:2] == (0, "")
    assert run("logs", task_id, "--follow", "--json")[:2] == (0, "")
    assert run("retry", task_id)[0] == 0
    finish(task_id)
    assert run("retry", task_id)[0] == 4
    (tmp_path / "graph.json").write_text(json.dumps({"name": "g", "tasks": [{"handler": HANDLER, "name": "a"}]}))
    code, said, _ = run("submit", "--file", str(tmp_path / "graph.json"), "--idempotency-key", "k")
    assert "submitted before" in run("submit", "--file", str(tmp_path / "graph.json"), "--idempotency-key", "k")[1]
    assert run("status", said.strip())[0] == run("workflows", said.strip(), "--cancel")[0] == 0
    (tmp_path / "s.json").write_text(
        json.dumps({"name": "n", "kind": "daily", "rule": {"times": ["07:00"]}, "task": {"handler": HANDLER}})
    )
    schedule = json.loads(run("schedules", "--create", str(tmp_path / "s.json"), "--json")[1])["id"]
    assert "paused" in run("schedules", schedule, "--pause")[1]
    assert [run("schedules", *more)[0] for more in ((), (schedule, "--run"), (schedule, "--delete"))] == [0, 0, 0]
    assert [run(name)[0] for name in ("workflows", "dead-letters", "handlers", "usage", "limits", "whoami")] == [0] * 6


def test_receipts_are_listed_saved_and_proved(client: Client, run: Command, tmp_path: Path, acme: ApiClient) -> None:
    task_id = client.submit(HANDLER)["task_ids"][0]
    client.cancel(task_id)
    assert list(client.receipts()) == []
    ended()
    (found,) = client.receipts(task_id=task_id)
    assert (found["state"], found["number"]) == ("cancelled", 1)
    assert task_id in run("receipts", "--task", task_id)[1]
    assert "nothing" in run("receipts", "--until", "2020-01-01T00:00:00Z")[1]
    (tmp_path / "receipts").write_text(run("receipts", "--json")[1])
    (tmp_path / "keys").write_text(run("receipts", "--keys", "--json")[1])
    call_command("verify_receipts", str(tmp_path / "receipts"), "--keys", str(tmp_path / "keys"))

    async def story(front: AsgiApplication) -> None:
        async with AsyncClient(URL, acme.text, transport=httpx.ASGITransport(app=front), retries=0) as waiting:
            assert [one async for one in waiting.receipts()] == [found]
            assert len([one async for one in waiting.receipt_keys()]) == 1

    drive(story)
    connections.close_all()


def test_the_command_names_what_is_wrong(run: Command, acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said, complaint = run("submit", HANDLER, "--tier", "huge")
    assert (code, said) == (2, "")
    assert complaint.startswith("slackwater: tier: there is no tier 'huge'")
    problem = json.loads(run("submit", HANDLER, "--tier", "huge", "--json")[2])
    assert (problem["code"], problem["field"]) == ("does_not_fit", "tier")
    assert run("status", acme.tenant.slug)[0] == 3
    assert json.loads(run("submit", HANDLER, "--dry-run", "--json")[1])["created"] is True
    assert run("submit", HANDLER, "--file", "x")[0] == run("submit")[0] == run("submit", "--nothing")[0] == 2
    assert "slackwater submit" in run("--help")[1]
    monkeypatch.setenv("SLACKWATER_KEY", "sw_wrong")
    assert run("whoami")[0] == 6
    monkeypatch.delenv("SLACKWATER_URL")
    code, _, complaint = run("status")
    assert (code, "SLACKWATER_URL" in complaint, "slackwater manage status" in complaint) == (2, True, True)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["status", "zzz"], "id"), (["logs", "zzz"], "id"), (["cancel", "zzz"], "id"), (["retry", "zzz"], "id"),
        (["explain", "zzz"], "id"), (["workflows", "zzz", "--cancel"], "id"), (["schedules", "zzz", "--run"], "id"),
        (["dead-letters", "--retry", "zzz"], "--retry"), (["events", "--task", "zzz"], "--task"),
        (["events", "--workflow", "zzz"], "--workflow"),
    ],
)  # fmt: skip
def test_an_id_that_is_none_is_named_as_it_was_given(run: Command, words: list[str], named: str) -> None:
    code, said, complaint = run(*words)
    assert (code, said) == (3, "")
    assert complaint.startswith(f"slackwater: {named}: 'zzz' is no id")


def test_a_filter_by_an_id_that_is_none_is_named_by_its_field(run: Command) -> None:
    assert "workflow_id: " in run("status", "--workflow-id", "zzz")[2]


@pytest.mark.parametrize("command", ["status", "workflows", "schedules", "dead-letters", "receipts"])
@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_list_of_no_rows_is_refused(run: Command, command: str, limit: str) -> None:
    code, said, complaint = run(command, "--limit", limit)
    assert (code, said) == (2, "")
    assert f"argument --limit: must be a whole number, at least 1, not '{limit}'" in complaint
