"""Workflow templates: versions by name, typed parameters, submitted by name and fired by schedules."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater_tasks.models import Task, WorkflowTemplate
from tests.support.api import HANDLER, Answer, ApiClient, client_of, ids

pytestmark = pytest.mark.django_db
PARAMETERS = {
    "properties": {
        "day": {"type": "string", "format": "date"},
        "width": {"type": "integer", "minimum": 1, "default": 200},
        "tier": {"enum": ["basic", "regular"], "default": "basic"},
        "cap": {"type": "number"},
    },
    "required": ["day"],
}
WORKFLOW: dict[str, Any] = {
    "tags": ["nightly"],
    "tasks": [
        {"name": "fetch", "handler": HANDLER, "args": [{"$param": "day"}], "execution_cap_s": {"$param": "cap"}},
        {"name": "thumbs", "handler": HANDLER, "depends_on": ["fetch"], "tier": {"$param": "tier"},
         "kwargs": {"deep": [{"w": {"$param": "width"}}], "from": {"$from": "fetch"}}},
    ],
}  # fmt: skip
THUMBS: dict[str, Any] = {"name": "thumbs", "description": "of a day", "parameters": PARAMETERS, "workflow": WORKFLOW}
PATH = "/workflow-templates/thumbs"


def store(client: ApiClient, body: Any) -> Answer:
    """Store a version."""
    return client.post("/workflow-templates", body)


def test_versions_are_kept_by_name(acme: ApiClient) -> None:
    first = store(acme, THUMBS)
    assert (first.status, first.body["version"], first.body["parameters"]["required"]) == (201, 1, ["day"])
    assert store(acme, THUMBS).status == 200
    assert store(acme, {**THUMBS, "description": "wider"}).body["version"] == 2
    assert store(acme, {**THUMBS, "name": "other"}).body["version"] == 1
    assert ids(acme, "/workflow-templates?name_pattern=th*", "version") == [2]
    assert ids(acme, f"{PATH}/versions", "version") == [2, 1]
    assert acme.get(PATH).body["description"] == "wider"
    assert acme.get(f"{PATH}?version=1").body["description"] == "of a day"
    assert acme.get(f"{PATH}?version=3").status == 404
    assert client_of("beta").get(PATH).status == 404
    assert acme.call("DELETE", PATH).status == 204
    assert ids(acme, "/workflow-templates") == ["other"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"parameters": {"type": "array"}}, "parameters"),
        ({"parameters": {"properties": {"day": {"type": "nonsense"}}}}, "parameters.properties.day.type"),
        ({"parameters": {"properties": {"day": {"$ref": "http://example.org/x"}}}}, "parameters"),
        (
            {"parameters": {"properties": {"day": {"type": "integer", "default": "x"}}}},
            "parameters.properties.day.default",
        ),
        ({"parameters": {"properties": {"day": {"pattern": "^(?!x)"}}}}, "parameters.properties.day.pattern"),
        ({"parameters": {"properties": {"day": {"pattern": r"(a)\1"}}}}, "parameters.properties.day.pattern"),
        ({"parameters": {"properties": {"day": {"pattern": "(.{999}){999}"}}}}, "parameters.properties.day.pattern"),
        (
            {"parameters": {"properties": {"day": {"patternProperties": {"(?=a)": {}}}}}},
            "parameters.properties.day.patternProperties.(?=a)",
        ),
        ({"parameters": {"properties": {"day": {"anyOf": [{"pattern": "a"}] * 101}}}}, "parameters"),
        ({"workflow": {"tasks": [{"name": "a", "handler": {"$param": "nobody"}}]}}, "workflow"),
        ({"workflow": {"tasks": []}}, "workflow.tasks"),
        ({"parameters": {}, "workflow": {"tasks": [{"name": "a"}]}}, "workflow.tasks[0].handler"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_could_never_be_submitted_is_refused_when_it_is_stored(acme: ApiClient, change: Any, field: str) -> None:
    answer = store(acme, {**THUMBS, **change})
    assert (answer.status, answer.body["field"]) == (422, field), answer.body


def test_a_template_is_submitted_with_parameters(acme: ApiClient) -> None:
    store(acme, THUMBS)
    for wrong, field in (
        ({}, "parameters.day"), ({"day": "x"}, "parameters.day"), ({"day": "2030-01-31", "width": 0}, "parameters.width"),
        ({"day": "2030-01-31", "dya": 1}, "parameters.dya"),
    ):  # fmt: skip
        assert acme.post(f"{PATH}/submit", {"parameters": wrong}).body["field"] == field
    assert acme.post(f"{PATH}/submit", {"parameters": {"day": "2030-01-31"}, "version": 9}).status == 404
    body = {"parameters": {"day": "2030-01-31", "tier": "regular"}, "metadata": {"by": "me"}}
    made = acme.post(f"{PATH}/submit", body, Idempotency_Key="once")
    assert made.status == 201
    store(acme, {**THUMBS, "description": "changed meanwhile"})
    assert acme.post(f"{PATH}/submit", body, Idempotency_Key="once").body == made.body
    flow = acme.get(made.headers["Location"].removeprefix("/api/v1")).body
    assert (flow["name"], flow["tags"], flow["metadata"]) == ("thumbs", ["nightly"], {"by": "me"})
    fetch, thumbs = (Task._plain.get(pk=each) for each in made.body["task_ids"])
    assert (fetch.args, fetch.cap_ms, thumbs.tier.slug) == (["2030-01-31"], 300_000, "regular")
    assert thumbs.kwargs == {"deep": [{"w": 200}], "from": {"$from": "fetch"}}


def test_a_schedule_fires_a_template(acme: ApiClient) -> None:
    store(acme, {**THUMBS, "parameters": {"properties": {"day": {"type": "string"}, "cap": {}}},
                            "workflow": {"tasks": WORKFLOW["tasks"][:1]}})  # fmt: skip
    rule = {"name": "nightly", "kind": "daily", "overlap": "skip"}
    for wrong, field in (
        ({"template": "nobody"}, "workflow.template"), ({"template": "thumbs", "tasks": []}, "workflow.tasks"),
        ({"template": "thumbs", "parameters": {"day": 7}}, "workflow.parameters.day"),
    ):  # fmt: skip
        assert acme.post("/schedules", {**rule, "workflow": wrong}).body["field"] == field
    use = {"template": "thumbs", "parameters": {"day": "$fire_at"}}
    made = acme.post("/schedules", {**rule, "workflow": use})
    assert (made.status, made.body["workflow"]) == (201, use)
    fired = acme.post(f"/schedules/{made.body['id']}/run")
    assert fired.status == 201
    (task,) = Task._plain.filter(workflow_id=fired.body["workflow_id"])
    assert task.args == [fired.body["fire_at"]]
    assert acme.get(f"/workflows/{fired.body['workflow_id']}").body["name"] == "nightly"
    assert acme.post(f"/schedules/{made.body['id']}/run").status == 409, "its overlap rule"


ONE_TASK = {"tasks": [{"name": "a", "handler": HANDLER, "args": [{"$param": "a"}]}]}
SLOW = "(a+)+$"
CAUGHT = "a" * 40 + "!"
"""What an engine that tries one way after the other would match with ``SLOW`` for hours."""


@pytest.mark.parametrize(
    ("schema", "fits", "wrong"),
    [
        ({"type": "string", "pattern": SLOW}, "aaa", CAUGHT),
        ({"patternProperties": {SLOW: {}}, "additionalProperties": False}, {"aaa": 1}, {CAUGHT: 1}),
        ({"patternProperties": {SLOW: {}}, "unevaluatedProperties": False}, {"aaa": 1}, {CAUGHT: 1}),
        ({"type": "string", "format": "regex"}, SLOW, "(" * 5_000),
        ({"type": "number", "multipleOf": 0.1}, 10**401, 0.05),
        ({"type": "number", "multipleOf": 0.3}, 0.9, 10**401),
        ({"type": "integer", "maximum": 1.5}, 1, 10**401),
    ],
    ids=["pattern", "names", "other_names", "format", "a_long_multiple", "no_multiple", "too_long_a_number"],
)
def test_no_parameter_holds_the_process_up(acme: ApiClient, schema: Any, fits: Any, wrong: Any) -> None:
    """Whatever a tenant writes as its schema: what does not fit is told at once, by the parameter's name."""
    assert store(acme, {"name": "x", "parameters": {"properties": {"a": schema}}, "workflow": ONE_TASK}).status == 201
    refused = acme.post("/workflow-templates/x/submit", {"parameters": {"a": wrong}})
    assert (refused.status, refused.body["field"]) == (422, "parameters.a"), refused.body
    assert acme.post("/workflow-templates/x/submit", {"parameters": {"a": fits}}).status == 201
    with_default = {"properties": {"a": {**schema, "default": wrong}}}
    refused = store(acme, {"name": "x", "parameters": with_default, "workflow": ONE_TASK})
    assert (refused.status, refused.body["field"]) == (422, "parameters.properties.a.default"), refused.body


def test_what_an_expression_is_matched_with_is_bounded(acme: ApiClient) -> None:
    """Even in linear time: its states, times the letters, would be half a minute for a million."""
    for name, pattern in (("plain", "^[ab]+$"), ("states", "(a|b)*a(a|b){999}$")):
        given = {"properties": {"a": {"type": "string", "pattern": pattern}}}
        assert store(acme, {"name": name, "parameters": given, "workflow": ONE_TASK}).status == 201
        made = acme.post(f"/workflow-templates/{name}/submit", {"parameters": {"a": "ab" * 1_000}})
        assert made.status == 201
    long = {"parameters": {"a": "ab" * 50_000}}
    assert acme.post("/workflow-templates/plain/submit", long).status == 201
    refused = acme.post("/workflow-templates/states/submit", long)
    assert (refused.status, refused.body["field"]) == (413, "parameters"), refused.body


def test_a_template_of_before_says_what_no_longer_goes(acme: ApiClient) -> None:
    given = {"type": "object", "properties": {"a": {"pattern": "^(?!x)"}, "b": {"pattern": SLOW}}}
    for name, properties in (("old", given["properties"]), ("fine", {"a": {"pattern": SLOW}})):
        stored = {**given, "properties": properties}
        WorkflowTemplate(tenant=acme.tenant, name=name, version=1, parameters=stored, workflow=ONE_TASK).save()
    refused = acme.post("/workflow-templates/old/submit", {"parameters": {"a": "a"}})
    assert (refused.status, refused.body["field"]) == (422, "parameters"), refused.body
    assert "properties.a.pattern" in refused.body["detail"]
    assert acme.post("/workflow-templates/fine/submit", {"parameters": {"a": "a"}}).status == 201
