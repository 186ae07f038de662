"""Searches of a list kept under a name: per user, and for anybody by their address."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse

from slackwater_adminkit.keyset import NEWER, OLDER
from slackwater_dashboard.models import SavedView

OF_THE_PLACE: Final = (OLDER, NEWER, "p", "e", "_popup", "_to_field")
MOST: Final = 100


def _list(request: HttpRequest, page: str) -> str:
    """The address of a list that the user may see."""
    for model, shown in admin.site._registry.items():
        if model._meta.label_lower == page:
            if not shown.has_view_permission(request):
                raise PermissionDenied
            return reverse(f"admin:{page.replace('.', '_')}_changelist")
    raise Http404


def of(request: HttpRequest, page: str) -> list[SavedView]:
    """The user's views of a list."""
    return list(SavedView.objects.filter(owner=request.user.get_username(), page=page).order_by("name")[:MOST])


def keep(request: HttpRequest) -> HttpResponse:
    """Save a view, or remove one of the user's own; a taken name takes the new query."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    page, owner = request.POST.get("page", ""), request.user.get_username()
    address = _list(request, page)
    if "remove" in request.POST:
        wanted: Any = request.POST["remove"]
        if not wanted.isdecimal():
            raise Http404
        SavedView.objects.filter(pk=wanted, owner=owner).delete()
        return HttpResponseRedirect(address)
    given = QueryDict(request.POST.get("query", ""), mutable=True)
    for name in OF_THE_PLACE:
        given.pop(name, None)
    name, query = " ".join(request.POST.get("name", "").split()), given.urlencode()
    if fault := _fault(name, query, len(of(request, page))):
        messages.error(request, fault)
    else:
        SavedView.objects.update_or_create(owner=owner, page=page, name=name, defaults={"query": query})
    return HttpResponseRedirect(f"{address}?{query}")


def _fault(name: str, query: str, views: int) -> str:
    if not 1 <= len(name) <= 60:
        return "name: must be 1 to 60 characters"
    if not query or len(query) > 2000:
        return "Search or filter the list first; the search may have up to 2,000 characters."
    return f"A list keeps at most {MOST} views; remove one." if views >= MOST else ""


def show(request: HttpRequest, pk: int) -> HttpResponse:
    """On to the list; the list itself asks whether the user may see it."""
    view = get_object_or_404(SavedView, pk=pk)
    return HttpResponseRedirect(f"{_list(request, view.page)}?{view.query}")
