"""The only writer of states. Each change is a compare-and-set: a lost race returns fewer rows, it overwrites nothing.

The statements stand in the wing's ``*queries`` modules; only this module runs those that write a state, and a test
holds that. Functions take an open cursor or connection (anything with ``execute``); the caller owns the transaction.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any
from uuid import UUID

from scheduler_ext.conf import PROMOTE_LEAD_MS, SchedulerConf
from scheduler_ext.core.states import (
    PAUSED,
    EdgeOutcome,
    Event,
    Outcome,
    RunCondition,
    TaskState,
    edge_outcome,
    turn,
)
from scheduler_ext.core.types import Decision, Grant
from scheduler_ext.core.work import Change, Finished, Started
from scheduler_ext.preemption.choose import Ask
from slackwater_tasks.ledger import begins, copy_format, ends, sql
from slackwater_tasks.ledger.connection import Values, fetch_each, fetch_named_rows, fetch_rows
from slackwater_tasks.ledger.copy_format import array, moments
from slackwater_tasks.ledger.rows import GRAPH_COLUMNS, LIVE_COLUMNS, TASK_COLUMNS, Herd, LiveRow, Own, Place

Claim = tuple[str, int]
"""Task id and fence."""
CLAIM_S = 3.0
"""A claim of an opening that its node has not begun goes back to the rounds after so long: it may not have got there."""
MAX_LET_BY = 64
"""Tasks for which another was asked to make room."""


Counted = dict[int, tuple[int, float]]
"""By tenant, its counters as they stand now: unfinished tasks, and seconds until its rate's bucket is full again."""


def count_if_allowed(cur: Any, counts: Sequence[sql.store.Count]) -> Counted:
    """Raise the counters of the tenants whose plans allow it; returns those. Takes a prepared cursor."""
    return _count(cur, counts, sql.store.count_statement(len(counts)), [])


def store_if_counted(cur: Any, counts: Sequence[sql.store.Count], wide: Sequence[Sequence[Any]],
                     narrow: Sequence[Sequence[Any]], tasks: Sequence[Own], *, claim_s: float = 0.0,
                     patience_ms: int | None = None) -> tuple[Counted, Place | None]:  # fmt: skip
    """Count and write tasks of a few kinds in one statement; returns the counters that allowed it.

    ``wide``, ``narrow``: a row of each kind, that of any task of it. ``claim_s``: they are of one kind, and the first are
    claimed for so many seconds, as many as the dispatcher left room for; that is returned too. ``patience_ms``:
    as :func:`sql.store.count_statement` has it. Takes a prepared cursor.
    """
    columns: tuple[str, ...] = GRAPH_COLUMNS
    if not any(row[-1] is not None for row in narrow):  # of no graph: what they have nothing in need not be told
        columns, narrow = LIVE_COLUMNS, [row[: len(LIVE_COLUMNS)] for row in narrow]
    lone = len(tasks) == 1
    wide_columns = TASK_COLUMNS if wide else ()
    opens = bool(claim_s)
    statement = sql.store.store_statement(
        len(counts), len(narrow), wide_columns, columns, lone=lone, opens=opens, patience_ms=patience_ms
    )
    own: Sequence[Any] = tasks[0][1:] if lone else copy_format.arrays_of(tasks)
    rows = [own, *(_SHARED_WIDE(row) for row in wide), *(row[1:] for row in narrow)]
    if not opens:
        return _count(cur, counts, statement, rows), None
    row = LiveRow._make((*narrow[0], *(None,) * (len(GRAPH_COLUMNS) - len(columns))))
    asked = (len(tasks), *row.opens, claim_s)
    values = [value for part in (*counts, *rows, asked) for value in part]
    return _counted(cur.execute(statement, values).fetchone())


def store_like_if_counted(ours: Any, statement: str, values: Values) -> tuple[Counted, Place | None]:
    """Count and write a lone task whose row is known, over Django's connection; answers as :func:`store_if_counted`."""
    found = fetch_rows(ours, statement, values)
    return _counted(found[0] if found else None)


def store_known_if_counted(ours: Any, statement: str, values: Values) -> Counted:
    """Count and write tasks whose rows are known, over Django's connection; returns the counters that allowed it."""
    return _by_tenant(fetch_rows(ours, statement, values))


def _counted(row: Sequence[Any] | None) -> tuple[Counted, Place | None]:
    if row is None:
        return {}, None
    return {row[0]: (row[1], row[2])}, Place(*row[3:]) if len(row) > 3 and row[3] is not None else None


_SHARED_WIDE = itemgetter(*(n for n, column in enumerate(TASK_COLUMNS) if column not in sql.store.OF_TASK))


def _count(cur: Any, counts: Sequence[sql.store.Count], statement: str, rows: Sequence[Sequence[Any]]) -> Counted:
    values = [value for row in (*counts, *rows) for value in row]
    return _by_tenant(cur.execute(statement, values).fetchall())


def _by_tenant(rows: Sequence[Sequence[Any]]) -> Counted:
    return {tenant: (unfinished, ahead) for tenant, unfinished, ahead in rows}


def store(cur: Any, wide: Iterable[str], narrow: Iterable[str]) -> None:
    """Write lines of many tasks by COPY; the caller counts them in the same transaction."""
    copy_format.copy_lines(cur, "slackwater_tasks_task", TASK_COLUMNS, wide)
    copy_format.copy_lines(cur, "slackwater_tasks_livetask", GRAPH_COLUMNS, narrow)


def store_herd(cur: Any, herd: Herd) -> None:
    """As :func:`store`, of many tasks of one kind by one statement. Takes a prepared cursor."""
    wide, narrow, own = herd.split()
    statement = sql.store.herd_statement(tuple(wide), tuple(narrow), tuple(own))
    cur.execute(statement, [array(herd.ids), *own.values(), *wide.values(), *narrow.values()])


def revive_if_final(cur: Any, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Reset the ends of final tasks, so that they can be live again; returns the attempts that each has used."""
    cur.execute(sql.store.REVIVE, (list(ids),))
    return dict(cur.fetchall())


def edit_if_waiting(cur: Any, row: Mapping[str, Any]) -> bool:
    """Write an edited live row; False when the task does not wait any more."""
    cur.execute(sql.store.EDIT, row)
    return bool(cur.rowcount == 1)


def claim_if_ready(cur: Any, conf: SchedulerConf, epoch: int, holder: str, decisions: Sequence[Decision],
                   millis: Sequence[int]) -> set[str]:  # fmt: skip
    """Claim ready tasks for their nodes under the leader's epoch; returns the ids of those won."""
    rows = cur.execute(
        sql.claims.CLAIM,
        {
            "cell": conf.cell, "epoch": epoch, "holder": holder, "ttl": conf.claim_ttl_s,
            "ids": array([d.task_id for d in decisions]), "fences": array([d.fence for d in decisions]),
            "nodes": array([d.node_id for d in decisions]), "millis": array(millis),
        },
    ).fetchall()  # fmt: skip
    return {row[0] for row in rows}


def claim_next(cur: Any, conf: SchedulerConf, epoch: int, holder: str,
               counts: Mapping[Grant, int]) -> list[tuple[str, int, int, int]]:  # fmt: skip
    """Claim so many of the first of lines for nodes that go on with them, under the leader's epoch.

    Returns (task id, fence before, node id, line id) of each.
    """
    params = {
        "cell": conf.cell, "epoch": epoch, "holder": holder, "ttl": conf.claim_ttl_s, "counts": list(counts.values()),
        "nodes": [each.node_id for each in counts], "lines": [each.line_id for each in counts],
        "handlers": [each.handler_id for each in counts], "millis": [each.slot_milli for each in counts],
    }  # fmt: skip
    return list(cur.execute(sql.claims.CLAIM_NEXT, params).fetchall())


def start_if_queued(
    cur: Any, node_id: int, claims: Sequence[Claim], *, told: bool = True, again: bool = False
) -> list[Started]:
    """Begin claims still held by this node, in the order given. ``told``: whether any tenant listens.

    ``again``: the answer to a call for the same claims was lost, so those it had started are returned too. Whoever
    still was in the midst of that call holds its rows: they are waited for.
    """
    ids, fences = [claim[0] for claim in claims], [claim[1] for claim in claims]
    params: dict[str, str | int] = {
        "ids": array(ids), "fences": array(fences), "node": node_id, "batch": len(claims),
    }  # fmt: skip
    rows = fetch_named_rows(cur, sql.claims.START_AND_TELL if told else sql.claims.START, params)
    if again:
        new = {row[0] for row in rows}
        rows += [row for row in cur.execute(sql.claims.STARTED, params).fetchall() if row[0] not in new]
    if [row[0] for row in rows] != ids:
        place = {task_id: n for n, task_id in enumerate(ids)}
        rows.sort(key=lambda row: place[row[0]])
    return begins.started(rows)


GOES_ON = [int(each) for each in RunCondition if turn(each, [EdgeOutcome.SUCCEEDED]) is TaskState.READY]
"""The conditions of a dependant that runs once all it waits for has succeeded."""


def follow_if_running(cur: Any, node_id: int, ended: Finished, claim: Claim, *,
                      told: bool = True) -> tuple[list[tuple[Any, ...]], Started | None, bool]:  # fmt: skip
    """Record a plain success, and begin its only dependant on this node if that finds an opening here.

    ``claim``: the dependant, with the fence it then has. Returns the row of the success as :func:`finish_if_running`
    does (no children: they need not be told any more), what began, and whether few places are left.
    """
    row = cur.execute(
        sql.following.FOLLOW_AND_TELL if told else sql.following.FOLLOW,
        {
            "node": node_id, "id": ended.task_id, "fence": ended.fence, "started": ended.started_at,
            "finished": ended.finished_at, "result": ended.result, "worker": ended.worker, "next": claim[0],
            "next_fence": claim[1] - 1, "conditions": GOES_ON, "lead_ms": PROMOTE_LEAD_MS,
        },
    ).fetchone()  # fmt: skip
    if row is None:
        return [], None, False
    begun = begins.started([row[8:]]) if row[8] is not None else [None]
    return [row[:7]], begun[0], bool(row[7])


_FINAL = {Outcome.SUCCEEDED: TaskState.SUCCEEDED, Outcome.CANCELLED: TaskState.CANCELLED}


def finish_if_running(cur: Any, node_id: int, ended: Sequence[tuple[Finished, TaskState]]) -> list[tuple[Any, ...]]:
    """Record final attempts by fence; returns those accepted.

    Each as (task id, state, has children, mutex key, tenant id, workflow id, when).
    """
    return list(
        cur.execute(
            sql.finish.FINISH,
            {
                "node": node_id,
                "states": [int(state) for _, state in ended],
                "results": [f.result for f, _ in ended],
                "reasons": [ends.reason(f, state) for f, state in ended],
                **ends.columns([f for f, _ in ended]),
                "fences": [f.fence for f, _ in ended],
            },
        ).fetchall()
    )


def succeed_if_running(
    cur: Any, node_id: int, ended: Sequence[Finished], *, told: bool = True
) -> list[tuple[Any, ...]]:
    """As :func:`finish_if_running`, for plain successes of one worker, at half the cost."""
    statement = sql.finish.SUCCEED_AND_TELL if told else sql.finish.SUCCEED
    return fetch_named_rows(cur, statement, _succeeded(node_id, ended))


def _succeeded(node_id: int, ended: Sequence[Finished]) -> dict[str, Any]:
    return {
        "node": node_id, "worker": ended[0].worker,
        "results": array(["NULL" if f.result is None else copy_format.element(f.result) for f in ended]),
        "ids": array([f.task_id for f in ended]), "fences": array([f.fence for f in ended]),
        "started": moments([f.started_at for f in ended]), "finished": moments([f.finished_at for f in ended]),
    }  # fmt: skip


def go_on_if_running(cur: Any, node_id: int, ended: Sequence[Finished]) -> tuple[list[tuple[Any, ...]], list[Started]]:
    """As :func:`succeed_if_running` where nobody listens; and begin as many more where the node may go on with their lines.

    Returns the rows of what has ended, and what began.
    """
    rows = cur.execute(sql.following.GO_ON, _succeeded(node_id, ended)).fetchall()
    return [row[:7] for row in rows if row[0] is not None], begins.started([row[7:] for row in rows if row[0] is None])


def record(cur: Any, conf: SchedulerConf, node_id: int, ended: Sequence[Finished],
           rng: random.Random) -> list[tuple[Any, ...]]:  # fmt: skip
    """Record ended attempts: final ones at once, failed ones by the attempts they have left.

    Returns (task id, state, has children, mutex key, tenant id, workflow id, when) of those accepted; a late or
    repeated one is not among them.
    """
    paused: list[tuple[Any, ...]] = []
    if any(f.outcome in PAUSED for f in ended):
        paused, ended = _pause(cur, node_id, ended)
    final = [(f, _FINAL[f.outcome]) for f in ended if f.outcome in _FINAL]
    failed = [f for f in ended if f.outcome not in _FINAL]
    again: list[tuple[Finished, float]] = []
    if failed:
        more_final, again = ends.split_failed(cur, conf, node_id, failed, rng)
        final += more_final
    rows = finish_if_running(cur, node_id, final) if final else []
    if again:
        back = cur.execute(
            sql.finish.RETRY, {"node": node_id, "delays": [d for _, d in again], **ends.columns([f for f, _ in again])}
        ).fetchall()
        rows += [(task_id, state, False, *rest) for task_id, state, *rest in back]
    return rows + paused


def _pause(cur: Any, node_id: int, ended: Sequence[Finished]) -> tuple[list[tuple[Any, ...]], list[Finished]]:
    """Make paused tasks ready, their attempts unspent; returns their rows, and what is left to be recorded.

    Who waits for others by now is blocked instead, and who was cancelled meanwhile is cancelled. One that may run only
    once, and was ended without a checkpoint to go on from, has failed.
    """
    left = [f for f in ended if f.outcome not in PAUSED]
    asked = {f.task_id: f for f in ended if f.outcome in PAUSED}
    params = {"ids": list(asked), "fences": [f.fence for f in asked.values()], "node": node_id}
    back: list[Finished] = []
    for task_id, attempts, cancelled, declared in cur.execute(sql.preemption.LOCK_PAUSED, params).fetchall():
        finished = asked[task_id]
        if cancelled:
            left.append(replace(finished, outcome=Outcome.CANCELLED))
        elif not declared and finished.outcome is Outcome.YIELDED:
            left.append(replace(finished, outcome=Outcome.FAILED, error="it yielded, but declares no checkpoints"))
        elif attempts == 1 and not declared and finished.outcome is Outcome.PREEMPTED:
            error = f"{finished.error or 'it was ended'}; it may run only once"
            left.append(replace(finished, outcome=Outcome.WORKER_LOST, error=error))
        else:
            back.append(finished)
    if not back:
        return [], left
    params = {"node": node_id, "fences": [f.fence for f in back], **ends.columns(back)}
    rows = cur.execute(sql.preemption.PAUSE, params).fetchall()
    return [(task_id, state, False, *rest) for task_id, state, *rest in rows], left


def ask_if_running(cur: Any, conf: SchedulerConf, epoch: int, holder: str, asks: Sequence[Ask]) -> set[str]:
    """Note what is asked of running tasks under the leader's epoch, and their next places; returns those that run."""
    rows = cur.execute(
        sql.preemption.ASK,
        {
            "cell": conf.cell, "epoch": epoch, "holder": holder,
            "ids": [ask.task_id for ask in asks], "fences": [ask.fence for ask in asks],
            "outcomes": [int(ask.outcome) for ask in asks], "levels": [ask.level for ask in asks],
            "groups": [ask.rank[0] for ask in asks], "ranks": [ask.rank[1] for ask in asks],
            "lets": [",".join(sorted(ask.lets_by)[:MAX_LET_BY]) for ask in asks],
        },
    ).fetchall()  # fmt: skip
    return {row[0] for row in rows}


def hand_back(cur: Any, node_id: int, claims: Sequence[Claim], *, state: TaskState, actor: str, reason: str,
              alone: bool = False, elsewhere: bool = False) -> list[tuple[Any, ...]]:  # fmt: skip
    """Make claims in ``state`` (QUEUED or RUNNING) ready again; no attempt is spent.

    ``elsewhere``: another node is preferred from now on. Returns (task id, mutex key, tenant id, workflow id, when).
    """
    if not claims:
        return []
    return list(
        cur.execute(
            sql.claims.HAND_BACK,
            {
                "ids": [c[0] for c in claims], "fences": [c[1] for c in claims], "node": node_id, "alone": alone,
                "elsewhere": elsewhere,
                "states": [int(state)], "from_state": int(state), "actor": actor, "reason": reason,
            },
        ).fetchall()
    )  # fmt: skip


def return_queued(cur: Any, cell: str, *, expired_only: bool) -> int:
    """Make queued tasks ready again: all (Redis was emptied), or those whose claim has expired."""
    query = sql.claims.RETURN_EXPIRED if expired_only else sql.claims.RETURN_ALL_QUEUED
    reason = "its claim expired" if expired_only else "Redis was emptied"
    return int(cur.execute(query, {"cell": cell, "reason": reason}).rowcount)


_TOLD_UNRUN = {
    TaskState.FAILED: Event.FAILED | Event.DEAD_LETTERED,
    TaskState.CANCELLED: Event.CANCELLED,
    TaskState.EXPIRED: Event.EXPIRED,
    TaskState.SKIPPED: Event.SKIPPED,
    TaskState.SUCCEEDED: Event.SUCCEEDED,
}
"""What clients are told when a task ends that has not run."""
WAITING = (TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.READY, TaskState.QUEUED)


def end_if_waiting(cur: Any, ids: Sequence[str], final: TaskState, *, reason: str, actor: str,
                   states: Iterable[TaskState] = WAITING, hard: bool = False,
                   result: str | None = None) -> list[tuple[Any, ...]]:  # fmt: skip
    """End tasks that have not started; returns those it ended.

    ``hard``: of those that expire, whether they do by their ``expires_at``, and not by their latest start. ``result``:
    as JSON, of a map whose elements have succeeded.
    Each as (task id, has children, mutex key, tenant id, workflow id, reason, when).
    """
    if not ids:
        return []
    params = {
        "ids": list(ids),
        "states": [int(s) for s in states],
        "final": int(final),
        "reason": reason,
        "actor": actor,
        "hard": hard,
        "result": result,
        "events": int(_TOLD_UNRUN[final]),
    }
    return list(cur.execute(sql.finish.END_WAITING, params).fetchall())


def changed(row: Sequence[Any], final: TaskState, notice: Mapping[str, str] | None = None) -> Change:
    """What is told of a row that :func:`end_if_waiting` returned."""
    return row[0], int(final), row[3], row[4], None, notice, row[6]


def park(cur: Any, ids: Sequence[str]) -> int:
    """Park ready tasks whose mutex key is taken: they leave the line's head until it is free."""
    return int(cur.execute(sql.parking.PARK, (list(ids),)).rowcount) if ids else 0


def unpark(cur: Any, keys: Sequence[str]) -> int:
    """Release the first parked tasks of these mutex keys, as many as each key has room for."""
    return int(cur.execute(sql.parking.UNPARK, (list(keys), list(keys))).rowcount) if keys else 0


def park_for(cur: Any, whys: Mapping[str, int], *, actor: str, reason: str) -> int:
    """Park ready tasks, each for a rate limit (its id) or its paused handler (-1 less its id)."""
    if not whys:
        return 0
    params = {"ids": list(whys), "whys": list(whys.values()), "actor": actor, "reason": reason}
    return int(cur.execute(sql.parking.PARK_FOR, params).rowcount)


def park_impossible(cur: Any, ids: Sequence[str], reason: str) -> int:
    """Park ready tasks that no node can run, note since when, and tell listeners."""
    return int(cur.execute(sql.parking.PARK_IMPOSSIBLE, {"ids": list(ids), "reason": reason}).rowcount)


def unpark_limited(cur: Any, counts: Mapping[int, int]) -> int:
    """Release the first parked tasks of each line: limit -> how many."""
    params = {
        "limits": list(counts), "counts": list(counts.values()), "actor": "dispatcher",
        "reason": "its execution rate allows it",
    }  # fmt: skip
    return int(cur.execute(sql.parking.UNPARK_LIMITED, params).rowcount)


def unpark_these(cur: Any, ids: Sequence[str], *, actor: str, reason: str) -> int:
    """Release tasks that were parked for a rate, a paused handler, or because no node could run them."""
    if not ids:
        return 0
    return int(cur.execute(sql.parking.UNPARK_THESE, {"ids": list(ids), "actor": actor, "reason": reason}).rowcount)


def tell_late(cur: Any, ids: Sequence[str]) -> int:
    """Note that the latest start of waiting tasks has passed, once each, for those who listen for it."""
    return int(cur.execute(sql.due.TELL_LATE, (list(ids),)).rowcount) if ids else 0


def wake(cur: Any, limit: int) -> int:
    """Make scheduled tasks ready whose time has come."""
    return int(cur.execute(sql.due.WAKE, (limit,)).rowcount)


def promote(cur: Any, moves: Sequence[tuple[str, int]]) -> list[Change]:
    """Move ready tasks to the urgent line of their tenant and tier, and to its front what is late: (task id, line id)."""
    if not moves:
        return []
    rows = cur.execute(sql.due.PROMOTE, ([m[0] for m in moves], [m[1] for m in moves])).fetchall()
    return [(*row[:4], None, {"reason": row[4]}, row[5]) for row in rows]


NO_TURN = {
    TaskState.CANCELLED: "what it needed did not come",
    TaskState.SKIPPED: "a branch not taken: its condition did not hold",
}
"""How a task ends whose turn does not come, and why."""


def release(cur: Any, ended: Sequence[tuple[str, TaskState]], ended_too: list[Change] | None = None, *,
            claim_s: float = 0.0) -> Any:  # fmt: skip
    """Tell dependants that these tasks are final: make them ready, or end them where their condition fails.

    Idempotent: an edge is flipped once, and not for a task that runs again. Goes on down the graph for what it ends;
    that is added to ``ended_too``. ``claim_s``: those that find an opening are claimed for so many seconds. Returns the
    cursor of the rows of what became ready, as ``UNBLOCK`` gives them, or None.
    """
    ready: list[str] = []
    wave = list(ended)
    while wave:
        ids = [task_id for task_id, _ in wave]
        states = [int(state) for _, state in wave]
        outcomes = [int(edge_outcome(state)) for _, state in wave]
        rows, known = fetch_each(
            cur, (sql.dependencies.RELEASE, (ids, states, outcomes)), (sql.dependencies.EDGE_OUTCOMES, (ids,))
        )
        free = {task_id: RunCondition(condition) for task_id, pending, condition in rows if pending == 0}
        turns: dict[TaskState, list[str]] = {}
        for task_id, found in known:
            if task_id in free:
                turns.setdefault(turn(free[task_id], [EdgeOutcome(each) for each in found]), []).append(task_id)
        ready += turns.get(TaskState.READY, ())
        wave = []
        for final, reason in NO_TURN.items():
            gone = end_if_waiting(
                cur, turns.get(final, ()), final, reason=reason, actor="release", states=(TaskState.BLOCKED,)
            )
            if ended_too is not None:
                ended_too += [changed(row, final) for row in gone]
            wave += [(row[0], final) for row in gone if row[1]]
    if not ready:
        return None
    # Last: openings are locked behind all else, as by whoever stores a task.
    params = {"ids": sorted(ready), "lead_ms": PROMOTE_LEAD_MS, "claim_s": claim_s}
    return cur.execute(sql.dependencies.UNBLOCK, params)
