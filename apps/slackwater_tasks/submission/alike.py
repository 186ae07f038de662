"""Submits many tasks that differ in little but their arguments: what they have in common is worked out once.

They are read by columns and not one by one, so that a task costs little more than writing its arguments as JSON. Only
what is plain comes this way; all else, and whatever is wrong with a task, is left to the ordinary way, which says so. Of
either the rows are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, compress, islice
from json import encoder
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.states import Category
from scheduler_ext.task import references
from scheduler_ext.task.arguments import Arguments, columns_of
from slackwater_tasks.ledger import active_policies, copy_format, reference_cache, rows, transitions
from slackwater_tasks.ledger.connection import prepared_cursor
from slackwater_tasks.ledger.rows import GRAPH_COLUMNS, TASK_COLUMNS, Accepted, Herd
from slackwater_tasks.ledger.sql.store import Count
from slackwater_tasks.models.base import new_ids
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.spec import ARGUMENTS, MAX_DEPTH, NO_PAYLOAD, Payload, own_payload, parse_task, shape_of
from slackwater_tasks.submission import admission, familiar, idempotency, limits, refusal_cache
from slackwater_tasks.submission.idempotency import Key, Submission
from slackwater_tasks.submission.store import AT_ONCE, NewRows, are_plain, store, tell
from slackwater_tenants.models import Tenant

FIRST: Final = 64
"""So many are looked at first: until they are, the server has nothing to do."""
BLOCK: Final = 512
"""The most that are looked at together, and written while the next are looked at."""
MOST_KINDS: Final = 16
"""Of more kinds in one block each is admitted by itself, for more than it costs to admit all together on the ordinary way."""
MAX_HERDS: Final = 4
MAX_TEXT: Final = 2**24
"""A block of so many kinds, with so many characters of arguments, is written by a statement for each; else it is copied."""
SCALARS: Final = frozenset((str, int, float, bool, type(None)))
OF_OTHERS: Final = frozenset(("name", "depends_on"))
"""The fields by which tasks of one call have to do with one another."""
WIDE_OWN: Final = tuple(TASK_COLUMNS.index(column) for column in ("id", "args", "kwargs"))
NARROW_OWN: Final = (GRAPH_COLUMNS.index("task_id"),)


class Unlike(Exception):
    """Tasks that are to go the ordinary way."""


class _NewKind(Exception):
    """A kind of task that is met when nothing may be admitted any more."""


def submit(tenant: Tenant, items: Sequence[Any], actor: str, key: Callable[[], Key | None], *,
           keyed: bool) -> Submission | None:  # fmt: skip
    """Submit tasks, all or none. None: nothing was done, they are to go the ordinary way.

    ``key``: says under which key, if it is ``keyed``; asked when they are known to be right.
    """
    plan = tenant.plan
    if trace_context.is_on() or len(items) > plan.burst or not plan.tasks_per_hour:
        return None
    few = len(items) <= AT_ONCE
    try:
        try:
            return _submit(Alike(tenant, items, actor), key, keyed=keyed, whole=few or keyed)
        except _NewKind:
            return _submit(Alike(tenant, items, actor), key, keyed=keyed, whole=True)
    except Unlike:
        return None


def _submit(made: Alike, key: Callable[[], Key | None], *, keyed: bool, whole: bool) -> Submission:
    """``whole``: all are read before anything is done."""
    blocks = made.read()
    # What admission makes, lines above all, is made outside of the transaction: two that make the same in another order
    # would wait for each other.
    ready = list(islice(blocks, None if whole else 1))
    made.admits = False
    few, whose = len(made.items) <= AT_ONCE, key() if keyed else None
    if few and whose is None and are_plain([made]):
        store([made], made.at)
        return Submission(task_ids=made.ids)
    with transaction.atomic():
        if whose is not None:
            with connection.cursor() as cur:
                first = idempotency.first_or_claim(cur, made.tenant, whose, made.ids)
            if first is not None:
                return first
            refusal_cache.check(made.tenant, len(made.items))
        if few:
            store([made], made.at)
        else:
            _write(made, chain(ready, blocks))
    return Submission(task_ids=made.ids)


def _write(made: Alike, blocks: Iterable[Block]) -> None:
    """Write the tasks in a transaction, and count them last. While the server writes a block, the next is read."""
    tenant, rest = made.tenant, []
    with prepared_cursor() as cur:
        for kind in range(len(made.tasks)):
            made.narrow(kind)  # what it asks of the database is asked before the pipeline
        with cur.connection.pipeline():
            for block in blocks:
                herds = block.herds()
                for herd in herds:
                    transitions.store_herd(cur, herd)
                if not herds:
                    rest.append(block)
        if rest:
            wide, narrow = (map(partial(Block.lines, wide=wide), rest) for wide in (True, False))
            transitions.store(cur, chain.from_iterable(wide), chain.from_iterable(narrow))
        count = made.count()
        stored = transitions.count_if_allowed(cur, [count])
        if not stored:
            limits.refuse(cur, tenant, count)
    limits.note(tenant, *stored[tenant.pk])
    tell(tenant.cell, (), None)


class Alike:
    """Tasks of a few kinds, read block by block; when all are read, a part of a submission as :func:`store.store` has it."""

    has_more = False

    def __init__(self, tenant: Tenant, items: Sequence[Any], actor: str) -> None:
        self.tenant, self.items, self.actor = tenant, items, actor
        self.at = reference_cache.now()
        self.ids: list[UUID] = []
        self.tasks: list[Accepted] = []
        """One of each kind."""
        self.kinds: list[int] = []
        """Of each task its kind's place among them; with its arguments, in the order of the submission."""
        self.args: list[str] = []
        self.kwargs: list[str] = []
        self.admits = True
        """Whether a kind may be met that was not met before."""
        self._reader = _Reader(self)

    def read(self) -> Iterator[Block]:
        """Read the tasks; :class:`Unlike` for what is not plain, or is wrong in anything."""
        left = iter(self.items)
        few = len(self.items) <= AT_ONCE
        size = AT_ONCE if few else FIRST
        while block := list(islice(left, size)):
            try:
                kinds, args, kwargs = self._reader.read(block)
            except SlackwaterError:
                raise Unlike from None
            ids = new_ids(len(block))
            self.ids += ids
            self.kinds += kinds
            if few:
                self.args += args
                self.kwargs += kwargs
            yield Block(self, kinds, ids, args, kwargs)
            size = min(2 * size, BLOCK)

    def wide(self, kind: int) -> Sequence[Any]:
        return rows.task_row(self.tenant.pk, None, self.tasks[kind], self.at, self.actor)

    def narrow(self, kind: int) -> Sequence[Any]:
        chosen = active_policies.current(self.tenant.cell)
        return rows.live_row(self.tenant.pk, self.tasks[kind], self.at, self.at, chosen)

    def count(self) -> Count:
        n, pressing = len(self.ids), [task.spec.category is Category.URGENT for task in self.tasks]
        urgent = sum(map(pressing.__getitem__, self.kinds)) if any(pressing) else 0
        return limits.count_of(self.tenant, n=n, urgent=urgent, charged=n)

    def rows(self, at: datetime) -> NewRows:
        """What is written of them, submitted ``at`` a time, which is known."""
        block = Block(self, self.kinds, self.ids, self.args, self.kwargs)
        return NewRows(
            self.tenant, self.count(), self.kinds, list(zip(self.ids, self.args, self.kwargs, strict=True)),
            lambda place: self.wide(self.kinds[place]), lambda place: self.narrow(self.kinds[place]),
            lambda: block.lines(wide=True), lambda: block.lines(wide=False),
        )  # fmt: skip


class Block:
    """Some tasks that have been read."""

    def __init__(self, made: Alike, kinds: list[int], ids: list[UUID], args: list[str], kwargs: list[str]) -> None:
        self.made, self.kinds, self.args, self.kwargs = made, kinds, args, kwargs
        self.hexes = ["%032x" % each.int for each in ids]  # noqa: UP031 - half the cost of a format

    def herds(self) -> list[Herd]:
        """All of them by kinds; nothing where it would take many statements, or long ones."""
        made, known = self.made, sorted(set(self.kinds))
        if len(known) > MAX_HERDS or sum(map(len, self.args)) + sum(map(len, self.kwargs)) > MAX_TEXT:
            return []
        own = self.hexes, self.args, self.kwargs
        if len(known) == 1:
            return [Herd(made.wide(known[0]), made.narrow(known[0]), *own)]
        chosen = {kind: [each == kind for each in self.kinds] for kind in known}
        return [
            Herd(made.wide(kind), made.narrow(kind), *(list(compress(texts, some)) for texts in own))
            for kind, some in chosen.items()
        ]

    def lines(self, *, wide: bool) -> Iterator[str]:
        """The lines to copy: of each task its kind's row, with what is the task's own."""
        row, places = (self.made.wide, WIDE_OWN) if wide else (self.made.narrow, NARROW_OWN)
        own = [self.hexes, *(list(map(copy_format.json_text, texts)) for texts in (self.args, self.kwargs) if wide)]
        patterns = {}
        for kind in set(self.kinds):
            parts = copy_format.between(row(kind), places)
            patterns[kind] = "%s".join(part.replace("%", "%%") for part in parts)
        yield from map(str.__mod__, map(patterns.__getitem__, self.kinds), zip(*own, strict=True))


class _Reader:
    """Reads tasks and checks them against the tenant's plan."""

    def __init__(self, made: Alike) -> None:
        """``made``: gets a task of each kind."""
        self.made, self.tenant, self.tasks = made, made.tenant, made.tasks
        self._known: dict[str, tuple[int, Any]] = {}
        """By how it is written the place of a kind, and what its tasks have in common."""
        self._arguments: list[Arguments | None] = []

    def read(self, block: list[Any]) -> tuple[list[int], list[str], list[str]]:
        """Of each its kind and arguments. An error of ours tells that something is wrong, but not where."""
        if set(map(type, block)) != {dict} or not OF_OTHERS.isdisjoint(block[0]):
            raise Unlike
        columns = columns_of(block)
        if columns is None:
            raise Unlike
        given = {name: columns.pop(name) for name in ARGUMENTS if name in columns}
        payloads = _payloads(block, given)
        kinds = self._kinds(block, columns, payloads)
        self._check_sizes(*payloads)
        for kind in set(kinds):
            self._check_arguments(kind, kinds, given, payloads)
        return kinds, *payloads

    def _kinds(self, block: list[Any], columns: Mapping[str, Sequence[Any]], payloads: tuple[list[str], list[str]],
               ) -> list[int]:  # fmt: skip
        """Of each task the place of its kind."""
        varying = []
        for values in columns.values():
            classes = set(map(type, values))
            if not classes <= SCALARS:
                if len(classes) > 1 or not _are_same(values):
                    raise Unlike
            elif len(classes) > 1 or values.count(values[0]) < len(values):
                varying += [values, tuple(map(type, values))]  # True, 1 and 1.0 are equal
        if not varying:
            return [self._kind(block[0], (payloads[0][0], payloads[1][0]))] * len(block)
        each = list(zip(*varying, strict=True))
        if len(set(each)) > MOST_KINDS:
            raise Unlike
        numbers: dict[Any, int] = {}
        kinds = []
        for n, what in enumerate(each):
            number = numbers.get(what)
            if number is None:
                number = numbers[what] = self._kind(block[n], (payloads[0][n], payloads[1][n]))
            kinds.append(number)
        return kinds

    def _kind(self, item: dict[str, Any], payload: Payload) -> int:
        shape = shape_of(item)
        written = _written(shape)  # an array among its values cannot be hashed
        known = self._known.get(written)
        if known is not None:
            if not _are_same((known[1], shape)):
                raise Unlike  # a class of theirs writes what differs alike
            return known[0]
        if not self.made.admits:
            raise _NewKind
        if shape is None:
            raise Unlike
        task = self._admitted(item, shape, payload)
        self.tasks.append(task)
        self._arguments.append(reference_cache.arguments(task.spec.handler) if task.spec.handler else None)
        number = len(self._arguments) - 1
        self._known[written] = (number, shape)
        return number

    def _admitted(self, item: dict[str, Any], shape: tuple[Any, ...], payload: Payload) -> Accepted:
        """A task as admission has it, or had one like it for a call that came a moment ago."""
        tenant = self.tenant
        key = (tenant.pk, tenant.cell, shape)
        plain = all(kind in SCALARS for _, kind, _ in shape)
        known: familiar.Admitted | None = reference_cache.made_of_it.get(key) if plain else None
        if known is not None and known.holds(tenant):
            return known.task
        spec = parse_task({name: value for name, value in item.items() if name not in ARGUMENTS})
        if spec.idempotency_key or spec.webhook:
            raise Unlike
        (task,) = admission.admit(tenant, [spec], payloads=[payload]).tasks
        if task.checkpoints:
            raise Unlike
        if plain and familiar.lasts(tenant, task):
            familiar.remember(key, familiar.Admitted(**familiar.admitted(tenant, task)))
        return task

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
                admission.check_arguments(self.tasks[kind].spec.handler, arguments, payload)


def _are_same(values: Sequence[Any]) -> bool:
    """Whether values are equal and are written alike: inside of what is equal True, 1 and 1.0 are, too."""
    try:
        return values.count(values[0]) == len(values) and len(set(map(_written, values))) == 1
    except Exception:  # noqa: BLE001 - a class of somebody's own may do anything, and a ring has no end
        return False


def _written(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - as above; and very long numbers are not written
        raise Unlike from None


def _payloads(block: list[Any], given: Mapping[str, Sequence[Any]]) -> tuple[list[str], list[str]]:
    """Of each task its arguments as JSON."""
    n = len(block)
    args = texts_of(given["args"], (list, tuple)) if "args" in given else [NO_PAYLOAD[0]] * n
    kwargs = texts_of(given["kwargs"], (dict,)) if "kwargs" in given else [NO_PAYLOAD[1]] * n
    if args is not None and kwargs is not None:
        return args, kwargs
    own = [own_payload(item, "") for item in block]
    if None in own:
        raise Unlike  # some refer to other tasks
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
