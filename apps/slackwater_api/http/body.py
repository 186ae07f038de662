"""A request's JSON body, read so that nothing a client sends can reach the database and fail there."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn
from uuid import UUID

from django.http import HttpRequest

from scheduler_ext.core.errors import InvalidInput, TooLarge
from slackwater_api.http.problems import MalformedBody, UnsupportedMediaType
from slackwater_conf import conf

MAX_DEPTH = 100
"""Levels of arrays and objects in a body."""


def read_bytes(request: HttpRequest) -> bytes:
    """The raw body; ``TooLarge`` beyond the platform's limit, whatever its length header says."""
    limit: int = conf().api_max_body_bytes
    try:
        announced = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        raise MalformedBody("The Content-Length header is not a number.") from None
    if announced > limit:
        raise TooLarge(f"The body has {announced} bytes; the platform allows {limit}.", limit=limit)
    body = request.read(limit + 1)
    if len(body) > limit:
        raise TooLarge(f"The body has more than {limit} bytes.", limit=limit)
    return bytes(body)


def read_json(request: HttpRequest) -> Any:
    """The body as JSON; an empty one is ``MalformedBody``."""
    kind = request.META.get("CONTENT_TYPE") or "application/json"
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType
    return parse(read_bytes(request))


def read_fields(request: HttpRequest, *known: str) -> dict[str, Any]:
    """The body as a JSON object; ``InvalidInput`` names a field that is not known."""
    data = read_json(request)
    if not isinstance(data, dict):
        raise InvalidInput("The body must be an object.")
    for name in data:
        if name not in known:
            words = f"known: {', '.join(sorted(known))}" if known else "the body is empty, or {}"
            raise InvalidInput(f"there is no such field; {words}", field=name[:60])
    return data


def read_object(request: HttpRequest, *known: str) -> dict[str, Any]:
    """As ``read_fields``; without a body, an empty object."""
    length = request.META.get("CONTENT_LENGTH")
    if length == "0" or not (length or request.META.get("HTTP_TRANSFER_ENCODING")):
        return {}
    return read_fields(request, *known)


def read_task_id(data: dict[str, Any], name: str) -> UUID | None:
    """A field as the id of a task; ``None`` where it is not given."""
    if name not in data:
        return None
    try:
        return UUID(data[name] if isinstance(data[name], str) else "")
    except ValueError:
        raise InvalidInput("must be the id of a task", field=name) from None


def read_flag(data: dict[str, Any], name: str) -> bool:
    """A field as true or false; false where it is not given."""
    value = data.get(name, False)
    if not isinstance(value, bool):
        raise InvalidInput("must be true or false", field=name)
    return value


def _no_constant(text: str) -> NoReturn:
    raise MalformedBody(f"The body is not valid JSON: {text} is no JSON value.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise MalformedBody(f"The body is not valid JSON here: the number {text[:40]} is too large.")
    return number


def parse(body: bytes) -> Any:
    """``body`` as strict JSON in UTF-8 that PostgreSQL can store: no NaN, no NUL, no lone surrogate, no great depth."""
    if not body:
        raise MalformedBody("The body is empty; it must be JSON.")
    try:
        data = json.loads(body.decode(), parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not UTF-8: byte {error.start} is wrong.") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise MalformedBody(f"The body is not valid JSON: {error.msg} at {place}.") from None
    except ValueError:
        raise MalformedBody("The body is not valid JSON here: a number has too many digits.") from None
    except RecursionError:
        raise MalformedBody(f"The body is nested more than {MAX_DEPTH} levels deep.") from None
    # The walk is for the few bodies that could hold what must be refused; the others skip it.
    if b"\\u" in body or body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _check(data)
    return data


def _check(data: Any) -> None:
    """Refuse strings PostgreSQL cannot store, and depth, naming the path. Iterative: depth must not hurt it."""
    stack: list[tuple[Any, str, int]] = [(data, "", 1)]
    while stack:
        value, path, depth = stack.pop()
        if isinstance(value, str):
            _check_text(value, path)
        elif isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                raise InvalidInput(f"is nested more than {MAX_DEPTH} levels deep", field=path[:200] or None)
            if isinstance(value, list):
                stack += [(entry, f"{path}[{n}]", depth + 1) for n, entry in enumerate(value)]
                continue
            for name, entry in value.items():
                inner = f"{path}.{name}" if path else name or '""'
                # A name that cannot be stored cannot be answered either: it is told by its escapes.
                _check_text(name, inner.replace("\x00", "\\x00").encode("ascii", "backslashreplace").decode()[:200])
                stack.append((entry, inner, depth + 1))


def _check_text(text: str, path: str) -> None:
    if "\x00" in text:
        raise InvalidInput("must not contain the NUL character", field=path[:200] or None)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("is not valid Unicode", field=path[:200] or None) from None
