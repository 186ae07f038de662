"""What a task may be given: the one declaration of its fields, and how a submission is read by it.

:class:`TaskSpec` declares each field in one place: its Python type, its kind (check and limits), default, column, help
and whether it can be changed later. The API's shapes and its OpenAPI document, the admin's form, the flags of
``manage.py submit``, the columns that are written and read, the page of the documentation and the fuzzer all come from
:data:`FIELDS`. A new field is a line of :class:`TaskSpec` and a column of :class:`~slackwater_tasks.models.Task`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from scheduler_ext.core import labels
from scheduler_ext.core.errors import MOST_FAULTS, DoesNotFit, InvalidInput, closest, together
from scheduler_ext.core.states import Category, RunCondition
from scheduler_ext.task import celery_json, references
from slackwater_tasks.field_kinds import (
    LISTED,
    NEEDS,
    RUNNING,
    WHERE_AND_WHEN,
    Array,
    Choice,
    Field,
    Flag,
    Map,
    Metadata,
    Moment,
    Object,
    Resources,
    Retry,
    Seconds,
    Sha256,
    Text,
    Texts,
    Whole,
    clean_text,
    given,
    json_type,
)
from slackwater_tasks.models import MutexScope, OnLate

MAX_DEPTH = 64
ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""A NUL in JSON text; not the six characters of its spelling, whose backslash is escaped."""

OF_WORKFLOW = "workflow "
"""What the mutex key begins with that the tasks of a workflow with ``max_running`` share; behind it stands its id."""
_BOTH = MutexScope.BOTH  # looked up once: an enumeration of Django's makes each look a call


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task as it was submitted. ``None`` means the plan's or the tier's default."""

    name: str = given(Text(200), shown=LISTED, help="What you call it; other tasks of the call can name it.")
    handler: str = given(Text(200), editable=False, help="Name of an exported function.", shown=LISTED)
    script: str = given(
        Sha256(), column="script_sha256", editable=False, help="SHA-256 of a stored script.", shown=LISTED
    )
    script_path: str = given(Text(500), editable=False, help="Path in your mounted folder.", shown=LISTED)
    args: list[Any] = given(Array(), [], help="Positional arguments.")
    kwargs: dict[str, Any] = given(Object(), {}, help="Keyword arguments.")
    tier: str = given(
        Text(63, empty=False), "basic", column="tier_id", group=WHERE_AND_WHEN,
        help="What it needs: basic, regular, premium, or your own.", shown=LISTED,
    )  # fmt: skip
    resources: dict[str, int] = given(
        Resources(), {}, column="", editable=False, shown="", group=WHERE_AND_WHEN,
        help="In place of what the tier has, within the plan: memory_mb, cpu_milli, disk_mb, iops, bandwidth_kbps, ports.",
    )  # fmt: skip
    category: Category = given(
        Choice(Category), Category.DELAYABLE, group=WHERE_AND_WHEN, shown=LISTED, help="How urgent its kind of work is."
    )
    start_at: datetime | None = given(
        Moment(), None, nullable=True, group=WHERE_AND_WHEN, help="No start before; with a time zone.", shown=LISTED
    )
    start_in_ms: int | None = given(
        Seconds(), None, name="start_in_s", column="", nullable=True, shown="", group=WHERE_AND_WHEN,
        help="The same, counted from its submission: one of both.",
    )  # fmt: skip
    expires_at: datetime | None = given(
        Moment(), None, nullable=True, group=WHERE_AND_WHEN,
        help="Not started by then, it does not start any more: it ends as expired. No pause puts it off.",
    )  # fmt: skip
    expires_in_ms: int | None = given(
        Seconds(positive=True), None, name="expires_in_s", column="", nullable=True, shown="", group=WHERE_AND_WHEN,
        help="The same, counted from its submission: one of both.",
    )  # fmt: skip
    require_labels: tuple[str, ...] = given(
        Texts(labels.MOST, labels.LONGEST, labels=True), (), group=WHERE_AND_WHEN, flag="--require-label",
        help="Runs only on nodes that have all of them: `ssd`, `gpu=a100`; `gpu`: of any value.",
    )  # fmt: skip
    prefer_labels: tuple[str, ...] = given(
        Texts(labels.MOST, labels.LONGEST, labels=True), (), group=WHERE_AND_WHEN, flag="--prefer-label",
        help="Of the nodes with room, those that have most of them come first.",
    )  # fmt: skip
    priority: int = given(Whole(0, 1000), 0, group=WHERE_AND_WHEN, help="Larger is first in its line.", shown=LISTED)
    delay_tolerance_ms: int | None = given(
        Seconds(), None, name="delay_tolerance_s", nullable=True, fallback="the plan's for the category",
        group=WHERE_AND_WHEN, help="How long its start may be delayed.",
    )  # fmt: skip
    on_late: OnLate = given(
        Choice(OnLate), OnLate.RUN_FIRST, group=WHERE_AND_WHEN, help="What happens when its latest start passes."
    )
    cap_ms: int | None = given(
        Seconds(positive=True), None, name="execution_cap_s", nullable=True, fallback="the tier's", group=RUNNING,
        help="Longest run, from the start.",
    )  # fmt: skip
    total_attempts: int = given(
        Whole(1, 100), 3, group=RUNNING, help="Runs at most, the first included; run again it has as many anew."
    )
    retry: dict[str, Any] | None = given(
        Retry(),
        None,
        nullable=True,
        fallback="the platform's",
        group=RUNNING,
        help="Its own back-off between attempts.",
    )
    mutex_key: str = given(Text(150), group=RUNNING, help="Tasks sharing it exclude one another.")
    mutex_limit: int = given(Whole(1, 10_000), 1, group=RUNNING, help="Holders its mutex key may have at a time.")
    mutex_scope: MutexScope = given(
        Choice(MutexScope), MutexScope.BOTH, group=RUNNING, help="Which work its mutex key excludes."
    )
    rate_key: str = given(Text(150), group=RUNNING, help="Its starts count against this key's rate.")
    checkpoints: bool = given(
        Flag(), default=False, column="", editable=False, group=RUNNING,
        help="It saves checkpoints, and yields when it is asked to; see the page on checkpoints.",
    )  # fmt: skip
    depends_on: tuple[str, ...] = given(
        Texts(100_000, 200), (), column="", editable=False, group=NEEDS, help="Names in the same call, or ids."
    )
    map: dict[str, str] | None = given(
        Map(), None, column="", nullable=True, editable=False, group=NEEDS,
        help="Makes one such task for each element of a list in the result of `over`, one of those it needs: `path` leads to "
        "the list, `item` and `index` name arguments; without `item` the element comes first. Its result: theirs, in order.",
    )  # fmt: skip
    condition: RunCondition = given(
        Choice(RunCondition), RunCondition.ALL_SUCCEEDED, editable=False, group=NEEDS,
        help="What must have become of the tasks it needs.",
    )  # fmt: skip
    tags: tuple[str, ...] = given(
        Texts(32, 63), (), group=NEEDS, shown=LISTED, flag="--tag", help="Words to find it by."
    )
    metadata: dict[str, str] = given(
        Metadata(), {}, group=NEEDS, shown=LISTED,
        help="Names and texts of yours: they come back with it and its events, and lists find it by them.",
    )  # fmt: skip
    idempotency_key: str = given(
        Text(200), column="", editable=False, group=NEEDS, shown="",
        help="A second submission with the same key returns the first answer.",
    )  # fmt: skip
    webhook: str = given(
        Text(2_000, address=True), column="", editable=False, group=NEEDS,
        help="Where this task's own events are sent.",
    )  # fmt: skip
    payload: tuple[str, str] = ("[]", "{}")
    """``args`` and ``kwargs`` as JSON: measured against the plan, and stored."""
    chosen: frozenset[str] = frozenset()
    """The fields that the submission named: a handler's defaults leave those alone."""
    shape: TaskSpec | None = dataclasses.field(default=None, compare=False, repr=False)
    """Of a handler's task among others: one that differs from it at most in its name and in what it needs."""

    @property
    def excluded_by(self) -> str:
        """Its mutex key, if the task is in the key's scope; else nothing excludes it."""
        if self.mutex_scope is _BOTH or not self.mutex_key:
            return self.mutex_key
        return self.mutex_key if (self.mutex_scope is MutexScope.DEPENDENT) == bool(self.depends_on) else ""


def fields_of(spec: type[TaskSpec]) -> dict[str, Field]:
    """The declarations of a specification, by the names that interfaces give them."""
    found = {}
    for attribute in dataclasses.fields(spec):
        if options := attribute.metadata.get("given"):
            name, factory = options.get("name", attribute.name), attribute.default_factory
            usual = {
                "name": name,
                "attribute": attribute.name,
                "default": attribute.default if factory is dataclasses.MISSING else factory(),
                "column": attribute.name,
                "flag": "--" + name.replace("_", "-"),
            }
            found[name] = Field(**{**usual, **options})
    return found


FIELDS: dict[str, Field] = fields_of(TaskSpec)
"""The fields of a task by name."""
EDITABLE = frozenset(name for name, field in FIELDS.items() if field.editable)
COLUMNS: dict[str, Field] = {field.column: field for field in FIELDS.values() if field.column}
"""The fields that a column of :class:`~slackwater_tasks.models.Task` holds, by column."""
_READERS: dict[str, tuple[str, Callable[[Any, str], Any], bool]] = {
    name: (field.attribute, field.kind.check, field.nullable) for name, field in FIELDS.items()
}
"""What :func:`parse_fields` needs of each field, looked up once."""


def parse_fields(data: Any, where: str = "") -> dict[str, Any]:
    """Check ``data`` field by field; returns the values by their names in :class:`TaskSpec`."""
    if not isinstance(data, Mapping):
        raise InvalidInput(f"must be an object, not {json_type(data)}", field=where or None)
    values: dict[str, Any] = {}
    faults: list[InvalidInput] = []
    for key, value in data.items():
        try:
            if key not in _READERS:
                raise _unknown(str(key), where)
            name, check, nullable = _READERS[key]
            values[name] = None if value is None and nullable else check(value, join(where, key))
        except InvalidInput as fault:
            faults.append(fault)
    if faults:
        raise together(faults)
    return values


OTHER_WORDS: Final = {
    "countdown": "start_in_s", "delay": "start_in_s",
    "eta": "start_at", "run_at": "start_at", "task": "handler", "function": "handler", "arguments": "args",
    "agrs": "args", "kwarg": "kwargs", "kwrags": "kwargs", "labels": "require_labels", "node_selector": "require_labels",
    "timeout": "execution_cap_s", "shadow": "name",
    "time_limit": "execution_cap_s", "delay_tolerance": "delay_tolerance_s", "execution_cap": "execution_cap_s",
}  # fmt: skip
"""What others, Celery above all, call a field: the value may stay."""
HINTS: Final = {
    "expires": "give expires_at, a moment, or expires_in_s",
    "max_retries": "give total_attempts, the first run included",
    "retries": "give total_attempts, the first run included",
    "soft_time_limit": "give execution_cap_s; a handler is told some seconds before it ends",
    "queue": "give category and tier: they decide where a task waits",
    "routing_key": "give category and tier: they decide where a task waits",
    "task_id": "PUT /api/v1/tasks/{id} takes an id of your own",
    "id": "PUT /api/v1/tasks/{id} takes an id of your own",
    "chord": "POST /api/v1/workflows takes tasks that depend on each other",
    "group_id": "POST /api/v1/workflows takes tasks that depend on each other",
    "ignore_result": "a result is kept as long as its task, and costs nothing where there is none",
    "acks_late": "no message is lost: a task ends when its end is recorded",
    "rate_limit": "POST /api/v1/rates limits how often tasks start",
    "retry_policy": "give retry, the pauses between attempts, and total_attempts",
    "headers": "give metadata",
    "serializer": "arguments and results are JSON",
    "link": "give depends_on to the task that follows",
    "link_error": "give depends_on with condition to the task that follows",
}
"""Others' names for what is said in another way here."""


def _unknown(key: str, where: str) -> InvalidInput:
    """The fault of an unknown field: what was probably meant, and how to write it."""
    shown = key[:60].encode("ascii", "backslashreplace").decode()
    word, path = key[:60].lower(), join(where, shown or '""')
    meant = OTHER_WORDS.get(word)
    if meant is None and word in HINTS:
        return InvalidInput(f"there is no such field; {HINTS[word]}", field=path)
    if meant is None:
        meant = closest(word, FIELDS)
    if meant is None:
        return InvalidInput("there is no such field", field=path)
    suggestion = [{"op": "move", "from": f"/{shown}", "path": f"/{meant}"}] if not where else None
    return InvalidInput(f"there is no such field; did you mean {meant}?", field=path, suggestion=suggestion)


def join(where: str, name: str) -> str:
    """The path of a field inside ``where``."""
    return f"{where}.{name}" if where else name


_encode: Callable[[Any], str] = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
"""Made once: ``json.dumps`` with options makes an encoder for each call."""


def dump_payload(args: list[Any], kwargs: dict[str, Any], where: str) -> tuple[str, str]:
    """The arguments as JSON texts; ``InvalidInput`` for what JSON or PostgreSQL cannot hold.

    Values that Celery's JSON takes beyond JSON are written in its way, and the arguments say so.
    """
    try:
        return _dump_both(args, kwargs, where)
    except InvalidInput as error:
        if not isinstance(error.__cause__, TypeError):
            raise
        try:
            plain = celery_json.written(args, kwargs)
        except (TypeError, ValueError):
            raise error from None
        return _dump_both(*plain, where)


def _dump_both(args: list[Any], kwargs: dict[str, Any], where: str) -> tuple[str, str]:
    return (
        _dump(args, join(where, "args")) if args else "[]",
        _dump(kwargs, join(where, "kwargs")) if kwargs else "{}",
    )


def _dump(value: Any, path: str) -> str:
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"cannot be written as JSON: {error}", field=path) from error
    clean_text("\x00" if "\\u0000" in text and ESCAPED_NUL.search(text) else text, path)
    if text.count("[") + text.count("{") > MAX_DEPTH and _too_deep(value):
        raise InvalidInput(f"is nested more than {MAX_DEPTH} levels deep", field=path)
    return text


MAX_METADATA_BYTES = 16_384


def dump_metadata(value: Any, path: str) -> str | None:
    """An object of the submitter's own as JSON; ``None`` if absent."""
    if value is None or value == {}:
        return None
    found = _dump(Object().check(value, path), path)
    if len(found.encode()) > MAX_METADATA_BYTES:
        raise InvalidInput(f"must have at most {MAX_METADATA_BYTES} bytes", field=path)
    return found


def _too_deep(value: Any, left: int = MAX_DEPTH) -> bool:
    if not isinstance(value, (dict, list, tuple)):
        return False
    return not left or any(_too_deep(each, left - 1) for each in (value.values() if isinstance(value, dict) else value))


def check_references(arguments: Mapping[str, Any], known: Collection[str], where: str = "") -> None:
    """Arguments that stand for a parent's result must name one of the task's dependencies."""
    named = [(f"args[{n}]", value) for n, value in enumerate(arguments.get("args", ()))]
    named += [(f"kwargs.{name}", value) for name, value in arguments.get("kwargs", {}).items()]
    for name, value in named:
        if references.is_reference(value):
            for parent in references.check(value, join(where, name)):
                if parent not in known:
                    raise DoesNotFit(f"{parent!r} is not among its depends_on", field=join(where, name))


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
        raise DoesNotFit("must be a path inside the tenant's folder", field=join(where, "script_path"))
    payload = dump_payload(values.get("args", []), values.get("kwargs", {}), where)
    if references.MARK in payload[0] or references.MARK in payload[1]:
        check_references(values, set(values.get("depends_on", ())), where)
    if values.get("map"):
        _check_map(values, where)
    check_times(values, where)
    return TaskSpec(**values, payload=payload, chosen=frozenset(values) - ARGUMENTS)


def _check_map(values: Mapping[str, Any], where: str) -> None:
    """``InvalidInput`` for a map over what is no parent, or into an argument that is given."""
    over = values["map"]["over"]
    if over not in values.get("depends_on", ()):
        raise DoesNotFit(f"{over!r} is not among its depends_on", field=join(where, "map.over"))
    for name in ("item", "index"):
        if values["map"].get(name) in values.get("kwargs", {}):
            raise DoesNotFit("kwargs has this argument already", field=join(where, f"map.{name}"))


def check_times(values: Mapping[str, Any], where: str = "") -> None:
    """Check moments; ``InvalidInput`` for one that is given twice, or an end before the start."""
    for moment in ("start", "expires"):
        if values.get(f"{moment}_in_ms") is not None and values.get(f"{moment}_at") is not None:
            raise DoesNotFit(f"give {moment}_at or {moment}_in_s, not both", field=join(where, f"{moment}_in_s"))
    for unit in ("at", "in_ms"):
        start, end = values.get(f"start_{unit}"), values.get(f"expires_{unit}")
        if start is not None and end is not None and end <= start:
            field = f"expires_{unit}".replace("_ms", "_s")
            raise DoesNotFit("it would expire before it may start", field=join(where, field))


Payload = tuple[str, str]
"""A task's ``args`` and ``kwargs`` as JSON."""
NO_PAYLOAD: Payload = ("[]", "{}")
ARGUMENTS = frozenset(("args", "kwargs"))
OF_GRAPH = ("name", "depends_on")
APART = ARGUMENTS.union(OF_GRAPH)
SHAPES = 1000
"""How many different tasks of one call are remembered."""


def parse_tasks(items: Sequence[Any], where: str) -> tuple[list[TaskSpec], list[Payload]]:
    """Tasks submitted together, as :func:`parse_task` reads each; their payloads stand apart.

    What many of them have in common is checked once: they share one :class:`TaskSpec`, which has no arguments.
    """
    known: dict[tuple[Any, ...], TaskSpec] = {}
    specs: list[TaskSpec] = []
    payloads: list[Payload] = []
    faults: list[InvalidInput] = []
    for n, item in enumerate(items):
        path = f"{where}[{n}]"
        try:
            spec, payload = _known_shape(item, path, known) or _read_whole(item, path)
        except InvalidInput as fault:
            faults.append(fault)
            if len(faults) == MOST_FAULTS:
                break
        else:
            specs.append(spec)
            payloads.append(payload)
    if faults:
        raise together(faults)
    return specs, payloads


def _read_whole(item: Any, path: str) -> tuple[TaskSpec, Payload]:
    spec = parse_task(item, path)
    return spec, spec.payload


def _known_shape(item: Any, path: str, known: dict[tuple[Any, ...], TaskSpec]) -> tuple[TaskSpec, Payload] | None:
    """A task's specification without its arguments, and those; None for one unlike the others, or with a fault."""
    if item.__class__ is not dict:
        return None
    shape = _shape(item, APART)
    try:
        spec = known.get(shape)
    except TypeError:  # an array or an object among the values
        return None
    try:
        if spec is None:
            spec = parse_task({key: value for key, _, value in shape}, path)
            if len(known) < SHAPES:
                known[shape] = spec
        payload = own_payload(item, path)
        own = {key: _READERS[key][1](item[key], path) for key in OF_GRAPH if key in item}
    except InvalidInput:  # the whole is read, for all its faults
        return None
    if payload is None:
        return None
    return _in_graph(spec, own) if own else spec, payload


_values = attrgetter(*(field.name for field in dataclasses.fields(TaskSpec)))
_setters = [getattr(TaskSpec, field.name).__set__ for field in dataclasses.fields(TaskSpec)]


def _in_graph(spec: TaskSpec, own: dict[str, Any]) -> TaskSpec:
    """The same specification with a name and needs of its own; ``replace()`` would take four times as long."""
    made: TaskSpec = object.__new__(TaskSpec)
    for fill, value in zip(_setters, _values(spec), strict=True):
        fill(made, value)
    shape = spec if spec.handler else None  # what a script's run time is learnt by has its name
    for name, value in {**own, "chosen": spec.chosen.union(own), "shape": shape}.items():
        object.__setattr__(made, name, value)
    return made


def shape_of(item: Any) -> tuple[Any, ...] | None:
    """What a task has in common with others, in order; None for one that stands for itself. Not all can be hashed."""
    if item.__class__ is not dict or "name" in item or "depends_on" in item:
        return None
    return _shape(item, ARGUMENTS)


def _shape(item: dict[str, Any], apart: frozenset[str]) -> tuple[Any, ...]:
    """With their types: True, 1 and 1.0 are equal, and not all of them are allowed everywhere."""
    return tuple((k, v.__class__, v) for k, v in item.items() if k not in apart)


def own_payload(item: dict[str, Any], path: str) -> Payload | None:
    """A task's arguments; None if they refer to other tasks."""
    values = {key: _READERS[key][1](item[key], join(path, key)) for key in ("args", "kwargs") if key in item}
    if not values:
        return NO_PAYLOAD
    payload = dump_payload(values.get("args", []), values.get("kwargs", {}), path)
    return None if references.MARK in payload[0] or references.MARK in payload[1] else payload
