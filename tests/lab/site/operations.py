"""The API reference: each operation of the OpenAPI document as a section of a page, by subject."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

METHODS: Final = ("get", "post", "put", "patch", "delete")
Schema = Mapping[str, Any]


def page(document: Schema) -> str:
    """The page: operations with parameters, body and answers; then the shapes they name."""
    by_tag: dict[str, list[str]] = defaultdict(list)
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                operation = item[method]
                by_tag[(operation.get("tags") or ["other"])[0]].append(
                    "\n".join(_operation(path, method, operation, item))
                )
    parts = [
        "# API reference",
        (
            "Every operation, from the OpenAPI document, which a running platform serves at `/api/schema/` and shows to try at "
            "`/api/docs/`. How the interface behaves is told in [the REST interface](../api.md). "
            "The document: [openapi.json](openapi.json)."
        ),
    ]
    for tag, sections in by_tag.items():
        parts += [f"## {tag}", *sections]
    parts.append("## Shapes")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += ["\n".join([f"### {name}", "", *_shape(schema)])]
    return "\n\n".join(parts) + "\n"


def _operation(path: str, method: str, operation: Schema, item: Schema) -> Iterator[str]:
    yield f"### {method.upper()} `{path}`"
    yield ""
    yield _line(operation.get("description") or operation.get("summary") or "", "\n\n")
    parameters = [*item.get("parameters", ()), *operation.get("parameters", ())]
    if parameters:
        yield "\n| parameter | in | type | what |\n| --- | --- | --- | --- |"
        for one in parameters:
            name = one.get("name") or one["$ref"].rpartition("/")[2]
            yield f"| `{name}` | {one.get('in', '')} | {_type(one.get('schema', {}))} | {_line(one.get('description', ''))} |"
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"\nTakes `{kind}`: {_type(body.get('schema', {}))}"
    yield "\n| answer | what | shape |\n| --- | --- | --- |"
    for code, answer in operation["responses"].items():
        shapes = {_type(body.get("schema", {})) for body in answer.get("content", {}).values()}
        yield f"| {code} | {_line(answer.get('description', ''))} | {', '.join(sorted(shapes))} |"


def _shape(schema: Schema) -> Iterator[str]:
    if text := _line(schema.get("description", "")):
        yield text + "\n"
    properties = schema.get("properties", {})
    if not properties:
        yield _type(schema)
        return
    needed = schema.get("required", ())
    yield "| field | type | | what |\n| --- | --- | --- | --- |"
    for name, field in properties.items():
        yield f"| `{name}` | {_type(field)} | {'always' if name in needed else ''} | {_line(field.get('description', ''))} |"


def _type(schema: Any) -> str:
    """A type in a few words; shapes that have a name are linked."""
    if not isinstance(schema, Mapping) or not schema:
        return "any"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[several]))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kinds = schema.get("type", "any")
    named = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    return f"{named} of {_type(schema.get('items'))}" if "array" in named else named


def _line(text: str, newline: str = " ") -> str:
    """Text that stands in a row of a table: on one line, its bars no borders, its angles no tags."""
    plain = text.strip().replace("|", "\\|").replace("<", "&lt;")
    return newline.join(" ".join(part.split()) for part in plain.split("\n\n"))
