"""An operation beside its shape: the parameters it knows, the fields it can be narrowed to, its ETag.

``describe`` writes it from the same words as the OpenAPI document, so what is served and what is described are one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from django.utils.http import http_date
from rest_framework import serializers as s
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import DoesNotFit, InvalidInput
from slackwater_api.http.pagination import asked_page, decode, encode
from slackwater_api.http.problems import PreconditionFailed

PARTIAL = "application/vnd.slackwater.partial+json"
"""The media type of an answer that ``fields`` has narrowed: a part of the shape, not the shape."""
QUOTE = "application/vnd.slackwater.quote+json"
"""The media type of a quote: what a submission would do, of which nothing was done."""
TAGS = re.compile(r'\s*(?:W/)?"[\x21\x23-\x7e]*"\s*(?:,\s*(?:W/)?"[\x21\x23-\x7e]*"\s*)*')
TAG = re.compile(r'(W/)?("[\x21\x23-\x7e]*")')
DEEP = frozenset({"metadata"})
"""Parameters that stand for an object: ``metadata[name]=value``."""
MAX_HEADER = 4_000
NOTICE = timedelta(days=180)
IDENTITY = ("id", "name", "day", "slug", "sha256", "category", "tier", "kind", "number", "attempt", "stream", "at")
"""What an item of a list may be called by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecated:
    """That an operation is to go: it is announced as long before as ``docs/api.md`` promises."""

    since: datetime
    sunset: datetime
    words: str
    """The address of what is said about it."""

    def __post_init__(self) -> None:
        if self.sunset - self.since < NOTICE:
            raise ValueError(f"what is to go is announced {NOTICE.days} days before")

    def tell(self, response: HttpResponse) -> None:
        """Set the headers of RFC 9745 and RFC 8594."""
        response["Deprecation"] = f"@{int(self.since.timestamp())}"
        response["Sunset"] = http_date(self.sunset.timestamp())
        link = f'<{self.words}>; rel="deprecation"'
        response["Link"] = f"{response['Link']}, {link}" if response.has_header("Link") else link


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation's parameters and the names of what it answers."""

    query: frozenset[str]
    """Every parameter it takes in the query."""
    scope: str
    """The scope it needs; ``any``: whichever the key has."""
    keeps_answer: bool = False
    """Whether it heeds an idempotency key by keeping its answer. Submissions do by the tasks they stored."""
    takes_nothing: bool = False
    """Whether its body must be empty, or ``{}``."""
    quotes: bool = False
    """Whether ``dry_run`` asks for a quote instead."""
    fields: frozenset[str] = frozenset()
    """The names that ``fields`` may list: of a list, the fields of its items. Empty: the answer cannot be narrowed."""
    is_list: bool = False
    sorted_here: frozenset[str] = frozenset()
    """The fields by which a list can be sorted that is paged here. The others are, in the database."""
    deprecated: Deprecated | None = None

    def check(self, query: QueryDict) -> None:
        """``InvalidInput`` for a parameter there is not: a misspelt one is refused, not passed over."""
        for name, values in query.lists():
            if len(values) > 1:
                raise InvalidInput("is given more than once; several values stand in one, by comma", field=name[:60])
            if name not in self.query and not (name.endswith("]") and name.partition("[")[0] in self.query & DEEP):
                words = ", ".join(sorted(self.query)) or "none"
                raise InvalidInput(f"there is no such parameter; known are {words}", field=name[:60])

    def arrange(self, query: QueryDict, data: Any) -> tuple[Any, bool]:
        """``data`` sorted and narrowed as the query asks, and whether it was narrowed."""
        if self.sorted_here:
            data = page_of(data["items"], query, self.sorted_here)
        if not self.fields or "fields" not in query:
            return data, False
        names = self._asked_fields(str(query["fields"]))
        if self.is_list:
            return {**data, "items": [_part(item, names) for item in data["items"]]}, True
        return _part(data, names), True

    def _asked_fields(self, text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in self.fields:
                known = ", ".join(sorted(self.fields))
                raise InvalidInput(f"there is no field {name[:60]!r}; known are {known}", field="fields")
        return names


def asks_quote(request: Request) -> bool:
    """Whether the client asks what a submission would do; ``InvalidInput`` for a word that is neither yes nor no."""
    text = str(request.query_params.get("dry_run", "false"))
    if text not in {"true", "false"}:
        raise InvalidInput("must be true or false", field="dry_run")
    return text == "true"


def names_of(answer: Any) -> tuple[frozenset[str], frozenset[str], bool]:
    """Of a shape: its fields, those of them that can be sorted by, and whether it is a list (then: of its items)."""
    serializer = answer() if isinstance(answer, type) else answer
    if not isinstance(serializer, s.Serializer):
        return frozenset(), frozenset(), False
    fields: dict[str, Any] = dict(serializer.fields)
    is_list = "items" in fields and fields.keys() <= {"items", "next_cursor"}
    if is_list:
        fields = dict(fields["items"].child.fields)
    nested = (s.BaseSerializer, s.ListField, s.DictField, s.JSONField)
    plain = frozenset(name for name, field in fields.items() if not isinstance(field, nested))
    return frozenset(fields), plain, is_list


def _part(item: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: item[name] for name in names if name in item}


def read_sort(text: str, known: Collection[str]) -> tuple[str, bool]:
    """``-name`` as (name, descending); ``InvalidInput`` for what cannot be sorted by."""
    name = text.removeprefix("-")
    if name not in known:
        raise InvalidInput(f"must be one of {', '.join(sorted(known))}, with - before it for descending", field="sort")
    return name, text.startswith("-")


def page_of(items: list[dict[str, Any]], query: QueryDict, known: Collection[str]) -> dict[str, Any]:
    """The page that the query asks for of a list that was made in memory.

    The cursor holds the place of the last item shown and what that item is called: where others have come or gone
    meanwhile, the next page begins after it all the same.
    """
    limit, cursor = asked_page(query)
    text = str(query.get("sort", ""))
    if "sort" in query:
        items = _sorted(items, text, known)
    names, start = [_called(item) for item in items], 0
    if cursor:
        sort, start, name = decode(cursor, str, int, str)
        if sort != text:
            raise DoesNotFit("belongs to a list sorted otherwise", field="cursor")
        if names[start - 1 : start] != [name] and name in names:
            start = names.index(name) + 1
    end = start + limit
    following = encode(text, str(end), names[end - 1]) if end < len(items) else None
    return {"items": items[start:end], "next_cursor": following}


def _called(item: dict[str, Any]) -> str:
    """What tells an item from the others of its list, and stays."""
    named = [item[name] for name in IDENTITY if name in item]
    return hashlib.blake2b(JSONRenderer().render(named), digest_size=9).hexdigest()


def _sorted(items: list[dict[str, Any]], text: str, known: Collection[str]) -> list[dict[str, Any]]:
    """By one field; those without it come last either way, and equals stay as they were."""
    name, descending = read_sort(text, known)
    some = [item for item in items if item[name] is not None]
    some.sort(key=lambda item: item[name], reverse=descending)
    return some + [item for item in items if item[name] is None]


# -- entity tags ------------------------------------------------------------------------------------------------------
def tag_of(content: bytes) -> str:
    """The strong ETag of a representation."""
    return f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def _asked_tags(request: Request, name: str, *, strong: bool) -> list[str] | None:
    """The tags of a header; ``["*"]`` for any; ``None`` without the header."""
    text = request.META.get(f"HTTP_{name.upper().replace('-', '_')}")
    if text is None:
        return None
    if text.strip() == "*":
        return ["*"]
    if len(text) > MAX_HEADER or not TAGS.fullmatch(text):
        raise InvalidInput('must be * or entity tags: "8f1c…"', field=name)
    # That of the compressed answer is the same thing, named by the front (see ``compression.py``).
    return [tag.replace('-gzip"', '"') for weak, tag in TAG.findall(text) if not (strong and weak)]


def answer(operation: Operation, request: Request, response: Response) -> HttpResponse:
    """A successful answer as it is sent: sorted, narrowed and with its ETag; 304 if the client has it already."""
    query = request._request.GET
    reads = request.method in {"GET", "HEAD"}
    data, narrowed = operation.arrange(query, response.data) if reads else (response.data, False)
    content: bytes = JSONRenderer().render(data)
    tag = tag_of(content)
    known = _asked_tags(request, "If-None-Match", strong=False) if reads else None
    found: HttpResponse
    if known and (tag in known or known == ["*"]):
        found = HttpResponse(status=304)
    else:
        found = HttpResponse(content, content_type=PARTIAL if narrowed else "application/json")
    for name, value in response.headers.items():
        found.headers.setdefault(name, value)
    if found.status_code == 304:
        del found["Content-Type"]
    found["ETag"] = tag
    if "cursor" in operation.query and (link := _pages(query, data.get("next_cursor"))):
        found["Link"] = link
    return found


def _pages(query: QueryDict, following: str | None) -> str:
    """The first page and the next one as links (RFC 8288), relative to the address that was asked for."""
    pages: dict[str, str | None] = {"next": following} if following else {}
    if "cursor" in query:
        pages["first"] = None
    links = []
    for relation, cursor in pages.items():
        given = query.copy()
        given.pop("cursor", None)
        if cursor:
            given["cursor"] = cursor
        links.append(f'<?{given.urlencode()}>; rel="{relation}"')
    return ", ".join(links)


@contextmanager
def unchanged(request: Request, rows: QuerySet[Any], now: Callable[[], Any]) -> Iterator[None]:
    """Do what follows only if the resource still is what ``If-Match`` names; without the header, in any case.

    ``rows`` are locked first, so that nothing comes between the comparison and the change; ``now`` reads the resource
    as GET answers it. Raises ``PreconditionFailed`` (412).
    """
    wanted = _asked_tags(request, "If-Match", strong=True)
    if wanted is None:
        yield
        return
    with transaction.atomic():
        list(rows.select_for_update().values_list("pk", flat=True))
        tag = tag_of(JSONRenderer().render(now()))
        if wanted != ["*"] and tag not in wanted:
            raise PreconditionFailed(etag=tag)
        yield
