"""Arguments checked against the schema a handler has published: compiled once, quick for plain types."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from scheduler_ext.core.errors import DoesNotFit
from scheduler_ext.task.celery_json import CALL, ERRBACK, UNTOLD, as_schemas_say
from scheduler_ext.task.references import is_reference
from scheduler_ext.task.signature import POSITIONAL, REST, Schema

CLASSES: Final[dict[Any, tuple[type, ...]]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "null": (type(None),),
}
"""For a schema that only names a type: the class whose values are certainly right."""
ANY: Final = (str, int, float, bool, type(None), list, dict)
BACKTRACKS: Final = 100_000
"""So many ways are tried at most to match an expression that has no linear one: some milliseconds."""
SAYS_MORE: Final = frozenset(("type", "default", "title", "description", "format"))
WORDS: Final = {
    "boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "a string",
    "null": "null", "array": "an array", "object": "an object",
}  # fmt: skip


_read = json.JSONDecoder().raw_decode
"""Parses JSON that we wrote, in half the time of ``json.loads``: nothing stands before or behind the value."""


class Arguments:
    """The arguments that a handler takes."""

    __slots__ = ("_known", "_more", "_positional", "_rest", "required")

    def __init__(self, schema: Schema) -> None:
        types_of = schema.get("$defs", {})
        self._positional: list[str] = schema.get(POSITIONAL, [])
        self.required: list[str] = schema.get("required", [])
        self._known = {name: _Check(each, types_of) for name, each in schema.get("properties", {}).items()}
        self._rest = _Check(schema[REST], types_of) if REST in schema else None
        more = schema.get("additionalProperties", True)
        self._more = _Check({} if more is True else more, types_of) if more is not False else None

    def check_payload(self, payload: tuple[str, str], path: Callable[[str], str]) -> None:
        """``DoesNotFit`` names the argument that is wrong; ``payload``: args and kwargs as JSON."""
        args: list[Any] = _read(payload[0])[0] if payload[0] != "[]" else []
        kwargs: dict[str, Any] = _read(payload[1])[0] if payload[1] != "{}" else {}
        if CALL in kwargs:
            if isinstance(kwargs[CALL], dict) and kwargs[CALL].get(ERRBACK):
                return  # what it is told of the failure stands before them
            args, kwargs = as_schemas_say(args, kwargs)
        given = self._check_positional(args, path) if args else args
        for name, value in kwargs.items():
            check = self._known.get(name) or self._more
            if check is None:
                raise DoesNotFit(f"the handler has no such argument{self._meant(name)}", field=path(f"kwargs.{name}"))
            if name in given:
                field = path(f"kwargs.{name}")
                raise DoesNotFit(f"is given twice: args[{self._positional.index(name)}] is the same", field=field)
            if value.__class__ not in check.classes and value is not UNTOLD and not is_reference(value):
                check.tell(value, path(f"kwargs.{name}"))
        for name in self.required:
            if name not in kwargs and name not in given:
                raise DoesNotFit("must be given: the handler needs it", field=path(f"kwargs.{name}"))

    def surely_fit(self, args: Sequence[Sequence[Any]], kwargs: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the arguments of many calls are right by their classes alone. False tells nothing: check each.

        ``args``, ``kwargs``: of each call; nothing where no call has any.
        """
        count = len(args[0]) if args else 0
        # A dictionary of another class may have more than it tells.
        columns = None if set(map(type, kwargs)) - {dict} else columns_of(kwargs) if kwargs else {}
        if columns is None or CALL in columns or set(map(len, args)) - {count}:
            return False
        given = self._positional[:count]
        checks = [self._known[name] for name in given] + [self._rest] * (count - len(given))
        for name in columns:
            if name.__class__ is not str or name in given:
                return False
            checks.append(self._known.get(name) or self._more)
        if any(name not in given and name not in columns for name in self.required):
            return False
        each = [*zip(*args, strict=True), *columns.values()] if args else columns.values()
        return all(
            check is not None and set(map(type, values)) <= set(check.classes)
            for check, values in zip(checks, each, strict=True)
        )

    def _check_positional(self, args: list[Any], path: Callable[[str], str]) -> list[str]:
        """The names of the parameters that positional arguments fill."""
        names = self._positional
        for n, value in enumerate(args):
            check = self._known[names[n]] if n < len(names) else self._rest
            if check is None:
                most = f"the handler takes {len(names)} positional argument{'' if len(names) == 1 else 's'} at most"
                raise DoesNotFit(most, field=path(f"args[{n}]"))
            if value.__class__ not in check.classes and value is not UNTOLD and not is_reference(value):
                check.tell(value, path(f"args[{n}]"))
        return names[: len(args)]

    def _meant(self, name: str) -> str:
        near = difflib.get_close_matches(name[:60], self._known, n=1)
        known = ", ".join(self._known) or "none"
        return f"; did you mean {near[0]}?" if near else f"; known are {known}"


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]] | None:
    """What mappings that have the same names have under each of them; None for others."""
    names = tuple(rows[0])
    if set(map(len, rows)) != {len(names)}:
        return None
    try:
        return {name: tuple(map(itemgetter(name), rows)) for name in names}
    except KeyError:
        return None


class _Check:
    """The check of one argument: by its class where that is enough, else by JSON Schema, compiled when first needed."""

    __slots__ = ("_schema", "_validator", "classes")

    def __init__(self, schema: Schema, types_of: Schema) -> None:
        plain = schema.keys() <= SAYS_MORE
        self.classes = (ANY if "type" not in schema else CLASSES.get(schema["type"], ())) if plain else ()
        """Values of these classes are right."""
        self._schema = {**schema, "$defs": types_of} if types_of else schema
        self._validator: Any = None

    def tell(self, value: Any, field: str) -> None:
        """``DoesNotFit`` where a value is wrong, with the place in it."""
        self._validator = self._validator or _compiled(self._schema)
        errors = self._validator.iter_errors(value)
        error = min(errors, key=lambda each: len(each.instance_path), default=None)
        if error is not None:
            error = _within(error)
            steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
            raise DoesNotFit(_said(error.kind, error.message), field=field + steps)


def _compiled(schema: Schema) -> Any:
    """The validator of a schema. What it cannot read is the handler's alone to check.

    Expressions are matched in linear time, and those that have look-around or back-references within a bound.
    """
    # On first use: most handlers take plain types, and it is large.
    from jsonschema_rs import Draft202012Validator, FancyRegexOptions, ValidationError

    within = FancyRegexOptions(backtrack_limit=BACKTRACKS)
    try:
        return Draft202012Validator(schema, pattern_options=within, validate_formats=False, offline=True)
    except ValidationError:
        return Draft202012Validator({})


def _within(error: Any) -> Any:
    """Of a value that fits no alternative: what is wrong inside, if one of them comes furthest."""
    while inner := list(chain(*getattr(error.kind, "context", ()))):
        inner.sort(key=lambda each: -len(each.instance_path))
        if len(inner) > 1 and len(inner[0].instance_path) == len(inner[1].instance_path):
            break
        error = inner[0]
    return error


def _said(kind: Any, message: str) -> str:
    if kind.name == "type" and len(kind.value) == 1:
        return f"must be {WORDS[kind.value[0]]}, the handler says"
    if kind.name == "enum":
        return f"must be one of {', '.join(map(json.dumps, kind.value))}"[:500]
    return f"does not fit what the handler takes: {message}"[:500]
