"""Maps: a task that stands for one task for each element of a list in a parent's result.

Its live row waits for one thing more than its parents. When they have ended, upkeep makes its elements, which it then
waits for like for any parent; when they have ended, upkeep ends it with their results in order. Each step is one
transaction that looks before it acts: killed between, it is done again, and nothing is made twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import Conflict, InvalidInput, LimitExceeded, SlackwaterError
from scheduler_ext.core.states import EdgeOutcome, RunCondition, TaskState, turn
from scheduler_ext.task.references import MARK, is_reference, value_of
from slackwater_tasks.control import stored_task, workflows
from slackwater_tasks.control.cancel import cancel_some, tell
from slackwater_tasks.control.quiesce import repeat_on_deadlock
from slackwater_tasks.field_kinds import Map, json_type
from slackwater_tasks.ledger import events, reference_cache, transitions
from slackwater_tasks.models import Task
from slackwater_tasks.read.tasks import word
from slackwater_tasks.spec import FIELDS, TaskSpec, dump_payload
from slackwater_tenants.models import Tenant

ACTOR: Final = "upkeep"
MOST_BYTES: Final = 16_777_216
"""The most that the results of a map's elements have together."""
LIMITED_S: Final = 30.0
"""How soon at the latest the making of elements is tried again that a limit has refused."""
NAMED: Final = 5
"""Elements that the reason of a failed map names."""
HOLD: Final = "SELECT given, elements FROM slackwater_tasks_mapnode WHERE task_id = %s AND open FOR UPDATE SKIP LOCKED"
LIVE: Final = "SELECT state, pending FROM slackwater_tasks_livetask WHERE task_id = %s FOR UPDATE"
PARENTS: Final = """
SELECT p.id, p.name, p.state, d.outcome, CASE WHEN %(over)s IN (p.name, p.id::text) THEN p.result END
FROM slackwater_tasks_dependency d JOIN slackwater_tasks_task p ON p.id = d.parent_id WHERE d.child_id = %(id)s ORDER BY p.id
"""
MADE: Final = "UPDATE slackwater_tasks_mapnode SET elements = %s, retry_at = NULL WHERE task_id = %s"
# Its elements have begun in its place: nothing of its own start can be late any more.
BEGUN: Final = "UPDATE slackwater_tasks_livetask SET expires_at = NULL WHERE task_id = %s"
CLOSE: Final = "UPDATE slackwater_tasks_mapnode SET open = false WHERE task_id = %s"
LATER: Final = (
    "UPDATE slackwater_tasks_mapnode SET retry_at = clock_timestamp() + %s * interval '1 second' WHERE task_id = %s"
)
ENDS: Final = """
SELECT t.state, coalesce(octet_length(t.result::text), 4) FROM unnest(%s::uuid[]) WITH ORDINALITY AS e(id, n)
LEFT JOIN slackwater_tasks_task t ON t.id = e.id ORDER BY e.n
"""
RESULTS: Final = """
SELECT jsonb_agg(t.result ORDER BY e.n)::text FROM unnest(%s::uuid[]) WITH ORDINALITY AS e(id, n)
JOIN slackwater_tasks_task t ON t.id = e.id
"""
ALL: Final = frozenset(field.attribute for field in FIELDS.values())


@dataclass(frozen=True, slots=True)
class _Map:
    """A map whose turn it is, held until the transaction ends."""

    tenant: Tenant
    task: Task
    place: Any
    """Its workflow, held, where it has one."""
    given: dict[str, str]


def advance(due: Sequence[tuple[UUID, int]]) -> int:
    """Make the elements of maps, or end them; ``due``: rows of ``sql.due.MAPS``. Returns how many had their turn."""
    return sum(repeat_on_deadlock(partial(_advance, *row)) for row in due)


def _advance(task_id: UUID, tenant_id: int) -> int:
    tenant = Tenant.objects.select_related("plan").get(pk=tenant_id)
    task = stored_task.find(tenant_id, task_id)
    with connection.cursor() as cur:
        # The workflow's row first, the tasks' after: everybody locks in this order.
        place = workflows.lock(cur, tenant, task.workflow_id) if task.workflow_id is not None else None
        cur.execute(HOLD, (task_id,))
        row = cur.fetchone()
        if row is None:
            return 0
        one, elements = _Map(tenant, task, place, json.loads(row[0])), row[1]
        cur.execute(LIVE, (task_id,))
        live = cur.fetchone()
        if live is None:
            cancel_some(cur, tenant.cell, list(map(str, elements or ())), actor=ACTOR, reason="its map has ended")
            cur.execute(CLOSE, (task_id,))
        elif live != (TaskState.BLOCKED, 1):
            return 0
        elif elements is None:
            _make(cur, one)
        else:
            return _gather(cur, one, elements)
    return 1


def _make(cur: Any, one: _Map) -> None:
    """Make the elements; or end the map, where its condition does not hold or there is no list to map over."""
    over = one.given["over"]
    cur.execute(PARENTS, {"over": over, "id": one.task.pk})
    parents = cur.fetchall()
    what = turn(RunCondition(one.task.condition), [EdgeOutcome(row[3]) for row in parents])
    if what is not TaskState.READY:
        return _end(cur, one, what, transitions.NO_TURN[what])
    try:
        items = _items(one, parents)
        if not items:
            return _end(cur, one, TaskState.SUCCEEDED, f"the list of {over!r} is empty", "[]")
        with transaction.atomic():
            specs = _specs(one, items, [str(row[0]) for row in parents])
            actor = f"task:{one.task.pk}"
            found = workflows.add(cur, one.tenant, one.place, specs, actor=actor, before=[one.task.pk])
    except LimitExceeded as refused:
        if len(items) < one.tenant.plan.max_waiting:
            cur.execute(LATER, (min(LIMITED_S, getattr(refused, "retry_after", None) or LIMITED_S), one.task.pk))
            return None
        return _end(cur, one, TaskState.FAILED, f"map over {over!r}: {refused.message}")
    except SlackwaterError as error:
        return _end(cur, one, TaskState.FAILED, f"map over {over!r}: {error.message}")
    cur.execute(MADE, (found.task_ids, one.task.pk))
    cur.execute(BEGUN, (one.task.pk,))
    reason = f"its {len(items)} elements were made"
    events.write(cur, [events.row(one.tenant.pk, one.task.pk, TaskState.BLOCKED, actor=ACTOR, reason=reason)])
    return None


def _items(one: _Map, parents: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The list that is mapped over; ``InvalidInput`` where there is none."""
    over, path = one.given["over"], one.given.get("path", "")
    states = {key: (row[2], row[4]) for row in parents for key in (str(row[0]), row[1])}
    state, stored = states.get(over, (None, None))
    if state != TaskState.SUCCEEDED:
        raise InvalidInput("it did not succeed, so there is no list")
    result = stored and json.loads(stored)
    found = value_of({MARK: over, "path": path}, {over: result}, "map.path")
    if not isinstance(found, list):
        raise InvalidInput(f"{path or 'its result'} is no list, but {json_type(found)}")
    for n, item in enumerate(found):
        if is_reference(item):
            raise InvalidInput(f"element {n} has the key {MARK}, which makes it a reference to a result")
    return found


def _specs(one: _Map, items: Sequence[Any], parents: Sequence[str]) -> list[TaskSpec]:
    """What the task of each element is given: all that the map was, and its element."""
    name, task = one.task.name, one.task
    start = task.start_at if task.start_at is not None and task.start_at > reference_cache.now() else None
    same = replace(stored_task.spec_of(task), start_at=start, depends_on=tuple(parents), chosen=ALL)
    found = []
    for n, item in enumerate(items):
        args, kwargs = Map.filled(one.given, task.args, task.kwargs, item, n)
        place = f"[{n}]"
        own = f"{name[: 200 - len(place)]}{place}" if name else ""
        found.append(replace(same, name=own, args=args, kwargs=kwargs, payload=dump_payload(args, kwargs, place)))
    return found


def _gather(cur: Any, one: _Map, elements: Sequence[UUID]) -> int:
    """End a map whose elements have ended; not while one of them runs again."""
    cur.execute(ENDS, (elements,))
    ends = cur.fetchall()
    if any(state is None for state, _ in ends):
        return 0
    bad = [(n, TaskState(state)) for n, (state, _) in enumerate(ends) if state != TaskState.SUCCEEDED]
    if bad:
        final = TaskState.CANCELLED if all(state is TaskState.CANCELLED for _, state in bad) else TaskState.FAILED
        which = ", ".join(f"[{n}] {word(state)}" for n, state in bad[:NAMED]) + (", …" if len(bad) > NAMED else "")
        _end(cur, one, final, f"{len(bad)} of {len(ends)} elements did not succeed: {which}")
    elif sum(size for _, size in ends) > MOST_BYTES:
        _end(cur, one, TaskState.FAILED, f"the results of its elements have more than {MOST_BYTES} bytes together")
    else:
        cur.execute(RESULTS, (elements,))
        _end(cur, one, TaskState.SUCCEEDED, f"its {len(ends)} elements have succeeded", cur.fetchone()[0])
    return 1


def _end(cur: Any, one: _Map, final: TaskState, reason: str, result: str | None = None) -> None:
    gone = transitions.end_if_waiting(
        cur, [str(one.task.pk)], final, reason=reason, actor=ACTOR, states=(TaskState.BLOCKED,), result=result
    )
    changes = [transitions.changed(row, final) for row in gone]
    transitions.release(cur, [(row[0], final) for row in gone if row[1]], changes)
    cur.execute(CLOSE, (one.task.pk,))
    transaction.on_commit(partial(tell, one.tenant.cell, changes, set()))


# -- maps that run again ----------------------------------------------------------------------------------------------
NODES: Final = """
SELECT task_id, elements FROM slackwater_tasks_mapnode WHERE task_id = ANY(%s::uuid[]) ORDER BY task_id FOR UPDATE
"""
UNENDED: Final = "SELECT name FROM slackwater_tasks_task WHERE id = ANY(%s) AND state IS NULL ORDER BY id LIMIT 1"
# They stay readable as tasks by themselves. Others may have come to depend on them: those edges stay, so the graph of
# the workflow reaches beyond it.
LEAVE: Final = """
WITH old AS (SELECT id, workflow_id FROM slackwater_tasks_task WHERE id = ANY(%(old)s)),
edges AS (
    DELETE FROM slackwater_tasks_dependency WHERE child_id = ANY(%(old)s)
        OR (parent_id = ANY(%(old)s) AND child_id = ANY(%(nodes)s)) RETURNING child_id),
loose AS (UPDATE slackwater_tasks_task t SET workflow_id = NULL FROM old WHERE t.id = old.id AND old.workflow_id IS NOT NULL),
tasks AS (SELECT workflow_id, count(*) AS n FROM old GROUP BY 1),
ends AS (
    SELECT t.workflow_id, count(*) AS n FROM edges JOIN slackwater_tasks_task t ON t.id = edges.child_id GROUP BY 1)
UPDATE slackwater_tasks_workflow w SET task_count = w.task_count - tasks.n, edge_count = w.edge_count - ends.n,
    detail = w.detail || '{"open": true}' FROM tasks JOIN ends USING (workflow_id) WHERE w.id = tasks.workflow_id
"""
FORGET: Final = (
    "DELETE FROM slackwater_tasks_deadletter WHERE task_id = ANY(%(old)s)",
    "UPDATE slackwater_tasks_mapnode SET elements = NULL WHERE task_id = ANY(%(nodes)s)",
)
REOPEN: Final = "UPDATE slackwater_tasks_mapnode SET open = true, retry_at = NULL WHERE task_id = ANY(%s::uuid[])"


def run_again(cur: Any, ids: Sequence[UUID]) -> set[UUID]:
    """Open the maps among tasks that run again, and return them; the caller holds them.

    One of whose elements none runs again makes them anew: the old ones leave its workflow. ``Conflict`` where one of
    them has not ended.
    """
    cur.execute(NODES, (list(ids),))
    rows = cur.fetchall()
    left = {node: elements for node, elements in rows if elements and not set(elements) & set(ids)}
    old = [element for elements in left.values() for element in elements]
    if old:
        cur.execute(UNENDED, (old,))
        if (running := cur.fetchone()) is not None:
            raise Conflict(f"the element {running[0]} has not ended")
        for statement in (LEAVE, *FORGET):
            cur.execute(statement, {"old": old, "nodes": list(left)})
    nodes = {row[0] for row in rows}
    if nodes:
        cur.execute(REOPEN, (list(nodes),))
    return nodes


def elements_of(cur: Any, ids: Sequence[UUID]) -> set[UUID]:
    """The elements of the maps among these tasks."""
    cur.execute(NODES, (list(ids),))
    return {element for _, elements in cur.fetchall() for element in elements or ()}
