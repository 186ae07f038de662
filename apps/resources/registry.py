"""The registry of nodes: incarnations, leases, and the handlers they advertise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from apps.resources.faults import FAULTS
from scheduler_ext.conf import SchedulerConf
from scheduler_ext.handlers import Export
from scheduler_ext.ports import NodeSpec

BOOT_S = 60.0
"""A node that registers gets no work until its agent is there; it has this long to come."""
EXPORT = """
INSERT INTO resources_handler AS h (name, kind, idempotent, description, checkpoints, paused, first_seen_at)
VALUES (%s, %s, %s, %s, %s, false, now())
ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, idempotent = excluded.idempotent,
    description = excluded.description, checkpoints = excluded.checkpoints
RETURNING id
"""
RETIRE = """
UPDATE resources_node SET state = 'lost', lease_expires_at = least(lease_expires_at, clock_timestamp())
WHERE cell = %s AND name = %s AND state IN ('active', 'draining')
"""
REGISTER = """
INSERT INTO resources_node (name, hostname, incarnation, cell, state, capacity, slots, labels, handlers, sandbox, stats,
    started_at, heartbeat_at, lease_expires_at)
VALUES (%s, %s, %s, %s, 'draining', %s, %s, %s, %s, %s, '{}', clock_timestamp(), clock_timestamp(),
    clock_timestamp() + %s * interval '1 second') RETURNING id
"""
ACTIVATE = """
UPDATE resources_node SET state = 'active', heartbeat_at = clock_timestamp(),
    lease_expires_at = clock_timestamp() + %s * interval '1 second'
WHERE id = %s AND state = 'draining'
"""
RENEW = """
UPDATE resources_node SET heartbeat_at = clock_timestamp(), stats = %s::jsonb,
    lease_expires_at = clock_timestamp() + %s * interval '1 second'
WHERE id = %s AND state IN ('active', 'draining') RETURNING state
"""
CANCELLED = """
SELECT task_id::text, fence FROM tasks_livetask
WHERE node_id = %s AND state = 5 AND cancel_requested
"""


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
            ids = [
                conn.execute(
                    EXPORT, (e.name, e.kind.value, e.idempotent, e.description, e.checkpoints)
                ).fetchone()[0]
                for _, e in sorted(exports.items())
            ]
            conn.execute(RETIRE, (spec.cell, spec.name))
            row = conn.execute(
                REGISTER,
                (
                    spec.name, spec.hostname, spec.incarnation, spec.cell, list(spec.capacity),
                    json.dumps({kind.value: n for kind, n in spec.slots.items()}), list(spec.labels), ids,
                    spec.sandbox, BOOT_S,
                ),
            ).fetchone()  # fmt: skip
        return int(row[0])

    def activate(self, node_id: int) -> bool:
        """The node's agent is there: it may be given work; False when it was declared lost meanwhile."""
        return bool(self.db.conn.execute(ACTIVATE, (self.conf.node_lease_s, node_id)).rowcount)

    def renew(self, node_id: int, stats: Mapping[str, Any]) -> str | None:
        """Renew the node's lease; its state, or ``None`` when it was declared lost meanwhile."""
        row = self.db.conn.execute(
            RENEW, (json.dumps(dict(stats)), self.conf.node_lease_s, node_id)
        ).fetchone()
        return row[0] if row else None

    def cancelled(self, node_id: int) -> list[tuple[str, int]]:
        """Tasks running on the node that were asked to end: (task id, fence)."""
        return list(self.db.conn.execute(CANCELLED, (node_id,)).fetchall())

    def set_draining(self, node_id: int) -> None:
        """Give the node no more work."""
        self.db.conn.execute(
            "UPDATE resources_node SET state = 'draining' WHERE id = %s AND state = 'active'", (node_id,)
        )

    def leave(self, node_id: int) -> None:
        """The node has ended cleanly."""
        self.db.conn.execute(
            "UPDATE resources_node SET state = 'left' WHERE id = %s AND state IN ('active', 'draining')",
            (node_id,),
        )

    def close(self) -> None:
        """Close the connection."""
        self.db.close()
