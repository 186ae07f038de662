"""Looking for rows that no index finds, until a page is full or the time is used up.

It goes back through the newest in windows, each twice as wide as the one before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.core.exceptions import EmptyResultSet
from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet

CHEAP: Final = 10_000
"""Up to this cost, in the planner's units, all that matches is found at once: some tens of milliseconds."""
WINDOW: Final = 10_000
"""Rows that the first window has."""
BUDGET_S: Final = 0.06
"""No window is begun that would probably end later: with all else that a page asks, less than a tenth of a second."""


_QUERY_CANCELED: Final = "57014"


class TooSlow(Exception):
    """A statement took longer than it may; it was ended."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Let no statement inside take longer than so many seconds: ``TooSlow``."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {max(1, round(seconds * 1_000))}")
            yield
            cursor.execute("SET LOCAL statement_timeout = 0")
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") != _QUERY_CANCELED:
            raise
        raise TooSlow from error


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


def beyond(rows: QuerySet[Any], place: Any, *, ascending: bool) -> QuerySet[Any]:
    """The rows after a place in the order of the list, or of its reverse."""
    rows = rows.order_by("pk" if ascending else "-pk")
    return rows if place is None else rows.filter(**{f"pk__{'gt' if ascending else 'lt'}": place})


def look(
    rows: QuerySet[Any], every: QuerySet[Any], place: Any, count: int, *, ascending: bool, budget_s: float | None = None
) -> tuple[list[Any], Any]:
    """The keys of up to ``count`` rows after ``place``, and where the look ended before the table did."""
    budget_s = BUDGET_S if budget_s is None else budget_s
    found: list[Any] = []
    window, began = WINDOW, time.monotonic()
    while True:
        here = time.monotonic()
        edge = beyond(every, place, ascending=ascending).values_list("pk", flat=True)[window - 1 : window]
        end = next(iter(edge), None)
        inside = beyond(rows, place, ascending=ascending).values_list("pk", flat=True)
        if end is not None:
            inside = inside.filter(**{f"pk__{'lte' if ascending else 'gte'}": end})
        found += inside[: count - len(found)]
        if end is None or len(found) >= count:
            return found, None
        now = time.monotonic()
        if now - began + 2 * (now - here) > budget_s:
            return found, end
        place, window = end, 2 * window
