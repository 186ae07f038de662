"""Filling the ledger with waiting tasks by the million, set-based. For measurements and plan tests only."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.db import connection

from scheduler_ext.core.states import Category, TaskState
from slackwater_conf import conf

CHUNK = 500_000
WITHOUT_INDEXES_FROM = 200_000
BYTES_A_ROW = 900
"""Of a live row with its indexes, generously."""
TENANTS = """
WITH t AS (
    INSERT INTO slackwater_tenants_tenant (slug, name, plan_id, cell, trusted, paused, script_root, created_at)
    SELECT 'fill' || g, 'Fill ' || g, (SELECT id FROM slackwater_tenants_plan WHERE slug = %(plan)s), 'default', false, false, '',
        now()
    FROM generate_series(1, %(count)s) g RETURNING id),
c AS (
    INSERT INTO slackwater_tenants_tenantcounter (tenant_id, unfinished, urgent_unfinished) SELECT id, 0, 0 FROM t)
INSERT INTO slackwater_tasks_line (tenant_id, category, tier_id, paused)
SELECT id, %(category)s, (SELECT id FROM slackwater_resources_tier WHERE slug = 'basic' AND tenant_id IS NULL), false FROM t
RETURNING id
"""
ID = "('00000000-0000-7000-8000-' || lpad(to_hex(g), 12, '0'))::uuid"
LIVE = f"""
INSERT INTO slackwater_tasks_livetask (task_id, tenant_id, line_id, state, rank_group, rank, kind, handler_id, priority, fence,
    attempts, total_attempts, pending, condition, has_children, alone, batch, cancel_requested, mutex_limit,
    tolerance_ms, on_late, not_before, latest_start, promote_at, slot_milli)
SELECT {ID}, l.tenant_id, l.id, %(state)s, 0, 1700000000000000 + g, 1, %(handler)s, 0, 0, 0, 3, 0, 1, false, false, 0,
    false, 1, 300000, 1, %(later)s::timestamptz + g * interval '1 second', now() + interval '1 day',
    now() + interval '1 day' + g * interval '1 microsecond', 1000
FROM generate_series(%(first)s::bigint, %(last)s::bigint) g
JOIN (SELECT id, tenant_id, row_number() OVER (ORDER BY id) - 1 AS place FROM slackwater_tasks_line WHERE id = ANY(%(lines)s)) l
    ON l.place = g %% cardinality(%(lines)s::bigint[])
"""
WIDE = f"""
INSERT INTO slackwater_tasks_task (id, tenant_id, name, kind, handler, script_sha256, script_path, args, kwargs,
    category, tier_id,
    priority, delay_tolerance_ms, on_late, cap_ms, total_attempts, mutex_key, mutex_limit, condition, tags,
    submitted_at, submitted_by, attempts_used, error, reason, release_pending)
SELECT l.task_id, l.tenant_id, '', 1, 'bench.nothing', '', '', '[]', '{{}}', n.category, n.tier_id, 0, 300000, 1,
    600000, 3, '', 1, 1, '{{}}', now(), 'bench', 0, '', '', false
FROM generate_series(%(first)s::bigint, %(last)s::bigint) g
JOIN slackwater_tasks_livetask l ON l.task_id = {ID} JOIN slackwater_tasks_line n ON n.id = l.line_id
"""

Tell = Callable[[str, int, int], None]


def silent(_phase: str, _done: int, _of: int) -> None:
    """Tells nobody."""


def make_lines(tenants: int, *, plan: str, category: Category = Category.DELAYABLE) -> list[int]:
    """New tenants, one line each; returns the lines' ids."""
    with connection.cursor() as cur:
        cur.execute(TENANTS, {"plan": plan, "count": tenants, "category": int(category)})
        return [row[0] for row in cur.fetchall()]


def fill(lines: list[int], first: int, last: int, *, handler_id: int, state: TaskState = TaskState.READY,
         wide: bool = False, tell: Tell = silent) -> None:  # fmt: skip
    """Write live rows numbered ``first`` to ``last`` over the lines in turn, ``wide`` rows with them where asked.

    Scheduled ones are due one second after the other, from now on.
    """
    count = last - first + 1
    dropped = _without_indexes() if count >= WITHOUT_INDEXES_FROM else contextlib.nullcontext()
    with dropped, connection.cursor() as cur:
        for start in range(first, last + 1, CHUNK):
            tell("filling", start - first, count)
            values: dict[str, Any] = {
                "lines": lines, "first": start, "last": min(last, start + CHUNK - 1), "state": int(state),
                "handler": handler_id, "later": "now" if state is TaskState.SCHEDULED else None,
            }  # fmt: skip
            cur.execute(LIVE, values)
            if wide:
                cur.execute(WIDE, values)


def task_id(number: int) -> str:
    """The id of a filled task."""
    return f"00000000-0000-7000-8000-{number:012x}"


@contextlib.contextmanager
def _without_indexes() -> Iterator[None]:
    """The live table without its secondary indexes, which are built faster at once than row by row."""
    with connection.cursor() as cur:
        cur.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'slackwater_tasks_livetask' "
            "AND indexname NOT LIKE '%%pkey'"
        )
        indexes = cur.fetchall()
        for name, _ in indexes:
            cur.execute(f"DROP INDEX {name}")
    yield
    with connection.cursor() as cur:
        cur.execute("SET maintenance_work_mem = '256MB'")
        for _, definition in indexes:
            cur.execute(definition)


def require_room(rows: int) -> None:
    """Raise OSError when the disk of the run's own servers has no room for that many."""
    free = shutil.disk_usage(Path(conf().var)).free
    if free < rows * BYTES_A_ROW:
        raise OSError(f"{rows:,} rows need about {rows * BYTES_A_ROW >> 20} MiB; {free >> 20} MiB are free")
