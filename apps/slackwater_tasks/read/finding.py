"""What finds tasks where no column of theirs tells it alone: the same words mean the same in every search and filter."""

from __future__ import annotations

from uuid import UUID

from django.db.models import OuterRef, Q, Subquery
from django.db.models.lookups import GreaterThan

from slackwater_resources.models import Node
from slackwater_tasks.ledger.connection import fetch_named
from slackwater_tasks.models import Attempt

SCHEDULE = "SELECT tenant_id, name FROM slackwater_schedules_schedule WHERE id = %s"
"""Whose tasks it submits, and as whom. Read by its table, as :mod:`slackwater_tasks.read.tasks` does: schedules stand above."""


def of_node(name: str) -> Q:
    """Tasks that are on a node of this name, or of which an attempt was."""
    nodes = list(Node.objects.filter(name=name).values_list("pk", flat=True))
    # Asked task by task: the list's tasks are chosen already, and a node's attempts may be a million.
    # Unscoped: the task says whose they are.
    there = Attempt.objects.unscoped().filter(task=OuterRef("pk"), node_id__in=nodes).order_by().values("node_id")[:1]
    begun = Q(state__isnull=False) | Q(live__fence__gt=0)  # what was never claimed has no attempt to look for
    return Q(live__node_id__in=nodes) | (begun & Q(GreaterThan(Subquery(there), 0)))


def of_tag(tag: str, task: str = "") -> Q:
    """Tasks with this tag; ``task``: the way to them from what is listed, as ``task__``."""
    # The index of tags holds only tasks that have some; saying so lets the planner use it.
    return Q(**{f"{task}tags__contains": [tag]}) & ~Q(**{f"{task}tags": []})


def of_schedule(text: str) -> Q:
    """Tasks that a schedule of this name, or of this id, submitted; one that is gone is found by its name alone."""
    named = Q(submitted_by=f"schedule:{text}")
    try:
        schedule_id = UUID(text)
    except ValueError:
        return named
    # Asked for beforehand, as the tasks have its name: of constants the planner knows how many rows they have.
    found = fetch_named(SCHEDULE, [schedule_id])
    return named | Q(tenant_id=found["tenant_id"], submitted_by=f"schedule:{found['name']}") if found else named


def of_error(text: str) -> Q:
    """Tasks that ended with an error, or for a reason, in which this text stands."""
    return Q(state__isnull=False) & (Q(error__icontains=text) | Q(reason__icontains=text))
