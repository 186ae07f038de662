"""A million tasks in the ledger, and what each statement of a page reads of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection

from scheduler_ext.core.sql import named
from slackwater_adminkit import looking
from slackwater_schedules.models import ScheduleFire
from slackwater_tasks.models import Attempt, AttemptLog, DeadLetter, LiveTask, Task, TaskEvent, Workflow
from slackwater_tenants.models import Tenant
from tests.support.admin import submit
from tests.support.hand_worker import HandWorker

TASKS: Final = 1_000_000
LIVE_FROM: Final = 900_000
ID: Final = "(lpad(to_hex(1760000000000 + n * 1000), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid"
ONE: Final = 77_777
"""The one of its name, handler and tag in the million."""
BIG: Final = {
    model._meta.db_table for model in (Task, LiveTask, Attempt, AttemptLog, TaskEvent, DeadLetter, ScheduleFire, Workflow)
}  # fmt: skip
LIVE: Final = LiveTask._meta.db_table
READING: Final = ("SELECT", "WITH")


def fill(tenant: Tenant) -> None:
    """A million tasks, nine tenths of them ended, with their attempts, lines, events and dead letters."""
    worker = HandWorker("node-1")
    done, waits = submit(tenant, name="done"), submit(tenant, name="waits")
    worker.run(done, result="1", logs="reading\n")
    names = {
        "id": ID, "name": f"CASE n WHEN {ONE} THEN 'needle' ELSE 'task ' || n END",
        "handler": f"CASE n WHEN {ONE} THEN 'rare.one' ELSE 'mail.send' || n %% 20 END",
        "submitted_by": "'schedule:s' || n %% 50", "error": "CASE WHEN n %% 50 = 0 THEN 'ValueError: it timed out' ELSE '' END",
        "tags": f"CASE n WHEN {ONE} THEN '{{odd}}'::text[] ELSE '{{}}' END",
        "state": "CASE WHEN n %% 50 = 0 THEN :state.FAILED ELSE :state.SUCCEEDED END",
    }  # fmt: skip
    _copied(Task, f"id = '{done}'", range(LIVE_FROM), **names)
    _copied(Task, f"id = '{waits}'", range(LIVE_FROM, TASKS), **{**names, "state": "state", "error": "''"})
    _copied(LiveTask, f"task_id = '{waits}'", range(LIVE_FROM, TASKS), task_id=ID)
    _copied(Attempt, f"task_id = '{done}'", range(LIVE_FROM), task_id=ID, id="-1 - n")
    _copied(AttemptLog, f"task_id = '{done}'", range(0, LIVE_FROM, 9), task_id=ID, id="-1 - n")
    with connection.cursor() as cursor:
        cursor.execute(f"""
            INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, to_state, fence, actor, reason)
            SELECT {ID}, {tenant.pk}, 3, 0, 'test', 'edited' FROM generate_series(0, 199999) n""")
        cursor.execute(f"""
            INSERT INTO slackwater_tasks_deadletter (task_id, tenant_id, reason, retries, at)
            SELECT {ID}, {tenant.pk}, 'failed', 0, now() - (100000 - n) * interval '1 second' FROM generate_series(0, 99999) n""")
        cursor.execute("UPDATE slackwater_tenants_tenantcounter SET unfinished = unfinished + 100000 WHERE tenant_id = %s",
                       [tenant.pk])  # fmt: skip
        cursor.execute("ANALYZE slackwater_tasks_taskevent, slackwater_tasks_deadletter")


def firings() -> None:
    """Each firing that there is a hundred thousand times, a second apart."""
    at = "fire_at - n * interval '1 second'"
    _copied(ScheduleFire, "true", range(1, 100_001), id="-n", fire_at=at, due_at=at, fired_at=at)


def id_of(number: int) -> str:
    """The id of one of the million."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {ID}::text FROM (VALUES (%s)) x(n)", [number])
        (found,) = cursor.fetchone()
    return str(found)


def _copied(model: Any, source: str, to: range, **given: str) -> None:
    """Many copies of one row, some columns of which follow from their number."""
    columns = [f.column for f in model._meta.concrete_fields if not f.generated]
    names, values = ", ".join(columns), ", ".join(given.get(name, name) for name in columns)
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            named(f"""INSERT INTO {table} ({names}) SELECT {values} FROM (SELECT * FROM {table} WHERE {source}) x,
                  generate_series(%s::bigint, %s, %s) n"""),
            [to.start, to.stop - 1, to.step],
        )
        cursor.execute(f"ANALYZE {table}")


@dataclass(frozen=True, slots=True)
class Read:
    """What the statements of one page read, and the database's time for it."""

    statements: int
    ms: float
    """From asking to the answer, of all of them."""
    pages: int
    """Of 8 KiB, found in memory or not."""
    rows: int
    """Of the big tables: those looked at, whether they were wanted or not."""
    through: Sequence[str]
    """Statements that read a big table from end to end."""
    slowest: str
    """Milliseconds and statement."""


def read(asked: Sequence[Mapping[str, Any]]) -> Read:
    """What a page has asked: the statements run once more, and PostgreSQL tells what each reads."""
    pages, rows, through = 0, 0, []
    for one in asked:
        sql = str(one["sql"]).strip()
        if not sql.upper().startswith(READING) or " FOR UPDATE" in sql:
            continue
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql.replace('%', '%%')}", [])
            (found,) = cursor.fetchone()[0]
        top = found["Plan"]
        pages += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        for node in _nodes(top):
            if node.get("Relation Name") not in BIG:
                continue
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            rows += round(node["Actual Loops"] * (node["Actual Rows"] + removed))
            # What is live may be read through, where the planner takes one line for many: a tenth of all.
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] != LIVE and top["Total Cost"] > looking.CHEAP:
                through.append(sql)
    slowest = max(asked, key=lambda one: float(one["time"]), default={"time": "0", "sql": ""})
    told = f"{1_000 * float(slowest['time']):.0f} ms: {slowest['sql'][:1_000]}"
    return Read(len(asked), sum(1_000 * float(one["time"]) for one in asked), pages, rows, through, told)


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
