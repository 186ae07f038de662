"""Counters and histograms for Prometheus, of the same rows as the charts.

Whoever is asked tells of the whole ledger, so of several submitters one is to be taken: ``max``, not ``sum``. Only what a
process measures itself (``PROCESS``) is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, Exemplar, HistogramMetricFamily, Metric

from scheduler_ext.core.states import Category, Outcome
from scheduler_ext.round.tally import TOOK_BOUNDS
from slackwater_monitoring.receipts.account import FIRST
from slackwater_monitoring.rollups import layout
from slackwater_monitoring.rollups.layout import BOUNDS, MAX_KEYS, OTHERS, Dimension, Numbers, Place
from slackwater_monitoring.rollups.read import totals
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.read.tasks import word

BY: Final = (
    ("", Dimension.CATEGORY),
    ("tenant_", Dimension.TENANT),
    ("handler_", Dimension.HANDLER),
    ("node_", Dimension.NODE),
)
"""The families of each dimension have names of their own: sums over one family count nothing twice."""
COUNTERS: Final = (
    ("started", Place.STARTED, "Attempts that began, known once they have ended"),
    ("retried", Place.RETRIED, "Attempts that were not the first of their task"),
    ("late", Place.LATE, "Tasks that began after their latest start, or expired waiting"),
)
HISTOGRAMS: Final = (
    ("start_delay", layout.DELAYS, Place.DELAY_MS, "From when a task was due to its first start"),
    ("queue", layout.QUEUES, Place.QUEUE_MS, "From an attempt's claim to its start"),
    ("run", layout.RUNS, Place.RUN_MS, "From an attempt's start to its end"),
)
SUBMITTED: Final = """
SELECT t.slug, c.submitted FROM slackwater_tenants_tenantcounter c JOIN slackwater_tenants_tenant t ON t.id = c.tenant_id
ORDER BY c.submitted DESC, t.id
"""
LATELY: Final = 300
"""Attempts in which traced ones are looked for."""
TRACED: Final = f"""
SELECT x.trace_id, t.category, {FIRST}, extract(epoch FROM a.started_at - greatest(t.submitted_at, t.start_at))::float8,
    extract(epoch FROM a.started_at - a.queued_at)::float8, extract(epoch FROM a.finished_at - a.started_at)::float8,
    extract(epoch FROM a.finished_at)::float8
FROM (SELECT * FROM slackwater_tasks_attempt ORDER BY id DESC LIMIT %s) a
JOIN slackwater_tasks_tasktrace x ON x.task_id = a.task_id JOIN slackwater_tasks_task t ON t.id = a.task_id
WHERE x.sampled ORDER BY a.id
"""  # noqa: S608 - a fragment of ours
Exemplars = dict[tuple[str, str, int], Exemplar]
"""By histogram, category and bucket."""

SUBMIT: Final = Histogram(
    "slackwater_submit_seconds", "What requests that submit to this process took, from their first byte to the answer.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10), registry=None,
)  # fmt: skip
REFUSED: Final = Counter(
    "slackwater_refused", "Requests to submit that this process refused, by HTTP status.", ["status"], registry=None
)
PROCESS: Final = (SUBMIT, REFUSED)


def families(rounds: Sequence[dict[str, Any]]) -> Iterable[Metric]:
    """All of them; ``rounds`` are the accounts of the leaders' rounds."""
    found, exemplars = totals(), _exemplars()
    yield _submitted()
    for prefix, dimension in BY:
        label = dimension.name.lower()
        rows = sorted(found[dimension].items())
        for name, place, text in COUNTERS:
            counter = CounterMetricFamily(f"slackwater_{prefix}{name}", f"{text}, by {label}.", labels=[label])
            for key, numbers in rows:
                counter.add_metric([key], numbers[place])
            yield counter
        yield _finished(prefix, label, rows)
        yield _attempts(prefix, label, rows)
        for name, first, total, text in HISTOGRAMS:
            family = HistogramMetricFamily(f"slackwater_{prefix}{name}_seconds", f"{text}, by {label}.", labels=[label])
            for key, numbers in rows:
                traced = exemplars if dimension == Dimension.CATEGORY else {}
                family.add_metric([key], _buckets(layout.histogram(numbers, first), BOUNDS, traced, name, key),
                                  numbers[total] / 1000)  # fmt: skip
            yield family
    yield _rounds(rounds)


def _submitted() -> Metric:
    text = f"Tasks that were accepted or run again; tenants beyond the first {MAX_KEYS} together."
    family = CounterMetricFamily("slackwater_submitted", text, labels=["tenant"])
    rows = fetch_all(SUBMITTED)
    for slug, submitted in rows[:MAX_KEYS]:
        family.add_metric([slug], submitted)
    if rest := rows[MAX_KEYS:]:
        family.add_metric([OTHERS], sum(submitted for _, submitted in rest))
    return family


def _finished(prefix: str, label: str, rows: Iterable[tuple[str, Numbers]]) -> Metric:
    text = f"Tasks that ended, by {label} and final state."
    family = CounterMetricFamily(f"slackwater_{prefix}finished", text, labels=[label, "state"])
    for key, numbers in rows:
        for state, count in layout.finished(numbers).items():
            family.add_metric([key, word(state)], count)
    return family


def _attempts(prefix: str, label: str, rows: Iterable[tuple[str, Numbers]]) -> Metric:
    text = f"Attempts that ended, by {label} and outcome."
    family = CounterMetricFamily(f"slackwater_{prefix}attempts", text, labels=[label, "outcome"])
    for key, numbers in rows:
        for outcome in Outcome:
            if outcome is not Outcome.HANDED_BACK:  # it leaves no attempt
                family.add_metric([key, word(outcome)], numbers[layout.OUTCOMES + outcome])
    return family


def _rounds(rounds: Sequence[dict[str, Any]]) -> Metric:
    family = HistogramMetricFamily(
        "slackwater_round_seconds", "What rounds of the present leader took.", labels=["cell"]
    )
    for each in rounds:
        if "took" in each:  # a leader of the release before does not tell
            family.add_metric([each["cell"]], _buckets(each["took"], TOOK_BOUNDS, {}, "", ""), each["took_s"])
    return family


def _buckets(counts: Sequence[int], bounds: Sequence[float], exemplars: Exemplars, name: str, key: str) -> list[Any]:
    """Cumulative, as Prometheus wants them."""
    edges = [*map(str, map(float, bounds)), "+Inf"]
    return [
        (edge, float(count), exemplars.get((name, key, n)))
        for n, (edge, count) in enumerate(zip(edges, accumulate(counts), strict=True))
    ]


def _exemplars() -> Exemplars:
    """Traces of tasks that ended lately: the last in each bucket."""
    found: Exemplars = {}
    for trace, category, first, delay, queued, run, at in fetch_all(TRACED, [LATELY]):
        for name, seconds in (("start_delay", delay if first else None), ("queue", queued), ("run", run)):
            if seconds is not None:
                value = max(0.0, seconds)
                place = (name, word(Category(category)), layout.bucket(0, round(1_000_000 * value)))
                found[place] = Exemplar({"trace_id": trace}, value, at)
    return found
