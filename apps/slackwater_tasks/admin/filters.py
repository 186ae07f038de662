"""Filters and search of the big lists, each answered by an index where there is one."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib.admin import ModelAdmin
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest
from django.utils import timezone

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import FINAL, IN_FLIGHT, ClientStatus, TaskState
from slackwater_tasks.read.finding import of_error, of_node, of_schedule, of_tag
from slackwater_tasks.read.tasks import in_states
from slackwater_tenants.models import Tenant

if TYPE_CHECKING:
    from django.contrib.admin import SimpleListFilter as DropdownFilter
    from django.contrib.admin import SimpleListFilter as TextFilter
else:
    from unfold.contrib.filters.admin import DropdownFilter, TextFilter

HEX_PREFIX = re.compile(r"[0-9a-f]{6,32}")
AGO = re.compile(r"(\d{1,5})([smhd])")
LENGTHS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
AGES = {"10m": timedelta(minutes=10), "1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7)}
GROUPS = {"live": frozenset(TaskState) - FINAL, "in_flight": IN_FLIGHT, "final": FINAL}


def first_id(milliseconds: int) -> uuid.UUID:
    """The smallest UUIDv7 of a moment, given in milliseconds of the Unix epoch: ids sort by time, so it is a bound."""
    return uuid.UUID(int=milliseconds << 80)


class StateFilter(DropdownFilter):
    """By state, wherever it is stored: in the live row or in the task."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        yield from (("live", "not finished"), ("in_flight", "queued or running"), ("final", "finished"))
        yield from ((state.name.lower(), state.name.lower()) for state in TaskState)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The tasks in that state; an unknown word finds nothing."""
        word = self.value()
        if not word:
            return queryset
        states = GROUPS.get(word) or {state for state in TaskState if state.name.lower() == word}
        return in_states(queryset, states)


class WorkflowStateFilter(DropdownFilter):
    """By how a workflow ended, or that it has not."""

    title = "state"
    parameter_name = "state"
    STATES: ClassVar = {
        "open": Q(status__isnull=True), "failed": Q(status=ClientStatus.FAILED), "done": Q(status=ClientStatus.DONE),
    }  # fmt: skip

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return (("open", "not ended"), ("failed", "failed"), ("done", "done"))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The workflows in that state; an unknown word finds nothing."""
        word = self.value()
        return queryset.filter(self.STATES.get(word, Q(pk__in=[]))) if word else queryset


class AgeFilter(DropdownFilter):
    """By time of submission, through the ids, which sort by time."""

    title = "submitted"
    parameter_name = "age"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        words = ("last 10 minutes", "last hour", "last day", "last 7 days")
        return list(zip(AGES, words, strict=True))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        age = AGES.get(self.value() or "")
        if age is None:
            return queryset
        return queryset.filter(pk__gte=first_id(int((timezone.now() - age).timestamp() * 1000)))


def id_range(text: str) -> tuple[uuid.UUID, uuid.UUID] | None:
    """The ids that begin with these hexadecimal digits; ``None`` for anything else."""
    digits = text.lower().replace("-", "")
    if not HEX_PREFIX.fullmatch(digits):
        return None
    return uuid.UUID(digits.ljust(32, "0")), uuid.UUID(digits.ljust(32, "f"))


def find(rows: QuerySet[Any], object_id: str, what: str) -> Any:
    """The row of that id; ``Http404`` when there is none."""
    try:
        found = rows.filter(pk=uuid.UUID(object_id)).first()
    except ValueError:
        found = None
    if found is None:
        raise Http404(f"There is no {what} {object_id}.")
    return found


def _of_tenant(slug: str) -> Q:
    # By its number: of a constant the planner knows how many rows it has.
    return Q(tenant_id__in=list(Tenant.objects.filter(slug=slug).values_list("pk", flat=True)))


def moment(text: str, field: str) -> datetime:
    """A time from ISO 8601, in UTC where it has no zone, or from how long ago it is: ``30m``, ``2h``, ``7d``."""
    if given := AGO.fullmatch(text):
        return timezone.now() - timedelta(**{LENGTHS[given[2]]: int(given[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"cannot read {text!r}; write 2h, 2030-01-31 or 2030-01-31T09:00", field=field) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _bound(text: str, field: str) -> uuid.UUID:
    return first_id(max(0, int(moment(text, field).timestamp() * 1000)))


def _of_workflow(text: str) -> Q:
    ids = id_range(text)
    return Q(workflow__name=text) | (Q(workflow_id__gte=ids[0], workflow_id__lte=ids[1]) if ids else Q(pk__in=[]))


WORDS: dict[str, Callable[[str], Q]] = {
    "tag": of_tag,
    "key": lambda text: Q(mutex_key=text),
    "name": lambda text: Q(name__icontains=text),
    "handler": lambda text: Q(handler__startswith=text[:-1]) if text.endswith("*") else Q(handler=text),
    "node": of_node,
    "workflow": _of_workflow,
    "schedule": of_schedule,
    "tenant": _of_tenant,
    "since": lambda text: Q(pk__gte=_bound(text, "since")),
    "until": lambda text: Q(pk__lt=_bound(text, "until")),
    "error": of_error,
}
"""The words of a search for tasks, and what each means."""
WORD = re.compile(rf"({'|'.join(WORDS)}):(?:\"([^\"]+)\"|(\S+))")


class HandlerFilter(TextFilter):
    """By handler, typed: a list to choose from would have thousands."""

    title = "handler (mail.send or mail.*)"
    parameter_name = "handler"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return ()

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """As the word of a search means it."""
        name = (self.value() or "").strip()
        return queryset.filter(WORDS["handler"](name)) if name else queryset


def search_tasks(rows: QuerySet[Any], text: str) -> QuerySet[Any]:
    """Tasks that match every part of ``text``: ``handler:mail.* error:"timed out"``; else an id, name or handler.

    ``InvalidInput`` names the word whose value cannot be read.
    """
    for word, quoted, plain in WORD.findall(text):
        rows = rows.filter(WORDS[word](quoted or plain))
    rest = WORD.sub("", text).strip()
    if not rest:
        return rows
    if (ids := id_range(rest)) is not None:
        return rows.filter(Q(pk__range=ids) | Q(workflow_id__gte=ids[0], workflow_id__lte=ids[1]))
    return rows.filter(Q(name__icontains=rest) | Q(handler__icontains=rest))
