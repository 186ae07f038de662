"""Dead letters by handler and error: what failed alike is requeued together, a few first."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import CharField, Count, F, Func, Max, Min, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Coalesce, Concat, Left, NullIf
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.states import Outcome
from slackwater_adminkit.display import ago
from slackwater_adminkit.services import tell, why
from slackwater_tasks.admin import bulk
from slackwater_tasks.admin.graphs import task_url
from slackwater_tasks.models import Task
from slackwater_tasks.read.tasks import word

FIRST: Final = 5
"""So many go before the rest."""
SHOWN: Final = 100
LATEST: Final = 5_000
"""So many are looked at, unless all are asked for: a hundred thousand take a second."""
GROUP: Final = ("alike", "outcome")
VARYING: Final = r"[0-9a-f]{8}-[0-9a-f-]{27}|0x[0-9a-f]+|\d+"
"""Ids, addresses and numbers: two errors that differ in nothing else are alike."""


def _text(function: str, *parts: Any) -> Func:
    return Func(*parts, function=function, output_field=CharField())


def alike(handler: str, signature: str) -> str:
    """What dead letters have in common that failed alike: the handler, and the signature of the error."""
    return f"{handler}\n{signature}"


def with_alike(letters: QuerySet[Any]) -> QuerySet[Any]:
    """Dead letters with what is :func:`alike`. The signature: the last line of the error without numbers; else the reason.

    Each task is found by its key, once: joined, all tasks might be read through for the few thousand looked at.
    """
    last = _text("substring", _text("rtrim", F("error"), Value(" \n")), Value("[^\n]*$"))
    line = Left(Coalesce(NullIf(last, Value("")), OuterRef("reason")), 200)
    signature = _text("regexp_replace", line, Value(VARYING), Value("#"), Value("gi"))
    task = Task.objects.unscoped().filter(pk=OuterRef("task_id"))  # unscoped: that of the dead letter
    told = task.annotate(alike=Concat(F("handler"), Value("\n"), signature)).values("alike")[:1]
    found: QuerySet[Any] = letters.order_by().annotate(alike=Subquery(told))
    return found


class GroupsMixin(bulk.BulkMixin):
    """The page of groups, and what is done to one."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.groups)
        return [path("groups/", view, name="slackwater_tasks_deadletter_groups"), *super().get_urls()]

    def groups(self, request: HttpRequest) -> HttpResponse:
        """The groups, the largest first; a post requeues one."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        letters = with_alike(self.get_queryset(request).select_related(None).only("task_id"))
        if request.method == "POST":
            return self.requeue(request, letters)
        beyond = None if "all" in request.GET else self._beyond(request)
        looked_at = letters if beyond is None else letters.filter(pk__gt=beyond)
        counted = looked_at.values(*GROUP).annotate(
            count=Count("pk"), tenants=Count("tenant_id", distinct=True), since=Min("at"), last=Max("at"),
            example=Max(Cast("task_id", CharField())),
        )  # fmt: skip
        groups = [
            {
                **group,
                **dict(zip(("handler", "signature"), group["alike"].split("\n", 1), strict=True)),
                "word": word(Outcome(group["outcome"])).replace("_", " ") if group["outcome"] else "–",
                "url": task_url(group["example"]),
                "edit": reverse("admin:slackwater_tasks_task_edit", args=[group["example"]]),
                "since": ago(group["since"]),
                "last": ago(group["last"]),
            }
            for group in counted.order_by("-count", *GROUP)[:SHOWN]
        ]
        context = {
            **self.admin_site.each_context(request),
            "title": "Dead letters by handler and error",
            "opts": self.opts,
            "groups": groups,
            "first": FIRST,
            "latest": "" if beyond is None else f"{LATEST:,}",
            "may": self.may(request, "change"),
        }
        return TemplateResponse(request, "slackwater_dashboard/dead_letter_groups.html", context)

    def _beyond(self, request: HttpRequest) -> Any:
        """The newest that is not looked at, where there is one."""
        newest = self.get_queryset(request).select_related(None).order_by("-pk").values_list("pk", flat=True)
        return newest[LATEST : LATEST + 1].first()

    def requeue(self, request: HttpRequest, letters: QuerySet[Any]) -> HttpResponse:
        """Run the tasks of one group again, all at once or a few before the rest."""
        if not self.may(request, "change"):
            raise PermissionDenied
        if not why(request):
            messages.error(request, "Say why; nothing was done.")
            return HttpResponseRedirect(request.path)
        given = request.POST
        chosen = letters.filter(
            alike=alike(given.get("handler", ""), given.get("signature", "")),
            outcome=int(given["outcome"]) if given.get("outcome", "").isdecimal() else None,
        )  # fmt: skip
        what = f"dead letters of {given.get('handler') or 'scripts'}: {given.get('signature', '')}"
        try:
            made = bulk.start(request, "retry", self.tasks(chosen), what, FIRST if "first" in given else 0)
        except SlackwaterError as error:
            tell(request, error)
            return HttpResponseRedirect(request.path)
        return bulk.shown(request, made)
