"""The hot queries use the indexes made for them, whatever the statistics say, and cost the same with any backlog."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction

from scheduler_ext.core.states import TaskState
from slackwater_resources.models import Handler
from slackwater_tasks.ledger import sql
from slackwater_tasks.ledger.connection import HOT_PLANS, Database
from slackwater_tasks.ledger.rows import LIVE_COLUMNS, TASK_COLUMNS
from slackwater_tenants.models import Plan
from tests.lab.benchmarks import filling
from tests.support.api import furnish
from tests.support.hand_worker import HOLDER, HandWorker

pytestmark = pytest.mark.django_db

HOT = {"slackwater_tasks_livetask", "slackwater_tasks_task", "slackwater_tasks_attempt"}
LINES = 10
BACKLOG = 20_000
FEW = 1_000
BATCH = 100
LIVE_KEY, TASK_KEY = (
    ("slackwater_tasks_livetask", "slackwater_tasks_livetask_pkey"),
    ("slackwater_tasks_task", "slackwater_tasks_task_pkey"),
)
TASK_TENANT, TASK_RELEASE = (
    ("slackwater_tasks_task", "slackwater_task_tenant"),
    ("slackwater_tasks_task", "slackwater_task_release"),
)
WALKS = {"release"}
"""Walks through an index as long as the planner believes the ledger to be empty: what it waits for ended a moment ago."""
Scans = set[tuple[str, str]]
"""(table, index) of every scan in a plan; the index is empty for a scan of the whole table."""


class Ledger:
    """A ledger with a backlog, on the connection of the test's transaction, which nobody else sees."""

    def __init__(self) -> None:
        furnish()
        self.worker = HandWorker()
        self.handler = Handler.objects.get(name="demo.echo")
        plan = Plan.objects.create(slug="plans", name="Plans")
        self.lines = filling.make_lines(LINES, plan=plan.slug)
        self.filled = 0

    def fill(self, upto: int, state: TaskState = TaskState.READY) -> None:
        """Waiting tasks, up to that number in all."""
        filling.fill(self.lines, self.filled + 1, upto, handler_id=self.handler.pk, state=state, wide=True)
        self.filled = upto

    def explain(self, query: str, params: Any = None, *, run: bool = False) -> dict[str, Any]:
        """The plan; ``run``: with what really happened, undone afterwards."""
        options = "FORMAT JSON, COSTS OFF" + (", ANALYZE, BUFFERS, TIMING OFF" if run else "")
        with psycopg.Cursor(connection.connection) as cur:
            cur.execute("SAVEPOINT plan")
            found = cur.execute(f"EXPLAIN ({options}) {query}", params).fetchone()
            cur.execute("ROLLBACK TO plan")
        assert found is not None
        return found[0][0]["Plan"]

    def generic(self, query: str) -> dict[str, Any]:
        """The plan for any parameters, which a prepared statement gets after a few runs."""
        names: dict[str, int] = {}

        def number(found: re.Match[str]) -> str:
            key = found[1] or f"#{len(names)}"
            return f"${names.setdefault(key, len(names) + 1)}"

        text = re.sub(r"%(?:\((\w+)\))?s", number, query)
        with psycopg.Cursor(connection.connection) as cur:
            cur.execute("SAVEPOINT plan")
            cur.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            cur.execute(f"PREPARE hot AS {text}")
            row = cur.execute(
                "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'hot'"
            ).fetchone()
            given = f"({', '.join(['NULL'] * row[0])})" if row and row[0] else ""
            found = cur.execute(f"EXPLAIN (FORMAT JSON) EXECUTE hot{given}").fetchone()
            cur.execute("DEALLOCATE hot")
            cur.execute("ROLLBACK TO plan")
        assert found is not None
        return found[0][0]["Plan"]

    def analyze(self) -> None:
        """Fresh statistics."""
        with connection.cursor() as cur:
            cur.execute("ANALYZE slackwater_tasks_livetask, slackwater_tasks_task, slackwater_tasks_attempt")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def scans(plan: Mapping[str, Any], tables: Collection[str] = frozenset(HOT)) -> Scans:
    """Every scan of ``tables``, less the look-ups of rows where they are known to stand."""
    found: Scans = set()
    bitmap = [node["Index Name"] for node in nodes(plan) if node["Node Type"] == "Bitmap Index Scan"]
    for node in nodes(plan):
        table = node.get("Relation Name")
        if table and table in tables and node["Node Type"].endswith("Scan") and node["Node Type"] != "Tid Scan":
            index = node.get("Index Name") or (bitmap[0] if node["Node Type"].startswith("Bitmap") else "")
            found.add((table, index))
    return found


def walks(plan: Mapping[str, Any]) -> list[str]:
    """The indexes that give more than the rows asked for by their ids: all of a table's, or all of a tenant's."""
    needed = {TASK_TENANT[1]: ("tenant_id", "id"), TASK_KEY[1]: ("id",), LIVE_KEY[1]: ("task_id",)}
    found = [
        (node["Index Name"], node.get("Index Cond", "")) for node in nodes(plan) if node.get("Index Name") in needed
    ]
    return [
        name for name, cond in found if not all(re.search(rf"\b(?<!\.){column} [=<>]", cond) for column in needed[name])
    ]


def rows_read(plan: Mapping[str, Any]) -> float:
    """Rows that the scans of hot tables handed on or threw away."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan)
        if node.get("Relation Name") in HOT and node["Node Type"].endswith("Scan")
    )


def _ids(n: int = BATCH) -> list[str]:
    return [filling.task_id(number + 1) for number in range(n)]


def hot_queries(ledger: Ledger) -> dict[str, tuple[str, Any, Scans]]:
    """By name: the query, its parameters, and the scans it may make."""
    ids, node = _ids(), ledger.worker.node.pk
    fences, ones, times = [1] * BATCH, [1] * BATCH, [1.0e9] * BATCH
    claim = {
        "cell": "default", "epoch": ledger.worker.epoch, "holder": HOLDER, "ttl": 15.0, "ids": ids,
        "fences": [0] * BATCH, "nodes": [node] * BATCH, "millis": ones,
    }  # fmt: skip
    ended = {
        "node": node, "ids": ids, "fences": fences, "started": times, "finished": times, "worker": "w",
        "results": ["null"] * BATCH, "states": [6] * BATCH, "outcomes": ones, "errors": [""] * BATCH,
        "reasons": [""] * BATCH, "exits": [0] * BATCH, "workers": ["w"] * BATCH, "cpus": ones, "memories": ones,
        "disks": ones,
    }  # fmt: skip
    start = {"ids": ids, "fences": fences, "node": node, "batch": BATCH}
    ready = {("slackwater_tasks_livetask", "slackwater_live_ready")}
    return {
        "nominate": (sql.snapshot.NOMINATE, (8,), ready),
        "nominate of some": (sql.snapshot.NOMINATE_OF, ([1, 2, 3], 8), ready),
        "fronts": (sql.snapshot.FRONTS, (64,), ready),
        "claim": (sql.claims.CLAIM, claim, {LIVE_KEY}),
        "start": (sql.claims.START, start, {LIVE_KEY, TASK_KEY, TASK_TENANT}),
        "succeed": (sql.finish.SUCCEED, _used(sql.finish.SUCCEED, ended), {LIVE_KEY, TASK_KEY, TASK_TENANT}),
        "lock": (sql.finish.LOCK_RUNNING, _used(sql.finish.LOCK_RUNNING, ended), {LIVE_KEY, TASK_KEY, TASK_TENANT}),
        "retry": (sql.finish.RETRY, _used(sql.finish.RETRY, ended | {"delays": times}), {LIVE_KEY, TASK_KEY, TASK_TENANT}),
        "release": (sql.dependencies.RELEASE, (ids, ones, ones), {LIVE_KEY, TASK_KEY, TASK_RELEASE, TASK_TENANT}),
        "finish": (sql.finish.FINISH, _used(sql.finish.FINISH, ended), {LIVE_KEY, TASK_KEY, TASK_TENANT}),
        "wake": (sql.due.WAKE, (2048,), {("slackwater_tasks_livetask", "slackwater_live_due"), LIVE_KEY}),
        "next due": (sql.due.NEXT_DUE, None, {("slackwater_tasks_livetask", "slackwater_live_due")}),
        "promotable": (sql.due.PROMOTABLE, (2048,), {("slackwater_tasks_livetask", "slackwater_live_promote")}),
        "late": (sql.due.LATE, (100,), {("slackwater_tasks_livetask", "slackwater_live_late")}),
        "promote": (sql.due.PROMOTE, (ids, [ledger.lines[0]] * BATCH), {LIVE_KEY, TASK_KEY, TASK_TENANT}),
        "in flight": (sql.snapshot.IN_FLIGHT, None, {("slackwater_tasks_livetask", "slackwater_live_in_flight")}),
        "mutex held": (sql.snapshot.MUTEX_HELD, None, {("slackwater_tasks_livetask", "slackwater_live_mutex")}),
    }  # fmt: skip


def _used(query: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of the parameters those that the query names."""
    return {name: value for name, value in values.items() if f"%({name})s" in query}


def check_all(ledger: Ledger, *, known: bool = False) -> None:
    for name, (query, params, allowed) in hot_queries(ledger).items():
        plan = ledger.explain(query, params)
        found = scans(plan)
        assert found, f"{name}: no scan of a hot table is in its plan"
        assert found <= allowed, f"{name} scans {sorted(found - allowed)}"
        assert not walks(plan) or (not known and name in WALKS), f"{name} walks through {walks(plan)}"


@pytest.fixture
def backlog(ledger: Ledger) -> Ledger:
    """A backlog that waits; some of it is scheduled."""
    ledger.fill(FEW, TaskState.SCHEDULED)
    ledger.fill(BACKLOG)
    return ledger


def test_with_fresh_statistics(backlog: Ledger) -> None:
    backlog.analyze()
    check_all(backlog, known=True)


def test_with_statistics_of_an_empty_table(ledger: Ledger) -> None:
    """What autovacuum has seen may be long gone: here it saw nothing, then the whole backlog came."""
    ledger.analyze()
    ledger.fill(BACKLOG)
    check_all(ledger)
    with connection.cursor() as cur:
        cur.execute("ANALYZE slackwater_tasks_line")  # now few lines are known, and nothing of what waits in them
    check_all(ledger)


def test_with_statistics_that_know_nothing_ready_or_running(ledger: Ledger) -> None:
    """All was blocked when it was looked at, so the partial indexes are believed to be empty."""
    ledger.fill(BACKLOG, TaskState.BLOCKED)
    ledger.analyze()
    with connection.cursor() as cur:
        cur.execute(
            "UPDATE slackwater_tasks_livetask SET state = 5, node_id = %s, fence = 1, started_at = now() WHERE task_id <= %s",
            (ledger.worker.node.pk, filling.task_id(BACKLOG // 2)),
        )
        cur.execute(
            "UPDATE slackwater_tasks_livetask SET state = 3 WHERE task_id > %s", (filling.task_id(BACKLOG // 2),)
        )
    check_all(ledger)


@pytest.mark.parametrize("analyzed", [True, False], ids=["fresh", "stale"])
def test_prepared_for_any_parameters(ledger: Ledger, analyzed: bool) -> None:
    ledger.analyze()
    ledger.fill(BACKLOG)
    if analyzed:
        ledger.analyze()
    for name, (query, _, allowed) in hot_queries(ledger).items():
        plan = ledger.generic(query)
        assert scans(plan) <= allowed, f"{name} scans {sorted(scans(plan) - allowed)}"
        assert not walks(plan) or (not analyzed and name in WALKS), f"{name} walks through {walks(plan)}"


def test_a_hot_connection_keeps_a_plan_made_while_nothing_was_there(ledger: Ledger) -> None:
    """It prepares its statements when the platform starts, and runs them with whatever comes afterwards."""
    with connection.cursor() as cur:
        for setting in HOT_PLANS.removeprefix("-c ").split(" -c "):
            cur.execute(f"SET LOCAL {setting}")
    with connection.cursor() as cur:  # past work has left pages behind, far more of them in one index than in another
        cur.execute("SAVEPOINT nothing")
        ledger.fill(FEW)
        cur.execute("UPDATE slackwater_tasks_livetask SET promote_at = now() + random() * interval '1 day'")
        cur.execute("ROLLBACK TO nothing")
        cur.execute("REINDEX INDEX slackwater_live_ready")
    ledger.analyze()
    for name, (query, _, allowed) in hot_queries(ledger).items():
        plan = ledger.generic(query)
        assert scans(plan) <= allowed, f"{name} scans {sorted(scans(plan) - allowed)}"
        assert not walks(plan) or name in WALKS, f"{name} walks through {walks(plan)}"


@pytest.mark.django_db(transaction=True)
def test_submissions_find_their_counters_by_their_key(ledger: Ledger) -> None:
    text = sql.store.store_statement(3, 7, TASK_COLUMNS, LIVE_COLUMNS, lone=False)
    nothing = ", ".join(["NULL"] * len(set(re.findall(r"\$\d+", text))))
    with transaction.atomic(), connection.cursor() as cur:  # what is set locally holds in a transaction only
        # There are too few tenants for one way or another through the index to be worth more.
        cur.execute("SET LOCAL enable_seqscan = off")
        cur.execute("SET LOCAL enable_bitmapscan = off")
        cur.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cur.execute(f"PREPARE submission AS {text}")
        cur.execute(f"EXPLAIN (FORMAT JSON) EXECUTE submission({nothing})")
        plan = cur.fetchone()[0][0]["Plan"]
        cur.execute("DEALLOCATE submission")
    (scan,) = [node for node in nodes(plan) if node.get("Alias") == "c" and node["Node Type"].endswith("Scan")]
    assert (scan["Node Type"], "tenant_id" in scan.get("Index Cond", "")) == ("Index Scan", True)


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_only_a_direct_hot_connection_prepares(pooled: bool) -> None:
    settings = connections["default"].settings_dict
    before = settings.get("DISABLE_SERVER_SIDE_CURSORS")
    settings["DISABLE_SERVER_SIDE_CURSORS"] = pooled
    database = Database("test hot", hot=True)
    try:
        for _ in range(5):
            database.conn.execute("SELECT count(*) FROM slackwater_tasks_leader WHERE cell = %s", ("default",))
        prepared = database.conn.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        mode = database.conn.execute("SHOW plan_cache_mode").fetchone()
    finally:
        settings["DISABLE_SERVER_SIDE_CURSORS"] = before
        database.close()
    assert (prepared, mode) == (((0,), ("auto",)) if pooled else ((1,), ("force_generic_plan",)))


def test_nominating_reads_as_much_of_a_long_line_as_of_a_short_one(ledger: Ledger) -> None:
    read = []
    for upto in (FEW, BACKLOG):
        ledger.fill(upto)
        ledger.analyze()
        plan = ledger.explain(sql.snapshot.NOMINATE, (8,), run=True)
        assert plan["Actual Rows"] == LINES * 8
        read.append(rows_read(plan))
    short, long = read
    assert short == long
    assert long <= LINES * (8 + 1) + 1  # the heads, one step a line, and one to find the first


@pytest.mark.parametrize("name", ["wake", "promotable", "late"])
def test_looking_for_what_is_due_does_not_read_what_is_not(ledger: Ledger, name: str) -> None:
    """A bound that may change while the statement runs is no bound of an index: everything would be read."""
    ledger.fill(BACKLOG, TaskState.SCHEDULED if name == "wake" else TaskState.READY)
    with connection.cursor() as cur:
        cur.execute(
            "UPDATE slackwater_tasks_livetask SET on_late = 2, not_before = not_before + interval '1 hour' WHERE state = 2"
            if name == "wake"
            else "UPDATE slackwater_tasks_livetask SET on_late = 2"
        )
    ledger.analyze()
    query, params, allowed = hot_queries(ledger)[name]
    plan = ledger.explain(query, params, run=True)
    assert scans(plan) <= allowed
    assert rows_read(plan) == 0


def test_running_a_batch_touches_no_more_rows_than_it_has(backlog: Ledger) -> None:
    backlog.analyze()
    query, params, _ = hot_queries(backlog)["claim"]
    params = {**params, "ids": [filling.task_id(FEW + n + 1) for n in range(BATCH)]}
    plan = backlog.explain(query, params, run=True)
    assert plan["Actual Rows"] == BATCH
    assert rows_read(plan) <= 2 * BATCH


def test_a_start_enters_nothing_into_any_index(backlog: Ledger) -> None:
    """Its indexes go by what a start leaves as it is, so the row's new version stands beside the old (heap-only)."""
    ids = [filling.task_id(FEW + 20 * (n + 1)) for n in range(BATCH)]  # apart: each page has room
    claim, start = hot_queries(backlog)["claim"][1], hot_queries(backlog)["start"][1]
    counts = "SELECT pg_stat_get_xact_tuples_updated({0}), pg_stat_get_xact_tuples_hot_updated({0})".format(
        "'slackwater_tasks_livetask'::regclass"
    )
    seen = []
    with psycopg.Cursor(connection.connection) as cur:
        for query, params in ((sql.claims.CLAIM, claim), (sql.claims.START, start)):
            before = cur.execute(counts).fetchone()
            assert len(cur.execute(query, {**params, "ids": ids}).fetchall()) == BATCH
            after = cur.execute(counts).fetchone()
            assert before is not None
            assert after is not None
            seen.append([now - then for now, then in zip(after, before, strict=True)])
    assert seen == [[BATCH, 0], [BATCH, BATCH]]


def test_statistics_of_the_busiest_tables_come_from_few_rows() -> None:
    """The column that wants the most rows decides how many are read, and a new column wants the server's default."""
    sampled = """
        SELECT attrelid::regclass || '.' || attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped
        AND attrelid = ANY(%s::regclass[]) AND attstattarget IS DISTINCT FROM 20
    """
    with connection.cursor() as cur:
        cur.execute(sampled, (sorted(HOT),))
        assert cur.fetchall() == []
