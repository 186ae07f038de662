"""The JSON Schema of a handler's arguments, read from its signature: what workers publish, so that submitters can check.

An object with a property for each parameter. ``x-positional`` names those that ``args`` fill, in order; ``x-rest`` is the
schema of what ``*args`` takes. What a type says nothing about in JSON is allowed to be anything.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import itertools
import json
import sys
import types
import uuid
from collections import abc
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import PurePath
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

Schema = dict[str, Any]
POSITIONAL: Final = "x-positional"
REST: Final = "x-rest"
DAY: Final = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
CLOCK: Final = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.,][0-9]+)?)?([Zz]|[+-][0-9]{2}(:?[0-9]{2}){0,2})?"
DECIMAL: Final = "^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(Infinity|s?NaN)$"
PLAIN: Final[dict[Any, Schema]] = {
    None: {"type": "null"},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Decimal: {"anyOf": [{"type": "number"}, {"type": "string", "pattern": DECIMAL}]},
    datetime: {"type": "string", "format": "date-time", "pattern": f"^{DAY}([Tt ]{CLOCK})?$"},
    date: {"type": "string", "format": "date", "pattern": f"^{DAY}([Tt ]{CLOCK})?$"},  # a datetime is one too
    time: {"type": "string", "format": "time", "pattern": f"^{CLOCK}$"},
    uuid.UUID: {
        "type": "string",
        "format": "uuid",
        "pattern": "^[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}$",
    },
}
"""A format alone binds nobody in JSON Schema, and knows no moment without a zone: the patterns say what the class reads."""
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
        found = inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001 (an annotation is code, and may name what exists for a type checker only)
        return inspect.signature(function)
    try:  # names within, as of list["Line"], it leaves
        hints = get_type_hints(inspect.unwrap(function), include_extras=True)
    except Exception:  # noqa: BLE001 (the same, or no function)
        return found
    parameters = found.parameters.values()
    return found.replace(
        parameters=[each.replace(annotation=hints.get(each.name, each.annotation)) for each in parameters]
    )


class _Definitions(dict[str, Schema]):
    """What nested types are, by name."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[type, str] = {}

    def refer(self, kind: type) -> Schema:
        """A reference to a class with fields, which is described once, and may hold itself."""
        if kind not in self._names:
            number = next(n for n in itertools.count(1) if f"{kind.__name__}{n if n > 1 else ''}" not in self)
            self._names[kind] = name = f"{kind.__name__}{number if number > 1 else ''}"
            self[name] = {}
            self[name] = _of_fields(kind, self)
        return {"$ref": f"#/$defs/{self._names[kind]}"}


def _of_parameters(parameters: list[inspect.Parameter]) -> Schema:
    types_of = _Definitions()
    found: Schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False, POSITIONAL: []}
    for each in parameters:
        annotation = Any if each.annotation is each.empty else each.annotation
        # Of an argument itself, what is in it stands where it is used; what is nested, among the definitions.
        schema = _of_fields(annotation, types_of) if _has_fields(annotation) else _of_type(annotation, types_of)
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


def _of_type(annotation: Any, types_of: _Definitions) -> Schema:
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


def _list(origin: Any, parts: tuple[Any, ...], types_of: _Definitions) -> Schema:
    if origin is tuple and parts and parts[-1] is not ...:
        return {"type": "array", "minItems": len(parts), "maxItems": len(parts),
                "prefixItems": [_of_type(part, types_of) for part in parts]}  # fmt: skip
    items = _of_type(parts[0], types_of) if parts else {}
    return {"type": "array", "items": items} if items else {"type": "array"}


def _annotated(annotation: Any, parts: tuple[Any, ...], types_of: _Definitions) -> Schema:
    words = [part for part in parts[1:] if isinstance(part, str)]
    more = len(words) < len(parts) - 1
    found = (more and _by_pydantic(annotation, types_of)) or _of_type(parts[0], types_of)
    return {**found, "description": words[0]} if words else found


def _of_class(annotation: Any, types_of: _Definitions) -> Schema:
    if not isinstance(annotation, type):
        return {}
    if issubclass(annotation, enum.Enum):
        values = [member.value for member in annotation]
        return {"enum": values} if all(isinstance(value, str | int | float) for value in values) else {}
    if issubclass(annotation, PurePath):
        return {"type": "string"}
    return types_of.refer(annotation) if _has_fields(annotation) else _by_pydantic(annotation, types_of)


def _has_fields(annotation: Any) -> bool:
    """Whether it is a ``TypedDict``, Python's or an extension's, or a dataclass other than Pydantic's."""
    if not isinstance(annotation, type):
        return False
    if issubclass(annotation, dict):
        return hasattr(annotation, "__total__")
    return dataclasses.is_dataclass(annotation) and not hasattr(annotation, "__pydantic_validator__")


def _of_fields(kind: type, types_of: _Definitions) -> Schema:
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 (as in _signature)
        return {"type": "object"}
    if dataclasses.is_dataclass(kind):
        given = [field for field in dataclasses.fields(kind) if field.init]
        hints = {field.name: hints[field.name] for field in given}
        needed = {field.name for field in given if field.default is field.default_factory is dataclasses.MISSING}
    else:
        needed = set(getattr(kind, "__required_keys__", ()))
    found: Schema = {"type": "object", "properties": {}}
    for name, hint in hints.items():
        # Named as text, as behind ``from __future__ import annotations``, the class has not seen these words.
        while (origin := get_origin(hint)) in (Required, NotRequired):
            (needed.add if origin is Required else needed.discard)(name)
            hint = get_args(hint)[0]  # noqa: PLW2901
        found["properties"][name] = _of_type(hint, types_of)
    return found | ({"required": [name for name in hints if name in needed]} if needed else {})


def _by_pydantic(annotation: Any, types_of: _Definitions) -> Schema:
    """Pydantic's schema of a model, dataclass or annotated type, if the handler's code has imported Pydantic."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return {}
    try:
        found: Schema = pydantic.TypeAdapter(annotation).json_schema()
    except Exception:  # noqa: BLE001 (a type of the handler's that Pydantic cannot describe)
        return {}
    more: Mapping[str, Any] = found.pop("$defs", {})
    if any(types_of.get(name, one) != one for name, one in more.items()):
        return {}  # another class of that name is there
    types_of.update(more)
    return found
