"""Refuses at admission, where the plan says so, what no node fits and what could not start in time."""

from __future__ import annotations

from scheduler_ext.core.errors import Impossible
from scheduler_ext.core.labels import Labels
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import Reason, Vector, WorkKind
from scheduler_ext.round.placement import Ledger
from slackwater_resources.models import Handler
from slackwater_tasks.ledger.connection import fetch_all, fetch_value
from slackwater_tasks.ledger.snapshot_rows import Flight, node_view, read_row
from slackwater_tasks.spec import TaskSpec, join
from slackwater_tenants.models import Tenant

NODES = """
SELECT id, name, capacity, slots::text, handlers, labels FROM slackwater_resources_node
WHERE cell = %s AND state IN ('starting', 'active', 'draining') AND lease_expires_at > clock_timestamp()
"""
# The tenant's own work ahead, on all slots of the cell at best: others' work, and its share, can only make it longer.
# What is urgent waits for what is urgent alone.
AHEAD = """
SELECT (CASE WHEN %s THEN c.urgent_unfinished ELSE c.unfinished END) * coalesce(r.mean_us, 0) / 1e6
    / greatest(1, coalesce(n.slots, 1))
FROM slackwater_tenants_currentcounter c
LEFT JOIN LATERAL (SELECT sum(x.mean_us * x.samples) / nullif(sum(x.samples), 0) AS mean_us
                   FROM slackwater_tasks_runtime x WHERE x.tenant_id = c.tenant_id) r ON true
LEFT JOIN LATERAL (SELECT sum(coalesce((y.slots->>'process')::int, 0) + coalesce((y.slots->>'script')::int, 0)) AS slots
                   FROM slackwater_resources_node y WHERE y.cell = %s AND y.state = 'active') n ON true
WHERE c.tenant_id = %s
"""


def check_fits(tenant: Tenant, spec: TaskSpec, vector: Vector, handler_id: int | None, path: str,
               labels: Labels | None = None) -> None:  # fmt: skip
    """``Impossible`` when no registered node is large enough, none runs its handler, or none has its labels.

    A cell without nodes refuses nothing: they may just be starting.
    """
    nodes = [node_view(read_row(row), Flight()) for row in fetch_all(NODES, [tenant.cell])]
    if not nodes:
        return
    handler = Handler.objects.get(pk=handler_id) if handler_id is not None else None
    kind = WorkKind.SCRIPT if handler is None else WorkKind(handler.kind)
    reason = Ledger(nodes).shape(vector, kind, handler_id, labels).impossible
    if reason is Reason.NEVER_FITS:
        raise Impossible(f"the tier {spec.tier!r} is larger than every registered node", field=join(path, "tier"))
    if reason is Reason.NO_LABELS:
        required = sorted(labels.require) if labels is not None else []
        said = "every registered node that could run it is reserved for work that requires one of its labels"
        said = f"no registered node that could run it has {', '.join(required)}" if required else said
        raise Impossible(said, field=join(path, "require_labels"))
    if reason is not None and not (handler is not None and handler.awaited):
        name = "handler" if spec.handler else "script" if spec.script else "script_path"
        raise Impossible("no registered node runs it", field=join(path, name))


def waits_at_once(spec: TaskSpec) -> bool:
    """Whether what is ahead of the task now is what it waits for: of a later start nobody knows how much will be."""
    return spec.start_at is None and not spec.start_in_ms and not spec.depends_on


def check_wait(tenant: Tenant, spec: TaskSpec, tolerance_ms: int, path: str) -> None:
    """``Impossible`` when the tenant's own work ahead takes longer, at best, than the start may be delayed."""
    if not waits_at_once(spec):
        return
    wait_s = float(fetch_value(AHEAD, [spec.category is Category.URGENT, tenant.cell, tenant.pk]) or 0)
    if wait_s * 1000 > tolerance_ms:
        raise Impossible(
            f"the latest start cannot be met: the work ahead takes {wait_s:.0f} s, its start may be delayed by "
            f"{tolerance_ms / 1000:g} s",
            field=join(path, "delay_tolerance_s"),
        )
