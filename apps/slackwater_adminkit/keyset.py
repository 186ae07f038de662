"""Pages of a list by the key of their first and last row: the thousandth costs what the first does.

A search that no index answers looks back through the newest rows (:mod:`slackwater_adminkit.looking`), and a link goes on where
it stopped. So no page reads a table of millions through.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest

from slackwater_adminkit import looking

if TYPE_CHECKING:
    from django.contrib.admin.views.main import ChangeList
else:
    from unfold.views import ChangeList

OLDER: Final = "older"
NEWER: Final = "newer"
START: Final = "start"
"""``newer=start`` is the page of the oldest rows."""


class KeysetList(ChangeList):
    """A list without page numbers: newest, newer, older, oldest."""

    newest = newer = older = oldest = further = ""
    """The addresses of other pages, each where there is one; ``further`` goes on where a search has stopped."""
    searched_to = ""
    is_exact = True

    def __init__(self, request: HttpRequest, model: Any, *args: Any) -> None:
        given = request.GET.copy()
        self.place = {name: given.pop(name)[-1] for name in (OLDER, NEWER) if name in given}
        kept = args[-3].get_preserved_filters(request)
        request.GET = given  # type: ignore[assignment]  # what narrows the list: the place in it does not
        super().__init__(request, model, *args)
        self.preserved_filters = kept

    def _place(self, name: str) -> Any:
        try:
            return self.opts.pk.to_python(self.place[name])
        except (KeyError, ValidationError):
            return None

    def get_results(self, request: HttpRequest) -> None:
        """The rows of this page and what leads to others; the rows are read by their keys alone."""
        size, ascending = self.list_per_page, NEWER in self.place
        place = None if self.place.get(NEWER) == START else self._place(NEWER if ascending else OLDER)
        paginator: Any = self.model_admin.get_paginator(request, self.queryset, size)
        narrowed = bool(self.query or self.get_filters_params())
        stopped = None
        if narrowed and paginator.cost > looking.CHEAP:
            every = self.root_queryset.select_related(None)
            keys, stopped = looking.look(self.queryset, every, place, size + 1, ascending=ascending)
        else:
            keys = list(
                looking.beyond(self.queryset, place, ascending=ascending).values_list("pk", flat=True)[: size + 1]
            )
        more, keys = len(keys) > size, keys[:size]
        self.is_exact = place is None and not more and stopped is None
        self.result_count = len(keys) if self.is_exact else max(len(keys), paginator.count)
        self._lead(keys[::-1] if ascending else keys, ascending, place is not None, more, stopped)
        rows = self.root_queryset.filter(pk__in=keys)
        self.result_list: Any = self._in_order(rows, keys[::-1] if ascending else keys)
        self.paginator, self.full_result_count = paginator, None
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True

    def _in_order(self, rows: QuerySet[Any], keys: list[Any]) -> list[Any]:
        if not rows.query.select_related:
            rows = self.apply_select_related(rows)
        found = {row.pk: row for row in rows.order_by()} if keys else {}
        return [found[key] for key in keys if key in found]

    def _lead(self, keys: list[Any], ascending: bool, placed: bool, more: bool, stopped: Any) -> None:
        def at(**place: Any) -> str:
            return self.get_query_string(place)

        before, after = (more, placed) if ascending else (placed, more)
        if before or (ascending and stopped is not None):
            self.newest = at() or "?"
            self.newer = at(newer=keys[0]) if keys else ""
        if after:
            self.older = at(older=keys[-1]) if keys else ""
            self.oldest = at(newer=START)
        if stopped is not None:
            self.further = at(**{NEWER if ascending else OLDER: stopped})
            self.oldest = "" if ascending else at(newer=START)
            self.searched_to = _moment(stopped)


def _moment(key: Any) -> str:
    """When what has this key was made, where the key tells."""
    if not isinstance(key, UUID) or key.version != 7:
        return ""
    return datetime.fromtimestamp((key.int >> 80) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
