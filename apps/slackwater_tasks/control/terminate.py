"""Terminates all work of a tenant, a line, a workflow or the platform, and cleans up after it, in one act."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import connection

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.sql import named
from slackwater_tasks.control.cancel import cancel_some
from slackwater_tasks.control.lines import set_line_paused
from slackwater_tasks.control.quiesce import repeat_on_deadlock
from slackwater_tasks.ledger.connection import execute, fetch_all, fetch_value
from slackwater_tasks.models import Line
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import set_paused

BATCH: Final = 2_000
POLL_S: Final = 0.2
WAIT_S: Final = 30.0
AT_ONCE_S: Final = 10.0
"""Who does not wait is answered soon after: saying it again does the rest."""
# Those that run and were asked to end already have nothing more to be told.
UNFINISHED: Final = named("""
SELECT l.task_id::text FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
WHERE {} AND NOT (l.state = :state.RUNNING AND l.cancel_requested) ORDER BY l.state, l.task_id LIMIT %s
""")
LIVE: Final = named("""
SELECT count(*) FILTER (WHERE l.state <> :state.RUNNING),
    count(*) FILTER (WHERE l.state = :state.RUNNING AND NOT l.cancel_requested), count(*)
FROM slackwater_tasks_livetask l {} WHERE {}
""")
_TASKS: Final = "JOIN slackwater_tasks_task t ON t.id = l.task_id"
# Whether an array of the line has all and nothing but what the plan and the task ask for.
_ALIKE: Final = " AND ".join(
    f"{{0}}.{which} @> (p.{which} || t.{which}) AND {{0}}.{which} <@ (p.{which} || t.{which})"
    for which in ("require_labels", "prefer_labels")
)
_OF_LINE: Final = "{0}.tenant_id = t.tenant_id AND {0}.category = t.category AND {0}.tier_id = t.tier_id"
# A dead letter stands with the line in which its task would wait again; when its plan asks for other labels by now and
# there is no such line yet, with each of its category and tier. One that stayed would be run again by beat.
DEAD_OF_LINE: Final = f"""
SELECT d.task_id FROM slackwater_tasks_line l JOIN slackwater_tasks_deadletter d ON d.tenant_id = l.tenant_id
    JOIN slackwater_tasks_task t ON t.id = d.task_id AND {_OF_LINE.format("l")}
    JOIN slackwater_tenants_tenant w ON w.id = t.tenant_id JOIN slackwater_tenants_plan p ON p.id = w.plan_id
WHERE l.id = %s AND ({_ALIKE.format("l")} OR NOT EXISTS (
    SELECT 1 FROM slackwater_tasks_line o WHERE {_OF_LINE.format("o")} AND {_ALIKE.format("o")}))
"""  # noqa: S608 - columns of ours
DEAD_OF_TENANT: Final = "SELECT task_id FROM slackwater_tasks_deadletter WHERE tenant_id = %s"
DEAD_OF_WORKFLOW: Final = """
SELECT d.task_id FROM slackwater_tasks_task t JOIN slackwater_tasks_deadletter d ON d.task_id = t.id WHERE t.workflow_id = %s
"""
BURY: Final = "DELETE FROM slackwater_tasks_deadletter WHERE task_id IN ({})"
BURIED: Final = "SELECT count(*) FROM ({} LIMIT %s) dead"
WORKFLOW: Final = "SELECT 1 FROM slackwater_tasks_workflow WHERE id = %s AND tenant_id = %s"


@dataclass(slots=True)
class Terminated:
    """What became of the work."""

    cancelled: int = 0
    """Tasks that waited, with the dependants that ended by it."""
    asked: int = 0
    """Tasks that ran, and were asked to end."""
    dead_letters: int = 0
    """Dead letters that are no more, so that beat runs none of them again."""
    left: int = 0
    """Tasks that have not ended yet: those that run are ended by force."""


def end_all(subject: Subject, *, actor: str, reason: str, until: float = math.inf) -> Terminated:
    """Cancel all that waits of it and ask what runs to end; begin no other batch after ``until``.

    In bounded transactions, so a crash in between leaves a part cancelled; doing it again does the rest.
    """
    found = Terminated()

    def batch() -> int:
        with connection.cursor() as cur:
            cur.execute(UNFINISHED.format(subject.where), (subject.value, BATCH))
            ids = [row[0] for row in cur.fetchall()]
            changes, asked = cancel_some(cur, subject.cell, ids, actor=actor, reason=reason)
        found.cancelled += len(changes)
        found.asked += len(asked)
        return len(changes) + len(asked)

    while repeat_on_deadlock(batch) and time.monotonic() < until:
        pass
    return found


@dataclass(frozen=True, slots=True)
class Subject:
    """What is terminated."""

    name: str
    cell: str
    where: str
    """Of live rows ``l`` and tasks ``t``."""
    dead: str
    """Selects its dead letters."""
    value: Any
    paused: bool
    pause: Callable[..., Any] | None = None

    @property
    def live(self) -> tuple[str, str]:
        """What the live rows are joined with, where they do not tell it themselves, and ``where``."""
        return _TASKS if "t." in self.where else "", self.where

    @classmethod
    def of_tenant(cls, tenant: Tenant) -> Subject:
        return cls(
            "its tenant", tenant.cell, "l.tenant_id = %s", DEAD_OF_TENANT, tenant.pk, tenant.paused,
            partial(set_paused, tenant),
        )  # fmt: skip

    @classmethod
    def of_line(cls, line: Line) -> Subject:
        return cls(
            "its line", line.tenant.cell, "l.line_id = %s", DEAD_OF_LINE, line.pk, line.paused, _pause_of(line),
        )  # fmt: skip

    @classmethod
    def of_workflow(cls, tenant: Tenant, workflow_id: UUID) -> Subject:
        """``NotFound`` when the tenant has no such workflow."""
        if not fetch_all(WORKFLOW, (workflow_id, tenant.pk)):
            raise NotFound(f"There is no workflow {workflow_id}.")
        return cls("its workflow", tenant.cell, "t.workflow_id = %s", DEAD_OF_WORKFLOW, workflow_id, paused=False)


def _pause_of(line: Line) -> Callable[..., None]:
    """What pauses a line and resumes it, with those of its category and tier that were made paused as it was."""
    alike = Line.objects.unscoped().filter(tenant_id=line.tenant_id, category=line.category, tier_id=line.tier_id)
    before: set[int] = set()

    def pause(*, paused: bool) -> None:
        if paused:
            before.update(alike.values_list("pk", flat=True))
        set_line_paused(line, paused=paused)
        if not paused and not alike.earliest("pk").paused:
            for made in alike.exclude(pk__in=before):
                set_line_paused(made, paused=False)

    return pause


def foretell(subjects: Sequence[Subject], *, most_dead: int | None = None) -> Terminated:
    """What :func:`terminate` would reach now, besides dependants that end by it; nothing changes.

    ``most_dead``: of each, dead letters are counted up to so many.
    """
    found = Terminated()
    for subject in subjects:
        [(waiting, running, live)] = fetch_all(LIVE.format(*subject.live), (subject.value,))
        dead = int(fetch_value(BURIED.format(subject.dead), (subject.value, most_dead)))
        _add(found, Terminated(waiting, running, dead, live))
    return found


def terminate(subjects: Sequence[Subject], *, actor: str, reason: str = "", wait_s: float = WAIT_S) -> Terminated:
    """End all work of these, wait until what ran has ended, and delete its dead letters.

    They are paused while it waits, so that nothing starts; what was paused before stays so. Schedules are not touched.
    """
    with ExitStack() as pauses:
        for subject in subjects if wait_s else ():
            if subject.pause is not None and not subject.paused:
                subject.pause(paused=True)
                pauses.callback(subject.pause, paused=False)
        found, until = Terminated(), time.monotonic() + wait_s
        while True:  # what ran may have submitted more
            _end_each(found, subjects, actor, reason, until if wait_s else time.monotonic() + AT_ONCE_S)
            found.left = sum(fetch_all(LIVE.format(*each.live), (each.value,))[0][2] for each in subjects)
            if not found.left or time.monotonic() >= until:
                break
            time.sleep(POLL_S)
        for subject in subjects:
            found.dead_letters += execute(BURY.format(subject.dead), (subject.value,))
    return found


def _end_each(found: Terminated, subjects: Sequence[Subject], actor: str, reason: str, until: float) -> None:
    for subject in subjects:
        why = f"all work of {subject.name} was terminated" + (f": {reason}" if reason else "")
        _add(found, end_all(subject, actor=actor, reason=why, until=until))


def _add(found: Terminated, more: Terminated) -> None:
    found.cancelled += more.cancelled
    found.asked += more.asked
    found.dead_letters += more.dead_letters
    found.left += more.left
