"""Usage and bill: what was used and what it costs, by day, tier and category, with charts over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpResponse

from slackwater_adminkit.display import seconds
from slackwater_console.page import At, page
from slackwater_console.rest import Refused
from slackwater_console.templatetags.console import money

DAYS: Final = ("since", "until")
USED: Final = ("Tier", "Category", "Attempts", "Succeeded", "Held", "CPU", "Price")
ROWS: Final = 500
MOST: Final = 20 * ROWS
"""Rows that a chart is made of: a year of three tiers in three categories, thrice."""
DAILY: Final = 92
"""Longer spans have a bar for each month."""
MEASURES: Final[dict[str, Callable[[dict[str, Any]], float]]] = {
    "price": lambda row: row["price_micros"] / 1_000_000, "attempts": lambda row: row["attempts"],
    "failed": lambda row: row["attempts"] - row["succeeded"], "held": lambda row: row["run_s"] / 3_600,
    "cpu": lambda row: row["cpu_s"] / 3_600,
}  # fmt: skip
"""What the charts show of a row of usage."""


def _sum(row: dict[str, Any]) -> list[Any]:
    return [row["attempts"], row["succeeded"], seconds(row["run_s"]), seconds(row["cpu_s"]), money(row["price_micros"])]


def _all(at: At, asked: dict[str, str]) -> tuple[dict[str, Any], list[dict[str, Any]], bool]:
    """The answer with its first rows, all of them, and whether there are more than a chart takes."""
    found = at.get("usage", limit=ROWS, **asked)
    rows, following = [*found["items"]], found["next_cursor"]
    while following and len(rows) < MOST:
        more = at.get("usage", limit=ROWS, cursor=following, **asked)
        rows, following = [*rows, *more["items"]], more["next_cursor"]
    return found, rows, bool(following)


def over_time(rows: Iterable[dict[str, Any]], since: date, until: date) -> dict[str, Any]:
    """What the charts show: a place for each day, or month, and the sums in it by tier and by category."""
    size = 10 if (until - since).days < DAILY else 7
    days = ((since + timedelta(days=n)).isoformat()[:size] for n in range((until - since).days + 1))
    places = {label: n for n, label in enumerate(dict.fromkeys(days))}
    by: dict[str, dict[str, dict[str, list[float]]]] = {"tier": {}, "category": {}}
    for row in rows:
        for name, groups in by.items():
            sums = groups.setdefault(row[name], {measure: [0] * len(places) for measure in MEASURES})
            for measure, read in MEASURES.items():
                sums[measure][places[row["day"][:size]]] += read(row)
    return {"at": [*places], "by": by}


def _spans(today: date) -> Iterator[tuple[str, str]]:
    """Spans of days that are often asked for."""
    month = today.replace(day=1)
    before = month - timedelta(days=1)
    for label, since, until in (
        ("This month", month, today), ("Last month", before.replace(day=1), before),
        ("30 days", today - timedelta(days=29), today), ("12 months", today - timedelta(days=364), today),
    ):  # fmt: skip
        yield label, urlencode({"since": since, "until": until})


@page
def usage(at: At) -> HttpResponse:
    """What was used and what it costs; the month so far unless days are given."""
    asked = {name: text for name in DAYS if (text := at.request.GET.get(name, ""))}
    refused = ""
    try:
        at.check_query(DAYS)
        found, rows, cut = _all(at, asked)
    except Refused as error:
        if error.status != 422:
            raise
        refused, (found, rows, cut) = error.words, _all(at, {})
    days = [
        (day, [[row["tier"], row["category"], *_sum(row)] for row in of_day])
        for day, of_day in groupby(found["items"], key=lambda row: row["day"])
    ]
    since, until = (date.fromisoformat(found[name]) for name in DAYS)
    return at.show(
        "usage", title="Usage and bill", usage=found, refused=refused, days=days, head=USED, cut=cut,
        chart=over_time(rows, since, until) if rows else None, spans=[*_spans(datetime.now(UTC).date())],
        limits=at.get("limits"), hints=at.get("usage/hints")["items"],
    )  # fmt: skip
