"""The rules of names, by which the whole interface goes (docs/api.md): held over every operation and every field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.api.test_openapi import PLAIN, operations
from tests.support.api import HANDLER, ApiClient, client_of, furnish

ID = re.compile(r"(^|_)id$")
UNIT = re.compile(r"_(seconds?|secs?|minutes?|hours?|ms|millis)$")
PER_HOUR = {"tasks_per_hour", "price_micros_per_hour", "per_hour"}
MOMENT = re.compile(r"(_at|^at|^start|^end|^earliest|^likely|^latest|_start|_since|^not_before|^as_of)$")
DURATION = re.compile(r"\bseconds\b", re.IGNORECASE)
AGAIN = re.compile(r"requeue|rerun|restart|re-run|redo")
STREAMS = {"stream_task", "stream_workflow", "stream_events"}


def types_of(schema: dict[str, Any]) -> set[str]:
    """The JSON types of a property."""
    found = schema.get("type", [])
    return {found} if isinstance(found, str) else set(found)


def properties() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Shape, name and schema of every property."""
    for shape, schema in PLAIN["components"]["schemas"].items():
        for name, found in schema.get("properties", {}).items():
            yield shape, name, found


def parameters() -> Iterator[tuple[str, dict[str, Any]]]:
    """Operation and description of every parameter in a path or a query."""
    for _, _, operation in operations():
        for found in operation.get("parameters", []):
            if found["in"] in {"path", "query"}:
                yield operation["operationId"], found


def answered(operation: dict[str, Any]) -> dict[str, Any]:
    """The properties of what an operation answers with 200."""
    content: Any = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
    shape = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = PLAIN["components"]["schemas"].get(shape, {}).get("properties", {})
    return found


def test_every_name_is_written_in_one_way() -> None:
    for shape, name, _ in properties():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), (shape, name)
    for operation, found in parameters():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", found["name"]), (operation, found["name"])
    for path, _, described in operations():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", described["operationId"]), path
        assert not AGAIN.search(path), f"{path}: what runs again is retried"


def test_an_id_is_a_text_that_tells_nothing_of_others() -> None:
    for shape, name, schema in properties():
        if ID.search(name):
            assert "string" in types_of(schema), (shape, name)
        if name.endswith("_ids"):
            assert schema["type"] == "array", (shape, name)
        assert name != "ids", f"{shape}: ids of what?"
    for operation, found in parameters():
        if ID.search(found["name"]):
            assert found["schema"]["type"] == "string", (operation, found["name"])


def test_every_duration_is_in_seconds_and_says_so() -> None:
    for shape, name, schema in properties():
        assert not UNIT.search(name) or name in PER_HOUR, (shape, name)
        is_number = types_of(schema) & {"number", "integer"}
        if is_number and DURATION.search(schema.get("description", "")):
            assert name.endswith("_s"), (shape, name)
        if name.endswith("_s"):
            assert is_number or "additionalProperties" in schema, (shape, name)


def test_every_moment_is_named_as_one() -> None:
    for shape, name, schema in properties():
        if schema.get("format") == "date-time":
            assert MOMENT.search(name), (shape, name)
        elif name.endswith("_at"):
            assert schema.get("items", schema).get("format") == "date-time", (shape, name)


def test_every_list_comes_in_pages() -> None:
    lists = 0
    for path, method, operation in operations():
        found = answered(operation)
        if method != "GET" or "items" not in found:
            continue
        lists += 1
        assert "next_cursor" in found, path
        assert {"cursor", "limit"} <= {each["name"] for each in operation["parameters"]}, path
    assert lists > 15


def test_words_are_written_in_one_way() -> None:
    for shape, name, schema in properties():
        for word in schema.get("enum") or schema.get("items", {}).get("enum") or ():
            assert word is None or re.fullmatch(r"[a-z0-9_.]+", word), (shape, name, word)


def empty_texts(value: Any, path: str = "") -> Iterator[str]:
    """The paths of texts without a letter, but for contents that may well be empty."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name not in {"text", "content", "args", "kwargs", "payload", "rule"}:
                yield from empty_texts(each, f"{path}.{name}")
    elif isinstance(value, list):
        for n, each in enumerate(value):
            yield from empty_texts(each, f"{path}[{n}]")
    elif value == "":
        yield path


@pytest.mark.django_db
def test_what_is_not_there_is_null_and_every_page_goes_on_where_the_last_one_ended() -> None:
    furnish()
    acme: ApiClient = client_of("acme")
    task_id = acme.task()
    acme.post("/workflows", {"tasks": [{"name": "w", "handler": HANDLER}]})
    schedule = {"name": "s", "kind": "daily", "task": {"handler": HANDLER}}
    made = acme.post("/schedules", schedule).body["id"]
    acme.post("/webhooks", {"channel": "email", "events": ["task.failed"]})
    acme.post("/rates", {"starts": 5, "window_s": 60})
    for slug in ("a", "b", "c"):
        acme.post("/teams", {"slug": slug, "name": "Crew"})
    acme.post("/members", {"username": "ann"})
    own = ("tasks", "workflows", "schedules", "webhooks", "rates", "teams", "members", "queues", "tiers", "keys")
    for path in (*(f"/{name}" for name in own), f"/tasks/{task_id}", f"/tasks/{task_id}/history", f"/schedules/{made}"):
        answer = acme.get(path)
        assert answer.status == 200, path
        assert not list(empty_texts(answer.body)), (path, list(empty_texts(answer.body)))
    # Lists that are made in memory page as the others do, whoever comes or goes meanwhile.
    first = acme.get("/teams?limit=1&sort=-slug").body
    assert [row["slug"] for row in first["items"]] == ["c"]
    acme.post("/teams", {"slug": "d", "name": "First of all now"})
    rest = acme.get(f"/teams?limit=5&sort=-slug&cursor={first['next_cursor']}").body
    assert ([row["slug"] for row in rest["items"]], rest["next_cursor"]) == (["b", "a"], None)
    assert acme.get(f"/teams?cursor={first['next_cursor']}").body["field"] == "cursor", "it belongs to another order"
    assert acme.get("/teams?limit=0").body["field"] == "limit"
    # And null may be sent where an answer shows it.
    assert acme.post("/tasks", {"handler": HANDLER, "script": None, "name": None, "mutex_key": None}).status == 201
