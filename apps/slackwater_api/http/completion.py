"""What the generator of the OpenAPI document leaves out: closed bodies, defaults, headers, links, servers, tags.

A hook of drf-spectacular; it works on the finished document, so each rule holds for every operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from slackwater_tasks.spec import FIELDS

TAGS: Final = {
    "tasks": "Submit, list, read, wait for, change, cancel, run again.",
    "workflows": "Graphs of tasks.",
    "handlers": "The functions you may call.",
    "schedules": "Work that is submitted again and again.",
    "dead letters": "Tasks whose attempts are used up.",
    "scripts": "Files of your own that tasks run.",
    "uploads": "Files of your own that tasks read, sent in pieces.",
    "secrets": "Values that scripts and handlers are given.",
    "streams": "Changes as they happen (server-sent events).",
    "webhooks": "Changes sent to an address of yours.",
    "limits": "Execution rates.",
    "tiers": "Resources by name.",
    "platform": "Nodes, lines, limits, usage.",
    "organisation": "Users, teams, keys.",
}
HEADERS: Final = {
    "X-Request-Id": ("The request's id, as the server's logs have it.", "string"),
    "Link": ("The next page, and the first.", "string"),
    "ETag": ("What If-None-Match and If-Match take.", "string"),
    "Location": ("The address of what was made.", "string"),
    "Retry-After": ("Seconds until it may be tried again.", "integer"),
    "RateLimit": ("Of what was counted: what is left of each limit, and the seconds until it is more.", "string"),
    "RateLimit-Policy": ("Those limits (draft-ietf-httpapi-ratelimit-headers-10).", "string"),
}
LINKS: Final = {
    "submit_tasks": ("get_task", "task_id", "id"),
    "call_handler": ("get_task", "task_id", "id"),
    "submit_workflow": ("get_workflow", "workflow_id", "id"),
    "create_schedule": ("get_schedule", "schedule_id", "id"),
    "create_webhook": ("get_webhook", "webhook_id", "id"),
    "store_script": ("get_script", "sha256", "sha256"),
}
"""Of what was made: the operation that reads it, its parameter, and the answer's field."""
NEED_A_BODY: Final = {"submit_tasks", "put_task"}
"""Beside every PATCH, and what has a required field."""


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """The document with what every operation has."""
    schemas = result["components"]["schemas"]
    result["servers"] = [{"url": "/", "description": "Where this document comes from."}]
    used = {tag for item in result["paths"].values() for operation in item.values() for tag in operation["tags"]}
    result["tags"] = [{"name": name, "description": TAGS[name]} for name in TAGS if name in used]
    for item in result["paths"].values():
        for method, operation in item.items():
            _complete_answers(operation)
            if "requestBody" in operation:
                _complete_body(method, operation, schemas)
    for name, field in FIELDS.items():
        shown = field.kind.shown(field.default) if field.default is not None else None
        if not field.fallback and shown not in (None, "", [], {}):
            for shape in ("TaskIn", "TaskAmong"):
                schemas[shape]["properties"][name]["default"] = shown
    return result


def _complete_answers(operation: dict[str, Any]) -> None:
    for status, answer in operation["responses"].items():
        names = ["X-Request-Id"]
        if status == "200" and any(each["name"] == "If-None-Match" for each in operation.get("parameters", ())):
            names.append("ETag")
        if status == "200" and any(each["name"] == "cursor" for each in operation.get("parameters", ())):
            names.append("Link")
        if status == "201":
            names.append("Location")
        if status in {"429", "503"}:
            names.append("Retry-After")
        if "429" in operation["responses"] and (status < "300" or status == "429"):
            names += ("RateLimit", "RateLimit-Policy")
        answer["headers"] = {
            name: {"description": HEADERS[name][0], "schema": {"type": HEADERS[name][1]}} for name in names
        }
    if (link := LINKS.get(operation["operationId"])) is not None:
        reads, parameter, field = link
        operation["responses"]["201"]["links"] = {
            reads: {"operationId": reads, "parameters": {parameter: f"$response.body#/{field}"}}
        }


def _complete_body(method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    body = operation["requestBody"]
    schema = next(iter(body["content"].values()))["schema"]
    if method == "patch" or operation["operationId"] in NEED_A_BODY:
        body["required"] = True
    for name in _reached(schema, schemas):
        if "properties" in schemas[name]:
            schemas[name].setdefault("additionalProperties", False)
    if method == "patch" and "$ref" in schema:
        schemas[schema["$ref"].rpartition("/")[2]]["minProperties"] = 1


def _reached(schema: Any, schemas: dict[str, Any]) -> Iterator[str]:
    """The names of the components that a body is made of."""
    found: set[str] = set()
    left = [schema]
    while left:
        here = left.pop()
        if isinstance(here, list):
            left += here
        elif isinstance(here, dict):
            name = str(here.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found.add(name)
                yield name
                left.append(schemas[name])
            left += here.values()
