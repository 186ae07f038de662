"""``/metrics`` for Prometheus: what the ledger says, by a few queries that cost the same whatever waits.

No task, key or tenant is a label: the number of series stays small, and the page tells nothing of clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category, TaskState
from slackwater_conf import conf
from slackwater_tasks.ledger.sql.snapshot import ACTIVE_LINES
from slackwater_tasks.read.autoscaling import by_cell, by_tier, demands, wanted
from slackwater_tasks.read.overview import RESOURCES

MAX_DEAD_COUNTED = 100_000

UNFINISHED = "SELECT coalesce(sum(unfinished), 0)::bigint FROM slackwater_tenants_tenantcounter"
IN_FLIGHT = named("""
SELECT n.category, l.state, count(*) FROM slackwater_tasks_livetask l JOIN slackwater_tasks_line n ON n.id = l.line_id
WHERE l.phase = :phase.IN_FLIGHT GROUP BY 1, 2
""")
# The active lines by a loose scan of the ready index; of each, only the head.
READY = named(f"""{ACTIVE_LINES}
SELECT n.category, count(*)::int, extract(epoch FROM clock_timestamp() - min(h.latest_start))::float8
FROM active a JOIN slackwater_tasks_line n ON n.id = a.line_id CROSS JOIN LATERAL (
    SELECT l.latest_start FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id = a.line_id
    ORDER BY l.rank_group, l.rank, l.task_id LIMIT 1) h
GROUP BY 1
""")  # noqa: S608 - statements of ours
DEAD = f"SELECT count(*) FROM (SELECT 1 FROM slackwater_tasks_deadletter LIMIT {MAX_DEAD_COUNTED}) x"  # noqa: S608 (a number of our own)
NODES = (
    "SELECT cell, state, count(*) FROM slackwater_resources_node WHERE state IN ('active', 'draining') GROUP BY 1, 2"
)
CAPACITY = """
SELECT n.cell, sum(n.capacity[1]), sum(n.capacity[2]), sum(n.capacity[3]), sum(n.capacity[4]), sum(n.capacity[5]),
       sum(n.capacity[6]) FROM slackwater_resources_node n WHERE n.state = 'active' GROUP BY 1
"""
LEADERS = """
SELECT cell, (expires_at > clock_timestamp())::int, epoch, extract(epoch FROM clock_timestamp() - renewed_at)::float8
FROM slackwater_tasks_leader
"""
TRACES = """
SELECT sent, refused, dropped, backlog, coalesce(extract(epoch FROM clock_timestamp() - failing_since)::float8, 0)
FROM slackwater_monitoring_tracesending
"""
# 1 where somebody looks after it.
ALERTS = """
SELECT rule, cell, (acknowledged_at IS NOT NULL)::int, count(*) FROM slackwater_monitoring_alert
WHERE cleared_at IS NULL AND raised_at IS NOT NULL GROUP BY 1, 2, 3
"""


def _rows(query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _gauge(name: str, text: str, labels: list[str], rows: Iterable[tuple[list[str], float]]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"slackwater_{name}", text, labels=labels)
    for values, number in rows:
        gauge.add_metric(values, float(number))
    return gauge


def _category(number: int) -> str:
    return Category(number).name.lower()


class Ledger(Collector):
    """Gauges of the ledger, read anew at each scrape."""

    def collect(self) -> Iterable[Metric]:
        """The metrics."""
        yield from self._tasks()
        yield from self._nodes()
        yield from self._demand()
        yield from self._wanted()
        yield from self._leaders()
        yield from self._traces()
        yield _gauge(
            "alerts_open",
            "Alerts that are raised and not cleared.",
            ["rule", "cell", "acknowledged"],
            [([rule, cell, str(taken)], count) for rule, cell, taken, count in _rows(ALERTS)],
        )

    def _tasks(self) -> Iterable[Metric]:
        unfinished = float(_rows(UNFINISHED)[0][0])
        held = [(_category(c), TaskState(s).name.lower(), n) for c, s, n in _rows(IN_FLIGHT)]
        yield _gauge("tasks_unfinished", "Tasks accepted and not ended.", [], [([], unfinished)])
        in_flight = sum(n for _, _, n in held)
        yield _gauge(
            "tasks_waiting",
            "Tasks accepted and not yet claimed for a node.",
            [],
            [([], unfinished - in_flight)],
        )
        yield _gauge(
            "tasks_in_flight",
            "Tasks claimed or running.",
            ["category", "state"],
            [([c, s], n) for c, s, n in held],
        )
        ready = _rows(READY)
        yield _gauge(
            "lines_active",
            "Lines in which a task is ready.",
            ["category"],
            [([_category(c)], n) for c, n, _ in ready],
        )
        yield _gauge(
            "lateness_seconds",
            "How far the head of a line is past its latest start; negative while there is time.",
            ["category"],
            [([_category(c)], late) for c, _, late in ready if late is not None],
        )
        yield _gauge("dead_letters", f"Dead letters, counted up to {MAX_DEAD_COUNTED}.", [], [([], _rows(DEAD)[0][0])])

    def _nodes(self) -> Iterable[Metric]:
        yield _gauge("nodes", "Live nodes.", ["cell", "state"], [([c, s], n) for c, s, n in _rows(NODES)])
        yield _gauge(
            "capacity",
            "Resources of the active nodes, in the unit the resource's name ends with.",
            ["cell", "resource"],
            [
                ([row[0], resource], amount)
                for row in _rows(CAPACITY)
                for resource, amount in zip(RESOURCES, row[1:], strict=True)
            ],
        )

    def _demand(self) -> Iterable[Metric]:
        found = demands()
        yield _gauge("slots", "Slots of the active nodes.", ["cell"], [([d.cell], d.slots) for d in found])
        yield _gauge(
            "demand_slots",
            "Slots that the work in flight and the ready work would take at once.",
            ["cell"],
            [([d.cell], d.demand) for d in found],
        )
        yield _gauge(
            "wanted_slots",
            "Slots the demand asks for at the target ratio of resources to demand.",
            ["cell"],
            [([d.cell], d.wanted) for d in found],
        )

    def _wanted(self) -> Iterable[Metric]:
        found = wanted()
        yield _gauge(
            "wanted_workers",
            "Workers that the work of a tier asks for, where they run nothing else; tenants' own tiers are one.",
            ["cell", "tier"],
            [([cell, tier], count) for (cell, tier), count in by_tier(found).items()],
        )
        yield _gauge(
            "cell_wanted_workers",
            "Workers that all work of a cell asks for.",
            ["cell"],
            [([cell], count) for cell, count in by_cell(found).items()],
        )

    def _leaders(self) -> Iterable[Metric]:
        leaders = _rows(LEADERS)
        yield _gauge(
            "dispatcher_leads",
            "1 while a dispatcher leads the cell.",
            ["cell"],
            [([c], n) for c, n, _, _ in leaders],
        )
        yield _gauge(
            "dispatcher_epoch",
            "Rises each time another dispatcher takes over.",
            ["cell"],
            [([c], e) for c, _, e, _ in leaders],
        )
        yield _gauge(
            "dispatcher_renewed_seconds",
            "Time since the leader last renewed.",
            ["cell"],
            [([c], age) for c, _, _, age in leaders],
        )

    def _traces(self) -> Iterable[Metric]:
        """Nothing, until traces are sent."""
        for sent, refused, dropped, backlog, failing in _rows(TRACES):
            ended = CounterMetricFamily(
                "slackwater_traced_tasks",
                "Ended tasks of traces: sent to the collector, not taken by it, or given up beyond the backlog.",
                labels=["outcome"],
            )
            for outcome, number in (("sent", sent), ("refused", refused), ("dropped", dropped)):
                ended.add_metric([outcome], float(number))
            yield ended
            yield _gauge("trace_backlog", "Ended tasks whose spans are to be sent.", [], [([], backlog)])
            yield _gauge(
                "trace_failing_seconds",
                "How long the collector has not taken what was sent; 0 while it does.",
                [],
                [([], failing)],
            )


registry = CollectorRegistry()
registry.register(Ledger())


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The metrics in Prometheus' text format; a configured token is required."""
    token: str = conf().metrics_token
    given = request.META.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")
    if token and not constant_time_compare(given, token):
        return HttpResponse("send the metrics token\n", status=401, content_type="text/plain")
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
