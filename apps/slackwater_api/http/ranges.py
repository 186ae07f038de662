"""Downloads: in whole or one range of it (RFC 9110, 14), streamed in pieces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from django.http import HttpResponseBase, StreamingHttpResponse
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from slackwater_api.http.problems import RangeNotSatisfiable

HEADERS: Final = [
    OpenApiParameter(
        "Range", str, OpenApiParameter.HEADER, description="One range of bytes: bytes=0-999 or bytes=-500."
    ),
    OpenApiParameter(
        "If-Range", str, OpenApiParameter.HEADER, description="The ETag: the range only of that very content, else all."
    ),
]
_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


def asked(header: str, size: int) -> tuple[int, int] | None:
    """The first byte that is asked for, and that after the last; ``None`` where all is to be sent.

    A range that is not understood, or more than one, is passed over, as the RFC allows. ``RangeNotSatisfiable`` for one that
    has no byte of the content.
    """
    found = _RANGE.fullmatch(header.replace(" ", ""))
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        start, end = max(size - int(last), 0), size
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= size or start >= end:
        raise RangeNotSatisfiable(size)
    return start, end


def download(
    request: Request, name: str, size: int, sha256: str, content: Callable[[int, int], Iterator[bytes]]
) -> HttpResponseBase:
    """``content(start, end)`` as a file to be saved: whatever it is, no browser shows it as a page of this server."""
    etag = f'"{sha256}"'
    same = get_conditional_response(request._request, etag=etag)
    if same is not None:
        same["ETag"] = etag
        return same
    meant = request.META.get("HTTP_IF_RANGE", etag) == etag
    part = asked(request.META.get("HTTP_RANGE", ""), size) if meant else None
    start, end = part or (0, size)
    pieces = content(start, end) if request.method == "GET" else iter(())
    response = StreamingHttpResponse(
        pieces, status=206 if part else 200, content_type="application/octet-stream",
        headers={"Content-Length": str(end - start), "Accept-Ranges": "bytes", "ETag": etag},
    )  # fmt: skip
    if part:
        response["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    response["Content-Disposition"] = content_disposition_header(as_attachment=True, filename=name) or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    return response
