"""The registry of nodes: incarnations, leases, and the handlers they advertise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Asked, Export, NodeSpec
from slackwater_resources.faults import FAULTS

BOOT_S = 60.0
"""A node that registers gets no work until its agent is there; it has this long to come."""
EXPORT = """
INSERT INTO slackwater_resources_handler AS h (name, kind, idempotent, description, checkpoints, schema, defaults, repeats,
    paused, first_seen_at)
VALUES (%s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s, false, now())
ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, idempotent = excluded.idempotent,
    description = excluded.description, checkpoints = excluded.checkpoints, schema = excluded.schema,
    defaults = excluded.defaults, repeats = excluded.repeats, awaited = false
RETURNING id
"""
DECLARED = """
SELECT h.rate::text FROM slackwater_resources_handler h WHERE h.id = %s FOR UPDATE
"""
RATE = """
WITH told AS (SELECT %s::bigint AS handler_id, %s::jsonb AS was, %s::int[] AS rate),
noted AS (UPDATE slackwater_resources_handler h SET rate = to_jsonb(told.rate) FROM told WHERE h.id = told.handler_id),
shared AS (
    SELECT r.id, r.starts, r.per_s FROM slackwater_tasks_ratelimit r JOIN told ON r.handler_id = told.handler_id
    WHERE r.tenant_id IS NULL FOR UPDATE OF r),
changed AS (
    UPDATE slackwater_tasks_ratelimit r SET starts = told.rate[1], per_s = told.rate[2] FROM told, shared
    WHERE r.id = shared.id AND told.rate IS NOT NULL AND to_jsonb(ARRAY[shared.starts, shared.per_s]) = told.was),
gone AS (SELECT shared.id FROM shared, told WHERE told.rate IS NULL AND to_jsonb(ARRAY[shared.starts, shared.per_s]) = told.was),
starts AS (DELETE FROM slackwater_tasks_ratestart s USING gone WHERE s.limit_id = gone.id),
removed AS (DELETE FROM slackwater_tasks_ratelimit r USING gone WHERE r.id = gone.id)
INSERT INTO slackwater_tasks_ratelimit (handler_id, key, starts, per_s, own, of_plan)
SELECT handler_id, '', rate[1], rate[2], false, false FROM told
WHERE rate IS NOT NULL AND NOT EXISTS (SELECT 1 FROM shared) ON CONFLICT DO NOTHING
"""
RETIRE = """
UPDATE slackwater_resources_node SET state = 'lost', lease_expires_at = least(lease_expires_at, clock_timestamp())
WHERE cell = %s AND name = %s AND state IN ('starting', 'active', 'draining')
"""
REGISTER = """
INSERT INTO slackwater_resources_node (name, hostname, incarnation, cell, state, capacity, slots, labels, handlers, sandbox,
    enforced, stats, started_at, heartbeat_at, lease_expires_at)
VALUES (%s, %s, %s, %s, 'starting', %s, %s, %s, %s, %s, %s, '{}', clock_timestamp(), clock_timestamp(),
    clock_timestamp() + %s * interval '1 second') RETURNING id
"""
ACTIVATE = """
UPDATE slackwater_resources_node SET state = 'active', heartbeat_at = clock_timestamp(),
    lease_expires_at = clock_timestamp() + %s * interval '1 second'
WHERE id = %s AND state = 'starting'
"""
RENEW = """
UPDATE slackwater_resources_node SET heartbeat_at = clock_timestamp(), stats = %s::jsonb,
    lease_expires_at = clock_timestamp() + %s * interval '1 second'
WHERE id = %s AND state IN ('starting', 'active', 'draining') RETURNING state
"""
ASKED = named("""
SELECT l.task_id::text, l.fence, CASE WHEN l.cancel_requested THEN :outcome.CANCELLED
    WHEN r.asked_fence = l.fence THEN r.asked END,
    CASE WHEN r.declared AND r.attempt = l.attempts THEN r.used_ms ELSE 0 END
FROM slackwater_tasks_livetask l LEFT JOIN slackwater_tasks_resumable r ON r.task_id = l.task_id
WHERE l.node_id = %s AND l.phase = :phase.IN_FLIGHT AND l.state = :state.RUNNING AND (l.cancel_requested OR r.task_id IS NOT NULL)
""")
LEAVE = "UPDATE slackwater_resources_node SET state = %s WHERE id = %s AND state IN ('starting', 'active', 'draining')"
DRAIN = "UPDATE slackwater_resources_node SET state = 'draining' WHERE id = %s AND state = 'active'"
ASK_TO_YIELD = named("""
UPDATE slackwater_tasks_resumable r SET asked = :outcome.YIELDED, asked_fence = l.fence, asked_at = clock_timestamp()
FROM slackwater_tasks_livetask l
WHERE l.node_id = %s AND l.phase = :phase.IN_FLIGHT AND l.state = :state.RUNNING AND r.task_id = l.task_id AND r.declared
    AND r.asked_fence IS DISTINCT FROM l.fence
""")


def row_of(e: Export) -> tuple[Any, ...]:
    """A handler as :data:`EXPORT` takes it."""
    schema, defaults = json.dumps(e.schema) if e.schema else None, json.dumps(dict(e.defaults))
    return e.name, e.kind.value, e.idempotent, e.description, e.checkpoints, schema, defaults, int(e.repeats)


class PgNodeStore:
    """:class:`scheduler_ext.ports.NodeStore` on PostgreSQL, over a connection of its own."""

    faults: tuple[type[Exception], ...] = FAULTS

    def __init__(self, conf: SchedulerConf, database: Any) -> None:
        """``database`` has an open autocommit connection as ``conn``."""
        self.conf = conf
        self.db = database

    def register(self, spec: NodeSpec, exports: Mapping[str, Export]) -> int:
        """Register an incarnation with its handlers; an older one of that name counts as lost from now on."""
        conn = self.db.conn
        with conn.transaction():
            ids = [conn.execute(EXPORT, row_of(export)).fetchone()[0] for _, export in sorted(exports.items())]
            for handler_id, (_, export) in zip(ids, sorted(exports.items()), strict=True):
                self._set_rate(conn, handler_id, export.rate)
            conn.execute(RETIRE, (spec.cell, spec.name))
            row = conn.execute(
                REGISTER,
                (
                    spec.name, spec.hostname, spec.incarnation, spec.cell, list(spec.capacity),
                    json.dumps({kind.value: n for kind, n in spec.slots.items()}), list(spec.labels), ids,
                    spec.sandbox, list(spec.enforced), BOOT_S,
                ),
            ).fetchone()  # fmt: skip
        return int(row[0])

    @staticmethod
    def _set_rate(conn: Any, handler_id: int, rate: tuple[int, int] | None) -> None:
        """Keep the execution rate that a handler declares. One that an operator has set or changed stays."""
        was = conn.execute(DECLARED, (handler_id,)).fetchone()[0]
        if was != (json.dumps(rate) if rate else None):
            conn.execute(RATE, (handler_id, was, list(rate) if rate else None))

    def activate(self, node_id: int) -> bool:
        """The node's agent is there: it may be given work; False when it was declared lost meanwhile."""
        return bool(self.db.conn.execute(ACTIVATE, (self.conf.node_lease_s, node_id)).rowcount)

    def renew(self, node_id: int, stats: Mapping[str, Any]) -> str | None:
        """Renew the node's lease; its state, or ``None`` when it was declared lost meanwhile."""
        row = self.db.conn.execute(RENEW, (json.dumps(dict(stats)), self.conf.node_lease_s, node_id)).fetchone()
        return row[0] if row else None

    def asked(self, node_id: int) -> list[Asked]:
        """The requests to tasks that run on the node, and which of them were paused before."""
        rows = self.db.conn.execute(ASKED, (node_id,)).fetchall()
        return [Asked(row[0], row[1], Outcome(row[2]) if row[2] else None, row[3]) for row in rows]

    def set_draining(self, node_id: int) -> None:
        """Give the node no more work, and ask what runs there with checkpoints to yield."""
        self.db.conn.execute(DRAIN, (node_id,))
        self.db.conn.execute(ASK_TO_YIELD, (node_id,))

    def leave(self, node_id: int, *, lost: bool = False) -> None:
        """The node has ended, and nothing of it runs any more; ``lost``: nobody told it to."""
        self.db.conn.execute(LEAVE, ("lost" if lost else "left", node_id))

    def close(self) -> None:
        self.db.close()
