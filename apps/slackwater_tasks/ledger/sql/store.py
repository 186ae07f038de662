"""The statements that make a task live: stored anew, run again, or edited; and the counters that allow it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, get_type_hints

from django.db import connection, models

from scheduler_ext.core.sql import named
from slackwater_tasks.ledger.sql import openings
from slackwater_tasks.models import LiveTask, Task


class Count(NamedTuple):
    """The columns by which a tenant's tasks are counted."""

    tenant: int
    n: int
    urgent: int
    most: int
    """How many unfinished tasks it may have."""
    step: float
    """The seconds by which one submission moves the theoretical arrival."""
    burst: float
    charged: float
    """How many submissions count against the rate."""
    permille: int
    """How many of its unfinished tasks may be urgent, if that is more than ``urgent_free``."""
    urgent_free: int


_COUNT_KINDS: Final = tuple({int: "bigint", float: "float8"}[kind] for kind in get_type_hints(Count).values())


def _ended(tenant: str) -> str:
    """The query of how many tasks of a tenant have ever ended."""
    return f"""SELECT coalesce(sum(tasks), 0)::bigint AS tasks, coalesce(sum(urgent), 0)::bigint AS urgent
    FROM slackwater_tenants_endcounter WHERE tenant_id = {tenant}"""  # noqa: S608 - names of ours


# Sums that only grow: what a statement saw of them before it waited for the counter may be less than the counter has taken
# in, and then counts as that. So too many are taken for unfinished, never too few.
_LEFT: Final = "c.unfinished + c.ended - greatest(c.ended, e.tasks)"
"""How many tasks of a tenant are unfinished: ``c`` its counter, ``e`` the sums of its ended tasks."""
_URGENT_LEFT: Final = "c.urgent_unfinished + c.urgent_ended - greatest(c.urgent_ended, e.urgent)"
_TAKEN_IN: Final = "ended = greatest(c.ended, e.tasks), urgent_ended = greatest(c.urgent_ended, e.urgent)"
# Admission does it for tenants that submit; of those whose last task has ended nobody else would. A counter that somebody has
# set too low is left alone: it must not keep the others.
TAKE_IN: Final = f"""
WITH behind AS (
    SELECT c.tenant_id, e.tasks, e.urgent FROM slackwater_tenants_tenantcounter c CROSS JOIN LATERAL (
        {_ended("c.tenant_id")}) e
    WHERE c.ended < e.tasks AND c.unfinished + c.ended >= e.tasks
    ORDER BY c.tenant_id LIMIT %s FOR NO KEY UPDATE OF c SKIP LOCKED)
UPDATE slackwater_tenants_tenantcounter c SET unfinished = {_LEFT}, urgent_unfinished = {_URGENT_LEFT},
    {_TAKEN_IN}
FROM behind e WHERE c.tenant_id = e.tenant_id
"""  # noqa: S608 - names of ours


@lru_cache(maxsize=64)
def count_statement(tenants: int, *, patience_ms: int | None = None) -> str:
    """The statement that raises the counters of so many tenants, each if its plan allows it.

    ``patience_ms``: of several tenants, those whose counters somebody else holds are waited for so long, and for longer
    none is counted (``LockNotAvailable``); with 0 they are left out. None: however long it takes.
    """
    # Rows and not arrays: whatever the parameters, one row is planned as one row, and so the plan is kept. And the
    # array in the condition makes the planner look a tenant up by the key, whatever it thinks of the table's size.
    held = _held(tenants, patience_ms) if tenants > 1 else ""
    joined = " JOIN held ON held.tenant_id = u.tenant" if held else ""
    unfinished, urgent = f"({_LEFT} + u.n)", f"({_URGENT_LEFT} + u.urgent)"
    return f"""{held}
UPDATE slackwater_tenants_tenantcounter c
SET unfinished = {unfinished}, urgent_unfinished = {urgent}, {_TAKEN_IN},
    submitted = c.submitted + u.n,
    theoretical_arrival = greatest(coalesce(c.theoretical_arrival, clock_timestamp()), clock_timestamp())
        + u.charged * u.step * interval '1 second'
FROM (VALUES {_values(_COUNT_KINDS, tenants, 1)}) AS u({", ".join(Count._fields)}){joined}
CROSS JOIN LATERAL (
    {_ended("ANY(ARRAY[u.tenant])")}) e
WHERE c.tenant_id = ANY(ARRAY[u.tenant]) AND {unfinished} <= u.most
    AND greatest(coalesce(c.theoretical_arrival, clock_timestamp()), clock_timestamp())
        + u.charged * u.step * interval '1 second' <= clock_timestamp() + u.burst * u.step * interval '1 second'
    AND (u.urgent = 0 OR {urgent} <= greatest(u.urgent_free, {unfinished} * u.permille / 1000))
RETURNING c.tenant_id, c.unfinished, extract(epoch FROM c.theoretical_arrival - clock_timestamp())::float8 AS ahead_s
"""  # noqa: S608 - names and types of ours


def _held(tenants: int, patience_ms: int | None) -> str:
    """The part that takes hold of the counters of several tenants before any is raised."""
    # In one order: two that submit for many cannot wait for each other in a ring.
    ids = ", ".join(f"${1 + n * len(Count._fields)}" for n in range(tenants))
    patience = f"(SELECT set_config('lock_timeout', '{patience_ms}', true) OFFSET 0) patience, " if patience_ms else ""
    return f"""WITH held AS MATERIALIZED (
    SELECT t.tenant_id FROM {patience}slackwater_tenants_tenantcounter t WHERE t.tenant_id = ANY(ARRAY[{ids}]::bigint[])
    ORDER BY t.tenant_id FOR NO KEY UPDATE OF t{" SKIP LOCKED" if patience_ms == 0 else ""})"""  # noqa: S608 - numbers of ours


Fixed = tuple[tuple[str, str], ...]
"""Columns, each with the one value that it has, as SQL."""
OF_TASK: Final = ("id", "args", "kwargs")
"""The columns of the task table in which tasks of one kind differ; those of the live table differ in their id alone."""


@lru_cache(maxsize=256)
def store_statement(tenants: int, kinds: int, wide: tuple[str, ...], narrow: tuple[str, ...], *, lone: bool,
                    opens: bool = False, patience_ms: int | None = None,
                    usual: tuple[Fixed, Fixed] = ((), ())) -> str:  # fmt: skip
    """The statement that counts the tasks of some tenants, and writes the rows of those whose counters allow it.

    ``kinds``: of so many kinds; ``lone``: one task. ``wide``, ``narrow``: the columns of the task table (none: no rows
    of it) and of the live table, of which a kind's row is given once. Parameters: the counts, of each task its kind's
    number, its id and arguments as four arrays (as three values of a lone one), then the rows of the kinds without the
    columns that are a task's own. ``opens``: those of one kind are claimed where there is an opening for them all; its
    parameters (:func:`openings.claim_part`) and the seconds that the claim lasts come last. ``patience_ms``: as
    :func:`count_statement` has it. ``usual``: other columns of the two tables, of which all rows have the same value.
    """
    first = 1 + tenants * len(Count._fields)
    if lone:
        given = (
            f"SELECT 0 AS like_row, ${first}::uuid AS id, ${first + 1}::jsonb AS args, ${first + 2}::jsonb AS kwargs,"
            " 1 AS at"
        )
        first += 3
    else:
        arrays = ", ".join(f"${first + n}::{kind}[]" for n, kind in enumerate(("int", "uuid", "jsonb", "jsonb")))
        given = f"SELECT * FROM unnest({arrays}) WITH ORDINALITY AS g(like_row, id, args, kwargs, at)"  # noqa: S608 - types of ours
        first += 4
    inserts = []
    if wide:
        inserts.append(_insert("task", Task, {name: name for name in OF_TASK}, wide, kinds, first, usual[0]))
        first += kinds * (len(wide) - len(OF_TASK))
    after = first + kinds * (len(narrow) - 1)
    claimed = openings.claimed(after) if opens else {}
    inserts.append(_insert("live", LiveTask, {"task_id": "id"}, narrow, kinds, first, usual[1], claimed))
    parts = [f"WITH counted AS ({count_statement(tenants, patience_ms=patience_ms)})",
             f"given AS {'NOT MATERIALIZED ' if lone else ''}({given})"]  # fmt: skip
    if opens:
        parts.append(openings.claim_part(after))
    found = "counted.*, place.* FROM counted LEFT JOIN place ON true" if opens else "* FROM counted"
    return f"{', '.join([*parts, *inserts])} SELECT {found}"


@lru_cache(maxsize=64)
def herd_statement(wide: tuple[str, ...], narrow: tuple[str, ...], own: tuple[str, ...]) -> str:
    """The statement that writes the rows of many tasks of one kind, and counts none.

    ``wide``, ``narrow``: columns in which they do not differ, of the task table and the live table; ``own``: of their
    arguments those columns in which they do. Parameters: their ids as an array, a JSON array for each of ``own``, and
    the values of the columns.
    """
    # Lines to copy would have the server read every column of every row; and an array of JSON be written and read as text
    # of an array, too.
    arrays = ["unnest($1::uuid[])", *(f"jsonb_array_elements(${n}::jsonb)" for n in range(2, 2 + len(own)))]
    first = 2 + len(own)
    shared = [_typed(Task, wide, first), _typed(LiveTask, narrow, first + len(wide))]
    return f"""WITH written AS (
    INSERT INTO slackwater_tasks_task ({", ".join(("id", *own, *wide))})
    SELECT {", ".join(("id", *own, *shared[0]))}
    FROM ROWS FROM ({", ".join(arrays)}) AS given({", ".join(("id", *own))}) RETURNING id)
INSERT INTO slackwater_tasks_livetask ({", ".join(("task_id", *narrow))})
SELECT {", ".join(("id", *shared[1]))} FROM written"""  # noqa: S608 - names and types of ours


def _typed(model: type[models.Model], columns: Sequence[str], first: int) -> list[str]:
    """A numbered parameter for each of a table's columns, as that has it."""
    return [f"${n}::{kind}" for n, kind in enumerate(_types(model, columns), first)]


@cache
def _known_types(model: type[models.Model]) -> Mapping[str, str]:
    """The types of a table's columns; Django takes as long to find them all as a lone task takes to be stored."""
    return {field.attname: field.db_type(connection) or "" for field in model._meta.concrete_fields}


def _types(model: type[models.Model], columns: Sequence[str]) -> list[str]:
    known = _known_types(model)
    # Without its length: a value too long is refused as the column has it, not cut by the cast.
    return [re.sub(r"\(\d+\)", "", known[column]) for column in columns]


def _insert(label: str, model: type[models.Model], own: Mapping[str, str], columns: Sequence[str], kinds: int,
            first: int, usual: Fixed = (), claimed: Mapping[str, str] = MappingProxyType({})) -> str:  # fmt: skip
    """The part that inserts rows; ``usual``: columns with one value; ``claimed``: those of rows that take an opening."""
    shared = [column for column in columns if column not in own]
    names = ", ".join(shared)
    types = _types(model, shared)
    values = {name: f"given.{source}" for name, source in own.items()} | {name: f"v.{name}" for name in shared}
    values |= {name: f"{text}::{_known_types(model)[name]}" for name, text in usual}
    values |= {name: text.replace(f"v.{name}", values.get(name, "NULL")) for name, text in claimed.items()}
    return f"""{label} AS (
    INSERT INTO {model._meta.db_table} ({", ".join(values)})
    SELECT {", ".join(values.values())}
    FROM (VALUES {_values(types, kinds, first, numbered=True)}) AS v(like_row, {names})
    JOIN counted ON counted.tenant_id = v.tenant_id JOIN given ON given.like_row = v.like_row
    {"LEFT JOIN place ON true" if claimed else ""})"""  # noqa: S608 - names and types of ours


def _values(types: Sequence[str], rows: int, first: int, *, numbered: bool = False) -> str:
    """Rows of numbered parameters, each with its type; ``numbered``: each row begins with its own number."""
    starts = range(first, first + rows * len(types), len(types))
    cells = (", ".join(f"${n}::{kind}" for n, kind in enumerate(types, start)) for start in starts)
    return ", ".join(f"({f'{number}, ' if numbered else ''}{row})" for number, row in enumerate(cells))


# The caller holds the rows, and knows their states.
REVIVE: Final = """
UPDATE slackwater_tasks_task
SET state = NULL, finished_at = NULL, result = NULL, error = '', reason = '', latest_start = NULL, release_pending = false
WHERE id = ANY(%s::uuid[]) AND state IS NOT NULL RETURNING id, attempts_used
"""
EDIT: Final = named("""
UPDATE slackwater_tasks_livetask SET line_id = %(line_id)s, state = %(state)s, rank_group = %(rank_group)s,
    rank = %(rank)s, priority = %(priority)s, total_attempts = %(total_attempts)s, mutex_key = %(mutex_key)s,
    mutex_limit = %(mutex_limit)s, tolerance_ms = %(tolerance_ms)s, on_late = %(on_late)s, rate_key = %(rate_key)s,
    parked = NULL, not_before = %(not_before)s, latest_start = %(latest_start)s, promote_at = %(promote_at)s,
    expires_at = %(expires_at)s
WHERE task_id = %(task_id)s AND state IN (:state.BLOCKED, :state.SCHEDULED, :state.READY)
""")
