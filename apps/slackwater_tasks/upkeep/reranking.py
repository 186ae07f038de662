"""After a change of order, upkeep gives every waiting task its place under the order chosen now.

All orders count in microseconds of time behind a small group, so until that is done old and new ranks stand in one
line without harm: nothing is lost, and nothing is held up by more than the change itself. Every change begins an
epoch. A process may go by what it has read for :data:`slackwater_tasks.ledger.active_policies.TTL_S`, so what
waits is gone through twice, the second time when no process can give a rank of the old order any more.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.types import LATE_GROUP
from slackwater_tasks.ledger import active_policies, precedence
from slackwater_tasks.ledger.active_policies import TTL_S, Orders
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.ledger.rows import first_level

BATCH = 2000
AT_ONCE_S = 0.5
"""How long the job may keep upkeep's other jobs waiting."""
SETTLED_S = TTL_S + 2.0
"""So long after a change no process gives a rank of the earlier order any more."""
PASSES = 2
FIRST = UUID(int=0)

BEGIN = """
INSERT INTO slackwater_tasks_ranksweep AS s (cell, fingerprint, epoch, passes, moved, changed_at)
VALUES (%(cell)s, %(fingerprint)s, 0, 0, 0, clock_timestamp())
ON CONFLICT (cell) DO UPDATE SET fingerprint = excluded.fingerprint, epoch = s.epoch + 1, cursor = NULL,
    passes = %(passes)s, moved = 0, changed_at = clock_timestamp()
WHERE s.fingerprint <> excluded.fingerprint
"""
NEXT = """
SELECT epoch, cursor, passes, extract(epoch FROM clock_timestamp() - changed_at)::float8 FROM slackwater_tasks_ranksweep
WHERE cell = %s AND passes > 0 FOR UPDATE SKIP LOCKED
"""
# What is late stands before every order.
READ = f"""
SELECT {precedence.PLACE}, r.level, i.serving
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id JOIN slackwater_tasks_line i ON i.id = l.line_id
JOIN slackwater_tenants_tenant n ON n.id = l.tenant_id
LEFT JOIN slackwater_tasks_resumable r ON r.task_id = l.task_id
WHERE l.task_id > %s AND n.cell = %s AND l.rank_group <> {LATE_GROUP} ORDER BY l.task_id LIMIT %s
"""  # noqa: S608 - a number of ours
WRITE = """
UPDATE slackwater_tasks_livetask l SET rank_group = u.place, rank = u.rank
FROM unnest(%s::uuid[], %s::int[], %s::bigint[]) AS u(id, place, rank) WHERE l.task_id = u.id
"""
ADVANCE = """
UPDATE slackwater_tasks_ranksweep SET cursor = %(cursor)s, passes = passes - %(over)s, moved = moved + %(moved)s
WHERE cell = %(cell)s AND epoch = %(epoch)s
"""


def rerank(conf: SchedulerConf, db: Database) -> int:
    """Begin an epoch if the orders have changed, and continue with it; returns how many ranks were changed."""
    chosen = active_policies.read(lambda sql, params: db.conn.execute(sql, params).fetchall(), conf, conf.cell)
    names = {"cell": conf.cell, "fingerprint": chosen.fingerprint(), "passes": PASSES}
    db.conn.execute(BEGIN, names)
    moved, until = 0, time.monotonic() + AT_ONCE_S
    while (step := db.repeatable(lambda conn: _step(conn, conf.cell, chosen))) is not None:
        moved += step
        if time.monotonic() >= until:
            break
    return moved


def _step(conn: Any, cell: str, chosen: Orders) -> int | None:
    """Handle one batch; ``None`` when there is nothing to do now."""
    row = conn.execute(NEXT, (cell,)).fetchone()
    if row is None:
        return None
    epoch, cursor, passes, age_s = row
    if passes == 1 and cursor is None and age_s < SETTLED_S:
        return None
    rows = conn.execute(READ, (cursor or FIRST, cell, BATCH)).fetchall()
    moved = [(row[0], *place) for row in rows if (place := _place(chosen, row)) != (row[3], row[4])]
    if moved:
        conn.execute(WRITE, tuple(list(column) for column in zip(*moved, strict=True)))
    over = len(rows) < BATCH
    conn.execute(ADVANCE, {
        "cell": cell, "epoch": epoch, "cursor": None if over else rows[-1][0], "over": int(over), "moved": len(moved),
    })  # fmt: skip
    return len(moved)


def _place(chosen: Orders, row: Any) -> tuple[int, int]:
    """The place of a task under the order chosen now, as a submission would give it."""
    tenant, line, priority, (level, serving) = row[1], row[2], row[5], row[13:]
    if level is None:  # it has had no turn yet
        level = first_level(chosen.order_of(tenant, line), line, serving)
    return precedence.place(chosen, row, line, priority, level)
