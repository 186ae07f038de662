"""How much work asks for, against what the nodes have: the ratio that alerts and worker counts go by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connection

from slackwater_tasks.ledger.queries import ACTIVE_LINES
from slackwater_tasks.ledger.reference_cache import scheduler_conf

COUNT_MOST = 10_000
"""Ready tasks counted of each line."""

SLOTS = """
SELECT cell, sum(coalesce((slots->>'process')::int, 0) + coalesce((slots->>'script')::int, 0))::int
FROM slackwater_resources_node WHERE state = 'active' AND lease_expires_at > clock_timestamp() GROUP BY 1
"""
IN_FLIGHT = """
SELECT t.cell, sum(l.slot_milli)::bigint FROM slackwater_tasks_livetask l JOIN slackwater_tenants_tenant t ON t.id = l.tenant_id
WHERE l.phase = 4 GROUP BY 1
"""
# A task known to be short asks for the part of a slot that a claim of it takes; any other for a whole one.
READY = f"""{ACTIVE_LINES}
SELECT t.cell, sum(w.count * CASE WHEN r.mean_us <= %(short_us)s
    THEN greatest(%(least)s, 1000 * r.mean_us / %(lookahead_us)s) ELSE 1000 END)::bigint
FROM active a JOIN slackwater_tasks_line n ON n.id = a.line_id JOIN slackwater_tenants_tenant t ON t.id = n.tenant_id
CROSS JOIN LATERAL (
    SELECT x.handler_id, count(*) AS count FROM (
        SELECT l.handler_id FROM slackwater_tasks_livetask l WHERE l.phase = 3 AND l.line_id = a.line_id LIMIT %(most)s) x
    GROUP BY 1) w
LEFT JOIN slackwater_resources_handler h ON h.id = w.handler_id
LEFT JOIN slackwater_tasks_runtime r ON r.tenant_id = n.tenant_id AND r.key = h.name AND r.samples >= 5
GROUP BY 1
"""  # noqa: S608 - statements of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Of one cell, in slots."""

    cell: str
    slots: float
    """What its active nodes have."""
    demand: float
    """What its work in flight and its ready work would take at once."""
    wanted: float
    """What the demand asks for at the target ratio."""

    @property
    def ratio(self) -> float | None:
        """Slots for each slot of demand; ``None`` while nothing is asked for."""
        return self.slots / self.demand if self.demand else None


def demands() -> list[Demand]:
    """Every cell that has nodes or work, by name. Costs what is in flight and the active lines, not the backlog."""
    conf = scheduler_conf()
    params = {
        "short_us": conf.short_ms * 1000, "lookahead_us": conf.lookahead_ms * 1000, "most": COUNT_MOST,
        "least": max(1, 1000 // max(1, conf.max_ahead)),
    }  # fmt: skip
    with connection.cursor() as cursor:
        slots = _pairs(cursor, SLOTS)
        held = _pairs(cursor, IN_FLIGHT)
        ready = _pairs(cursor, READY, params)
    found = []
    for cell in sorted(slots.keys() | held.keys() | ready.keys()):
        demand = (held.get(cell, 0) + ready.get(cell, 0)) / 1000
        wanted = demand * conf.resource_ratio_permille / 1000
        found.append(Demand(cell=cell, slots=float(slots.get(cell, 0)), demand=demand, wanted=wanted))
    return found


def _pairs(cursor: Any, query: str, params: Any = None) -> dict[str, int]:
    cursor.execute(query, params)
    return {cell: int(number or 0) for cell, number in cursor.fetchall()}
