"""Pages of a list by the key of their first and last row: the thousandth costs what the first does.

A search that no index answers looks back through the newest rows in windows, each twice as wide as the one before, until a
page is full or its time is used up; a link goes on from there. So no page reads a table of millions through.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.core.exceptions import EmptyResultSet, ValidationError
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest

if TYPE_CHECKING:
    from django.contrib.admin.views.main import ChangeList
else:
    from unfold.views import ChangeList

OLDER: Final = "older"
NEWER: Final = "newer"
START: Final = "start"
"""``newer=start`` is the page of the oldest rows."""
CHEAP: Final = 10_000
"""Up to this cost, in the planner's units, all that matches is found at once: some tens of milliseconds."""
WINDOW: Final = 10_000
"""Rows that the first window has."""
BUDGET_S: Final = 0.1
"""No window is begun that would probably end later."""


def planned(rows: QuerySet[Any]) -> tuple[int, float]:
    """How many rows PostgreSQL's planner expects, and at what cost; nothing is read."""
    try:
        sql, params = rows.order_by().values_list("pk").query.sql_with_params()
    except EmptyResultSet:
        return 0, 0.0
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        plan = cursor.fetchone()[0]
    (tree,) = json.loads(plan) if isinstance(plan, str) else plan
    return int(tree["Plan"]["Plan Rows"]), float(tree["Plan"]["Total Cost"])


def _beyond(rows: QuerySet[Any], place: Any, *, ascending: bool) -> QuerySet[Any]:
    """The rows after a place in the order of the list, or of its reverse."""
    rows = rows.order_by("pk" if ascending else "-pk")
    return rows if place is None else rows.filter(**{f"pk__{'gt' if ascending else 'lt'}": place})


def look(
    rows: QuerySet[Any], every: QuerySet[Any], place: Any, count: int, *, ascending: bool
) -> tuple[list[Any], Any]:
    """The keys of up to ``count`` rows after ``place``, and where the look ended before the table did."""
    found: list[Any] = []
    window, began = WINDOW, time.monotonic()
    while True:
        here = time.monotonic()
        edge = _beyond(every, place, ascending=ascending).values_list("pk", flat=True)[window - 1 : window]
        end = next(iter(edge), None)
        inside = _beyond(rows, place, ascending=ascending).values_list("pk", flat=True)
        if end is not None:
            inside = inside.filter(**{f"pk__{'lte' if ascending else 'gte'}": end})
        found += inside[: count - len(found)]
        if end is None or len(found) >= count:
            return found, None
        now = time.monotonic()
        if now - began + 2 * (now - here) > BUDGET_S:
            return found, end
        place, window = end, 2 * window


class KeysetList(ChangeList):
    """A list without page numbers: newest, newer, older, oldest."""

    newest = newer = older = oldest = further = ""
    """The addresses of other pages, each where there is one; ``further`` goes on where a search has stopped."""
    searched_to = ""
    is_exact = True

    def __init__(self, request: HttpRequest, model: Any, *args: Any) -> None:
        given = request.GET.copy()
        self.place = {name: given.pop(name)[-1] for name in (OLDER, NEWER) if name in given}
        kept = args[-3].get_preserved_filters(request)
        request.GET = given  # type: ignore[assignment]  # what narrows the list: the place in it does not
        super().__init__(request, model, *args)
        self.preserved_filters = kept

    def _place(self, name: str) -> Any:
        try:
            return self.opts.pk.to_python(self.place[name])
        except (KeyError, ValidationError):
            return None

    def get_results(self, request: HttpRequest) -> None:
        """The rows of this page and what leads to others; the rows are read by their keys alone."""
        size, ascending = self.list_per_page, NEWER in self.place
        place = None if self.place.get(NEWER) == START else self._place(NEWER if ascending else OLDER)
        paginator: Any = self.model_admin.get_paginator(request, self.queryset, size)
        narrowed = bool(self.query or self.get_filters_params())
        stopped = None
        if narrowed and paginator.cost > CHEAP:
            every = self.root_queryset.select_related(None)
            keys, stopped = look(self.queryset, every, place, size + 1, ascending=ascending)
        else:
            keys = list(_beyond(self.queryset, place, ascending=ascending).values_list("pk", flat=True)[: size + 1])
        more, keys = len(keys) > size, keys[:size]
        self.is_exact = place is None and not more and stopped is None
        self.result_count = len(keys) if self.is_exact else max(len(keys), paginator.count)
        self._lead(keys[::-1] if ascending else keys, ascending, place is not None, more, stopped)
        rows = self.root_queryset.filter(pk__in=keys)
        self.result_list: Any = self._in_order(rows, keys[::-1] if ascending else keys)
        self.paginator, self.full_result_count = paginator, None
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True

    def _in_order(self, rows: QuerySet[Any], keys: list[Any]) -> list[Any]:
        if not rows.query.select_related:
            rows = self.apply_select_related(rows)
        found = {row.pk: row for row in rows.order_by()} if keys else {}
        return [found[key] for key in keys if key in found]

    def _lead(self, keys: list[Any], ascending: bool, placed: bool, more: bool, stopped: Any) -> None:
        def at(**place: Any) -> str:
            return self.get_query_string(place)

        before, after = (more, placed) if ascending else (placed, more)
        if before or (ascending and stopped is not None):
            self.newest = at() or "?"
            self.newer = at(newer=keys[0]) if keys else ""
        if after:
            self.older = at(older=keys[-1]) if keys else ""
            self.oldest = at(newer=START)
        if stopped is not None:
            self.further = at(**{NEWER if ascending else OLDER: stopped})
            self.oldest = "" if ascending else at(newer=START)
            self.searched_to = _moment(stopped)


def _moment(key: Any) -> str:
    """When what has this key was made, where the key tells."""
    if not isinstance(key, UUID) or key.version != 7:
        return ""
    return datetime.fromtimestamp((key.int >> 80) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
