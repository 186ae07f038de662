"""Lists in pages, filtered and sorted as the client asks; the cursor holds where the last page ended, in that order."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from django.db.models import F, Q, QuerySet, Value
from django.db.models.expressions import OrderBy
from django.db.models.functions import NullIf
from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter

from scheduler_ext.core.errors import DoesNotFit
from slackwater_adminkit import looking
from slackwater_api.http.operation import read_sort
from slackwater_api.http.pagination import PAGING, WITHIN, asked_page, asked_time, decode, encode

Present = Callable[[QuerySet[Any]], list[dict[str, Any]]]


class Filters(Protocol):
    """The filters of a list."""

    @classmethod
    def parameters(cls) -> list[OpenApiParameter]:
        """As OpenAPI shows them."""

    @classmethod
    def narrow(cls, query: Mapping[str, Any], rows: QuerySet[Any]) -> QuerySet[Any]:
        """The rows that the query asks for; ``InvalidInput`` names the parameter at fault."""


def each(show: Callable[[Any], dict[str, Any]]) -> Present:
    """Rows shown one by one."""
    return lambda rows: [show(row) for row in rows]


@dataclass(frozen=True, slots=True)
class Column:
    """A column by which a list can be sorted."""

    column: str
    """In the database."""
    kind: Callable[[str], Any] = str
    item: str = ""
    """Its name in an item, where that is not the name it is sorted by."""
    may_lack: bool = False
    """Whether a row may have none; an index in plain order serves only the columns that always have one."""

    @property
    def lacking(self) -> Q:
        """The rows that have none: a text is empty then, and shown as null."""
        return Q(**{self.column: ""} if self.kind is str else {f"{self.column}__isnull": True})


def moment(text: str) -> datetime:
    """A time with its zone; ``ValueError`` for anything else."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(text)
    try:
        return found.astimezone(UTC)  # PostgreSQL knows no zone sixteen hours from it
    except OverflowError:
        raise ValueError(text) from None


def whole(text: str) -> int:
    """A number PostgreSQL can hold; ``ValueError`` for anything else."""
    number = int(text)
    if abs(number) >= 2**63:
        raise ValueError(text)
    return number


ID = Column("id", uuid.UUID, "id")
BY_AGE = Column("id", uuid.UUID, "id")
"""Ids are in the order of time, and the index is theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedList:
    """How one list is filtered, sorted and shown."""

    present: Present
    filters: type[Filters] | None = None
    columns: Mapping[str, Column]
    default: str
    """Where the client asks for nothing; ``-`` before it: descending."""
    tie: Column = ID
    """Unique: the order among equals."""
    looks: bool = False
    """Whether it takes ``within_ms``: it is by default in the order of its keys."""

    @property
    def parameters(self) -> list[OpenApiParameter]:
        """The filters, the order and the page, as OpenAPI shows them."""
        words = [sign + name for name in self.columns for sign in ("", "-")]
        sort = OpenApiParameter(
            "sort",
            {"type": "string", "enum": words, "default": self.default},
            description="One field; with - before it descending. What has none comes last.",
        )
        return [*(self.filters.parameters() if self.filters else ()), sort, *PAGING, *([WITHIN] if self.looks else ())]

    def page(self, query: QueryDict, rows: QuerySet[Any]) -> dict[str, Any]:
        """The page of ``rows`` that the query asks for."""
        every, within = rows, asked_time(query) if self.looks else None
        if self.filters is not None:
            rows = self.filters.narrow(query, rows)
        limit, cursor = asked_page(query)
        text = query.get("sort", self.default)
        name, descending = read_sort(text, self.columns)
        column = self.columns[name]
        if cursor:
            rows = rows.filter(self._after(cursor, text, column, descending=descending))
        order = [column] if column.column == self.tie.column else [column, self.tie]
        stopped = None
        if within is not None and len(order) == 1 and looking.planned(rows)[1] > looking.CHEAP:
            keys, stopped = looking.look(
                rows, every, self._place(cursor), limit + 1, ascending=not descending, budget_s=within
            )
            rows = every.filter(pk__in=keys)
        rows = rows.order_by(*(_by(of, descending) for of in order))[: limit + 1]
        # In another order than that of the keys all are looked through.
        found = self.present(rows) if within is None or len(order) == 1 else self._in_time(rows, within)
        items = found[:limit]
        if len(found) <= limit and stopped is None:
            return {"items": items, "next_cursor": None}
        last = items[-1] if len(found) > limit else {column.item or name: stopped, self.tie.item: stopped}
        value, tie_value = last[column.item or name], last[self.tie.item]
        following = encode(text, json.dumps(value, default=_plain, ensure_ascii=False), str(_plain(tie_value)))
        return {"items": items, "next_cursor": following}

    def _in_time(self, rows: QuerySet[Any], within_s: float) -> list[dict[str, Any]]:
        try:
            with looking.at_most(within_s):
                return self.present(rows)
        except looking.TooSlow:
            raise DoesNotFit(
                f"is an order in which so many rows take longer than {within_s * 1_000:.0f} ms: leave it out, narrow the list "
                "(submitted_after, for one), or give it more time by within_ms", field="sort",
            ) from None  # fmt: skip

    def _place(self, cursor: str) -> Any:
        """The key at which a cursor of a list in the order of its keys stands."""
        return decode(cursor, str, _loaded(self.tie.kind), _unspoilt(self.tie.kind))[-1] if cursor else None

    def _after(self, cursor: str, text: str, column: Column, *, descending: bool) -> Q:
        sort, value, tie = decode(cursor, str, _loaded(column.kind), _unspoilt(self.tie.kind))
        if sort != text:
            raise DoesNotFit("belongs to a list sorted otherwise", field="cursor")
        beyond = "lt" if descending else "gt"
        of, last = column.column, self.tie.column
        if of == last:
            return Q(**{f"{of}__{beyond}": value})
        if value is None:
            return column.lacking & Q(**{f"{last}__{beyond}": tie})
        after = Q(**{f"{of}__{beyond}": value}) | Q(**{of: value, f"{last}__{beyond}": tie})
        return after | column.lacking if column.may_lack else after


def _by(column: Column, descending: bool) -> OrderBy:
    last = True if column.may_lack else None
    of = NullIf(column.column, Value("")) if column.may_lack and column.kind is str else F(column.column)
    return of.desc(nulls_last=last) if descending else of.asc(nulls_last=last)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _unspoilt(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """``kind``, for what PostgreSQL can store."""

    def read(text: str) -> Any:
        if "\x00" in text:
            raise ValueError(text)
        text.encode()
        return kind(text)

    return read


def _loaded(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A value of a cursor, which is JSON; null where the row had none."""

    def read(text: str) -> Any:
        value = json.loads(text)
        return None if value is None else _unspoilt(kind)(str(value))

    return read
