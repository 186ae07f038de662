"""Requests and answers without input or output: what is asked, and how often, is decided here for both clients.

An operation is a generator: it yields a ``Call`` and is sent the ``Answer``, or yields a ``Pause``. Who drives it owns
the connection and the clock.
"""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID, uuid4

from slackwater.client.errors import ApiError, Unreachable, refusal

T = TypeVar("T")
PREFIX: Final = "/api/v1"
LONGEST_PAUSE_S: Final = 30.0
"""A client that would have to wait longer is told so at once."""
TRANSIENT: Final = frozenset({408, 429, 502, 503, 504})
"""Answers after which the same request may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    held_s: float = 0.0
    """For how long the server may hold the answer back."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Its JSON; ``None`` without a body."""
        if not self.content:
            return None
        try:
            return json.loads(self.content)
        except ValueError:
            raise ApiError(self.status, {"detail": "the answer is no JSON: is this the API's address?"}) from None


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait."""

    seconds: float


Flow: TypeAlias = Generator[Call | Pause, Any, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How a request is made again: exponential back-off with jitter, and never before the server said."""

    most: int = 4
    base_s: float = 0.25
    max_s: float = 8.0
    chance: random.Random = field(default_factory=random.Random, repr=False)

    def pause(self, number: int, error: Exception) -> float | None:
        """Seconds until the next try after ``number`` tries; ``None``: not again."""
        if not is_transient(error) or number > self.most:
            return None
        asked = getattr(error, "retry_after_s", None)
        if asked is not None:
            return asked * self.chance.uniform(1.0, 1.1) if asked <= LONGEST_PAUSE_S else None
        return min(self.max_s, self.base_s * 2.0 ** (number - 1)) * self.chance.uniform(0.5, 1.0)


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.status in TRANSIENT)


def ask(call: Call, retries: Retries) -> Flow[Answer]:
    """Make a request, again where that is safe: what changes something carries a key that makes it happen once."""
    number = 0
    while True:
        number += 1
        try:
            answer: Answer = yield call
            if answer.status < 300:
                return answer
            error: Exception = refusal(answer.status, answer.content, answer.headers)
        except Unreachable as caught:
            error = caught
        pause = retries.pause(number, error)
        if pause is None:
            raise error
        yield Pause(pause)


def read(path: str, query: Mapping[str, Any] = MappingProxyType({}), *, held_s: float = 0.0) -> Call:
    """A ``GET``."""
    return Call(method="GET", path=PREFIX + path, query=words(query), held_s=held_s)


def change(method: str, path: str, body: Any = None, *, once: str | None = None, query: Any = None) -> Call:
    """A request that changes something; ``once`` is its idempotency key, a new one unless given."""
    headers = {} if method == "PUT" else {"Idempotency-Key": once or uuid4().hex}
    content = None if body is None else json.dumps(body, default=_plain, allow_nan=False).encode()
    if content is not None:
        headers["Content-Type"] = "application/json"
    return Call(method=method, path=PREFIX + path, query=words(query or {}), headers=headers, content=content)


def words(query: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as the API reads them: several values by comma, an object's by its names in brackets, none left out."""
    found: dict[str, str] = {}
    for name, value in query.items():
        if isinstance(value, Mapping):
            found |= {f"{name}[{inner}]": _word(one) for inner, one in value.items()}
        elif value is not None:
            found[name] = _word(value)
    return found


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(map(_word, value))
    return _plain(value) if isinstance(value, (date, UUID)) else str(value)


def _plain(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is None:
        raise TypeError(f"{value!r} has no time zone")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")
