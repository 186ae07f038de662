"""What tasks print, log and yield, as the ledger stores it: lines by the row, chunks one by one."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from scheduler_ext.core.errors import StreamTooLarge
from scheduler_ext.core.sql import named
from scheduler_ext.core.work import Line, Started, Written
from scheduler_ext.task.effects import AttemptReplaced

REMEMBERED_S: Final = 10.0
LIMITS = """
SELECT p.max_log_bytes, p.max_stream_bytes FROM slackwater_tenants_tenant n
JOIN slackwater_tenants_plan p ON p.id = n.plan_id WHERE n.id = %s
"""
STORE_LINES = """
INSERT INTO slackwater_tasks_attemptlog (task_id, tenant_id, fence, attempt, number, stream, text, marks, truncated)
SELECT u.id, u.tenant, u.fence, u.attempt, u.number, '', u.text, u.marks, false
FROM unnest(%s::uuid[], %s::bigint[], %s::int[], %s::smallint[], %s::int[], %s::text[], %s::jsonb[])
    AS u(id, tenant, fence, attempt, number, text, marks)
ON CONFLICT DO NOTHING
"""
# The newest of what earlier attempts wrote is kept, up to as much as one attempt may write.
FORGET_LINES = """
DELETE FROM slackwater_tasks_attemptlog WHERE id IN (
    SELECT id FROM (
        SELECT id, sum(octet_length(text)) OVER (ORDER BY fence DESC, number DESC, id) AS size
        FROM slackwater_tasks_attemptlog WHERE task_id = %s AND fence < %s) AS o WHERE size > %s)
"""
# The live row is held for the moment: nobody can take the task away between the look and the commit.
STORE_CHUNKS = named("""
WITH held AS (
    SELECT l.task_id, l.tenant_id FROM slackwater_tasks_livetask l
    WHERE l.task_id = %(id)s AND l.fence = %(fence)s AND l.state = :state.RUNNING FOR SHARE OF l),
stored AS (
    INSERT INTO slackwater_tasks_chunk (task_id, tenant_id, fence, number, attempt, value)
    SELECT held.task_id, held.tenant_id, %(fence)s, u.number, %(attempt)s, u.value
    FROM held, unnest(%(numbers)s::int[], %(values)s::jsonb[]) AS u(number, value) ON CONFLICT DO NOTHING)
SELECT 1 FROM held
""")
_limits: dict[int, tuple[float, int, int]] = {}


def _limits_of(conn: Any, tenant_id: int) -> tuple[int, int]:
    """The bytes of lines and of chunks that an attempt of this tenant may leave."""
    now = time.monotonic()
    known = _limits.get(tenant_id)
    if known is None or known[0] < now:
        row = conn.execute(LIMITS, (tenant_id,)).fetchone() or (0, 0)
        if len(_limits) > 1_000:
            _limits.clear()
        known = _limits[tenant_id] = (now + REMEMBERED_S, row[0], row[1])
    return known[1], known[2]


def most_written(conn: Any, task: Started) -> int:
    """How many bytes of lines an attempt may write; older attempts' lines beyond as much are deleted."""
    most, _ = _limits_of(conn, task.tenant_id)
    if task.fence > 1:
        conn.execute(FORGET_LINES, (task.task_id, task.fence, most))
    return most


def store_lines(conn: Any, written: Sequence[Written]) -> None:
    """Add rows of lines; a row that exists already stays."""
    tasks = [row.task for row in written]
    conn.execute(STORE_LINES, (
        [task.task_id for task in tasks], [task.tenant_id for task in tasks], [task.fence for task in tasks],
        [task.attempt for task in tasks], [row.number for row in written],
        [storable("\n".join(line.text for line in row.lines)) for row in written],
        [json.dumps([_mark(line) for line in row.lines], separators=(",", ":")) for row in written],
    ))  # fmt: skip


def _mark(line: Line) -> list[Any]:
    return [int(line.at * 1000), line.stream, line.level, line.text.count("\n")]


def storable(text: str) -> str:
    """Text that PostgreSQL can store."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def store_chunks(conn: Any, task: Started, chunks: Sequence[tuple[int, str]], total: int) -> None:
    """Add chunks to the stream of a task that still runs as this attempt."""
    _, most = _limits_of(conn, task.tenant_id)
    if total > most:
        raise StreamTooLarge(f"the task has yielded {total:,} bytes, the plan keeps {most:,}")
    params = {
        "id": task.task_id, "fence": task.fence, "attempt": task.attempt, "numbers": [number for number, _ in chunks],
        "values": [value for _, value in chunks],
    }  # fmt: skip
    if conn.execute(STORE_CHUNKS, params).fetchone() is None:
        raise AttemptReplaced("this attempt has lost its task: what it yields is not kept")
