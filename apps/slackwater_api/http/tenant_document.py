"""The OpenAPI document of one tenant: the common one, and an operation for each handler its plan grants.

A client that is generated from it has a function for each handler, with its arguments: ``mail.send(to=…)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from scheduler_ext.task.signature import POSITIONAL, REST
from slackwater_api.http.reference import document

CALL = "/api/v1/handlers/{handler_name}/tasks"


def tenant_document(handlers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The document with the operations of these handlers; what is common stays the very same objects."""
    common = document()
    general = common["paths"][CALL]["post"]
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    tags: dict[str, Any] = {}
    for handler in handlers:
        group, _, _ = handler["name"].rpartition(".")
        tags[group or "handlers"] = {"name": group or "handlers"}
        paths[CALL.format(handler_name=quote(handler["name"], safe=""))] = {
            "post": _operation(general, handler, group or "handlers", schemas)
        }
    return {
        **common,
        "tags": [*common.get("tags", ()), *tags.values()],
        "paths": {**common["paths"], **paths},
        "components": {**common["components"], "schemas": {**common["components"]["schemas"], **schemas}},
    }


def _operation(
    general: dict[str, Any], handler: Mapping[str, Any], tag: str, schemas: dict[str, Any]
) -> dict[str, Any]:
    name = handler["name"]
    body = {"application/json": {"schema": _arguments(name, handler["schema"], schemas)}}
    required = bool((handler["schema"] or {}).get("required"))
    return {
        **general,
        "operationId": word(name),
        "summary": (handler["description"] or f"Run {name}").splitlines()[0],
        "tags": [tag],
        "parameters": [each for each in general["parameters"] if each["in"] != "path"],
        "requestBody": {"content": body, "required": required},
    }


def _arguments(name: str, schema: Mapping[str, Any] | None, schemas: dict[str, Any]) -> dict[str, str]:
    """A reference to the schema of a handler's arguments, entered among the document's."""
    own = word(name).title().replace("_", "")
    found = {
        key: value for key, value in (schema or {"type": "object"}).items() if key not in {POSITIONAL, REST, "$defs"}
    }
    for inner, definition in (schema or {}).get("$defs", {}).items():
        schemas[f"{own}{word(inner)}"] = _moved(definition, own)
    schemas[f"{own}Arguments"] = _moved(found, own)
    return {"$ref": f"#/components/schemas/{own}Arguments"}


def _moved(schema: Any, own: str) -> Any:
    """The schema with its references leading to where its definitions stand in the document."""
    if isinstance(schema, list):
        return [_moved(each, own) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _moved(value, own) for key, value in schema.items()}
    if isinstance(found.get("$ref"), str):
        found["$ref"] = f"#/components/schemas/{own}{word(found['$ref'].rpartition('/')[2])}"
    return found


def word(name: str) -> str:
    """A name that may stand in a program."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "handler"
