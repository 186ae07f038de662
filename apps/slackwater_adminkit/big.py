"""Lists over tables of millions of rows: counts are estimates, pages go by the primary key, time is bounded."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin import ShowFacets
from django.core.paginator import Paginator
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import cached_property

from slackwater_adminkit.keyset import KeysetList
from slackwater_adminkit.looking import CHEAP, TooSlow, at_most, planned
from slackwater_adminkit.services import ServiceAdmin

COUNTED = 5_000
"""Up to this many rows are counted; of more, PostgreSQL's estimate is shown."""
LIST_TIMEOUT_S = 8


class About(int):
    """An estimate: it says so wherever it is shown."""

    def __str__(self) -> str:
        return f"about {int(self)}"


class EstimatedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts a small result exactly; of a large one it takes the estimate, and never reads it through."""

    @cached_property
    def planned(self) -> tuple[int, float]:
        """The planner's estimate of rows and cost."""
        rows: Any = self.object_list
        return planned(rows)

    @property
    def cost(self) -> float:
        """What reading the whole result would cost, in the planner's units."""
        return self.planned[1]

    @cached_property
    def count(self) -> int:
        """Rows in the result, exact where there are few."""
        rows = self.object_list
        if not isinstance(rows, QuerySet):
            return len(rows)
        estimate, cost = self.planned
        if estimate > COUNTED * 4 or (rows.query.where and cost > CHEAP):
            return About(estimate)
        few = rows.order_by().values("pk")[: COUNTED + 1]
        counted = models.QuerySet.count(few)
        return counted if counted <= COUNTED else About(max(estimate, counted))


class BigTableAdmin(ServiceAdmin):
    """A list that stays quick over any number of rows: newest first, nothing counted, nothing sorted."""

    paginator = EstimatedPaginator
    show_full_result_count = False
    list_per_page = 50
    show_facets = ShowFacets.NEVER  # each would count the table once for every choice of every filter
    ordering: ClassVar[Any] = ["-pk"]
    sortable_by: ClassVar[Any] = ()
    change_list_template = "slackwater_adminkit/change_list.html"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetList]:
        return KeysetList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list; a search that would read the whole table is stopped, with a message."""
        if request.method != "GET":
            return super().changelist_view(request, extra_context)
        try:
            with at_most(LIST_TIMEOUT_S):
                return super().changelist_view(request, extra_context)
        except TooSlow:
            if not request.GET:
                raise
        messages.warning(
            request,
            f"This search was stopped after {LIST_TIMEOUT_S} s: it would have read too many rows. "
            "Narrow it by time, tenant or state.",
        )
        return HttpResponseRedirect(request.path)
