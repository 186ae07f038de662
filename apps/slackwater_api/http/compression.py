"""Compressed answers: JSON that was asked for with GET, and nothing else.

A compressed answer that holds a secret and text of an attacker's choice betrays the secret by its length (BREACH). These
answers need a key, which no browser sends by itself, and show no secret: those that do come by POST, and the admin's pages
use cookies, so neither is compressed. Live streams are not compressed either.
"""

from __future__ import annotations

import gzip
import re
from typing import Final

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

SHORTEST: Final = 1_400
"""What fits into one packet is not made smaller."""
LEVEL: Final = 4
SUFFIX: Final = '-gzip"'
"""How the ETag of the compressed answer ends: another representation has another tag."""
ACCEPTS: Final = re.compile(rb"(?:^|[\s,])gzip(?!\s*;\s*q=0(?:\.0*)?(?:\s|,|$))")


def compressed(content: bytes) -> bytes:
    """``content`` by gzip, always the same for the same."""
    return gzip.compress(content, LEVEL, mtime=0)


def compress(method: str, accepted: bytes, response: HttpResponseBase) -> HttpResponseBase:
    """The answer, compressed where that is of use and the client takes it."""
    if method != "GET" or response.status_code != 200 or not isinstance(response, HttpResponse):
        return response
    if len(response.content) < SHORTEST or "json" not in response.headers.get("Content-Type", ""):
        return response
    patch_vary_headers(response, ("Accept-Encoding",))
    if ACCEPTS.search(accepted):
        encode(response, compressed(response.content))
    return response


def encode(response: HttpResponse, content: bytes) -> None:
    """Give the answer this compressed content, and its own ETag."""
    response.content = content
    response["Content-Encoding"] = "gzip"
    if response.has_header("Content-Length"):
        response["Content-Length"] = str(len(content))
    if response.has_header("ETag"):
        response["ETag"] = response["ETag"][:-1] + SUFFIX
