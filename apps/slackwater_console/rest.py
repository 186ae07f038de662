"""Asks a view of the REST interface in this process: the same checks, limits, events and history as over the network."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse, HttpResponseBase
from django.urls import resolve
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from slackwater_console.person import Person

PREFIX = "/api/v1/"
PARTS: Final = re.compile(r"[.\[\]]+")


class Refused(Exception):
    """The view refused, with a problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status, self.problem = status, problem
        super().__init__(problem.get("detail", ""))

    @property
    def words(self) -> str:
        """Every fault in a sentence, with the field it is in; and how long to wait, where that helps."""
        return self.told({})

    def told(self, labels: Mapping[str, str]) -> str:
        """The same for a form: what its page calls a field stands for the path to it."""
        faults = self.problem.get("errors") or [self.problem]
        places = (_place(each.get("field") or "", labels) for each in faults)
        told = [
            ": ".join(filter(None, (place, each.get("detail")))) for place, each in zip(places, faults, strict=True)
        ]
        if wait := self.problem.get("retry_after_s"):
            told.append(f"Try again in {wait} s.")
        return " · ".join(told)


def _place(path: str, labels: Mapping[str, str]) -> str:
    """``At`` for ``rule.times[0]``, where a form calls its field ``times`` so; with the names that stand inside it."""
    parts = PARTS.split(path)
    inner = max((n for n, part in enumerate(parts) if part in labels), default=None)
    if inner is None:
        return path
    return ", ".join([labels[parts[inner]], *(part for part in parts[inner + 1 :] if part[:1].isalpha())])


def ask(
    person: Person, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None, once: str = ""
) -> Any:
    """What the view at ``path`` answers to a person, as JSON has it; raises ``Refused``.

    ``once``: an idempotency key, so that what a form sends twice is done once.
    """
    head = {"HTTP_IDEMPOTENCY_KEY": once} if once else {}
    content = b"" if body is None else json.dumps(body).encode()
    response: Any = fetch(person, method, path, query=urlencode(query or {}), content=content, head=head)
    return json.loads(response.content) if response.content else None


def fetch(
    person: Person,
    method: str,
    path: str,
    *,
    query: str = "",
    content: bytes = b"",
    head: Mapping[str, str] | None = None,
) -> HttpResponseBase:
    """The answer of the view itself: a file stays a stream."""
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": (PREFIX + path).encode().decode("latin-1"), "QUERY_STRING": query,
        "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(content)), "wsgi.input": io.BytesIO(content),
        "SERVER_NAME": "localhost", "SERVER_PORT": "80", **(head or {}),
    }  # fmt: skip
    request = WSGIRequest(environ)
    vars(request)["_force_auth_user"] = person  # DRF's own way to say who asks, instead of a key
    found = resolve(request.path_info)
    response: HttpResponseBase = found.func(request, *found.args, **found.kwargs)
    if isinstance(response, Response):
        response.content = b"" if response.data is None else JSONRenderer().render(response.data)
    if response.status_code >= 400:
        problem = json.loads(response.content) if isinstance(response, HttpResponse) and response.content else {}
        raise Refused(response.status_code, problem)
    return response
