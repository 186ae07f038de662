"""A submission as typed values: parsed and checked once, for every way in. Errors name the field's path."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.retry import RetryPolicy
from scheduler_ext.core.states import Category, RunCondition
from scheduler_ext.task import references
from slackwater_tasks.models import MutexScope, OnLate

MAX_SECONDS = 10 * 366 * 86_400
LAST_YEAR = 9000
MAX_DEPTH = 64
ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""A NUL in JSON text; not the six characters of its spelling, whose backslash is escaped."""

_BOTH = MutexScope.BOTH  # looked up once: an enumeration of Django's makes each look a call


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task as handed in. ``None`` means the plan's or the tier's default."""

    name: str = ""
    handler: str = ""
    script: str = ""
    """SHA-256 of a stored script."""
    script_path: str = ""
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    tier: str = "basic"
    category: Category = Category.DELAYABLE
    priority: int = 0
    delay_tolerance_ms: int | None = None
    on_late: OnLate = OnLate.RUN_FIRST
    cap_ms: int | None = None
    total_attempts: int = 3
    retry: dict[str, Any] | None = None
    start_at: datetime | None = None
    depends_on: tuple[str, ...] = ()
    condition: RunCondition = RunCondition.ALL_SUCCEEDED
    mutex_key: str = ""
    mutex_limit: int = 1
    mutex_scope: MutexScope = MutexScope.BOTH
    rate_key: str = ""
    tags: tuple[str, ...] = ()
    idempotency_key: str = ""
    checkpoints: bool = False
    """It saves checkpoints, and yields when it is asked to; so do all tasks of a handler that declares them."""
    webhook: str = ""
    """Where its own events go."""
    payload: tuple[str, str] = ("[]", "{}")
    """``args`` and ``kwargs`` as JSON: measured against the plan, and stored."""

    @property
    def aside(self) -> bool:
        """Whether it has what few tasks have, which is written by a statement of its own."""
        return bool(self.rate_key or self.webhook) or self.mutex_scope is not _BOTH

    @property
    def excluded_by(self) -> str:
        """Its mutex key, if the task stands in the key's scope; else nothing excludes it."""
        if self.mutex_scope is _BOTH or not self.mutex_key:
            return self.mutex_key
        return self.mutex_key if (self.mutex_scope is MutexScope.DEPENDENT) == bool(self.depends_on) else ""


def _text(longest: int, *, empty: bool = True) -> Callable[[Any, str], str]:
    def check(value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise InvalidInput(f"must be a string, not {_kind(value)}", field=path)
        clean_text(value, path)
        if len(value) > longest:
            raise InvalidInput(f"must be at most {longest} characters", field=path)
        if not value and not empty:
            raise InvalidInput("must not be empty", field=path)
        return value

    return check


def clean_text(value: str, path: str) -> None:
    """Refuse what PostgreSQL cannot store: NUL characters and lone surrogates."""
    if "\x00" in value:
        raise InvalidInput("must not contain the NUL character", field=path)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput("is not valid Unicode", field=path) from None


def _kind(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _integer(low: int, high: int) -> Callable[[Any, str], int]:
    def check(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"must be a whole number, not {_kind(value)}", field=path)
        if not low <= value <= high:
            raise InvalidInput(f"must be from {low} to {high}", field=path)
        return value

    return check


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"must be true or false, not {_kind(value)}", field=path)
    return value


def _milliseconds(*, positive: bool) -> Callable[[Any, str], int]:
    def check(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidInput(f"must be a number of seconds, not {_kind(value)}", field=path)
        if not 0 <= value <= MAX_SECONDS:  # false for NaN too, and exact for a whole number of any size
            raise InvalidInput(f"must be from 0 to {MAX_SECONDS} seconds", field=path)
        milliseconds = round(value * 1000)
        if positive and milliseconds < 1:
            raise InvalidInput("must be at least 0.001 seconds", field=path)
        return milliseconds

    return check


def _one_of(enum: Any) -> Callable[[Any, str], Any]:
    words = {member.name.lower(): member for member in enum}

    def check(value: Any, path: str) -> Any:
        if not isinstance(value, str) or value not in words:
            raise InvalidInput(f"must be one of {', '.join(words)}", field=path)
        return words[value]

    return check


def _moment(value: Any, path: str) -> datetime:
    if isinstance(value, datetime):
        moment: datetime | None = value
    elif isinstance(value, str):
        try:
            moment = parse_datetime(value)
        except ValueError:
            moment = None
    else:
        moment = None
    if moment is None:
        raise InvalidInput("must be an ISO 8601 date and time, for example 2030-01-31T09:00:00+01:00", field=path)
    if moment.tzinfo is None:
        raise InvalidInput("needs a time zone, for example Z or +01:00", field=path)
    try:
        found = moment.astimezone(UTC)
    except (OverflowError, ValueError):
        raise InvalidInput("is out of range", field=path) from None
    if found.year >= LAST_YEAR:  # a tolerance is added to it, and time ends with the year 9999
        raise InvalidInput(f"must be before the year {LAST_YEAR}", field=path)
    return found


def _strings(most: int, longest: int) -> Callable[[Any, str], tuple[str, ...]]:
    one = _text(longest, empty=False)

    def check(value: Any, path: str) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)):
            raise InvalidInput(f"must be an array of strings, not {_kind(value)}", field=path)
        if len(value) > most:
            raise InvalidInput(f"must have at most {most} entries", field=path)
        return tuple(one(entry, f"{path}[{n}]") for n, entry in enumerate(value))

    return check


def _arguments(kind: type) -> Callable[[Any, str], Any]:
    def check(value: Any, path: str) -> Any:
        if isinstance(value, tuple) and kind is list:
            value = list(value)
        if not isinstance(value, kind):
            raise InvalidInput(f"must be an {'array' if kind is list else 'object'}, not {_kind(value)}", field=path)
        return value

    return check


def _retry(value: Any, path: str) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput(f"must be an object, not {_kind(value)}", field=path)
    RetryPolicy.from_mapping(value, field=path)
    return dict(value)


def _sha256(value: Any, path: str) -> str:
    text = _text(64)(value, path)
    if text and (len(text) != 64 or set(text) - set("0123456789abcdef")):
        raise InvalidInput("must be the SHA-256 of a stored script: 64 characters 0-9 and a-f", field=path)
    return text


# Input name -> (name in TaskSpec, check). The one list of what a task may be given.
FIELDS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "name": ("name", _text(200)),
    "handler": ("handler", _text(200)),
    "script": ("script", _sha256),
    "script_path": ("script_path", _text(500)),
    "args": ("args", _arguments(list)),
    "kwargs": ("kwargs", _arguments(dict)),
    "tier": ("tier", _text(63, empty=False)),
    "category": ("category", _one_of(Category)),
    "priority": ("priority", _integer(0, 1000)),
    "delay_tolerance": ("delay_tolerance_ms", _milliseconds(positive=False)),
    "on_late": ("on_late", _one_of(OnLate)),
    "execution_cap": ("cap_ms", _milliseconds(positive=True)),
    "total_attempts": ("total_attempts", _integer(1, 100)),
    "retry": ("retry", _retry),
    "start_at": ("start_at", _moment),
    "depends_on": ("depends_on", _strings(100_000, 200)),
    "condition": ("condition", _one_of(RunCondition)),
    "mutex_key": ("mutex_key", _text(150)),
    "mutex_limit": ("mutex_limit", _integer(1, 10_000)),
    "mutex_scope": ("mutex_scope", _one_of(MutexScope)),
    "rate_key": ("rate_key", _text(150)),
    "tags": ("tags", _strings(32, 63)),
    "idempotency_key": ("idempotency_key", _text(200)),
    "checkpoints": ("checkpoints", _flag),
    "webhook": ("webhook", _text(2_000)),
}
NULLABLE = {"delay_tolerance", "execution_cap", "start_at", "retry"}
EDITABLE = frozenset(FIELDS) - {
    "handler",
    "script",
    "script_path",
    "depends_on",
    "condition",
    "idempotency_key",
    "checkpoints",
    "webhook",
}


def parse_fields(data: Any, where: str = "") -> dict[str, Any]:
    """Check ``data`` field by field; returns the values by their names in :class:`TaskSpec`."""
    if not isinstance(data, Mapping):
        raise InvalidInput(f"must be an object, not {_kind(data)}", field=where or None)
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in FIELDS:
            shown = str(key)[:60].encode("ascii", "backslashreplace").decode()
            raise InvalidInput(f"there is no such field{_meant(str(key))}", field=join(where, shown or '""'))
        name, check = FIELDS[key]
        values[name] = None if value is None and key in NULLABLE else check(value, join(where, key))
    return values


def _meant(key: str) -> str:
    """A hint for a misspelt field."""
    near = difflib.get_close_matches(key[:60].lower(), FIELDS, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def join(where: str, name: str) -> str:
    """The path of a field inside ``where``."""
    return f"{where}.{name}" if where else name


_encode: Callable[[Any], str] = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
"""Made once: ``json.dumps`` with options makes an encoder for each call."""


def dump_payload(args: list[Any], kwargs: dict[str, Any], where: str) -> tuple[str, str]:
    """The arguments as JSON texts; ``InvalidInput`` for what JSON or PostgreSQL cannot hold."""
    return (
        _dump(args, join(where, "args")) if args else "[]",
        _dump(kwargs, join(where, "kwargs")) if kwargs else "{}",
    )


def _dump(value: Any, path: str) -> str:
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"cannot be written as JSON: {error}", field=path) from None
    clean_text("\x00" if "\\u0000" in text and ESCAPED_NUL.search(text) else text, path)
    if _too_deep(text):
        raise InvalidInput(f"is nested more than {MAX_DEPTH} levels deep", field=path)
    return text


def _too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = deepest = 0
    quoted = escaped = False
    for char in text:
        if quoted:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest > MAX_DEPTH


def check_references(arguments: Mapping[str, Any], known: Collection[str], where: str = "") -> None:
    """Arguments that stand for a parent's result must name one of the task's dependencies."""
    named = [(f"args[{n}]", value) for n, value in enumerate(arguments.get("args", ()))]
    named += [(f"kwargs.{name}", value) for name, value in arguments.get("kwargs", {}).items()]
    for name, value in named:
        if references.is_reference(value):
            for parent in references.check(value, join(where, name)):
                if parent not in known:
                    raise InvalidInput(f"{parent!r} is not among its depends_on", field=join(where, name))


def parse_task(data: Any, where: str = "") -> TaskSpec:
    """A task's input as a :class:`TaskSpec`; ``InvalidInput`` names the field."""
    values = parse_fields(data, where)
    kinds = [key for key in ("handler", "script", "script_path") if values.get(key)]
    if len(kinds) != 1:
        detail = "not " + " and ".join(kinds) if kinds else "none was"
        raise InvalidInput(f"exactly one of handler, script and script_path must be given, {detail}",
                           field=join(where, kinds[0] if kinds else "handler"))  # fmt: skip
    path = values.get("script_path", "")
    if path and (path.startswith("/") or ".." in path.split("/")):
        raise InvalidInput("must be a path inside the tenant's folder", field=join(where, "script_path"))
    payload = dump_payload(values.get("args", []), values.get("kwargs", {}), where)
    if references.MARK in payload[0] or references.MARK in payload[1]:
        check_references(values, set(values.get("depends_on", ())), where)
    return TaskSpec(**values, payload=payload)


Payload = tuple[str, str]
"""A task's ``args`` and ``kwargs`` as JSON."""
NO_PAYLOAD: Payload = ("[]", "{}")
ARGUMENTS = frozenset(("args", "kwargs"))
SHAPES = 1000
"""Different tasks of one call that are remembered."""


def parse_tasks(items: Sequence[Any], where: str) -> tuple[list[TaskSpec], list[Payload]]:
    """Tasks handed in together, as :func:`parse_task` reads each; their payloads stand apart.

    What many of them have in common is checked once: they share one :class:`TaskSpec`, which has no arguments.
    """
    known: dict[tuple[Any, ...], TaskSpec] = {}
    specs: list[TaskSpec] = []
    payloads: list[Payload] = []
    for n, item in enumerate(items):
        path = f"{where}[{n}]"
        spec = _known_shape(item, path, known)
        payload = _own_payload(item, path) if spec is not None else None
        if spec is None or payload is None:
            spec = parse_task(item, path)
            payload = spec.payload
        specs.append(spec)
        payloads.append(payload)
    return specs, payloads


def _known_shape(item: Any, path: str, known: dict[tuple[Any, ...], TaskSpec]) -> TaskSpec | None:
    """The specification of a task without its arguments; None for one that is not like others."""
    if item.__class__ is not dict or "name" in item or "depends_on" in item:
        return None
    # With their types: True, 1 and 1.0 are equal, and not all of them are allowed everywhere.
    shape = tuple((k, v.__class__, v) for k, v in item.items() if k not in ARGUMENTS)
    try:
        spec = known.get(shape)
    except TypeError:  # an array or an object among the values
        return None
    if spec is None:
        spec = parse_task({key: value for key, _, value in shape}, path)
        if len(known) < SHAPES:
            known[shape] = spec
    return spec


def _own_payload(item: dict[str, Any], path: str) -> Payload | None:
    """A task's arguments; None where they refer to other tasks."""
    values = {key: FIELDS[key][1](item[key], join(path, key)) for key in ("args", "kwargs") if key in item}
    if not values:
        return NO_PAYLOAD
    payload = dump_payload(values.get("args", []), values.get("kwargs", {}), path)
    return None if references.MARK in payload[0] or references.MARK in payload[1] else payload


def body_hash(data: Any) -> str:
    """A hash of a submission that is the same for the same body, wherever its idempotency key stood."""
    if isinstance(data, Mapping) and "idempotency_key" in data:
        data = {name: value for name, value in data.items() if name != "idempotency_key"}
    text = json.dumps(data, sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
