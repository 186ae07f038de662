"""Pages of other origins (CORS): a key names the origins whose pages may read what it is answered; none by default.

A browser asks first, without the key: such a question is answered for the origins of any key. No cookie counts here, so a
page can do with a key only what whoever holds the key can do anyhow.
"""

from __future__ import annotations

import time
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

from slackwater_tenants.keys import allowed_origins
from slackwater_tenants.models import ApiKey

KNOWN_S: Final = 10.0
"""A process asks this often which origins there are."""
PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, POST, PATCH, PUT, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, If-Range, "
    "Last-Event-ID, Range, Tus-Resumable, Upload-Length, Upload-Metadata, Upload-Offset, X-Request-Id, traceparent, "
    "tracestate",
    "Access-Control-Max-Age": "600",
}
EXPOSED: Final = (
    "Accept-Ranges, Allow, Content-Disposition, Content-Range, Deprecation, ETag, Idempotency-Replayed, Link, Location, "
    "RateLimit, RateLimit-Policy, Retry-After, Server-Timing, Sunset, Tus-Resumable, Tus-Version, Upload-Expires, "
    "Upload-Length, Upload-Offset, WWW-Authenticate, X-Request-Id"
)


class _Known:
    """The origins of all keys, as this process was last told."""

    def __init__(self) -> None:
        self.until = float("-inf")
        self.origins: frozenset[str] = frozenset()

    def has(self, origin: str) -> bool:
        """Whether any key names it."""
        now = time.monotonic()
        if now >= self.until:
            self.origins, self.until = allowed_origins(), now + KNOWN_S
        return origin in self.origins

    def forget(self) -> None:
        """Ask anew: a key was made."""
        self.until = float("-inf")


known = _Known()


def preflight(request: HttpRequest) -> HttpResponse | None:
    """The answer to a browser that asks whether a page may ask; ``None`` for any other request, and other origins."""
    origin = request.META.get("HTTP_ORIGIN")
    if request.method != "OPTIONS" or not origin or "HTTP_ACCESS_CONTROL_REQUEST_METHOD" not in request.META:
        return None
    if not known.has(origin):
        return None
    return HttpResponse(status=204, headers={"Access-Control-Allow-Origin": origin, "Vary": "Origin", **PREFLIGHT})


def share(request: HttpRequest, response: HttpResponseBase, key: ApiKey) -> None:
    """Let the page that asks read the answer, where its origin is one of the key's."""
    patch_vary_headers(response, ("Origin",))
    for name, value in shared(request.META.get("HTTP_ORIGIN", ""), key).items():
        response[name] = value


def shared(origin: str, key: ApiKey) -> dict[str, str]:
    """The headers that let a page of this origin read an answer; none where the key does not name it."""
    if origin not in key.origins:
        return {}
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED}
