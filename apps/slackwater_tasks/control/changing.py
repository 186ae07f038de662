"""Changing tasks that are stored: edit, cancel, run again. Re-exported by ``services``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core import admission as checks
from scheduler_ext.core.errors import Conflict, InvalidInput, NotFound
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category, RunCondition, TaskState
from scheduler_ext.core.work import Changes, Started
from scheduler_ext.task.effects import AttemptReplaced
from scheduler_ext.task.references import MARK
from slackwater_tasks.control.settle import settle, undisturbed
from slackwater_tasks.field_kinds import seconds
from slackwater_tasks.ledger import active_policies, hints, reference_cache, transitions
from slackwater_tasks.models import Dependency, LiveTask, MutexScope, OnLate, Task
from slackwater_tasks.read.tasks import word
from slackwater_tasks.runtime import checkpoints, trace_context
from slackwater_tasks.spec import EDITABLE, TaskSpec, check_references, dump_payload, parse_fields
from slackwater_tasks.submission import admission, store
from slackwater_tasks.submission.store import LIVE_COLUMNS, Accepted


def _task(tenant_id: int, task_id: UUID) -> Task:
    # The tenant is named: another tenant's task is not found.
    task: Task | None = (
        Task.objects.unscoped().for_tenant(tenant_id).select_related("tenant__plan", "tier").filter(pk=task_id).first()
    )
    if task is None:
        raise NotFound(f"there is no task {task_id}")
    return task


def spec_of(task: Task) -> TaskSpec:
    """The stored task as a spec."""
    return TaskSpec(
        name=task.name, handler=task.handler, script=task.script_sha256, script_path=task.script_path, args=task.args,
        kwargs=task.kwargs, tier=task.tier.slug, category=Category(task.category), priority=task.priority,
        delay_tolerance_ms=task.delay_tolerance_ms, on_late=OnLate(task.on_late), cap_ms=task.cap_ms,
        total_attempts=task.total_attempts, retry=task.retry, start_at=task.start_at,
        condition=RunCondition(task.condition), mutex_key=task.mutex_key, mutex_limit=task.mutex_limit,
        mutex_scope=MutexScope(task.mutex_scope), rate_key=task.rate_key, depends_on=_parents(task),
        tags=tuple(task.tags), payload=dump_payload(task.args, task.kwargs, ""),
    )  # fmt: skip


def _names_of_parents(task: Task) -> set[str]:
    """What references in its arguments may name."""
    rows = Dependency.objects.filter(child_id=task.pk).values_list("parent_id", "parent__name")
    return {str(key) for row in rows for key in row if key}


def _parents(task: Task) -> tuple[str, ...]:
    """What it depends on, where its mutex key asks for that; else nothing, and no query."""
    if task.mutex_scope == MutexScope.BOTH:
        return ()
    rows = Dependency.objects.filter(child_id=task.pk).values_list("parent_id", flat=True)
    return tuple(str(parent) for parent in rows)


# -- cancel -----------------------------------------------------------------------------------------------------------
DESCENDANTS = """
WITH RECURSIVE down AS (
    SELECT child_id FROM slackwater_tasks_dependency WHERE parent_id = %s
    UNION SELECT d.child_id FROM slackwater_tasks_dependency d JOIN down ON d.parent_id = down.child_id)
SELECT child_id::text FROM down
"""
ASK_TO_END = """
UPDATE slackwater_tasks_livetask SET cancel_requested = true
WHERE task_id = ANY(%s::uuid[]) AND state = 5 AND NOT cancel_requested
RETURNING task_id, tenant_id, fence, node_id
"""


def cancel(
    tenant_id: int,
    task_id: UUID,
    *,
    actor: str = "",
    dependents: bool = False,
    reason: str = "cancelled on request",
) -> TaskState:
    """Cancel a task: at once when it waits; a running one is asked to end, then killed, and RUNNING is returned.

    ``dependents`` cancels all that depends on it too, whatever their conditions. ``Conflict`` when it is final.
    """
    task = _task(tenant_id, task_id)
    conf = reference_cache.scheduler_conf()
    with transaction.atomic(), connection.cursor() as cur:
        ids = [str(task_id)]
        if dependents:
            cur.execute(DESCENDANTS, (task_id,))
            ids += [row[0] for row in cur.fetchall()]
        gone = transitions.end_if_waiting(cur, ids, TaskState.CANCELLED, reason=reason, actor=actor)
        cur.execute(ASK_TO_END, (ids,))
        asked = cur.fetchall()
        for asked_id, owner, fence, _ in asked:
            store.write_event(cur, owner, asked_id, TaskState.RUNNING, actor=actor, reason="asked to end", fence=fence)
        ended = {row[0] for row in gone}
        changes: Changes = [(row[0], int(TaskState.CANCELLED), row[3], row[4]) for row in gone]
        transitions.release(cur, conf, [(row[0], TaskState.CANCELLED) for row in gone if row[1]], changes)
        transitions.unpark(cur, [row[2] for row in gone if row[2]])
        if str(task_id) not in ended and task_id not in {row[0] for row in asked}:
            state = _state_now(task_id)
            if state is not TaskState.RUNNING:
                raise Conflict(f"the task has ended already: {word(state)}", state=word(state))
        transaction.on_commit(partial(after_cancel, task.tenant.cell, changes, {row[3] for row in asked}))
    return TaskState.CANCELLED if str(task_id) in ended else TaskState.RUNNING


def cancel_some(cur: Any, ids: list[str], actor: str, reason: str) -> tuple[Changes, list[tuple[UUID, int]]]:
    """End those of the tasks that wait and ask the running ones to end.

    Returns the changes, the dependants' included, and the running ones with their nodes. What has ended stays.
    """
    if not ids:
        return [], []
    gone = transitions.end_if_waiting(cur, ids, TaskState.CANCELLED, reason=reason, actor=actor)
    cur.execute(ASK_TO_END, (ids,))
    asked = cur.fetchall()
    for task_id, owner, fence, _ in asked:
        store.write_event(cur, owner, task_id, TaskState.RUNNING, actor=actor, reason=reason, fence=fence)
    changes: Changes = [(row[0], int(TaskState.CANCELLED), row[3], row[4]) for row in gone]
    ended = [(row[0], TaskState.CANCELLED) for row in gone if row[1]]
    transitions.release(cur, reference_cache.scheduler_conf(), ended, changes)
    transitions.unpark(cur, [row[2] for row in gone if row[2]])
    return changes, [(row[0], row[3]) for row in asked]


def after_cancel(cell: str, changes: Changes, nodes: set[int]) -> None:
    hints.tell_changes(changes)
    for node_id in nodes:
        hints.tell_node(node_id)
    hints.wake_dispatcher(cell)


def _state_now(task_id: UUID) -> TaskState:
    with connection.cursor() as cur:
        cur.execute(
            "SELECT coalesce(l.state, t.state) FROM slackwater_tasks_task t "
            "LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id WHERE t.id = %s",
            (task_id,),
        )
        return TaskState(cur.fetchone()[0])


# -- run again --------------------------------------------------------------------------------------------------------
REVIVE = """
UPDATE slackwater_tasks_task SET state = NULL, finished_at = NULL, result = NULL, error = '', reason = '', release_pending = false
WHERE id = %s AND state = %s RETURNING attempts_used
"""
LAST_FENCE = """
SELECT greatest((SELECT coalesce(max(fence), 0) FROM slackwater_tasks_attempt WHERE task_id = %(id)s),
                (SELECT coalesce(max(fence), 0) FROM slackwater_tasks_taskevent WHERE task_id = %(id)s))
"""


def retry(tenant_id: int, task_id: UUID, *, actor: str = "", reason: str = "run again on request") -> None:
    """Run a failed, cancelled or expired task again with its attempts anew; its dead letter goes.

    It counts against the tenant's limits like a new one. ``Conflict`` when it is waiting, running or succeeded.
    """
    task = _task(tenant_id, task_id)
    if task.state is None or task.state == TaskState.SUCCEEDED:
        raise Conflict(
            f"only a failed, cancelled or expired task can run again; it is {_state_now(task_id).name.lower()}"
        )
    undisturbed(partial(_run_again, task, TaskState(task.state), actor, reason))


def _run_again(task: Task, before: TaskState, actor: str, reason: str) -> None:
    conf, at, tenant_id, task_id = reference_cache.scheduler_conf(), reference_cache.now(), task.tenant_id, task.pk
    changes: Changes = []
    with connection.cursor() as cur:
        settle(cur, [task_id], changes)
        cur.execute(REVIVE, (task_id, before))
        row = cur.fetchone()
        if row is None:
            raise Conflict("its state has just changed")
        cur.execute("SELECT count(*) FROM slackwater_tasks_dependency WHERE child_id = %s AND outcome = 0", (task_id,))
        pending = cur.fetchone()[0]
        accepted = accepted_again(task, replace(spec_of(task), start_at=None), pending=pending)
        live = dict(zip(LIVE_COLUMNS, store.live_row(
            tenant_id, accepted, at, task.submitted_at, active_policies.current(conf, task.tenant.cell), conf.promote_lead_s,
        ), strict=True))  # fmt: skip
        cur.execute(LAST_FENCE, {"id": task_id})
        live |= {
            "fence": cur.fetchone()[0],
            "attempts": row[0],
            "total_attempts": row[0] + task.total_attempts,
        }
        cur.execute(
            "SELECT EXISTS (SELECT 1 FROM slackwater_tasks_dependency WHERE parent_id = %s AND outcome = 0)", (task_id,)
        )
        live["has_children"] = cur.fetchone()[0]
        store.insert(cur, "slackwater_tasks_livetask", LIVE_COLUMNS, [tuple(live[name] for name in LIVE_COLUMNS)])
        cur.execute("DELETE FROM slackwater_tasks_deadletter WHERE task_id = %s", (task_id,))
        checkpoints.run_again(cur, [task_id], anew=[] if before is TaskState.FAILED else [task_id])
        trace_context.run_again(cur, [task_id])
        store.write_event(
            cur,
            tenant_id,
            task_id,
            TaskState(live["state"]),
            actor=actor,
            reason=reason,
            before=before,
            fence=live["fence"],
        )
        urgent = int(task.category == Category.URGENT)
        store.count_in(cur, task.tenant, task.tenant.plan, n=1, urgent=urgent, charged=1)
        workflow = str(task.workflow_id) if task.workflow_id else None
        changes.append((str(task_id), int(live["state"]), tenant_id, workflow))
        transaction.on_commit(partial(after_cancel, task.tenant.cell, changes, set()))


def accepted_again(task: Task, spec: TaskSpec, *, pending: int) -> Accepted:
    limits = admission.plan_limits(task.tenant.plan)
    tier = admission.resolve_tier(task.tenant, limits, spec.tier, "tier")
    return Accepted(
        id=task.pk,
        spec=spec,
        payload=spec.payload,
        tier=tier,
        line_id=reference_cache.line_id(task.tenant_id, int(spec.category), tier.id),
        handler_id=reference_cache.handler_id(spec.handler) if spec.handler else None,
        tolerance_ms=admission.default_tolerance(task.tenant.plan, spec),
        cap_ms=spec.cap_ms or tier.default_cap_ms,
        pending=pending,
    )


# -- edit -------------------------------------------------------------------------------------------------------------
DURATIONS = {"delay_tolerance": "delay_tolerance_ms", "execution_cap": "cap_ms"}
WAITING = (TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.READY)
LIVE_EDIT = """
UPDATE slackwater_tasks_livetask SET line_id = %(line_id)s, state = %(state)s, rank_group = %(rank_group)s, rank = %(rank)s,
    priority = %(priority)s, total_attempts = %(total_attempts)s, mutex_key = %(mutex_key)s,
    mutex_limit = %(mutex_limit)s, tolerance_ms = %(tolerance_ms)s, on_late = %(on_late)s,
    rate_key = %(rate_key)s, parked = NULL, not_before = %(not_before)s, latest_start = %(latest_start)s,
    promote_at = %(promote_at)s
WHERE task_id = %(task_id)s
"""


def edit(tenant_id: int, task_id: UUID, changes: Mapping[str, Any], *, actor: str = "") -> None:
    """Change a waiting task; the old and new values stand in its history. ``Conflict`` once it is claimed or final."""
    values = parse_fields(changes)
    for name in changes:
        if name not in EDITABLE:
            raise InvalidInput("cannot be changed after submission", field=name)
    if not values:
        raise InvalidInput("give at least one field to change")
    with transaction.atomic():
        live = LiveTask.objects.unscoped().for_tenant(tenant_id).select_for_update().filter(pk=task_id).first()
        task = _task(tenant_id, task_id)
        if live is None or TaskState(live.state) not in WAITING:
            state = TaskState(live.state) if live is not None else TaskState(task.state or 0)
            raise Conflict(f"only a waiting task can be changed; it is {word(state)}", state=word(state))
        old = spec_of(task)
        new = replace(old, **values)
        if "args" in values or "kwargs" in values:
            new = replace(new, payload=dump_payload(new.args, new.kwargs, ""))
            if MARK in new.payload[0] or MARK in new.payload[1]:
                check_references({"args": new.args, "kwargs": new.kwargs}, _names_of_parents(task))
        _write_edit(task, live, old, new, actor, list(changes))
        transaction.on_commit(partial(hints.wake_dispatcher, task.tenant.cell))


REWRITE = named("""
UPDATE slackwater_tasks_task t SET args = %s::jsonb, kwargs = %s::jsonb FROM slackwater_tasks_livetask l
WHERE t.id = %s AND l.task_id = t.id AND l.fence = %s AND l.state = :state.RUNNING
""")


def rewrite(running: Started, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Give a running task other arguments for its next attempt; ``AttemptReplaced`` when another runs by now."""
    values = parse_fields({"args": args, "kwargs": kwargs}, "retry")
    payload = dump_payload(values["args"], values["kwargs"], "retry")
    with transaction.atomic(), connection.cursor() as cur:
        task = _task(running.tenant_id, UUID(running.task_id))
        limits = admission.plan_limits(task.tenant.plan)
        checks.check_payload(limits, sum(len(text.encode()) for text in payload), field="retry.args")
        if MARK in payload[0] or MARK in payload[1]:
            check_references(values, _names_of_parents(task), "retry")
        cur.execute(REWRITE, (*payload, running.task_id, running.fence))
        if cur.rowcount != 1:
            raise AttemptReplaced(f"attempt {running.attempt} of the task {running.task_id} was replaced by another")
        store.write_event(cur, running.tenant_id, task.pk, TaskState.RUNNING, actor=f"task:{running.task_id}",
                          reason="its retry changed its arguments", fence=running.fence)  # fmt: skip


def _write_edit(task: Task, live: LiveTask, old: TaskSpec, new: TaskSpec, actor: str, names: list[str]) -> None:
    conf = reference_cache.scheduler_conf()
    limits = admission.plan_limits(task.tenant.plan)
    if new.cap_ms is not None:
        checks.check_cap(limits, new.cap_ms, field="execution_cap")
    checks.check_payload(limits, sum(len(text.encode()) for text in new.payload), field="args")
    accepted = accepted_again(task, new, pending=live.pending)
    row = dict(zip(LIVE_COLUMNS, store.live_row(
        task.tenant_id, accepted, task.submitted_at, task.submitted_at, active_policies.current(conf, task.tenant.cell),
        conf.promote_lead_s,
    ), strict=True))  # fmt: skip
    if new.start_at is not None and new.start_at <= reference_cache.now() and row["state"] == TaskState.SCHEDULED:
        row["state"], row["not_before"] = int(TaskState.READY), None
    # Run again it has those anew that it had used; and the one it waits for stays.
    total = live.total_attempts - old.total_attempts + new.total_attempts
    row["total_attempts"] = max(total, live.attempts + 1)
    _keep_latest_start(row, live, new, moved="start_at" in names, lead_s=conf.promote_lead_s)
    before, after = TaskState(live.state), TaskState(row["state"])
    if before is TaskState.SCHEDULED and live.attempts and "start_at" not in names:
        row["state"], row["not_before"], after = int(before), live.not_before, before  # a back-off goes on
    with connection.cursor() as cur:
        cur.execute(LIVE_EDIT, row)
        effective = replace(new, delay_tolerance_ms=accepted.tolerance_ms, cap_ms=accepted.cap_ms)
        detail = {name: _shown(old, effective, name) for name in names}
        store.write_event(cur, task.tenant_id, task.pk, after, before=before, actor=actor, reason="edited",
                            fence=live.fence, detail=detail)  # fmt: skip
        moved = (new.category is Category.URGENT) - (old.category is Category.URGENT)
        if moved:
            store.count_in(cur, task.tenant, task.tenant.plan, n=0, urgent=moved, charged=0)
    _save_wide(task, accepted)


def _keep_latest_start(row: dict[str, Any], live: LiveTask, new: TaskSpec, *, moved: bool, lead_s: float) -> None:
    """An edit does not move the moment from which the task's delay counts, unless it moves the start itself.

    That moment need not be its submission: what it needed came later, it was run again, or its line was paused.
    """
    if row["latest_start"] is None or (live.latest_start is None and not moved):
        return
    since = reference_cache.now()
    if moved:
        since = max(since, new.start_at or since)
    elif live.latest_start is not None:
        since = live.latest_start - timedelta(milliseconds=live.tolerance_ms)
    row["latest_start"] = since + timedelta(milliseconds=row["tolerance_ms"])
    if row["promote_at"] is not None:
        lead = timedelta(milliseconds=min(row["tolerance_ms"], int(lead_s * 1000)))
        row["promote_at"] = row["latest_start"] - lead


def _shown(old: TaskSpec, new: TaskSpec, name: str) -> list[Any]:
    """The old and the new value of a field, as the API shows them."""
    if name in DURATIONS:
        return [seconds(getattr(spec, DURATIONS[name])) for spec in (old, new)]
    pair = [getattr(old, name), getattr(new, name)]
    return [v.isoformat() if hasattr(v, "isoformat") else v.name.lower() if hasattr(v, "name") else v for v in pair]


def _save_wide(task: Task, accepted: Accepted) -> None:
    spec = accepted.spec
    task.name, task.args, task.kwargs = spec.name, spec.args, spec.kwargs
    task.category, task.tier_id, task.priority = int(spec.category), accepted.tier.id, spec.priority
    task.delay_tolerance_ms, task.on_late = accepted.tolerance_ms, int(spec.on_late)
    task.cap_ms, task.total_attempts, task.retry = accepted.cap_ms, spec.total_attempts, spec.retry
    task.mutex_key, task.mutex_limit, task.tags = spec.mutex_key, spec.mutex_limit, list(spec.tags)
    task.mutex_scope, task.rate_key = int(spec.mutex_scope), spec.rate_key
    task.start_at = spec.start_at
    task.save(update_fields=[
        "name", "args", "kwargs", "category", "tier_id", "priority", "delay_tolerance_ms", "on_late", "cap_ms",
        "total_attempts", "retry", "mutex_key", "mutex_limit", "mutex_scope", "rate_key", "tags", "start_at",
    ])  # fmt: skip
