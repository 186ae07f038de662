"""Answers written without a view: with the headers of a view's, and behind the same middleware."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import structlog
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.security import SecurityMiddleware
from rest_framework.utils.encoders import JSONEncoder

from slackwater_api.http import cors
from slackwater_api.http.endpoint import request_id_of
from slackwater_api.http.problems import PROBLEM_TYPE, problem
from slackwater_api.server import content_security
from slackwater_tenants.models import ApiKey

JSON: Final = "application/json"
Pairs = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Answer:
    """An answer as it is sent: to make a response of Django's, and to read that again, takes as long as to parse a task."""

    status_code: int
    headers: Pairs
    content: bytes


Reply = HttpResponseBase | Answer


def _none(_: Any) -> HttpResponse:
    return HttpResponse()


_security = SecurityMiddleware(_none)
_encode = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def written(headers: Iterable[tuple[str, str]]) -> Pairs:
    """Headers as the server takes them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


@lru_cache(maxsize=32)
def _usual(middleware: SecurityMiddleware, scheme: str, kind: str) -> Pairs:
    """The headers of every answer; those of the middleware hang on the settings, and on whether it goes over TLS."""
    request = ASGIRequest({"method": "GET", "path": "/", "scheme": scheme, "headers": ()}, io.BytesIO())
    response = HttpResponse(headers={content_security.HEADER: content_security.NOTHING, "Cache-Control": "no-store"})
    response["Content-Type"] = kind
    return written(middleware.process_response(request, response).items())


class PlainRequest:
    """A request that is answered without a view; ``sent_on``: it may be redirected to HTTPS instead."""

    def __init__(self, scope: Any, headers: Mapping[bytes, bytes], *, sent_on: bool = True) -> None:
        self._scope, self._headers = scope, headers
        self.id = request_id_of(headers.get(b"x-request-id", b"").decode("latin-1"))
        self.key: ApiKey | None = None
        """Whose request it is, once that is known."""
        self.instead: HttpResponseBase | None = None
        """The answer of the middleware if it stops the request: a redirect to HTTPS."""
        if sent_on and _security.redirect:
            self.instead = _security.process_request(self.http)

    @cached_property
    def http(self) -> ASGIRequest:
        """The request as Django's."""
        return ASGIRequest(self._scope, io.BytesIO())

    def answer(self, status: int, body: Any, headers: Mapping[str, str], kind: str = JSON) -> Answer:
        """``body`` as JSON."""
        # Behind a proxy it is a header that says whether it goes over TLS.
        scheme = self.http.scheme if settings.SECURE_PROXY_SSL_HEADER else self._scope.get("scheme", "http")
        own = _usual(_security, str(scheme), kind)
        found = [*own, (b"X-Request-Id", self.id.encode()), *written(headers.items())]
        if self.key is not None and self.key.origins:
            origin = self._headers.get(b"origin", b"").decode("latin-1")
            found += written({"Vary": "Origin", **cors.shared(origin, self.key)}.items())
        return Answer(status, found, _encode(body).encode())

    def problem(self, error: Exception) -> Answer:
        """The problem for ``error``; an internal one is logged under this request's id."""
        with structlog.contextvars.bound_contextvars(request_id=self.id):
            found = problem(error, self.id, ())
        return self.answer(found.status, found.body, found.headers, PROBLEM_TYPE)


def refusal(scope: Any, error: Exception) -> Answer:
    """The problem for a request that is not read to its end; over HTTP/1 it closes the connection."""
    found = PlainRequest(scope, dict(scope["headers"]), sent_on=False).problem(error)
    if scope["http_version"] < "2":
        found.headers.append((b"Connection", b"close"))
    return found
