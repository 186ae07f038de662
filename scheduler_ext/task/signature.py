"""The JSON Schema of a handler's arguments, read from its signature: what workers publish, so that submitters can check.

An object with a property for each parameter. ``x-positional`` names those that ``args`` fill, in order; ``x-rest`` is the
schema of what ``*args`` takes. What a type says nothing about in JSON is allowed to be anything.
"""

from __future__ import annotations

import enum
import inspect
import json
import sys
import types
import uuid
from collections import abc
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, NewType, Union, get_args, get_origin, is_typeddict

Schema = dict[str, Any]
POSITIONAL: Final = "x-positional"
REST: Final = "x-rest"
PLAIN: Final[dict[Any, Schema]] = {
    None: {"type": "null"},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Decimal: {"anyOf": [{"type": "number"}, {"type": "string"}]},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
}
LISTS: Final = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection, abc.Set)
OBJECTS: Final = (dict, abc.Mapping, abc.MutableMapping)
MAX_BYTES: Final = 65_536
"""A schema longer than this is not published."""


def schema_of(function: Callable[..., Any], *, bound: bool = False) -> Schema | None:
    """The schema of the arguments; ``None`` where nothing can be said of them.

    ``bound``: the first parameter is the task itself, as with Celery's ``bind=True``.
    """
    try:
        parameters = list(_signature(function).parameters.values())[1 if bound else 0 :]
    except (TypeError, ValueError):  # a function of C
        return None
    if any(each.kind is each.POSITIONAL_ONLY for each in parameters):
        return None
    found = _of_parameters(parameters)
    try:
        return found if len(json.dumps(found)) <= MAX_BYTES else None
    except (TypeError, ValueError):
        return None


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001 (an annotation is code, and may name what exists for a type checker only)
        return inspect.signature(function)


def _of_parameters(parameters: list[inspect.Parameter]) -> Schema:
    types_of: Schema = {}
    found: Schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False, POSITIONAL: []}
    for each in parameters:
        annotation = Any if each.annotation is each.empty else each.annotation
        schema = _of_type(annotation, types_of)
        if each.kind is each.VAR_POSITIONAL:
            found[REST] = schema
            continue
        if each.kind is each.VAR_KEYWORD:
            found["additionalProperties"] = schema or True
            continue
        found["properties"][each.name] = _with_default(schema, each)
        if each.default is each.empty:
            found["required"].append(each.name)
        if each.kind is each.POSITIONAL_OR_KEYWORD:
            found[POSITIONAL].append(each.name)
    return {**found, "$defs": types_of} if types_of else found


def _with_default(schema: Schema, parameter: inspect.Parameter) -> Schema:
    default = parameter.default
    if default is parameter.empty:
        return schema
    if default is None and schema and not _allows_null(schema):
        schema = {"anyOf": [schema, {"type": "null"}]}
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return schema
    return {**schema, "default": default}


def _allows_null(schema: Schema) -> bool:
    return any(one.get("type") == "null" or None in one.get("enum", ()) for one in (schema, *schema.get("anyOf", ())))


def _of_type(annotation: Any, types_of: Schema) -> Schema:
    """The schema of a type; ``types_of`` collects the definitions it refers to."""
    try:
        if annotation in PLAIN:
            return dict(PLAIN[annotation])
    except TypeError:  # it has no hash
        return {}
    origin, parts = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, types.UnionType):
        options = [_of_type(part, types_of) for part in parts]
        return {"anyOf": options} if all(options) else {}
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is Annotated:
        return _annotated(annotation, parts, types_of)
    if isinstance(origin, NewType):
        return _of_type(origin.__supertype__, types_of)
    if origin in LISTS:
        return _list(origin, parts, types_of)
    if origin in OBJECTS:
        values = _of_type(parts[1], types_of) if len(parts) == 2 else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    return _of_class(annotation, types_of) if isinstance(origin, type) else {}


def _list(origin: Any, parts: tuple[Any, ...], types_of: Schema) -> Schema:
    if origin is tuple and parts and parts[-1] is not ...:
        return {"type": "array", "minItems": len(parts), "maxItems": len(parts),
                "prefixItems": [_of_type(part, types_of) for part in parts]}  # fmt: skip
    items = _of_type(parts[0], types_of) if parts else {}
    return {"type": "array", "items": items} if items else {"type": "array"}


def _annotated(annotation: Any, parts: tuple[Any, ...], types_of: Schema) -> Schema:
    words = [part for part in parts[1:] if isinstance(part, str)]
    found = _by_pydantic(annotation, types_of) or _of_type(parts[0], types_of)
    return {**found, "description": words[0]} if words else found


def _of_class(annotation: Any, types_of: Schema) -> Schema:
    if not isinstance(annotation, type):
        return {}
    if issubclass(annotation, enum.Enum):
        values = [member.value for member in annotation]
        return {"enum": values} if all(isinstance(value, str | int | float) for value in values) else {}
    if issubclass(annotation, PurePath):
        return {"type": "string"}
    return _by_pydantic(annotation, types_of) or ({"type": "object"} if is_typeddict(annotation) else {})


def _by_pydantic(annotation: Any, types_of: Schema) -> Schema:
    """Pydantic's schema of a model, dataclass or annotated type, if the handler's code has imported Pydantic."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return {}
    try:
        found: Schema = pydantic.TypeAdapter(annotation).json_schema()
    except Exception:  # noqa: BLE001 (a type of the handler's that Pydantic cannot describe)
        return {}
    more: Mapping[str, Any] = found.pop("$defs", {})
    types_of.update(more)
    return found
