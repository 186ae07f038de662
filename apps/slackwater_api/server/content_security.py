"""The content security policy: what a page of this server may load and run. ``docs/security.md`` has the reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

HEADER: Final = "Content-Security-Policy"
NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Answers that are data, and plain pages."""
_PAGE: Final = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action {forms}; base-uri 'none'; frame-ancestors 'none'"
)
REFERENCE: Final = _PAGE.format(scripts="", forms="'none'")
"""The interactive reference page: its own scripts from this server, none written into the page."""
ADMIN: Final = _PAGE.format(scripts=" 'unsafe-eval'", forms="'self'")
"""The admin and its live pages. Alpine, which the theme is built on, compiles the expressions in its attributes."""
CONSOLE: Final = _PAGE.format(scripts="", forms="'self'")
"""The console of tenants' people, which is built on no such thing."""
BY_PREFIX: Final = (
    ("/admin/", ADMIN), ("/console/", CONSOLE), ("/api/docs/errors", NOTHING), ("/api/docs/", REFERENCE),
)  # fmt: skip


def policy_of(path: str) -> str:
    """The policy for a page, by its path."""
    return next((policy for prefix, policy in BY_PREFIX if path.startswith(prefix)), NOTHING)


class ContentSecurityPolicy:
    """Middleware: adds the policy to every answer. Those of the API's own front get theirs in ``front.py``."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer, with the policy."""
        response = self.get_response(request)
        response.headers[HEADER] = policy_of(request.path_info)
        return response
