"""Answers written without a view: with the headers of a view's, and behind the same middleware."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import structlog
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.security import SecurityMiddleware
from rest_framework.renderers import JSONRenderer

from slackwater_api.http import cors
from slackwater_api.http.endpoint import request_id_of
from slackwater_api.http.problems import PROBLEM_TYPE, problem
from slackwater_tenants.models import ApiKey

JSON: Final = "application/json"


def _none(_: Any) -> HttpResponse:
    return HttpResponse()


_security = SecurityMiddleware(_none)
_render = JSONRenderer().render


@lru_cache(maxsize=8)
def _secure(middleware: SecurityMiddleware, scheme: str) -> Mapping[str, str]:
    """The headers that the middleware adds to every answer: by the settings, and whether it goes over TLS."""
    request = ASGIRequest({"method": "GET", "path": "/", "scheme": scheme, "headers": ()}, io.BytesIO())
    response = HttpResponse()
    del response["Content-Type"]
    return dict(middleware.process_response(request, response).items())


class PlainRequest:
    """A request that is answered without a view; ``sent_on``: it may be redirected to HTTPS instead."""

    def __init__(self, scope: Any, *, sent_on: bool = True) -> None:
        self.http = ASGIRequest(scope, io.BytesIO())
        self.id = request_id_of(self.http)
        self.key: ApiKey | None = None
        """Whose request it is, once that is known."""
        self.instead: HttpResponseBase | None = _security.process_request(self.http) if sent_on else None
        """The answer of the middleware if it stops the request, for instance a redirect to HTTPS."""

    def answer(self, status: int, body: Any, headers: Mapping[str, str], kind: str = JSON) -> HttpResponseBase:
        """``body`` as JSON."""
        own = {"X-Request-Id": self.id, "Cache-Control": "no-store", **_secure(_security, str(self.http.scheme))}
        response = HttpResponse(_render(body), content_type=kind, status=status, headers={**own, **headers})
        if self.key is not None and self.key.origins:
            cors.share(self.http, response, self.key)
        return response

    def problem(self, error: Exception) -> HttpResponseBase:
        """The problem for ``error``; an internal one is logged under this request's id."""
        with structlog.contextvars.bound_contextvars(request_id=self.id):
            found = problem(error, self.id, ())
        return self.answer(found.status, found.body, found.headers, PROBLEM_TYPE)


def refusal(scope: Any, error: Exception) -> HttpResponseBase:
    """The problem for a request that is not read to its end; over HTTP/1 it closes the connection."""
    found = PlainRequest(scope, sent_on=False).problem(error)
    if scope["http_version"] < "2":
        found["Connection"] = "close"
    return found
