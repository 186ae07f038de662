"""Submits an ended task once more, edited: as a new task that names the one it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import Conflict
from scheduler_ext.core.states import TaskState
from scheduler_ext.task.references import MARK
from slackwater_conf.database import in_ledger
from slackwater_tasks.control import stored_task
from slackwater_tasks.control.edit import merged
from slackwater_tasks.ledger import events
from slackwater_tasks.models import Dependency, MapNode, Resumable, Task
from slackwater_tasks.models.outbox import TaskWebhook
from slackwater_tasks.read.tasks import word
from slackwater_tasks.spec import EDITABLE, FIELDS, TaskSpec, check_references, check_times, dump_payload
from slackwater_tasks.submission import service

CHANGEABLE: Final = EDITABLE | {"depends_on", "condition", "checkpoints", "webhook"}
ALL: Final = frozenset(field.attribute for field in FIELDS.values())


@in_ledger
def resubmit(
    tenant_id: int, task_id: UUID, changes: Mapping[str, Any] | None = None, *, actor: str = "", reason: str = ""
) -> UUID:
    """Submit an ended task anew, with a merge patch of its fields; returns the new task's id.

    What it was given stays, but for moments: it starts as soon as it can. It belongs to no workflow, and may use the
    results of the same parents. It is admitted, counted and charged like any other. ``Conflict`` before the task's end.
    """
    with transaction.atomic():
        task = stored_task.find(tenant_id, task_id)
        if task.state is None:
            now = word(stored_task.state_now(task_id))
            raise Conflict(f"only a task that has ended is submitted anew; it is {now}, so change it", state=now)
        old = _spec(task)
        values = merged(old, changes or {}, CHANGEABLE)
        check_times(values)
        new = replace(old, **values)
        new = replace(new, payload=dump_payload(new.args, new.kwargs, ""), chosen=ALL)
        if MARK in new.payload[0] or MARK in new.payload[1]:
            parents = Task.objects.unscoped().for_tenant(tenant_id).filter(pk__in=_uuids(new.depends_on))
            known = {*new.depends_on, *parents.exclude(name="").values_list("name", flat=True)}
            check_references({"args": new.args, "kwargs": new.kwargs}, known)
        made = service.submit_spec(task.tenant, new, actor=actor)
        Task.objects.unscoped().filter(pk=made).update(copied_from=task.pk)  # the tenant's, made just now
        state = TaskState(task.state)
        said = f"submitted anew as {made}" + (f": {reason}" if reason else "")
        detail = {"changed": sorted(changes or {})}
        told = events.row(tenant_id, task.pk, state, before=state, actor=actor, reason=said, detail=detail)
        with connection.cursor() as cur:
            events.write(cur, [told])
    return made


def _spec(task: Task) -> TaskSpec:
    """The fields it was submitted with, without moments."""
    node = MapNode._plain.filter(pk=task.pk).first()
    edges = Dependency.objects.filter(child_id=task.pk).exclude(parent_id__in=node.elements or () if node else ())
    parents = edges.order_by("parent_id").values_list("parent_id", flat=True)
    return replace(
        stored_task.spec_of(task), start_at=None, expires_at=None, depends_on=tuple(map(str, parents)),
        webhook=TaskWebhook._plain.filter(pk=task.pk).values_list("url", flat=True).first() or "",
        map=node.given if node else None, checkpoints=Resumable._plain.filter(task_id=task.pk, declared=True).exists(),
    )  # fmt: skip


def _uuids(texts: tuple[str, ...]) -> list[UUID]:
    found = []
    for text in texts:
        try:
            found.append(UUID(text))
        except ValueError:  # the submission names it
            continue
    return found
