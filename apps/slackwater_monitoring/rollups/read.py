"""Figures over time as the charts, the live page's tiles and ``/metrics`` show them: all of the same rows.

Unscoped: operators see all tenants.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from scheduler_ext.core.errors import InvalidInput
from slackwater_monitoring.rollups import layout
from slackwater_monitoring.rollups.layout import LENGTH, OTHERS, Dimension, Numbers, Place
from slackwater_tasks.ledger.connection import fetch_all, fetch_value

WINDOWS: Final = {"5min": (10, 30), "1h": (60, 60), "24h": (600, 144), "7d": (3_600, 168)}
"""The length of a span in seconds, and how many spans are shown."""
BY: Final = {"all": Dimension.ALL, "tenant": Dimension.TENANT, "handler": Dimension.HANDLER, "node": Dimension.NODE,
             "category": Dimension.CATEGORY}  # fmt: skip
SHOWN: Final = 7
"""Keys with a line of their own in a chart; the others are one line."""
LAG_S: Final = 15
"""What ended within this time may not be in yet: figures end so long before now."""
NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
SPANS: Final = """
SELECT extract(epoch FROM at)::bigint, key, numbers FROM slackwater_monitoring_rollup
WHERE grain = %s AND at >= to_timestamp(%s) AND at < to_timestamp(%s) AND dimension = %s AND (key = ANY(%s) OR %s)
"""
MOST: Final = """
SELECT key FROM slackwater_monitoring_rollup
WHERE grain = %s AND at >= to_timestamp(%s) AND at < to_timestamp(%s) AND dimension = %s AND key <> %s
GROUP BY key ORDER BY sum(numbers[%s]) DESC, sum(numbers[%s]) DESC, key LIMIT %s
"""
TOTALS: Final = "SELECT dimension, key, numbers FROM slackwater_monitoring_rollup WHERE grain = 0 ORDER BY 1, 2"
NAMES: Final = "SELECT id::text, slug FROM slackwater_tenants_tenant WHERE id = ANY(%s::bigint[])"
Spans = dict[int, Numbers]
"""Numbers by when their span began."""


def charts(window: str, by: str) -> dict[str, Any]:
    """The figures of a window, by the keys of a dimension that had most, and those of the others together.

    Rates are of attempts a second, times in seconds; ``None`` stands where nothing tells.
    """
    if window not in WINDOWS:
        raise InvalidInput(f"must be one of {', '.join(WINDOWS)}", field="window")
    if by not in BY:
        raise InvalidInput(f"must be one of {', '.join(BY)}", field="by")
    step, count = WINDOWS[window]
    now = int(fetch_value(NOW) - LAG_S) // layout.FINEST * layout.FINEST
    end = -(-now // step) * step  # the last span may still go on, so that every window ends with the same moment
    within = (step, end - count * step, end)
    times = range(within[1], end, step)
    took = [min(step, now - at) for at in times]
    whole = _spans(within, Dimension.ALL)[""]
    lines = {"all": whole} if by == "all" else _lines(within, BY[by], whole)
    samples = [_at(whole, at)[Place.SAMPLES] for at in times]
    return {
        "window": window, "by": by, "step_s": step, "at": list(times),
        "series": [{"key": key, **_figures(spans, times, took, samples)} for key, spans in lines.items()],
        "slots": [
            {"key": kind, "used": [_part(_at(spans, at)) for at in times]}
            for kind, spans in sorted(_spans(within, Dimension.SLOT).items())
        ],
    }  # fmt: skip


def lately(seconds: int = 300) -> dict[str, Any]:
    """Of the last minutes: attempts ended a second, and how long first starts and runs took."""
    end = int(fetch_value(NOW) - LAG_S) // layout.FINEST * layout.FINEST
    total = _sum(_spans((layout.FINEST, end - seconds, end), Dimension.ALL)[""].values())
    return {
        "over_s": seconds, "rate": layout.ended(total) / seconds, "failed": layout.failed(total),
        "start_delay": _times(total, layout.DELAYS), "run_time": _times(total, layout.RUNS),
    }  # fmt: skip


def totals() -> dict[Dimension, dict[str, Numbers]]:
    """Since each key was first met; tenants by their names, and those that are gone among the others."""
    found: dict[Dimension, dict[str, Numbers]] = defaultdict(dict)
    for dimension, key, numbers in fetch_all(TOTALS):
        found[Dimension(dimension)][key] = numbers
    tenants = found[Dimension.TENANT]
    names = _names(tenants)
    named: dict[str, Numbers] = {}
    for key, numbers in tenants.items():
        own = names.get(key, OTHERS)
        named[own] = _sum([named[own], numbers]) if own in named else numbers
    found[Dimension.TENANT] = named
    return found


def _names(keys: Any) -> dict[str, str]:
    return dict(fetch_all(NAMES, [[int(key) for key in keys if key.isdecimal()]]))


def _spans(within: tuple[int, int, int], dimension: Dimension, keys: Sequence[str] | None = None) -> dict[str, Spans]:
    found: dict[str, Spans] = defaultdict(dict)
    for at, key, numbers in fetch_all(SPANS, (*within, int(dimension), list(keys or ()), keys is None)):
        found[key][at] = numbers
    return found


def _lines(within: tuple[int, int, int], dimension: Dimension, whole: Spans) -> dict[str, Spans]:
    """The keys with most, by name; the others are what is left of the whole, so that all add up to it."""
    values = (*within, int(dimension), OTHERS, Place.STARTED + 1, Place.WAITING + 1, SHOWN)
    keys = [key for (key,) in fetch_all(MOST, values)]
    found = _spans(within, dimension, keys)
    names = _names(keys) if dimension == Dimension.TENANT else {key: key for key in keys}
    lines = {names[key]: found[key] for key in keys if key in names and _tells(found[key])}
    rest: Spans = {
        at: [max(0, number - sum(parts)) for number, *parts in zip(
            numbers, *(_at(spans, at) for spans in lines.values()), strict=True)]
        for at, numbers in whole.items()
    }  # fmt: skip
    if _tells(rest):
        lines[OTHERS] = rest
    return lines


def _tells(spans: Spans) -> bool:
    """Whether anything ended or waited."""
    return any(layout.ended(numbers) or numbers[Place.WAITING] for numbers in spans.values())


def _at(spans: Spans, at: int) -> Numbers:
    return spans.get(at) or [0] * LENGTH


def _sum(rows: Any) -> Numbers:
    return [sum(column) for column in zip([0] * LENGTH, *rows, strict=True)]


def _figures(spans: Spans, times: range, took: Sequence[int], samples: Sequence[int]) -> dict[str, Any]:
    rows = [_at(spans, at) for at in times]
    total = _sum(rows)
    delays, runs = ([_times(row, first) for row in rows] for first in (layout.DELAYS, layout.RUNS))
    return {
        "ended": [layout.ended(row) / seconds for row, seconds in zip(rows, took, strict=True)],
        "failed": [layout.failed(row) / seconds for row, seconds in zip(rows, took, strict=True)],
        "waiting": [row[Place.WAITING] / n if n else None for row, n in zip(rows, samples, strict=True)],
        "delay_p50": [each and each["p50"] for each in delays], "delay_p95": [each and each["p95"] for each in delays],
        "run_p50": [each and each["p50"] for each in runs], "run_p95": [each and each["p95"] for each in runs],
        "total": {
            "ended": layout.ended(total), "failed": layout.failed(total),
            "start_delay": _times(total, layout.DELAYS), "run_time": _times(total, layout.RUNS),
        },
    }  # fmt: skip


def _times(numbers: Numbers, first: int) -> dict[str, float] | None:
    counts = layout.histogram(numbers, first)
    half, most = layout.quantile(counts, 0.5), layout.quantile(counts, 0.95)
    return None if half is None or most is None else {"p50": half, "p95": most}


def _part(numbers: Numbers) -> float | None:
    slots = numbers[Place.SLOTS_MILLI]
    return numbers[Place.USED_MILLI] / slots if slots else None
