"""The admin's lists over a million tasks: what each statement reads is bounded, whatever the page and the search."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from scheduler_ext.core.sql import named
from slackwater_adminkit import keyset
from slackwater_tasks.models import Attempt, DeadLetter, LiveTask, Task, TaskEvent, Workflow
from slackwater_tenants.models import Tenant
from tests.support.admin import submit
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]
TASKS = 1_000_000
LIVE_FROM = 900_000
BIG = {model._meta.db_table for model in (Task, LiveTask, Attempt, TaskEvent, DeadLetter, Workflow)}
PAGE = 51
WIDEST = 64
"""Windows that one statement may look through at most: a look that begins with one window ends with far fewer."""
ID = "(lpad(to_hex(1760000000000 + n * 1000), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid"
ONE_IN_A_MILLION = 77_777


def columns(model: Any, **given: str) -> tuple[str, str]:
    """The columns of a copy of a row, and what goes into them."""
    names = [f.column for f in model._meta.concrete_fields if not f.generated]
    return ", ".join(names), ", ".join(given.get(name, name) for name in names)


def copied(model: Any, source: str, to: range, **given: str) -> None:
    """Many copies of one row, some columns of which follow from their number."""
    names, values = columns(model, **given)
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            named(
                f"INSERT INTO {table} ({names}) SELECT {values} FROM {table}, generate_series(%s::bigint, %s) n WHERE {source}"
            ),
            [to.start, to.stop - 1],
        )
        cursor.execute(f"ANALYZE {table}")


@pytest.fixture
def million(furnished: None, tenant: Tenant) -> None:
    """A million tasks, nine tenths of them ended, with their attempts, events, workflows and dead letters."""
    worker = HandWorker("node-1")
    done, waits = submit(tenant, name="done"), submit(tenant, name="waits")
    worker.run(done, result="1")
    names = {
        "id": ID, "name": f"CASE n WHEN {ONE_IN_A_MILLION} THEN 'needle' ELSE 'task ' || n END",
        "handler": f"CASE n WHEN {ONE_IN_A_MILLION} THEN 'rare.one' ELSE 'mail.send' || n %% 20 END",
        "submitted_by": "'schedule:s' || n %% 50", "error": "CASE WHEN n %% 50 = 0 THEN 'ValueError: it timed out' ELSE '' END",
        "tags": f"CASE n WHEN {ONE_IN_A_MILLION} THEN '{{odd}}'::text[] ELSE '{{}}' END",
        "state": "CASE WHEN n %% 50 = 0 THEN :state.FAILED ELSE :state.SUCCEEDED END",
    }  # fmt: skip
    copied(Task, f"id = '{done}'", range(LIVE_FROM), **names)
    copied(Task, f"id = '{waits}'", range(LIVE_FROM, TASKS), **{**names, "state": "state", "error": "''"})
    copied(LiveTask, f"task_id = '{waits}'", range(LIVE_FROM, TASKS), task_id=ID)
    copied(Attempt, f"task_id = '{done}'", range(LIVE_FROM), task_id=ID, id="-1 - n")
    with connection.cursor() as cursor:
        cursor.execute(f"""
            INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, to_state, fence, actor, reason)
            SELECT {ID}, {tenant.pk}, 3, 0, 'test', 'edited' FROM generate_series(0, 199999) n""")
        cursor.execute(f"""
            INSERT INTO slackwater_tasks_deadletter (task_id, tenant_id, reason, retries)
            SELECT {ID}, {tenant.pk}, 'failed', 0 FROM generate_series(0, 99999) n""")
        cursor.execute("ANALYZE slackwater_tasks_taskevent, slackwater_tasks_deadletter")


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes_of(below)


def look(page: Client, url: str, **query: str) -> Any:
    """Open a list, and explain each statement with what it read; none reads a large table through."""
    page.get(reverse(url))  # what is read once in a process has been
    with CaptureQueriesContext(connection) as asked:
        answer = page.get(reverse(url), query)
    assert answer.status_code == 200
    total = 0.0
    for one in asked.captured_queries:
        sql = one["sql"]
        if not sql.startswith("SELECT") or not any(table in sql for table in BIG):
            continue
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql.replace("%", "%%"), [])
            (found,) = cursor.fetchone()[0]
        total += found["Execution Time"]
        for node in nodes_of(found["Plan"]):
            read = node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
            if node.get("Relation Name") in BIG:
                assert node["Node Type"] != "Seq Scan" or found["Plan"]["Total Cost"] <= keyset.CHEAP, (sql, node)
                assert read <= WIDEST * keyset.WINDOW, (sql, node)
    shown = answer.context["cl"]
    searched = f", looked back to {shown.searched_to}" if shown.further else ""
    sys.stdout.write(f"{url.split('_')[-2]} {query}: {total:.1f} ms of database time, {len(asked)} queries{searched}\n")
    return shown


@pytest.mark.django_db(transaction=True)
def test_no_page_and_no_search_reads_a_table_through(million: None, page: Client, tenant: Tenant) -> None:
    tasks = "admin:slackwater_tasks_task_changelist"
    first = look(page, tasks)
    assert (len(first.result_list), first.is_exact, first.result_count > TASKS / 2) == (50, False, True)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {ID} FROM (VALUES (500000)) x(n)")
        (middle,) = cursor.fetchone()
    deep = look(page, tasks, older=str(middle))
    assert [task.name for task in deep.result_list[:2]] == ["task 499999", "task 499998"]
    assert [task.name for task in look(page, tasks, newer="start").result_list[-2:]] == ["task 1", "task 0"]
    assert len(look(page, tasks, q="handler:mail.send7").result_list) == 50
    assert [task.name for task in look(page, tasks, q="tag:odd").result_list] == ["needle"]
    assert len(look(page, tasks, state="ready").result_list) == 50
    assert look(page, tasks, state="running").further == ""
    for words in ("handler:rare.one", "name:needle", "needle", 'error:"no such error"', "node:node-1", "schedule:s7",
                  "workflow:none", "since:2024-01-01 until:2025-01-01"):  # fmt: skip
        look(page, tasks, q=words)
    # A search that has stopped goes on where it was, until it has seen everything.
    found, shown = [], look(page, tasks, q="handler:rare.one")
    while shown.further:
        found += shown.result_list
        at = shown.further.partition("older=")[2].partition("&")[0]
        shown = look(page, tasks, q="handler:rare.one", older=at)
    assert [task.name for task in [*found, *shown.result_list]] == ["needle"]
    for model, narrowed in (
        ("attempt", {"outcome__exact": "2"}), ("taskevent", {"to_state__exact": "5"}), ("workflow", {"q": "none"}),
        ("workflow", {"state": "failed"}),
        ("deadletter", {"tenant__id__exact": str(tenant.pk)}),
    ):  # fmt: skip
        url = f"admin:slackwater_tasks_{model}_changelist"
        look(page, url)
        look(page, url, newer="start")
        look(page, url, **narrowed)
