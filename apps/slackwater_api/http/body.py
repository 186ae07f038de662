"""A request's JSON body, read so that nothing a client sends can reach the database and fail there."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final, NoReturn
from uuid import UUID

from django.http import HttpRequest

from scheduler_ext.core.errors import Faults, InvalidInput, TooLarge
from slackwater_api.http import cost
from slackwater_api.http.pieces import is_deep, split
from slackwater_api.http.problems import MalformedBody, UnsupportedMediaType
from slackwater_conf import conf

MAX_DEPTH: Final = 100
"""Levels of arrays and objects in a body."""
MAX_NAME: Final = 1_000
"""Letters in the name of an object's member."""
MAX_PATH: Final = 200
DENSE: Final = 65_536
"""Bytes of a body that is looked at before it is read: a smaller one takes little, however dense it is."""


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


def read_submission(request: HttpRequest) -> Any:
    """The body of a submission as JSON; the tasks of a large one are made one by one, as they are asked for."""
    kind = request.META.get("CONTENT_TYPE") or "application/json"
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType
    return parse_submission(read_bytes(request))


def read_fields(request: HttpRequest, *known: str) -> dict[str, Any]:
    """The body as a JSON object; ``InvalidInput`` names a field that is not known."""
    return _only(read_json(request), known)


def _only(data: Any, known: tuple[str, ...]) -> dict[str, Any]:
    faults = Faults()
    fields = faults.unknown(_object(data), known)
    faults.tell()
    return fields


def _object(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InvalidInput("The body must be an object.")
    return data


def read_any_object(request: HttpRequest) -> dict[str, Any]:
    """The body as a JSON object of any names; without a body, an empty one."""
    length = request.META.get("CONTENT_LENGTH")
    if length == "0" or not (length or request.META.get("HTTP_TRANSFER_ENCODING")):
        return {}
    return _object(read_json(request))


def read_object(request: HttpRequest, *known: str) -> dict[str, Any]:
    """As ``read_fields``; without a body, an empty object."""
    return _only(read_any_object(request), known)


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


def _each_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, unless a name stands in it twice: nobody can tell which of the values is meant."""
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        twice = next(name for n, name in enumerate(names) if name in names[:n])[:60]
        raise MalformedBody(f"The body has an object with the name {twice!r} twice.")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise MalformedBody(f"The body is not valid JSON here: the number {text[:40]} is too large.")
    return number


def parse(body: bytes) -> Any:
    """``body`` as strict JSON in UTF-8 that PostgreSQL can store: no NaN, no NUL, no lone surrogate, no great depth.

    ``TooLarge`` for what would take too much memory, before anything is made of it.
    """
    if _may_be_dear(body):
        _refuse_dear(body)
    return _parse(body)


def parse_submission(body: bytes) -> Any:
    """As :func:`parse`; the tasks of a large one are read one by one, and ``Pieces`` stand for their array."""
    found = split(body, _load) if _may_be_dear(body) else None
    if found is None:
        return parse(body)
    pieces, rest = found
    pieces.check(parse, "" if body.lstrip()[:1] == b"[" else "tasks")
    data = parse(rest)
    if data is None:
        return pieces
    return {**data, "tasks": pieces} if isinstance(data, dict) and data.get("tasks") is None else data


def _parse(body: bytes) -> Any:
    if not body:
        raise MalformedBody("The body is empty; it must be JSON.")
    data = _load(body)
    # The walk is for bodies that could hold what must be refused; the small and plain ones skip it.
    escapes = b"\\u" in body
    if escapes or len(body) > MAX_NAME or body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _check(data, escapes=escapes)
    return data


def _load(body: bytes) -> Any:
    try:
        # Pairs take more memory than an object does: what is longer is read without them.
        hook = _each_once if len(body) <= DENSE else None
        return json.loads(body.decode(), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=hook)
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not UTF-8: byte {error.start} is wrong.") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise MalformedBody(f"The body is not valid JSON: {error.msg} at {place}.") from None
    except ValueError:
        raise MalformedBody("The body is not valid JSON here: a number has too many digits.") from None
    except RecursionError:
        raise MalformedBody(f"The body is nested more than {MAX_DEPTH} levels deep.") from None


def _may_be_dear(body: bytes) -> bool:
    """Whether reading it might take too much memory, as it looks at once; ``TooLarge`` where it has too many values."""
    limit: int = conf().api_max_body_values
    if len(body) <= min(limit, DENSE):
        return False
    marks = cost.roughly(body)
    # What stands inside strings is left out only where it matters: a script may well hold many brackets.
    if marks.values > limit and cost.marks_of(body).values > limit:
        raise TooLarge(f"The body has more than {limit} values.", limit=limit)
    return cost.is_dear(body, marks)


def _refuse_dear(body: bytes) -> None:
    if cost.is_dear(body, cost.marks_of(body)):
        if is_deep(body, MAX_DEPTH):
            raise MalformedBody(f"The body is nested more than {MAX_DEPTH} levels deep.")
        most = cost.TIMES * len(body) + cost.ALLOWED
        raise TooLarge(f"To read the body might take more than {most} bytes of memory: it is too dense.", limit=most)


def _check(data: Any, *, escapes: bool) -> None:
    """Refuse depth, long names and strings PostgreSQL cannot store, naming the path.

    Iterative, and it holds one iterator for each level: neither depth nor size must hurt it. Only what is ``\\u``-escaped
    can be text that cannot be stored.
    """
    levels: list[Iterator[tuple[Any, Any]]] = [iter([(None, data)])]
    path: list[Any] = []
    while levels:
        for name, value in levels[-1]:
            if type(name) is str:
                _check_name(name, path, escapes=escapes)
            if isinstance(value, dict | list):
                path.append(name)
                if len(levels) > MAX_DEPTH:
                    raise InvalidInput(f"is nested more than {MAX_DEPTH} levels deep", field=_shown(path))
                levels.append(iter(value.items()) if isinstance(value, dict) else enumerate(value))
                break
            if escapes and isinstance(value, str):
                _check_text(value, path, name)
        else:
            levels.pop()
            if path:
                path.pop()


def _check_name(name: str, path: list[Any], *, escapes: bool) -> None:
    if escapes:
        _check_text(name, path, name)
    if len(name) > MAX_NAME:
        raise InvalidInput(f"has a name of more than {MAX_NAME} letters", field=_shown([*path, name]))


def _check_text(text: str, path: list[Any], name: Any) -> None:
    if "\x00" in text:
        raise InvalidInput("must not contain the NUL character", field=_shown([*path, name]))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("is not valid Unicode", field=_shown([*path, name])) from None


def _shown(path: list[Any]) -> str | None:
    """``tasks[1].args[0]``, as much of it as an answer shows. What cannot be stored is shown as an escape."""
    text = ""
    for name in path[1:]:
        if isinstance(name, int):
            text += f"[{name}]"
        else:
            text += f"{'.' if text else ''}{name[:MAX_PATH] or (chr(34) * 2 if not text else '')}"
        if len(text) > MAX_PATH:
            break
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()[:MAX_PATH] or None
