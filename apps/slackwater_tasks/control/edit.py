"""Edits tasks that wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.conf import PROMOTE_LEAD_MS
from scheduler_ext.core.errors import Conflict, DoesNotFit, InvalidInput
from scheduler_ext.core.precedence import Weight
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import UNCLAIMED, Category, TaskState
from scheduler_ext.core.work import Started
from scheduler_ext.task.celery_options import MOST_ATTEMPTS
from scheduler_ext.task.effects import AttemptReplaced
from scheduler_ext.task.references import MARK
from slackwater_conf.database import in_ledger
from slackwater_tasks.control import stored_task
from slackwater_tasks.field_kinds import Seconds, json_type, utc_text
from slackwater_tasks.ledger import active_policies, events, hints, precedence, reference_cache, rows, transitions
from slackwater_tasks.ledger.connection import prepared_cursor
from slackwater_tasks.ledger.rows import Accepted
from slackwater_tasks.models import LiveTask, MapNode, Task
from slackwater_tasks.read.tasks import word
from slackwater_tasks.spec import (
    COLUMNS,
    EDITABLE,
    FIELDS,
    TaskSpec,
    check_references,
    check_times,
    dump_payload,
    parse_fields,
)
from slackwater_tasks.submission import admission, limits

REWRITE = named("""
UPDATE slackwater_tasks_task t SET args = %s::jsonb, kwargs = %s::jsonb FROM slackwater_tasks_livetask l
WHERE t.id = %s AND l.task_id = t.id AND l.fence = %s AND l.state = :state.RUNNING
""")
ALLOW = named("""
WITH live AS (
    UPDATE slackwater_tasks_livetask l SET total_attempts = greatest(l.total_attempts, t.attempts_used + %s)
    FROM slackwater_tasks_task t
    WHERE t.id = l.task_id AND l.task_id = %s AND l.fence = %s AND l.state = :state.RUNNING
    RETURNING l.task_id, l.total_attempts - t.attempts_used AS total)
UPDATE slackwater_tasks_task t SET total_attempts = live.total FROM live WHERE t.id = live.task_id
""")


@in_ledger
def edit(tenant_id: int, task_id: UUID, changes: Mapping[str, Any], *, actor: str = "") -> None:
    """Change a waiting task; its history keeps old and new values. ``Conflict`` once it is claimed or final."""
    values = parse_fields(changes)
    for name in changes:
        if name not in EDITABLE:
            raise InvalidInput("cannot be changed after submission", field=name)
    if not values:
        raise InvalidInput("give at least one field to change")
    check_times(values)
    if times := _from_now(values):
        values |= times
        changes = {name.replace("_in_s", "_at"): value for name, value in changes.items()}
    with transaction.atomic():
        live = LiveTask.objects.unscoped().for_tenant(tenant_id).select_for_update().filter(pk=task_id).first()
        task = stored_task.find(tenant_id, task_id)
        if live is None or TaskState(live.state) not in UNCLAIMED:
            state = TaskState(live.state) if live is not None else TaskState(task.state or 0)
            raise Conflict(f"only a waiting task can be changed; it is {word(state)}", state=word(state))
        old = stored_task.spec_of(task)
        new = _with(task, old, values)
        _write_edit(task, live, old, new, actor, list(changes))
        transaction.on_commit(partial(hints.wake_dispatcher, task.tenant.cell))


def _with(task: Task, old: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:
    """The specification with other values; new arguments are checked as in a submission."""
    new = replace(old, **values)
    if "args" in values or "kwargs" in values:
        new = replace(new, payload=dump_payload(new.args, new.kwargs, ""))
        if MARK in new.payload[0] or MARK in new.payload[1]:
            check_references({"args": new.args, "kwargs": new.kwargs}, stored_task.names_of_parents(task))
        if new.handler and (arguments := reference_cache.arguments(new.handler)) is not None:
            mapped = MapNode._plain.filter(pk=task.pk).values_list("given", flat=True).first()
            admission.check_arguments(new.handler, arguments, new.payload, mapped=mapped)
    return new


def merged(old: TaskSpec, changes: Any, known: Collection[str]) -> dict[str, Any]:
    """The values that a merge patch (RFC 7396) of ``known`` fields changes; ``InvalidInput`` names the field."""
    if not isinstance(changes, Mapping):
        raise InvalidInput(f"must be an object, not {json_type(changes)}")
    for name in changes:
        if name in FIELDS and name not in known:
            raise InvalidInput("cannot be changed here", field=name)
    patches = {name: changes[name] for name in IN_PLACE_OF_NULL if isinstance(changes.get(name), Mapping)}
    values = parse_fields({**changes, **{name: _without_nulls(name, patch) for name, patch in patches.items()}})
    for name, patch in patches.items():
        kind, attribute = FIELDS[name].kind, FIELDS[name].attribute
        try:
            values[attribute] = kind.check(_patched(getattr(old, attribute), patch), name)
        except InvalidInput as fault:  # each is well formed: what both make together is not
            raise DoesNotFit(fault.message, field=fault.field) from None
    return values


IN_PLACE_OF_NULL: Final = {"kwargs": None, "metadata": "", "retry": 1}
"""The fields that are merged, and a value that each of their members may have."""


def _without_nulls(name: str, patch: Mapping[str, Any]) -> dict[str, Any]:
    """A patch as the whole value of its field, to check it by: with something in place of each null."""
    return {each: IN_PLACE_OF_NULL[name] if value is None else value for each, value in patch.items()}


def _patched(was: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    found = dict(was) if isinstance(was, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _patched(found.get(name), value)
    return found


RUNS_AT_ONCE: Final = EDITABLE - {"start_at", "start_in_s", "expires_at", "expires_in_s"}
"""The fields that can be changed of a task that is to run again."""


def edit_ended(task: Task, changes: Any, *, actor: str) -> None:
    """Change a task that has ended and is about to run again, in the caller's transaction."""
    old = stored_task.spec_of(task)
    values = merged(old, changes, RUNS_AT_ONCE)
    new = _with(task, old, values)
    accepted = stored_task.accepted_again(task, new, pending=0)
    _check_plan(task, new)
    effective = replace(new, delay_tolerance_ms=accepted.tolerance_ms, cap_ms=accepted.cap_ms)
    detail = {name: _shown(old, effective, name) for name in changes}
    state = TaskState(task.state or 0)
    event = events.row(task.tenant_id, task.pk, state, before=state, actor=actor, reason="edited", detail=detail)
    with connection.cursor() as cur:
        events.write(cur, [event])
    _save_wide(task, accepted)


def _check_plan(task: Task, new: TaskSpec) -> None:
    if new.cap_ms is not None:
        limits.check_cap(task.tenant.plan, new.cap_ms, field="execution_cap_s")
    limits.check_category(task.tenant.plan, new.category)
    limits.check_payload(task.tenant.plan, sum(len(text.encode()) for text in new.payload), field="args")


def _from_now(values: dict[str, Any]) -> dict[str, Any]:
    """Take the moments given as seconds from now out of ``values``, and return them."""
    given = {name: values.pop(f"{name}_in_ms", None) for name in ("start", "expires")}
    now = reference_cache.now()
    return {f"{name}_at": now + timedelta(milliseconds=ms) for name, ms in given.items() if ms is not None}


def rewrite(running: Started, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Give a running task other arguments for its next attempt; ``AttemptReplaced`` if another one runs by now."""
    values = parse_fields({"args": args, "kwargs": kwargs}, "retry")
    payload = dump_payload(values["args"], values["kwargs"], "retry")
    with transaction.atomic(), connection.cursor() as cur:
        task = stored_task.find(running.tenant_id, UUID(running.task_id))
        limits.check_payload(task.tenant.plan, sum(len(text.encode()) for text in payload), field="retry.args")
        if MARK in payload[0] or MARK in payload[1]:
            check_references(values, stored_task.names_of_parents(task), "retry")
        cur.execute(REWRITE, (*payload, running.task_id, running.fence))
        if cur.rowcount != 1:
            raise AttemptReplaced(f"attempt {running.attempt} of the task {running.task_id} was replaced by another")
        reason = "its retry changed its arguments"
        events.write(cur, [events.row(running.tenant_id, task.pk, TaskState.RUNNING, actor=f"task:{running.task_id}",
                                      reason=reason, fence=running.fence)])  # fmt: skip


def allow(running: Started, attempts: int) -> None:
    """Allow a running task at least so many attempts in all."""
    with connection.cursor() as cur:
        cur.execute(ALLOW, (min(attempts, MOST_ATTEMPTS), running.task_id, running.fence))


def _write_edit(task: Task, live: LiveTask, old: TaskSpec, new: TaskSpec, actor: str, names: list[str]) -> None:
    tenant = task.tenant
    _check_plan(task, new)
    accepted = stored_task.accepted_again(task, new, pending=live.pending)
    chosen, at = active_policies.current(tenant.cell), task.submitted_at
    accepted.weight = Weight(live.path_us, live.work_us or 0) if live.path_us is not None else None
    row = rows.live_row(tenant.pk, accepted, at, at, chosen)._asdict()
    if new.start_at is not None and new.start_at <= reference_cache.now() and row["state"] == TaskState.SCHEDULED:
        row["state"], row["not_before"] = int(TaskState.READY), None
    # Run again it has those anew that it had used; and the one it waits for stays.
    total = live.total_attempts - old.total_attempts + new.total_attempts
    row["total_attempts"] = max(total, live.attempts + 1)
    _keep_latest_start(row, live, new, moved="start_at" in names)
    if live.expires_at is None and "expires_at" not in names:
        row["expires_at"] = None  # it has started once, or runs again
    before, after = TaskState(live.state), TaskState(row["state"])
    if before is TaskState.SCHEDULED and live.attempts and "start_at" not in names:
        row["state"], row["not_before"], after = int(before), live.not_before, before  # a back-off goes on
    effective = replace(new, delay_tolerance_ms=accepted.tolerance_ms, cap_ms=accepted.cap_ms)
    detail = {name: _shown(old, effective, name) for name in names}
    event = events.row(
        tenant.pk, task.pk, after, before=before, actor=actor, reason="edited", fence=live.fence, detail=detail
    )
    with connection.cursor() as cur:
        if not transitions.edit_if_waiting(cur, row):
            raise Conflict("the state of the task has just changed; try again")
        events.write(cur, [event])
        _save_wide(task, accepted)
        if {"priority", "category", "tier"} & set(names):
            precedence.press(cur, chosen, [task.pk], itself=live.has_children)
    moved = (new.category is Category.URGENT) - (old.category is Category.URGENT)
    if moved:
        with prepared_cursor() as prepared:
            limits.count_in(prepared, tenant, limits.count_of(tenant, n=0, urgent=moved, charged=0))


def _keep_latest_start(row: dict[str, Any], live: LiveTask, new: TaskSpec, *, moved: bool) -> None:
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
        lead = timedelta(milliseconds=min(row["tolerance_ms"], PROMOTE_LEAD_MS))
        row["promote_at"] = row["latest_start"] - lead


def _shown(old: TaskSpec, new: TaskSpec, name: str) -> list[Any]:
    """The old and the new value of a field, as the API shows them."""
    field = FIELDS[name]
    pair = [getattr(spec, field.attribute) for spec in (old, new)]
    if isinstance(field.kind, Seconds):
        return [field.kind.shown(value) for value in pair]
    return [utc_text(v) if isinstance(v, datetime) else v.name.lower() if hasattr(v, "name") else v for v in pair]


def _save_wide(task: Task, accepted: Accepted) -> None:
    spec = accepted.spec
    edited = [field for field in COLUMNS.values() if field.editable]
    values = {field.column: field.kind.stored(getattr(spec, field.attribute)) for field in edited}
    values |= {"tier_id": accepted.tier.id, "delay_tolerance_ms": accepted.tolerance_ms, "cap_ms": accepted.cap_ms}
    Task.objects.unscoped().filter(pk=task.pk).update(**values)  # found by its tenant
