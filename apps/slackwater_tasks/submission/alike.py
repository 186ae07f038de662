"""Submits many tasks that differ in little but their arguments: what they have in common is worked out once.

They are read by columns and not one by one, so that a task costs little more than writing its arguments as JSON. Only
what is plain comes this way; all else, and whatever is wrong with a task, is left to the ordinary way, which says so. Of
either the rows are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import compress, islice
from json import encoder
from typing import Any, Final
from uuid import UUID

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import Category
from scheduler_ext.task import references
from scheduler_ext.task.arguments import Arguments, columns_of
from slackwater_tasks.ledger import active_policies, copy_format, reference_cache, rows
from slackwater_tasks.ledger.rows import GRAPH_COLUMNS, TASK_COLUMNS, Accepted, Herd
from slackwater_tasks.models.base import new_ids
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.spec import ARGUMENTS, MAX_DEPTH, NO_PAYLOAD, Payload, own_payload, parse_task, shape_of
from slackwater_tasks.submission import admission, limits
from slackwater_tasks.submission.store import NewRows
from slackwater_tenants.models import Tenant

BLOCK: Final = 1_000
"""So many are looked at together: an array that makes its items when they are asked for need not make them all."""
MAX_HERDS: Final = 4
MAX_TEXT: Final = 2**24
"""So many kinds, with so many characters of arguments, are written by a statement for each; else lines are copied."""
SCALARS: Final = frozenset((str, int, float, bool, type(None)))
OF_OTHERS: Final = frozenset(("name", "depends_on"))
"""The fields by which tasks of one call have to do with one another."""
WIDE_OWN: Final = tuple(TASK_COLUMNS.index(column) for column in ("id", "args", "kwargs"))
NARROW_OWN: Final = (GRAPH_COLUMNS.index("task_id"),)


@dataclass(slots=True, kw_only=True)
class Alike:
    """Tasks of a few kinds that passed admission: a part of a submission, as :func:`store.store` takes it."""

    tenant: Tenant
    actor: str
    tasks: list[Accepted] = field(default_factory=list)
    """One of each kind."""
    kinds: list[int] = field(default_factory=list)
    """Of each task its kind's place among them; with its id and arguments, in the order of the submission."""
    ids: list[UUID] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    kwargs: list[str] = field(default_factory=list)
    has_more: bool = False

    def rows(self, at: datetime) -> NewRows:
        """What is written of them, submitted ``at`` a time."""
        tenant, chosen = self.tenant, active_policies.current(self.tenant.cell)

        def wide(kind: int) -> Sequence[Any]:
            return rows.task_row(tenant.pk, None, self.tasks[kind], at, self.actor)

        def narrow(kind: int) -> Sequence[Any]:
            return rows.live_row(tenant.pk, self.tasks[kind], at, at, chosen)

        hexes = ["%032x" % each.int for each in self.ids]  # noqa: UP031 - half the cost of a format
        n, pressing = len(self.ids), [task.spec.category is Category.URGENT for task in self.tasks]
        urgent = sum(map(pressing.__getitem__, self.kinds)) if any(pressing) else 0
        return NewRows(
            tenant, limits.count_of(tenant, n=n, urgent=urgent, charged=n),
            self.kinds, list(zip(self.ids, self.args, self.kwargs, strict=True)),
            lambda place: wide(self.kinds[place]), lambda place: narrow(self.kinds[place]),
            lambda: self._lines(wide, WIDE_OWN, [hexes, *map(_escaped, (self.args, self.kwargs))]),
            lambda: self._lines(narrow, NARROW_OWN, [hexes]),
            lambda: [
                Herd(wide(kind), narrow(kind), *own) for kind, own in enumerate(self._by_kind(hexes)) if own[0]
            ],
        )  # fmt: skip

    def _by_kind(self, hexes: list[str]) -> list[tuple[Sequence[str], Sequence[str], Sequence[str]]]:
        """Of each kind the ids and arguments of its tasks; nothing where it would take many statements, or long ones."""
        own = hexes, self.args, self.kwargs
        if len(self.tasks) == 1 and self._is_short():
            return [own]
        if len(self.tasks) > MAX_HERDS or not self._is_short():
            return []
        chosen = [[number == kind for number in self.kinds] for kind in range(len(self.tasks))]
        ids, args, kwargs = own
        return [
            (list(compress(ids, some)), list(compress(args, some)), list(compress(kwargs, some))) for some in chosen
        ]

    def _is_short(self) -> bool:
        return sum(map(len, self.args)) + sum(map(len, self.kwargs)) <= MAX_TEXT

    def _lines(self, row: Callable[[int], Sequence[Any]], places: Sequence[int], own: list[list[str]]) -> Iterator[str]:
        """The lines to copy: a kind's row, with what is each task's own at ``places``."""
        made = [copy_format.between(row(kind), places) for kind in range(len(self.tasks))]
        patterns = ["%s".join(part.replace("%", "%%") for part in parts) for parts in made]
        if len(patterns) == 1:
            yield from map(patterns[0].__mod__, zip(*own, strict=True))
        else:
            each = map(patterns.__getitem__, self.kinds)
            yield from map(str.__mod__, each, zip(*own, strict=True))


def admit(tenant: Tenant, items: Iterable[Any], actor: str) -> Alike | None:
    """Read tasks and check them against the tenant's plan. None: they are to go the ordinary way."""
    if trace_context.is_on():
        return None
    found, left = _Reader(tenant, actor), iter(items)
    try:
        while block := list(islice(left, BLOCK)):
            if not found.add(block):
                return None
    except InvalidInput:
        return None
    return found.alike()


class _Reader:
    """Reads tasks block by block."""

    def __init__(self, tenant: Tenant, actor: str) -> None:
        self.tenant = tenant
        self.made = Alike(tenant=tenant, actor=actor)
        self._known: dict[Any, int] = {}
        self._arguments: list[Arguments | None] = []

    def alike(self) -> Alike:
        self.made.ids = new_ids(len(self.made.kinds))
        return self.made

    def add(self, block: list[Any]) -> bool:
        """Read some; False for what is not plain. ``InvalidInput`` tells that something is wrong, but not where."""
        if set(map(type, block)) != {dict} or not OF_OTHERS.isdisjoint(block[0]):
            return False
        columns = columns_of(block)
        if columns is None:
            return False
        given = {name: columns.pop(name) for name in ARGUMENTS if name in columns}
        payloads = _payloads(block, given)
        kinds = self._kinds(block, columns, payloads) if payloads is not None else None
        if payloads is None or kinds is None:
            return False
        args, kwargs = payloads
        self._check_sizes(args, kwargs)
        for kind in set(kinds):
            self._check_arguments(kind, kinds, given, payloads)
        self.made.kinds += kinds
        self.made.args += args
        self.made.kwargs += kwargs
        return True

    def _kinds(self, block: list[Any], columns: Mapping[str, Sequence[Any]], payloads: tuple[list[str], list[str]],
               ) -> list[int] | None:  # fmt: skip
        """Of each task the place of its kind; None for what is of no such kind."""
        varying = []
        for values in columns.values():
            classes = set(map(type, values))
            if not classes <= SCALARS:
                return None
            if len(classes) > 1 or values.count(values[0]) < len(values):
                varying += [values, tuple(map(type, values))]  # True, 1 and 1.0 are equal
        if not varying:
            first = self._kind(block[0], (payloads[0][0], payloads[1][0]))
            return [first] * len(block) if first is not None else None
        numbers: dict[Any, int] = {}
        kinds = []
        for n, what in enumerate(zip(*varying, strict=True)):
            number = numbers.get(what)
            if number is None:
                number = self._kind(block[n], (payloads[0][n], payloads[1][n]))
                if number is None:
                    return None
                numbers[what] = number
            kinds.append(number)
        return kinds

    def _kind(self, item: dict[str, Any], payload: Payload) -> int | None:
        shape = shape_of(item)
        if shape is None:
            return None
        known = self._known.get(shape)
        if known is not None:
            return known
        spec = parse_task({name: value for name, _, value in shape})
        if spec.idempotency_key or spec.webhook:
            return None
        (task,) = admission.admit(self.tenant, [spec], payloads=[payload]).tasks
        if task.checkpoints:
            return None
        self.made.tasks.append(task)
        self._arguments.append(reference_cache.arguments(spec.handler) if spec.handler else None)
        number = self._known[shape] = len(self._arguments) - 1
        return number

    def _check_sizes(self, args: list[str], kwargs: list[str]) -> None:
        plan = self.tenant.plan
        if (max(map(len, args)) + max(map(len, kwargs))) * admission.UTF8_MOST <= plan.max_payload_bytes:
            return
        for pair in zip(args, kwargs, strict=True):
            limits.check_payload(plan, sum(len(text.encode()) for text in pair))

    def _check_arguments(self, kind: int, kinds: list[int], given: Mapping[str, Sequence[Any]],
                         payloads: tuple[list[str], list[str]]) -> None:  # fmt: skip
        arguments = self._arguments[kind]
        if arguments is None:
            return
        if kinds.count(kind) == len(kinds):
            if arguments.surely_fit(given.get("args", ()), given.get("kwargs", ())):
                return
            own = list(zip(*payloads, strict=True))
        else:
            own = [pair for pair, its in zip(zip(*payloads, strict=True), kinds, strict=True) if its == kind]
        for payload in own:
            if arguments.required or payload != NO_PAYLOAD:
                admission.check_arguments(self.made.tasks[kind].spec.handler, arguments, payload)


def _escaped(texts: list[str]) -> list[str]:
    return list(map(copy_format.json_text, texts))


def _payloads(block: list[Any], given: Mapping[str, Sequence[Any]]) -> tuple[list[str], list[str]] | None:
    """Of each task its arguments as JSON; None where some refer to other tasks."""
    n = len(block)
    args = texts_of(given["args"], (list, tuple)) if "args" in given else [NO_PAYLOAD[0]] * n
    kwargs = texts_of(given["kwargs"], (dict,)) if "kwargs" in given else [NO_PAYLOAD[1]] * n
    if args is not None and kwargs is not None:
        return args, kwargs
    own = [own_payload(item, "") for item in block]
    if None in own:
        return None
    args, kwargs = map(list, zip(*own, strict=True))
    return args, kwargs


def texts_of(values: Sequence[Any], kinds: tuple[type, ...]) -> list[str] | None:
    """Values as JSON; None where one needs a closer look."""
    if not set(map(type, values)) <= set(kinds):
        return None
    encode = _encoder()
    try:
        texts = ["".join(encode(value, 0)) for value in values]
    except (TypeError, ValueError, RecursionError):
        return None
    whole = "".join(texts)
    if "\\u0000" in whole or references.MARK in whole or not _is_text(whole):
        return None
    if whole.count("[") + whole.count("{") >= len(values) + MAX_DEPTH and any(
        text.count("[") + text.count("{") > MAX_DEPTH for text in texts
    ):
        return None
    return texts


def _is_text(whole: str) -> bool:
    try:
        return whole.isascii() or bool(whole.encode())
    except UnicodeEncodeError:
        return False


def _encoder() -> Callable[[Any, int], Iterable[str]]:
    """What :func:`spec.dump_payload` encodes with, made once for many values: it would be made anew for each."""
    options = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    make: Any = getattr(encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: (options.encode(value),)
    made: Callable[[Any, int], Iterable[str]] = make(
        markers=None, default=options.default, encoder=encoder.encode_basestring, indent=None, key_separator=":",
        item_separator=",", sort_keys=False, skipkeys=False, allow_nan=False,
    )  # fmt: skip
    return made
