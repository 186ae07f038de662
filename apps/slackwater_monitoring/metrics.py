"""``/metrics`` for Prometheus: numbers of the ledger, by a few queries whose cost does not grow with the backlog.

No task or key is a label: the number of series stays small. Of tenants, handlers and nodes a bounded number are labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from scheduler_ext.core.resources import DIMENSIONS
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category, TaskState
from scheduler_ext.dispatch.refusals import Kind, refusals
from slackwater_conf import conf
from slackwater_monitoring.rollups import exposition
from slackwater_monitoring.scaling_calls import calls
from slackwater_tasks.explain.hits import records
from slackwater_tasks.ledger.connection import fetch_all, fetch_value
from slackwater_tasks.ledger.sql.snapshot import ACTIVE_LINES
from slackwater_tasks.read.autoscaling import by_cell, by_labels, by_tier, demands, wanted, work
from slackwater_tasks.read.shares import rounds, shares

MAX_DEAD_COUNTED = 100_000

UNFINISHED = "SELECT coalesce(sum(unfinished), 0)::bigint FROM slackwater_tenants_currentcounter"
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
NODES = """
SELECT cell, state, count(*) FROM slackwater_resources_node WHERE state IN ('starting', 'active', 'draining') GROUP BY 1, 2
"""
CAPACITY = """
SELECT n.cell, sum(n.capacity[1]), sum(n.capacity[2]), sum(n.capacity[3]), sum(n.capacity[4]), sum(n.capacity[5]),
       sum(n.capacity[6]) FROM slackwater_resources_node n WHERE n.state = 'active' GROUP BY 1
"""
# Of today (UTC): counters begin anew each day, as those of a process do when it starts.
ON_TIME = """
SELECT t.slug, o.category, coalesce(r.slug, 'own'), o.handler, sum(o.started), sum(o.on_time)
FROM slackwater_monitoring_ontime o JOIN slackwater_tenants_tenant t ON t.id = o.tenant_id
LEFT JOIN slackwater_resources_tier r ON r.slug = o.tier AND r.tenant_id IS NULL
WHERE o.day = (clock_timestamp() AT TIME ZONE 'UTC')::date GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT 5000
"""
LEADERS = """
SELECT cell, (expires_at > clock_timestamp())::int, epoch, extract(epoch FROM clock_timestamp() - renewed_at)::float8,
       stolen
FROM slackwater_tasks_leader
"""
TRACES = """
SELECT sent, refused, dropped, backlog, coalesce(extract(epoch FROM clock_timestamp() - failing_since)::float8, 0)
FROM slackwater_monitoring_tracesending
"""
REFUSED = """
SELECT each.key, sum(each.value::bigint) FROM slackwater_resources_node n, jsonb_each_text(n.stats -> 'refused') each
WHERE n.state IN ('starting', 'active', 'draining') GROUP BY 1
"""
# 1 where somebody looks after it.
ALERTS = """
SELECT rule, cell, (acknowledged_at IS NOT NULL)::int, count(*) FROM slackwater_monitoring_alert
WHERE cleared_at IS NULL AND raised_at IS NOT NULL GROUP BY 1, 2, 3
"""


Rows = Iterable[Sequence[Any]]
"""Each row: the values of the labels, then the number."""


def _gauge(name: str, labels: str, text: str, rows: Rows) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"slackwater_{name}", text, labels=labels.split())
    for *values, number in rows:
        gauge.add_metric([str(value) for value in values], float(number))
    return gauge


def _counter(name: str, labels: str, text: str, rows: Rows) -> CounterMetricFamily:
    counter = CounterMetricFamily(f"slackwater_{name}", text, labels=labels.split())
    for *values, number in rows:
        counter.add_metric([str(value) for value in values], float(number))
    return counter


def _category(number: int) -> str:
    return Category(number).name.lower()


class Ledger(Collector):
    """Gauges of the ledger, read anew at each scrape."""

    def collect(self) -> Iterable[Metric]:
        yield from self._tasks()
        yield from self._promises()
        yield from self._nodes()
        yield from self._demand()
        yield from self._shares()
        told = rounds()
        yield from self._rounds(told)
        yield from exposition.families(told)
        yield from self._forecasts()
        yield from self._leaders()
        yield from self._traces()
        refused = Counter({kind: int(count) for kind, count in fetch_all(REFUSED)}) + refusals.counts
        text = "Forged or broken messages in Redis that this process and the present workers have refused."
        yield _gauge("refused_from_redis", "kind", text, [(kind, refused[kind]) for kind in Kind])
        text = "Alerts that are raised and not cleared."
        yield _gauge("alerts_open", "rule cell acknowledged", text, fetch_all(ALERTS))

    def _tasks(self) -> Iterable[Metric]:
        unfinished = float(fetch_value(UNFINISHED))
        held = [(_category(c), TaskState(s).name.lower(), n) for c, s, n in fetch_all(IN_FLIGHT)]
        ready = [(_category(c), count, late) for c, count, late in fetch_all(READY)]
        waiting = unfinished - sum(count for *_, count in held)
        late = [(category, late) for category, _, late in ready if late is not None]
        dead = f"Dead letters, counted up to {MAX_DEAD_COUNTED}."
        yield _gauge("tasks_unfinished", "", "Tasks accepted and not ended.", [(unfinished,)])
        yield _gauge("tasks_waiting", "", "Tasks accepted and not yet claimed for a node.", [(waiting,)])
        yield _gauge("tasks_in_flight", "category state", "Tasks claimed or running.", held)
        yield _gauge("lines_active", "category", "Lines in which a task is ready.", [row[:2] for row in ready])
        text = "How far the head of a line is past its latest start; negative while there is time."
        yield _gauge("lateness_seconds", "category", text, late)
        yield _gauge("dead_letters", "", dead, fetch_all(DEAD))

    def _promises(self) -> Iterable[Metric]:
        rows = [(slug, _category(c), *rest) for slug, c, *rest in fetch_all(ON_TIME)]
        labels = "tenant category tier handler"
        text = "Tasks that began today, by tenant, line and handler."
        yield _gauge("started_today", labels, text, [row[:5] for row in rows])
        text = "Of those, the ones that began by their latest start."
        yield _gauge("started_on_time_today", labels, text, [(*row[:4], row[5]) for row in rows])

    def _nodes(self) -> Iterable[Metric]:
        capacity = [
            (cell, resource, amount)
            for cell, *amounts in fetch_all(CAPACITY)
            for resource, amount in zip(DIMENSIONS, amounts, strict=True)
        ]
        yield _gauge("nodes", "cell state", "Live nodes.", fetch_all(NODES))
        text = "Resources of the active nodes, in the unit the resource's name ends with."
        yield _gauge("capacity", "cell resource", text, capacity)

    def _demand(self) -> Iterable[Metric]:
        asking = work()
        found, tiers = [one for one in demands(asking) if not one.labels], wanted(asking)
        yield _gauge("slots", "cell kind", "Slots of the active nodes.", [(d.cell, d.kind, d.slots) for d in found])
        text = "Slots that the work in flight and the ready work would take at once."
        yield _gauge("demand_slots", "cell kind", text, [(d.cell, d.kind, d.demand) for d in found])
        text = "Slots the demand asks for at the target ratio of resources to demand."
        yield _gauge("wanted_slots", "cell kind", text, [(d.cell, d.kind, d.wanted) for d in found])
        text = "Workers that the work of a tier asks for, where they run nothing else; tenants' own tiers are one."
        yield _gauge("wanted_workers", "cell tier", text, [(*key, count) for key, count in by_tier(tiers).items()])
        text = "Workers that the work of a cell asks for that requires these labels; those that ask for most."
        yield _gauge("labels_wanted_workers", "cell labels", text, [(*key, n) for key, n in by_labels(tiers).items()])
        text = "Workers that all work of a cell asks for."
        yield _gauge("cell_wanted_workers", "cell", text, by_cell(tiers).items())
        made = [(call["cell"], call["labels"], call["calls"], call["failures"]) for call in calls()]
        text = "Calls to the command or webhook that starts and stops workers."
        yield _counter("scale_calls", "cell labels", text, [each[:3] for each in made])
        text = "Of those, the ones that failed."
        yield _counter("scale_calls_failed", "cell labels", text, [(*each[:2], each[3]) for each in made])

    def _shares(self) -> Iterable[Metric]:
        found = shares()
        text = "Part in use of whatever is used most of a cell: the slots of a kind, or a resource."
        yield _gauge("utilization", "cell", text, [(each["cell"], each["utilization"]) for each in found])
        text = "Jain's index of what tenants that wait hold over what they are entitled to: 1 is even."
        yield _gauge(
            "jain_index", "cell policy", text, [(each["cell"], each["policy"], each["jain"]) for each in found]
        )
        rows = [(each["cell"], row) for each in found for row in each["tenants"]]
        text = "Part of the cell that a tenant holds, as the share policy counts it; of those with most."
        yield _gauge("share_held", "cell tenant", text, [(cell, row["tenant"], row["held"]) for cell, row in rows])
        text = "Part of the cell that a tenant with work is entitled to by weight."
        yield _gauge("share_entitled", "cell tenant", text, [(c, row["tenant"], row["entitled"]) for c, row in rows])

    def _rounds(self, found: Sequence[Any]) -> Iterable[Metric]:
        """Of the busiest round of the last second in which anything changed."""
        plans = [(each["cell"], plan) for each in found for plan in each["plans"]]
        nodes = [(each["cell"], node) for each in found for node in each["nodes"]]
        text = "Rounds that the present leader has decided."
        yield _counter("rounds", "cell", text, [(each["cell"], each["rounds"]) for each in found])
        text = (
            "Tasks that the present leader has claimed; those with which nodes go on by themselves are not among them."
        )
        yield _counter("claims", "cell", text, [(each["cell"], each["claims"]) for each in found])
        text = "Of those, the ones whose room a round had given ahead: they were claimed as they were stored."
        yield _counter("claims_ahead", "cell", text, [(each["cell"], each.get("ahead", 0)) for each in found])
        text = "Slots free when the round began, of the kinds that its work takes, by node."
        yield _gauge("round_could_slots", "cell node", text, [(cell, n["node"], n["could"]) for cell, n in nodes])
        text = "Slots that the round took, by node."
        yield _gauge("round_took_slots", "cell node", text, [(cell, n["node"], n["took"]) for cell, n in nodes])
        text = "1 for the reason why the round claimed no more for a node."
        yield _gauge("round_node_why", "cell node reason", text, [(cell, n["node"], n["why"], 1) for cell, n in nodes])
        text = "Tasks that the round claimed, by plan."
        yield _gauge("round_claimed", "cell plan", text, [(cell, p["plan"], p["claimed"]) for cell, p in plans])
        text = "Tasks that the round looked at and left, by plan and reason."
        rows = [(cell, p["plan"], reason, count) for cell, p in plans for reason, count in p["left"].items()]
        yield _gauge("round_left", "cell plan reason", text, rows)

    def _forecasts(self) -> Iterable[Metric]:
        """Of about the last five hundred that were shown."""
        found = records().items()
        text = "Part of the predicted starts shown lately whose interval held the start."
        rates = [(cell, kept.hit_rate) for cell, kept in found if kept.hit_rate is not None]
        yield _gauge("forecast_hit_rate", "cell", text, rates)
        sides = [(cell, side, getattr(kept, f"{side}_factor")) for cell, kept in found for side in ("early", "late")]
        yield _gauge("forecast_widening", "cell side", "By what a side of predicted starts is stretched.", sides)

    def _leaders(self) -> Iterable[Metric]:
        leaders = fetch_all(LEADERS)
        text = "1 while a dispatcher leads the cell."
        yield _gauge("dispatcher_leads", "cell", text, [(cell, leads) for cell, leads, *_ in leaders])
        text = "Rises each time another dispatcher takes over."
        yield _gauge("dispatcher_epoch", "cell", text, [(cell, epoch) for cell, _, epoch, *_ in leaders])
        text = "Time since the leader last renewed."
        yield _gauge("dispatcher_renewed_seconds", "cell", text, [(cell, age) for cell, _, _, age, _ in leaders])
        text = "Claims taken back from a busy node because another idled."
        yield _counter("claims_stolen", "cell", text, [(cell, stolen) for cell, *_, stolen in leaders])

    def _traces(self) -> Iterable[Metric]:
        """Nothing, until traces are sent."""
        for sent, refused, dropped, backlog, failing in fetch_all(TRACES):
            text = "Ended tasks of traces: sent to the collector, not taken by it, or given up beyond the backlog."
            yield _counter(
                "traced_tasks", "outcome", text, [("sent", sent), ("refused", refused), ("dropped", dropped)]
            )
            yield _gauge("trace_backlog", "", "Ended tasks whose spans are to be sent.", [(backlog,)])
            text = "How long the collector has not taken what was sent; 0 while it does."
            yield _gauge("trace_failing_seconds", "", text, [(failing,)])


registry = CollectorRegistry()
registry.register(Ledger())
for _own in exposition.PROCESS:
    registry.register(_own)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The metrics for clients with the token; if none is set, for this machine.

    In the OpenMetrics format, with exemplars, for those that ask for it, as Prometheus does; else in Prometheus' own.
    """
    token: str = conf().metrics_token
    given = request.META.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")
    if token and not constant_time_compare(given.encode(), token.encode()):
        return HttpResponse("send the metrics token\n", status=401, content_type="text/plain")
    if not token and not _from_here(request):
        text = "set SLACKWATER_METRICS_TOKEN and send it: without one only this machine is answered\n"
        return HttpResponse(text, status=403, content_type="text/plain")
    encode, content_type = choose_encoder(request.META.get("HTTP_ACCEPT", ""))
    return HttpResponse(encode(registry), content_type=content_type)


def _from_here(request: HttpRequest) -> bool:
    """Whether a request comes from this machine, and not from elsewhere through a proxy on it."""
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    through = "HTTP_X_FORWARDED_FOR" in request.META or "HTTP_FORWARDED" in request.META
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback and not through
