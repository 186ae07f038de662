"""From firings to tasks: overlap with what still runs, and submission by tenant, in the caller's transaction."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction

from scheduler_ext.core.errors import Conflict, NotFound, SlackwaterError
from scheduler_ext.core.states import TaskState
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_schedules.occurrences import Due
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.workflows import cancel_workflow
from slackwater_tasks.field_kinds import utc_text
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.models import LiveTask
from slackwater_tasks.submission import many_tenants, templates
from slackwater_tasks.submission import service as tasks
from slackwater_tasks.submission.store import Wish
from slackwater_tenants.models import Tenant

log = logging.getLogger(__name__)

Outcome = ScheduleFire.Outcome
Overlap = Schedule.Overlap
DEFAULT_CATEGORY: Final = "periodic"
OPEN_WORKFLOWS: Final = """
SELECT s.id, f.workflow_id FROM unnest(%s::uuid[]) AS s(id) CROSS JOIN LATERAL (
    SELECT workflow_id, fire_at FROM slackwater_schedules_schedulefire
    WHERE schedule_id = s.id AND workflow_id IS NOT NULL ORDER BY fire_at DESC LIMIT 20) f
WHERE EXISTS (SELECT 1 FROM slackwater_tasks_task t WHERE t.workflow_id = f.workflow_id AND t.state IS NULL)
ORDER BY f.fire_at
"""
# These tasks; and of these workflows what has not ended, less what something that has not ended there waits for.
LAST_TASKS: Final = """
SELECT t.id::text FROM slackwater_tasks_task t WHERE t.id = ANY(%(ids)s::uuid[])
UNION ALL
SELECT t.id::text FROM slackwater_tasks_task t WHERE t.workflow_id = ANY(%(ids)s::uuid[]) AND t.state IS NULL
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_dependency d JOIN slackwater_tasks_task c ON c.id = d.child_id
                    WHERE d.parent_id = t.id AND c.state IS NULL AND c.workflow_id = t.workflow_id)
"""
LATEST_TASKS: Final = """
SELECT s.id, f.task_id FROM unnest(%s::uuid[]) AS s(id) CROSS JOIN LATERAL (
    SELECT task_id, fire_at FROM slackwater_schedules_schedulefire WHERE schedule_id = s.id AND task_id IS NOT NULL
    ORDER BY fire_at DESC LIMIT 20) f ORDER BY f.fire_at
"""


@dataclass(slots=True, kw_only=True)
class Firing:
    """A firing on its way to its row."""

    schedule: Schedule
    due: Due
    outcome: Outcome = Outcome.MISSED
    task_id: UUID | None = None
    workflow_id: UUID | None = None
    error: str = ""
    cause: Exception | None = None
    waits_for: list[str] = field(default_factory=list)
    """Ids of the tasks, or of the workflows, whose end it waits for."""
    by: str = ""
    """Who asked for it, where it is not the schedule itself."""

    def fail(self, error: Exception) -> None:
        """Record why it could not be submitted."""
        self.outcome, self.error, self.cause = Outcome.FAILED, str(error).replace("\x00", "")[:500], error

    @property
    def actor(self) -> str:
        """The actor's name in a task's history."""
        return self.by or actor_of(self.schedule)


def actor_of(schedule: Schedule) -> str:
    """The actor's name in a task's history."""
    return f"schedule:{schedule.name}"


def written(moment: datetime) -> str:
    """Formats a moment as tasks see it."""
    return utc_text(moment)


def build_task(schedule: Schedule, fire_at: datetime) -> dict[str, Any]:
    """Makes the task of a firing: the template with its name, category and placeholders filled in."""
    return _filled({"name": schedule.name, **schedule.task}, schedule, fire_at)


def build_workflow(schedule: Schedule, fire_at: datetime, waits_for: Sequence[str] = ()) -> dict[str, Any]:
    """Makes the workflow of a firing; its first tasks wait for the end of the tasks ``waits_for``."""
    template = schedule.workflow or {}
    if "template" in template:
        known = {"$fire_at": written(fire_at), "$schedule": schedule.name}
        use = {"name": schedule.name, **_fill({k: v for k, v in template.items() if k != "template"}, known)}
        template = templates.fill(schedule.tenant_id, template["template"], use)
    items = [_filled(task, schedule, fire_at) for task in template.get("tasks", ())]
    for item in items:
        if waits_for and not item.get("depends_on"):
            item |= {"depends_on": list(waits_for), "condition": "all_done"}
    return {"name": schedule.name, **template, "tasks": items}


def _filled(item: dict[str, Any], schedule: Schedule, fire_at: datetime) -> dict[str, Any]:
    item = {"category": DEFAULT_CATEGORY, **item}
    known = {"$fire_at": written(fire_at), "$schedule": schedule.name}
    for name in ("args", "kwargs"):
        if name in item:
            item[name] = _fill(item[name], known)
    return item


def _fill(value: Any, known: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return known.get(value, value)
    if isinstance(value, list):
        return [_fill(entry, known) for entry in value]
    if isinstance(value, dict):
        return {name: _fill(entry, known) for name, entry in value.items()}
    return value


def submit_all(firings: Sequence[Firing]) -> None:
    """Submit the firings that run; each gets its task, or the reason why it has none.

    Tenants are taken in the order of their ids, because each submission locks its tenant's counters until the commit:
    two beats can so not wait for each other in a ring.
    """
    ordered = sorted(firings, key=lambda firing: firing.schedule.tenant_id)
    tenants = Tenant.objects.select_related("plan").in_bulk({f.schedule.tenant_id for f in ordered})
    open_tasks = find_open_tasks({f.schedule.pk for f in ordered if f.schedule.overlap != Overlap.ALLOW})
    reference_cache.read_tiers(tenants)
    groups = [
        (tenants[tenant_id], _without_superseded(list(group)))
        for tenant_id, group in groupby(ordered, key=lambda firing: firing.schedule.tenant_id)
    ]
    # Neighbours that need nothing special go together; the order of the tenants stays as it is.
    for plain, run in groupby(groups, key=lambda group: _is_plain(group[1], open_tasks)):
        some = list(run)
        for tenant, left in _submit_together(some) if plain and len(some) > 1 else some:
            _submit_waves(tenant, left, open_tasks)


Group = tuple[Tenant, list[Firing]]
"""A tenant's firings."""


def _is_plain(firings: Sequence[Firing], open_tasks: Mapping[UUID, list[str]]) -> bool:
    """Whether each firing is one task, and none depends on another task of its schedule."""
    if any(firing.schedule.workflow for firing in firings):
        return False
    apart = [firing.schedule.pk for firing in firings if firing.schedule.overlap != Overlap.ALLOW]
    return len(set(apart)) == len(apart) and not any(open_tasks.get(schedule) for schedule in apart)


def _submit_together(groups: Sequence[Group]) -> list[Group]:
    """Submit the firings of many tenants at once; returns those of the tenants that have to go by themselves."""
    try:
        with transaction.atomic():
            wishes = [
                Wish(
                    tenant=tenant,
                    items=[_item(firing) for firing in firings],
                    actors=[firing.actor for firing in firings],
                )
                for tenant, firings in groups
            ]
            answers = many_tenants.submit(wishes)
    except (OperationalError, InterfaceError):
        raise  # the database is at fault, not a firing: the batch is tried again
    except Exception:
        # Whatever a template brings about is found where it goes by itself.
        log.info("the firings of %s tenants go one tenant at a time", len(groups), exc_info=True)
        return list(groups)
    left: list[Group] = []
    for group, ids in zip(groups, answers, strict=True):
        if ids is None:
            left.append(group)
        else:
            _submitted(group[1], ids)
    return left


def _submitted(firings: Sequence[Firing], ids: Sequence[UUID]) -> None:
    for firing, found in zip(firings, ids, strict=True):
        firing.outcome = Outcome.SUBMITTED
        if firing.schedule.workflow:
            firing.workflow_id = found
        else:
            firing.task_id = found


def _submit_waves(tenant: Tenant, firings: list[Firing], open_tasks: defaultdict[UUID, list[str]]) -> None:
    """One schedule's firings can depend on one another: the first of each goes first, then the second of each."""
    left = firings
    while left:
        wave, left = _next_wave(left)
        ready = [f for f in wave if _settle_overlap(f, open_tasks[f.schedule.pk])]
        _submit(tenant, ready)
        for firing in ready:
            if found := firing.task_id or firing.workflow_id:
                open_tasks[firing.schedule.pk].append(str(found))


def _without_superseded(firings: Sequence[Firing]) -> list[Firing]:
    """Keep only the newest firing where it would cancel the older ones."""
    newest = {firing.schedule.pk: firing for firing in firings}
    left: list[Firing] = []
    for firing in firings:
        if firing.schedule.overlap == Overlap.CANCEL_OLD and newest[firing.schedule.pk] is not firing:
            firing.outcome = Outcome.SKIPPED
        else:
            left.append(firing)
    return left


def _next_wave(firings: Sequence[Firing]) -> tuple[list[Firing], list[Firing]]:
    """All firings of schedules that may overlap, and the first of each other one; the rest."""
    seen: set[UUID] = set()
    wave: list[Firing] = []
    left: list[Firing] = []
    for firing in firings:
        if firing.schedule.overlap == Overlap.ALLOW or firing.schedule.pk not in seen:
            wave.append(firing)
        else:
            left.append(firing)
        seen.add(firing.schedule.pk)
    return wave, left


def find_open_tasks(schedule_ids: Iterable[UUID]) -> defaultdict[UUID, list[str]]:
    """The unfinished tasks (of schedules of workflows: the workflows that have not ended), oldest first."""
    found: defaultdict[UUID, list[str]] = defaultdict(list)
    ids = list(schedule_ids)
    if not ids:
        return found
    latest = fetch_all(LATEST_TASKS, (ids,))
    # Unscoped: a beat fires for all tenants at once, and asks for tasks that its own rows name.
    live = set(LiveTask.objects.unscoped().filter(pk__in=[row[1] for row in latest]).values_list("pk", flat=True))
    for schedule_id, task_id in latest:
        if task_id in live:
            found[schedule_id].append(str(task_id))
    for schedule_id, workflow_id in fetch_all(OPEN_WORKFLOWS, (ids,)):
        found[schedule_id].append(str(workflow_id))
    return found


def _settle_overlap(firing: Firing, open_tasks: list[str]) -> bool:
    """Whether the firing is to be submitted, given the schedule's unfinished tasks; cancels them where asked to."""
    policy = firing.schedule.overlap
    if policy == Overlap.ALLOW or not open_tasks:
        return True
    if policy == Overlap.SKIP or (policy == Overlap.QUEUE_ONE and len(open_tasks) > 1):
        firing.outcome = Outcome.SKIPPED
        return False
    if policy == Overlap.QUEUE_ONE:
        firing.waits_for = list(open_tasks)
        return True
    firing.waits_for = [task_id for task_id in open_tasks if not _cancel(firing.schedule, task_id)]
    open_tasks[:] = firing.waits_for
    return True


def _cancel(schedule: Schedule, task_id: str) -> bool:
    """Cancel an older task or workflow of the schedule; False when it runs and was asked to end."""
    try:
        return cancel(schedule.tenant_id, UUID(task_id), actor=actor_of(schedule)) is not TaskState.RUNNING
    except Conflict:
        return True
    except NotFound:
        pass
    try:
        return not cancel_workflow(schedule.tenant, UUID(task_id), actor=actor_of(schedule))["asked"]
    except NotFound:
        return True


def _item(firing: Firing) -> dict[str, Any]:
    item = build_task(firing.schedule, firing.due.fire_at)
    if firing.waits_for:
        item |= {"depends_on": ends_of(firing.waits_for), "condition": "all_done"}
    return item


def _submit(tenant: Tenant, firings: Sequence[Firing]) -> None:
    """Submit together; when that is refused, by halves, so that one bad firing costs the others nothing."""
    if not firings:
        return
    try:
        with transaction.atomic():
            ids = _call(tenant, firings)
    except (OperationalError, InterfaceError):
        raise  # the database is at fault, not a firing: the batch is tried again
    except Exception as error:
        # Whatever a template brings about, it must not stop the other schedules.
        if len(firings) > 1:
            half = len(firings) // 2
            _submit(tenant, firings[:half])
            _submit(tenant, firings[half:])
            return
        if not isinstance(error, SlackwaterError):
            log.exception("schedule %s of tenant %s cannot be submitted", firings[0].schedule.name, tenant)
        firings[0].fail(error)
    else:
        _submitted(firings, ids)


def _call(tenant: Tenant, firings: Sequence[Firing]) -> list[UUID]:
    flows = {id(firing): submit_flow(tenant, firing) for firing in firings if firing.schedule.workflow}
    single = [firing for firing in firings if not firing.schedule.workflow]
    found: list[UUID] = []
    if len(single) == 1:
        found = tasks.submit(tenant, _item(single[0]), actor=single[0].actor).task_ids
    elif single:
        items = [_item(firing) for firing in single]
        found = tasks.submit_many(tenant, items, actor=[firing.actor for firing in single]).task_ids
    left = iter(found)
    return [flows[id(firing)] if id(firing) in flows else next(left) for firing in firings]


def ends_of(ids: Sequence[str]) -> list[str]:
    """The tasks with whose end all of these tasks and workflows have ended."""
    return [row[0] for row in fetch_all(LAST_TASKS, {"ids": list(ids)})]


def submit_flow(tenant: Tenant, firing: Firing) -> UUID:
    """Submit the workflow of a firing; its first tasks wait for the last ones of the workflows it waits for."""
    waits_for = ends_of(firing.waits_for) if firing.waits_for else []
    data = build_workflow(firing.schedule, firing.due.fire_at, waits_for)
    found = tasks.submit_workflow(tenant, data, actor=firing.actor)
    assert found.workflow_id is not None
    return found.workflow_id
