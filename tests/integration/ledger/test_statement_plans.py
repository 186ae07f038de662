"""Every statement of the ledger, and of what runs tasks, reads the tables that grow by the indexes named here."""

from __future__ import annotations

import re

import pytest
from django.db import connection

from scheduler_ext.core.states import TaskState
from slackwater_tasks.ledger import sql
from slackwater_tasks.ledger.connection import HOT_PLANS, connect
from slackwater_tasks.runtime import artifacts, effects, trace_context, work_store
from tests.integration.ledger.test_query_plans import BACKLOG, FEW, Ledger, scans, walks

GROWING = {
    f"slackwater_tasks_{name}"
    for name in ("task", "livetask", "attempt", "dependency", "attemptlog", "deadletter", "checkpoint", "effect")
}
PLANS: dict[str, dict[str, str]] = {
    "checkpoints": {
        "DECLARE": "",
        "SAVE": "checkpoint.pkey livetask.pkey",
        "LIMIT_OF": "",
        "LOAD": "checkpoint.pkey",
        "DAMAGED": "checkpoint.pkey",
        "NOTE": "livetask.pkey",
        "FORGET": "checkpoint.pkey",
        "ANEW": "livetask.pkey",
        "DELETE_ENDED": "checkpoint.pkey deadletter.pkey livetask.pkey",
    },
    "claims": {
        "CLAIM": "livetask.pkey",
        "CLAIM_NEXT": "livetask.ready",
        "START": "dependency.pkey livetask.pkey task.pkey",
        "START_AND_TELL": "dependency.pkey livetask.pkey task.pkey",
        "STARTED": "livetask.pkey task.pkey",
        "HAND_BACK": "livetask.pkey task.pkey",
        "UNBEGUN": "livetask.in_flight",
        "RETURN_ALL_QUEUED": "livetask.in_flight livetask.pkey",
        "RETURN_EXPIRED": "livetask.in_flight livetask.pkey",
    },
    "dependencies": {
        "RELEASE": "dependency.pkey livetask.pkey task.pkey task.release",
        "EDGE_OUTCOMES": "dependency.child dependency.pkey livetask.pkey",
        "UNBLOCK": "livetask.pkey",
        "UNRELEASED": "task.release",
    },
    "due": {
        "WAKE": "livetask.due livetask.pkey",
        "NEXT_DUE": "livetask.due",
        "PROMOTABLE": "livetask.promote",
        "PROMOTE": "livetask.pkey task.pkey",
        "LATE": "livetask.late",
        "EXPIRED": "livetask.expires",
        "TELL_LATE": "livetask.pkey",
        "MAPS": "livetask.pkey",
        "BULK": "",
        "PRESENT": "livetask.pkey task.release",
    },
    "finish": {
        "LISTENED": "",
        "FINISH": "livetask.pkey task.pkey",
        "SUCCEED": "livetask.pkey task.pkey",
        "SUCCEED_AND_TELL": "livetask.pkey task.pkey",
        "LOCK_RUNNING": "livetask.pkey task.pkey",
        "RETRY": "livetask.pkey task.pkey",
        "END_WAITING": "livetask.pkey task.pkey",
    },
    "following": {
        "GO_ON": "livetask.pkey livetask.ready task.pkey",
        "FOLLOW": "dependency.child dependency.pkey livetask.pkey task.pkey",
        "FOLLOW_AND_TELL": "dependency.child dependency.pkey livetask.pkey task.pkey",
    },
    "leadership": {
        "LEAD": "livetask.pkey",
        "RESIGN": "",
        "LOSE_NODES": "",
        "GONE_LATELY": "",
        "COUNT_STOLEN": "",
        "HELD_BY_GONE": "livetask.in_flight",
        "HELD_BY": "livetask.in_flight",
    },
    "openings": {"OUTSTANDING": "", "WIDEN": "", "WITHDRAW": "", "CLOSE": "", "GRANT": "", "REVOKE": ""},
    "parking": {
        "PARK": "livetask.pkey",
        "UNPARK": "livetask.mutex livetask.pkey",
        "MUTEX_HOLDERS": "livetask.in_flight livetask.mutex",
        "KEYS_OF": "livetask.mutex livetask.pkey",
        "PARKED_KEYS": "livetask.mutex",
        "PARK_IMPOSSIBLE": "livetask.pkey",
        "NOW_POSSIBLE": "livetask.pkey",
        "FORGET_IMPOSSIBLE": "livetask.pkey",
        "IMPOSSIBLE_FOR": "livetask.pkey",
        "PARK_FOR": "livetask.pkey",
        "UNPARK_LIMITED": "livetask.parked livetask.pkey",
        "UNPARK_THESE": "livetask.pkey",
        "STALE_PARKED": "livetask.parked",
        "RESUMED": "livetask.parked",
    },
    "preemption": {
        "LOCK_PAUSED": "livetask.pkey",
        "PAUSE": "livetask.pkey task.pkey",
        "ASK": "livetask.pkey",
        "TURNS": "livetask.in_flight livetask.pkey task.pkey",
        "SERVING": "",
    },
    "rates": {
        "LIMITS": "",
        "SETTLE": "attempt.once livetask.pkey",
        "FORGET": "",
        "COUNT": "",
        "PEEK": "",
        "KEYS_OF": "livetask.pkey",
        "LOCK": "",
        "COUNT_OF": "",
        "TAKE": "",
    },
    "snapshot": {
        "NODES": "",
        "IN_FLIGHT": "livetask.in_flight",
        "MUTEX_HELD": "livetask.mutex",
        "WANTS_ROOM": "livetask.ready",
        "NOMINATE": "livetask.ready",
        "NOMINATE_OF": "livetask.ready",
        "FRONTS": "livetask.ready",
        "LINES": "",
        "TENANTS": "",
        "HANDLERS": "",
        "MAKE_LINE": "",
        "RUN_TIMES": "",
        "RUN_TIMES_OF": "",
    },
    "work_store": {
        "LEARN": "",
        "SCRIPT": "livetask.pkey task.pkey",
        "SCRIPT_TRACED": "livetask.pkey task.pkey",
        "MEMORY_MB": "task.pkey",
        "SECRETS": "",
        "UPSTREAM": "dependency.child dependency.pkey task.pkey",
        "SCRIPT_READ": "task.pkey",
        "MUTEX_FENCE": "livetask.pkey",
        "PROGRESS": "livetask.pkey task.pkey",
    },
    "effects": {
        "INSERT": "livetask.pkey",
        "FOUND": "effect.pkey livetask.pkey",
        "TAKE_OVER": "effect.pkey livetask.pkey",
        "SETTLE": "effect.pkey",
        "FREE": "effect.pkey",
        "SET_RESULT": "effect.pkey",
        "HOLDS": "livetask.pkey",
    },
    "artifacts": {
        "HOLD": "livetask.pkey",
        "REPLACED": "",
        "KEEP": "",
        "TOTAL": "",
    },
    "trace_context": {
        "HEADERS": "",
        "AGAIN": "",
    },
    "store": {
        "REVIVE": "task.pkey",
        "EDIT": "livetask.pkey",
        "TAKE_IN": "",
    },
}
"""By module and statement: the scans of tables that grow which it may make, as ``table.index``."""
FRAGMENTS = {"snapshot.ACTIVE_LINES"}
"""No statement: others begin with it."""
WALKS = {
    "checkpoints.DELETE_ENDED", "effects.FOUND", "parking.FORGET_IMPOSSIBLE", "parking.IMPOSSIBLE_FOR",
    "parking.NOW_POSSIBLE", "preemption.TURNS", "rates.SETTLE", "work_store.UPSTREAM", "dependencies.RELEASE", "store.REVIVE",
    "work_store.SCRIPT", "work_store.SCRIPT_TRACED", "work_store.MEMORY_MB", "work_store.SCRIPT_READ",
    "work_store.PROGRESS",
}  # fmt: skip
"""What may walk through an index as long as the planner believes the ledger to be empty: none does it for a batch."""

FIRST = {"due.PRESENT", "leadership.LEAD"}
"""What reads the first entry of an index alone, to know whether there is one."""


def statements() -> dict[str, str]:
    """Every statement, by module and name."""
    modules = [getattr(sql, name) for name in sql.__all__] + [work_store, effects, artifacts, trace_context]
    return {
        f"{module.__name__.rsplit('.', 1)[-1]}.{name}": text
        for module in modules
        for name, text in vars(module).items()
        if isinstance(text, str) and name.isupper() and not name.startswith("_")
        if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", text)
    }


def expected() -> dict[str, set[str]]:
    return {f"{module}.{name}": set(found.split()) for module, plans in PLANS.items() for name, found in plans.items()}


def short(table: str, index: str) -> str:
    """``livetask.ready`` for the index ``slackwater_live_ready`` of ``slackwater_tasks_livetask``."""
    table = table.removeprefix("slackwater_tasks_")
    index = index.removeprefix("slackwater_").removeprefix("tasks_")
    for prefix in (f"{table}_", "live_", "task_"):
        index = index.removeprefix(prefix)
    return f"{table}.{index}"


def test_each_statement_is_expected_and_each_expected_one_is_there() -> None:
    assert statements().keys() - FRAGMENTS == expected().keys()


def forget_statistics() -> None:
    """Bring the planner's knowledge back to that of new tables: what earlier tests left behind changes its choices."""
    with connect() as conn:
        # Unlike a vacuum, which leaves pages to who looks on: new files, of tables and of indexes.
        conn.execute(f"TRUNCATE {', '.join(sorted(GROWING))} CASCADE")
        conn.execute("DELETE FROM pg_statistic WHERE starelid = ANY(%s::regclass[])", (sorted(GROWING),))


@pytest.mark.django_db
@pytest.mark.parametrize("known", ["nothing", "little", "all"])
def test_each_keeps_to_its_indexes_on_a_hot_connection(known: str) -> None:
    """``known``: of the whole backlog, what the planner's statistics know of them when it prepares."""
    forget_statistics()
    ledger = Ledger()
    ledger.analyze()
    if known != "nothing":
        ledger.fill(FEW, TaskState.SCHEDULED)
        ledger.fill(BACKLOG)
    if known == "all":
        ledger.analyze()
    with connection.cursor() as cur:  # once the ledger is full: what fills it wants plans of its own
        for setting in HOT_PLANS.removeprefix("-c ").split(" -c "):
            cur.execute(f"SET LOCAL {setting}")
    allowed, wrong = expected(), []
    for name, text in statements().items():
        if name not in FRAGMENTS:
            plan = ledger.generic(text.replace("%(state)s", "%(state)s::int"))  # psycopg says its type
            # With both in its condition, which is asserted below, the index by tenant is as good as the key.
            found = {short(*scan).replace("task.tenant", "task.pkey") for scan in scans(plan, GROWING)}
            if found - allowed[name] or bool(found) != bool(allowed[name]):
                wrong.append(f"{name} scans {sorted(found)}")
            if name not in FIRST and (known == "all" or name not in WALKS) and walks(plan):
                wrong.append(f"{name} walks through {walks(plan)}")
    assert not wrong
