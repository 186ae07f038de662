"""One law of repeats: a change with an idempotency key is made once, and its first answer is given again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uuid_utils
from django.conf import settings
from django.db import connections

from slackwater_monitoring.models import Subscription
from slackwater_tasks.models import IdempotencyKey, Task
from slackwater_tasks.submission import answers
from slackwater_tenants.models import ApiKey
from tests.integration.api.test_openapi import operations
from tests.support.api import HANDLER, Answer, ApiClient, client_of, furnish

MACHINE = {"name": "a machine", "scopes": ["read"]}


def replayed(answer: Answer) -> bool:
    """Whether an answer says that it was given before."""
    return answer.headers.get("Idempotency-Replayed") == "true"


def test_every_change_takes_a_key() -> None:
    for path, method, operation in operations():
        takes = "Idempotency-Key" in {each["name"] for each in operation.get("parameters", [])}
        assert takes == (method in {"POST", "PATCH", "DELETE"}), (method, path)


def test_a_repeat_gets_the_first_answer_and_does_nothing(acme: ApiClient) -> None:
    task_id = acme.task(start_at="2040-01-01T00:00:00Z")
    hook = {"url": "https://example.org/h", "events": ["task.failed"]}
    schedule = {"name": "s", "kind": "daily", "task": {"handler": HANDLER}}
    changes: list[tuple[str, str, Any, Any]] = [
        ("POST", "/keys", MACHINE, {**MACHINE, "name": "another"}),
        ("POST", "/webhooks", hook, {**hook, "events": ["task.late"]}),
        ("POST", "/schedules", schedule, {**schedule, "name": "t"}),
        ("POST", "/secrets", {"name": "MAIL", "value": "a long secret"}, {"name": "MAIL", "value": "another one"}),
        ("PATCH", f"/tasks/{task_id}", {"priority": 3}, {"priority": 4}),
        ("POST", f"/tasks/{task_id}/cancel", None, {"dependents": True}),
        ("POST", f"/tasks/{task_id}/retry", None, None),
        ("DELETE", "/secrets/MAIL", None, None),
        ("POST", "/tasks", {"handler": HANDLER}, {"handler": HANDLER, "args": [1]}),
    ]
    for n, (method, path, body, other) in enumerate(changes):
        key = f"key {n}"
        first = acme.call(method, path, body, Idempotency_Key=key)
        assert first.status in {200, 201, 204}, (path, first.body)
        assert not replayed(first), path
        again = acme.call(method, path, body, Idempotency_Key=key)
        assert replayed(again), (path, again.body)
        assert (again.status, again.body) == (first.status, first.body), path
        for name in ("Location", "ETag"):
            assert again.headers.get(name) == first.headers.get(name), (path, name)
        if other is not None:
            refused = acme.call(method, path, other, Idempotency_Key=key)
            assert (refused.status, refused.code) == (422, "idempotency_mismatch"), path
        elsewhere = acme.post("/teams", {"slug": "crew", "name": "Crew"}, Idempotency_Key=key)
        assert (elsewhere.status, elsewhere.code) == (422, "idempotency_mismatch"), path
    # What was made was made once, and what is shown once does not lie open in the table.
    assert ApiKey.objects.filter(name="a machine").count() == Subscription._plain.count() == 1
    text = acme.call("POST", "/keys", MACHINE, Idempotency_Key="key 0").body["key"]
    kept = IdempotencyKey.objects.get(tenant=acme.tenant, key="key 0").answer
    assert kept is not None
    assert text.encode() not in bytes(kept)


def test_what_was_refused_or_broken_off_leaves_its_key_free(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert acme.post("/keys", {"name": "x", "scopes": ["fly"]}, Idempotency_Key="k").status == 422
    with monkeypatch.context() as broken:  # the process dies when all is done, before it is committed

        def die(*_: object) -> bytes:
            raise RuntimeError

        broken.setattr(answers, "_sealed", die)
        assert acme.post("/keys", MACHINE, Idempotency_Key="k").status == 500
    assert not ApiKey.objects.filter(name="a machine").exists()
    first = acme.post("/keys", MACHINE, Idempotency_Key="k")
    assert (first.status, replayed(first)) == (201, False)
    assert acme.post("/keys", MACHINE, Idempotency_Key="k").body == first.body
    assert acme.post("/keys", MACHINE, Idempotency_Key="ü").body["field"] == "Idempotency-Key"


@pytest.mark.django_db(transaction=True)
def test_of_twenty_at_once_one_is_made(acme: ApiClient) -> None:
    def ask(_: int) -> Answer:
        try:
            client = ApiClient(acme.tenant, acme.key, acme.text)
            return client.post("/keys", MACHINE, Idempotency_Key="at once")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(ask, range(20)))
    assert {answer.status for answer in found} == {201}, [answer.body for answer in found]
    assert len({answer.body["key"] for answer in found}) == 1
    assert sorted(map(replayed, found)) == [False] + [True] * 19
    assert ApiKey.objects.filter(name="a machine").count() == 1


def test_a_task_is_put_under_an_id_of_ones_own(acme: ApiClient) -> None:
    own, task = str(uuid_utils.uuid7()), {"handler": HANDLER, "args": [1]}
    first, again = acme.call("PUT", f"/tasks/{own}", task), acme.call("PUT", f"/tasks/{own}", task)
    assert (first.status, first.body) == (201, {"id": own, "task_ids": [own], "created": True})
    assert (again.status, again.body["created"], replayed(again)) == (200, False, True)
    assert acme.call("PUT", f"/tasks/{own}", {**task, "args": [2]}).code == "idempotency_mismatch"
    there = acme.task()
    other = client_of("other")
    for client, taken in ((acme, there), (other, own)):
        assert client.call("PUT", f"/tasks/{taken}", task).code == "conflict"
    old = uuid.UUID(int=(int(time.time() - 200_000) * 1000 << 80) | 0x7 << 76 | 0x2 << 62 | 5)
    for wrong in (uuid.uuid4(), old):
        assert acme.call("PUT", f"/tasks/{wrong}", task).body["field"] == "task_id"
    assert Task._plain.count() == 2


def test_an_id_may_have_capitals(acme: ApiClient) -> None:
    own = str(uuid_utils.uuid7())
    capitals = own.upper()
    made = acme.call("PUT", f"/tasks/{capitals}", {"handler": HANDLER})
    assert (made.status, made.body["id"]) == (201, own), made.body
    assert acme.call("PUT", f"/tasks/{own}", {"handler": HANDLER}).body["created"] is False
    for path in (f"/tasks/{capitals}", f"/tasks/{capitals}?wait=0", f"/tasks/{capitals}/status"):
        assert acme.get(path).body["id"] == own, path
    assert [row["id"] for row in acme.get(f"/tasks?id={capitals}").body["items"]] == [own]
    assert acme.post(f"/tasks/{capitals}/cancel").status == 200


# A server that dies right after each change is committed, before a byte of its answer.
DYING = """
import json, os, signal, sys
import django
django.setup()
from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client

given = json.load(sys.stdin)
settings.SECRET_KEY, settings.ALLOWED_HOSTS = given["secret"], ["testserver"]
commit = BaseDatabaseWrapper._commit

def commit_and_die(self):
    commit(self)
    os.kill(os.getpid(), signal.SIGKILL)

BaseDatabaseWrapper._commit = commit_and_die
ends = []
for key, (method, path, body) in given["changes"].items():
    child = os.fork()
    if not child:
        headers = {"Authorization": given["authorization"], "Idempotency-Key": key}
        Client().generic(method, "/api/v1" + path, json.dumps(body), content_type="application/json", headers=headers)
        os._exit(0)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(ends))
"""


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_repeat_after_a_crash_between_commit_and_answer_gets_the_first_answer(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    furnish()
    acme = client_of("acme")
    waiting = acme.task(start_at="2040-01-01T00:00:00Z")
    ended = acme.task()
    acme.post(f"/tasks/{ended}/cancel")
    hook = {"url": "https://example.org/h", "events": ["task.failed"]}
    flow = {"tasks": [{"name": "a", "handler": HANDLER}]}
    changes: dict[str, tuple[str, str, Any]] = {
        "one": ("POST", "/tasks", {"handler": HANDLER}),
        "several": ("POST", "/tasks", [{"handler": HANDLER}] * 20),
        "flow": ("POST", "/workflows", flow),
        "anew": ("POST", f"/tasks/{ended}/resubmit", {"args": [1]}),
        "key": ("POST", "/keys", MACHINE),
        "hook": ("POST", "/webhooks", hook),
        "cancel": ("POST", f"/tasks/{waiting}/cancel", {}),
    }
    env = {
        **os.environ, "SLACKWATER_DATABASE_URL": database_url, "SLACKWATER_REDIS_URL": redis_url,
        "SLACKWATER_VAR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": "platform:apps:.",
    }  # fmt: skip
    given = {"changes": changes, "authorization": f"Bearer {acme.text}", "secret": settings.SECRET_KEY}
    server = [sys.executable, "-W", "ignore", "-c", DYING]
    done = subprocess.run(server, input=json.dumps(given), env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == json.dumps([-9] * len(changes)), done.stderr
    kinds = (Task._plain, ApiKey.objects, Subscription._plain, IdempotencyKey.objects)
    before = [rows.count() for rows in kinds]
    assert before == [2 + 1 + 20 + 1 + 1, 2, 1, len(changes)], "each was committed"
    for key, (method, path, body) in changes.items():
        found = [acme.call(method, path, body, Idempotency_Key=key) for _ in range(2)]
        assert all(replayed(answer) and answer.status in {200, 201} for answer in found), (key, found[0].body)
        assert found[0].body == found[1].body
        other = {**body, "name": "another"} if isinstance(body, dict) else body[1:]
        assert acme.call(method, path, other, Idempotency_Key=key).code == "idempotency_mismatch", key
    assert [rows.count() for rows in kinds] == before
    made = acme.call(*changes["key"], Idempotency_Key="key").body["key"]
    assert acme.get("/tasks", Authorization=f"Bearer {made}").status == 200, "the key it shows is the one that was made"


def test_a_faulty_key_is_refused_where_only_a_quote_is_asked_for_too(acme: ApiClient) -> None:
    answer = acme.call("POST", f"/tasks/{acme.task()}/retry?dry_run=true", Idempotency_Key="x" * 201)
    assert (answer.status, answer.body["field"]) == (422, "Idempotency-Key")
