"""The front doors, ``/`` and ``/api/v1/``: links to what there is. And the 404 of whatever is not there."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.core.exceptions import TooManyFieldsSent
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views import defaults
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import NotFound
from slackwater_api.http.endpoint import PublicView, request_id_of
from slackwater_api.http.problems import PROBLEM_TYPE, problem

VERSION: Final = "v1"
HERE: Final = f"/api/{VERSION}/"
LINKS: Final = {
    "self": HERE,
    "documentation": "/api/docs/",
    "errors": "/api/docs/errors",
    "schema": "/api/schema/",
    "own_schema": f"{HERE}openapi.json",
    "whoami": f"{HERE}whoami",
    "limits": f"{HERE}limits",
    "handlers": f"{HERE}handlers",
    "tasks": f"{HERE}tasks",
    "workflows": f"{HERE}workflows",
    "schedules": f"{HERE}schedules",
    "events": f"{HERE}events",
    "health": "/healthz",
    "readiness": "/readyz",
}
"""What every installation has: nothing here tells of this one, its tenants or its release."""
RELATIONS: Final = (
    f'<{LINKS["schema"]}>; rel="service-desc", <{LINKS["documentation"]}>; rel="service-doc", '
    f'<{LINKS["health"]}>; rel="status"'
)
"""The same for machines (RFC 8631)."""


class Index(PublicView):
    """Where a client that knows only the address begins; it needs no key."""

    schema = None

    def get(self, request: Request) -> Response:
        return Response({"name": "Slackwater", "version": VERSION, "links": LINKS}, headers={"Link": RELATIONS})


TOO_MANY_FIELDS: Final = (
    "This form has more than {:,} fields, and nothing of it was read. Choose fewer boxes, or choose everything that "
    "the list's filter matches: that is one field, whatever its number."
)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's ``handler400``; a form with too many fields is told what would do instead."""
    if not isinstance(exception, TooManyFieldsSent):
        return defaults.bad_request(request, exception)
    words = TOO_MANY_FIELDS.format(settings.DATA_UPLOAD_MAX_NUMBER_FIELDS)
    page = defaults.ERROR_PAGE_TEMPLATE % {"title": "Too many fields", "details": words}
    return HttpResponse(page, status=400)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's ``handler404``: a problem document; a page for a browser outside the API."""
    if not request.path_info.startswith("/api/") and "text/html" in request.headers.get("Accept", ""):
        return defaults.page_not_found(request, exception)
    request_id = request_id_of(request.META.get("HTTP_X_REQUEST_ID", ""))
    found = problem(NotFound(f"There is nothing here; {HERE} says what there is."), request_id)
    content = JSONRenderer().render(found.body)
    return HttpResponse(content, status=404, content_type=PROBLEM_TYPE, headers={"X-Request-Id": request_id})
