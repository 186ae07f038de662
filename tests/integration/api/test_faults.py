"""What a refusal tells: every fault at once, what would mend it, and nothing that is not so."""

from __future__ import annotations

import pytest

from slackwater_tasks.models import Task
from tests.support.api import HANDLER, ApiClient

pytestmark = pytest.mark.django_db


def test_all_faults_are_told_at_once(acme: ApiClient) -> None:
    answer = acme.post("/tasks", {"handler": HANDLER, "priority": -1, "tier": 7, "agrs": [1]})
    assert (answer.status, answer.body["field"]) == (422, "priority")
    assert [fault["field"] for fault in answer.body["errors"]] == ["priority", "tier", "agrs"]
    assert answer.body["errors"][2]["suggestion"] == [{"op": "move", "from": "/agrs", "path": "/args"}]
    tasks = [{"handler": HANDLER}, {"handler": HANDLER, "priority": -1}, {"handler": 7}, 5]
    several = acme.post("/tasks", tasks).body["errors"]
    assert [fault["field"] for fault in several] == ["tasks[1].priority", "tasks[2].handler", "tasks[3]"]
    assert [fault["pointer"] for fault in several] == ["/1/priority", "/2/handler", "/3"]
    assert acme.post("/workflows", {"tasks": tasks}).body["errors"][0]["pointer"] == "/tasks/1/priority"
    assert "pointer" not in acme.get("/tasks?limit=0").body["errors"][0]
    assert len(acme.post("/tasks", [{"handler": 7}] * 500).body["errors"]) == 100
    unknown = acme.post(
        "/tasks", [{"handler": HANDLER[:-1], "tier": "tinny"}, {"handler": "qqqq"}, {"handler": HANDLER}]
    ).body
    assert [fault["field"] for fault in unknown["errors"]] == ["tasks[0].tier", "tasks[0].handler", "tasks[1].handler"]
    mends = [fault.get("suggestion") for fault in unknown["errors"]]
    assert mends[1] == [{"op": "replace", "path": "/0/handler", "value": HANDLER}]
    assert not Task._plain.exists()


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        ("/webhooks", {"url": 5, "evnets": [], "tags": "x"}, {"url", "evnets", "tags", "events"}),
        ("/schedules", {"kind": "x", "jitter_s": -1, "rul": {}}, {"kind", "jitter_s", "rul", "name"}),
        (
            "/schedules",
            {
                "name": "",
                "kind": "daily",
                "rule": {"times": ["99:00"]},
                "task": {"handler": "x", "priority": -1, "tags": 1},
            },
            {"name", "rule.times[0]", "task.priority", "task.tags"},
        ),
        (
            "/keys",
            {"name": 1, "scopes": [], "expires": 1, "origins": ["x"]},
            {"name", "scopes", "expires", "origins[0]"},
        ),
        ("/members", {"username": "", "role": "x", "email": "x", "team": "x"}, {"username", "role", "email", "team"}),
        ("/teams", {"slug": "A B", "nam": "x"}, {"slug", "nam", "name"}),
        ("/tiers", {"name": "A", "memory_mb": -1}, {"name", "memory_mb", "cpu_milli"}),
        ("/rates", {"starts": 0, "key": 5}, {"starts", "window_s", "key"}),
        ("/secrets", {"name": "1", "value": "short"}, {"name", "value"}),
        ("/scripts", {"content": 5}, {"name", "content"}),
    ],
)
def test_every_body_tells_all_its_faults(acme: ApiClient, path: str, body: object, fields: set[str]) -> None:
    answer = acme.post(path, body)
    assert (answer.status, {fault["field"] for fault in answer.body["errors"]}) == (422, fields)
    assert all(fault["pointer"] for fault in answer.body["errors"])
    for fault in answer.body["errors"]:
        if fault["field"] in {"evnets", "rul", "nam"}:
            assert fault["suggestion"][0]["op"] == "move"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("eta", "start_at"), ("countdown", "start_in_s"), ("time_limit", "execution_cap_s"), ("queue", "category"),
        ("max_retries", "total_attempts"), ("labels", "require_labels"), ("agrs", "args"), ("expires", "expires_in_s"),
        ("task_id", "PUT"), ("retry_policy", "total_attempts"), ("shadow", "name"), ("chord", "/workflows"),
        ("rate_limit", "/rates"), ("headers", "metadata"), ("ignore_result", "kept"),
    ],
)  # fmt: skip
def test_the_words_of_celery_are_understood(acme: ApiClient, word: str, meant: str) -> None:
    answer = acme.post("/tasks", {"handler": HANDLER, word: 1})
    assert answer.body["field"] == word
    assert meant in answer.body["detail"], answer.body


def test_a_script_in_place_of_its_digest_is_told_where_it_belongs(acme: ApiClient) -> None:
    answer = acme.post("/tasks", {"script": "#!/bin/sh\necho hello\n"})
    assert (answer.status, answer.body["field"]) == (422, "script")
    assert "/api/v1/scripts" in answer.body["detail"]


def test_an_id_that_is_none_is_told_as_one(acme: ApiClient) -> None:
    for path, field, words in (
        ("/tasks/abc", "task_id", "'abc' is no id"), (f"/scripts/{'AB' * 32}", "sha256", "lower-case"),
        ("/scripts/12", "sha256", "'12' is no id"), ("/workflows/x/tasks", "workflow_id", "'x' is no id"),
    ):  # fmt: skip
        answer = acme.get(path)
        assert (answer.status, answer.code, answer.body["field"]) == (404, "not_found", field), path
        assert words in answer.body["detail"]
    assert "no such endpoint" in acme.get("/nothing").body["detail"]


def test_nothing_is_dropped_where_a_name_stands_twice(acme: ApiClient) -> None:
    assert acme.get("/tasks?state=failed&state=succeeded").body["field"] == "state"
    assert acme.get("/tasks?limit=1&limit=2").body["field"] == "limit"
    raw = b'{"handler": "demo.noop", "args": [{"a": 1, "a": 2}]}'
    twice = acme.call("POST", "/tasks", raw=raw)
    assert (twice.status, twice.code) == (400, "malformed_body")
    assert "'a' twice" in twice.body["detail"]
