"""Whatever a client sends, the answer is a problem that names the fault: never a 500, and nothing is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slackwater_api.http.body import parse_submission
from slackwater_api.http.pieces import Pieces
from slackwater_tasks.models import Task, Workflow
from tests.support.api import HANDLER, ApiClient

pytestmark = pytest.mark.django_db


BODIES: list[tuple[bytes, int, str]] = [
    (b"", 400, "malformed_body"),
    (b"{", 400, "malformed_body"),
    (b"nonsense", 400, "malformed_body"),
    (b'{"handler": "\xff"}', 400, "malformed_body"),
    (b"\xef\xbb\xbf{}", 400, "malformed_body"),
    (b'{"priority": NaN}', 400, "malformed_body"),
    (b'{"priority": 1e999}', 400, "malformed_body"),
    (b'{"priority": ' + b"9" * 5000 + b"}", 400, "malformed_body"),
    (b"[" * 100_000, 400, "malformed_body"),
    (b'{"args": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "malformed_body"),
    (b'{"args": ' + b"[" * 150 + b"]" * 150 + b"}", 422, "invalid_input"),
    (b'{"handler": "a\\u0000b"}', 422, "invalid_input"),
    (b'{"a\\u0000b": 1}', 422, "invalid_input"),
    (b'{"args": ["\\ud800"]}', 422, "invalid_input"),
    (b'{"kwargs": {"\\udfff": 1}}', 422, "invalid_input"),
    (b"null", 422, "invalid_input"),
    (b"1", 422, "invalid_input"),
    (b'"text"', 422, "invalid_input"),
    (b"true", 422, "invalid_input"),
    (b"[]", 422, "invalid_input"),
    (b"[1]", 422, "invalid_input"),
    (b"[[]]", 422, "invalid_input"),
    (b"[null]", 422, "invalid_input"),
    (b"{}", 422, "invalid_input"),
]


@pytest.mark.parametrize("path", ["/tasks", "/workflows", "/scripts"])
@pytest.mark.parametrize(("raw", "status", "code"), BODIES, ids=[f"{b[0][:24]!r}" for b in BODIES])
def test_hostile_bodies_are_refused(acme: ApiClient, path: str, raw: bytes, status: int, code: str) -> None:
    answer = acme.post(path, raw=raw)
    assert (answer.status, answer.code) == (status, code), answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.body["request_id"] == answer.headers["X-Request-Id"]
    assert Task._plain.count() == 0


WRONG: list[tuple[str, Any]] = [
    ("name", 1),
    ("name", False),
    ("name", "x" * 201),
    ("handler", []),
    ("handler", "no.such.handler"),
    ("args", {}),
    ("args", "x"),
    ("kwargs", []),
    ("kwargs", 1),
    ("tier", None),
    ("tier", "huge"),
    ("tier", ["basic"]),
    ("category", "soon"),
    ("category", 1),
    ("priority", "1"),
    ("priority", 1.5),
    ("priority", True),
    ("priority", 1001),
    ("priority", -1),
    ("priority", 10**400),
    ("delay_tolerance_s", "1"),
    ("delay_tolerance_s", -1),
    ("delay_tolerance_s", 1e300),
    ("delay_tolerance_s", 10**400),
    ("on_late", "panic"),
    ("execution_cap_s", 0),
    ("execution_cap_s", 10**9),
    ("total_attempts", 0),
    ("total_attempts", 101),
    ("retry", []),
    ("retry", {"base_s": "x"}),
    ("retry", {"x": 1}),
    ("start_at", "tomorrow"),
    ("start_at", "2030-01-01T00:00:00"),
    ("start_at", 5),
    ("start_at", "9999-12-31T23:59:59-14:00"),
    ("depends_on", "a"),
    ("depends_on", [1]),
    ("depends_on", ["nobody"]),
    ("depends_on", [{}]),
    ("condition", "luck"),
    ("mutex_key", 1),
    ("mutex_key", "x" * 151),
    ("mutex_limit", 0),
    ("tags", "a"),
    ("tags", [""]),
    ("tags", ["x" * 64]),
    ("tags", ["a"] * 33),
    ("idempotency_key", 1),
    ("script", "abc"),
    ("colour", "red"),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[f"{f}={str(v)[:20]}" for f, v in WRONG])
def test_wrong_fields_are_named(acme: ApiClient, field: str, value: Any) -> None:
    answer = acme.post("/tasks", {"handler": HANDLER, field: value})
    assert answer.status in {422, 413}, answer.body
    assert str(answer.body["field"]).startswith(field)
    listed = acme.post("/tasks", [{"handler": HANDLER}, {"handler": HANDLER, field: value}])
    assert str(listed.body["field"]).startswith(f"tasks[1].{field}")
    in_graph = {"tasks": [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, field: value}]}
    assert str(acme.post("/workflows", in_graph).body["field"]).startswith(f"tasks[1].{field}")
    assert Task._plain.count() == 0
    assert Workflow._plain.count() == 0


def test_escaped_text_that_is_harmless_passes(acme: ApiClient) -> None:
    raw = b'{"handler": "%s", "args": ["\\\\u0000", "\\u00fc", "\\ud83d\\ude00"]}' % HANDLER.encode()
    answer = acme.post("/tasks", raw=raw)
    assert answer.status == 201, answer.body
    assert acme.get(f"/tasks/{answer.body['id']}").body["args"] == ["\\u0000", "ü", "😀"]


def test_a_payload_over_the_plan_is_413_and_names_its_field(acme: ApiClient) -> None:
    acme.tenant.plan.max_payload_bytes = 1000
    acme.tenant.plan.save()
    answer = acme.post("/tasks", {"handler": HANDLER, "args": ["x" * 1001]})
    assert (answer.status, answer.code, answer.body["field"]) == (413, "too_large", "args")


def test_a_body_over_the_platforms_limit_is_413(acme: ApiClient, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "API_MAX_BODY_BYTES": 1000}
    answer = acme.post("/tasks", raw=b'"' + b"x" * 1000 + b'"')
    assert (answer.status, answer.code) == (413, "too_large")


def test_another_media_type_is_415(acme: ApiClient) -> None:
    answer = acme.post("/tasks", {"handler": HANDLER}, Content_Type="application/x-www-form-urlencoded")
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert acme.post("/tasks", {"handler": HANDLER}, Content_Type="Application/JSON; charset=utf-8").status == 201


def test_other_methods_are_405(acme: ApiClient) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "BREW"):
        answer = acme.call(method, "/tasks")
        assert (answer.status, answer.code) == (405, "method_not_allowed"), method


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        "name",
        "handler",
        "script",
        "script_path",
        "args",
        "kwargs",
        "tier",
        "category",
        "priority",
        "delay_tolerance_s",
        "on_late",
        "execution_cap_s",
        "total_attempts",
        "retry",
        "start_at",
        "depends_on",
        "condition",
        "mutex_key",
        "mutex_limit",
        "tags",
        "idempotency_key",
        "tasks",
    ]
)
TASKS = st.dictionaries(NAMES, VALUES, max_size=5).map(lambda fields: {"handler": HANDLER, **fields})
HOSTILE = VALUES | TASKS | st.lists(TASKS, max_size=3) | TASKS.map(lambda task: {"tasks": [task]})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(path=st.sampled_from(["/tasks", "/workflows", "/scripts"]), body=HOSTILE)
def test_random_bodies_never_break_it(acme: ApiClient, path: str, body: Any) -> None:
    before = Task._plain.count()
    answer = acme.post(path, raw=json.dumps(body).encode())
    if answer.status in {200, 201}:
        return
    assert 400 <= answer.status < 500, answer.body
    assert answer.body["code"]
    assert Task._plain.count() == before


def test_many_tasks_are_stored_once_whichever_way_they_were_read(acme: ApiClient) -> None:
    """Those of a large body are read one by one; the same ones elsewhere, with a key, are the same submission."""
    tasks = [{"handler": HANDLER, "args": [n, "ü[,{", [], [], [], [], [], [], [], [], [], []]} for n in range(3_000)]
    large, short = (json.dumps(tasks, indent=indent).encode() for indent in (1, None))
    assert isinstance(parse_submission(large), Pieces)
    made = acme.post("/tasks", raw=large, Idempotency_Key="once")
    assert (made.status, len(made.body["task_ids"])) == (201, 3_000), made.body
    again = acme.post("/tasks", raw=short, Idempotency_Key="once")
    assert (again.status, again.body["task_ids"]) == (201, made.body["task_ids"])
    refused = acme.post("/tasks", raw=large[:-3] + b', "priority": "x"}]')
    assert (refused.status, refused.body["field"]) == (422, "tasks[2999].priority")
    graph = {"name": "w", "tasks": [{"name": f"t{n}", "handler": HANDLER, "args": [[n]] * 60} for n in range(900)]}
    body = json.dumps(graph, indent=1).encode()
    assert isinstance(parse_submission(body)["tasks"], Pieces)
    assert len(acme.post("/workflows", raw=body).body["task_ids"]) == 900
