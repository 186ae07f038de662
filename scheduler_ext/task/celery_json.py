"""Values Celery's JSON has beyond JSON: moments, dates, times, decimals, UUIDs, bytes, and Django's lazy texts.

A value of such a type is written as Celery writes it, ``{"__type__": …, "__value__": …}``, and is read back as what it
was. Sets are written as lists.
"""

from __future__ import annotations

import json
from typing import Any, Final
from uuid import UUID

CALL: Final = "$celery"
"""The keyword argument under which a task keeps what Celery's call gave beside its arguments. A handler never sees it."""
ERRBACK: Final = "errback"
"""Says that a task is called for a failure, of which its arguments tell: Celery's request, exception and traceback."""
GATHERS: Final = "gathers"
"""Where the result of a task comes from that goes on as a canvas: names of tasks, nested as Celery nests results."""
TYPED: Final = "typed"
"""Marks arguments that hold values written in Celery's way."""
_PARTS: Final = {"__type__", "__value__"}
KOMBUS: Final = ("datetime", "date", "time", "decimal", "uuid", "bytes", "base64")
"""The types that kombu writes by itself."""


class _OfTheTeam(Exception):
    """A value is of a class that the team registered: how it is written, no annotation says."""


UNTOLD: Final = _OfTheTeam()
"""Stands for an argument that the handler alone can check."""


def dumps(value: Any) -> str:
    """Return the JSON text of a value, as Celery's serializer writes it; ``TypeError`` for what that cannot write."""
    from kombu.utils.json import JSONEncoder  # on first use: most values are plain

    class Encoder(JSONEncoder):
        def default(self, o: Any) -> Any:
            return list(o) if isinstance(o, (set, frozenset)) else super().default(o)

    return json.dumps(value, cls=Encoder, allow_nan=False, separators=(",", ":"))


def written(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments with every value beyond JSON written in Celery's way, and marked so; ``TypeError`` as :func:`dumps`."""
    told = kwargs.get(CALL) or {}
    plain = json.loads(dumps([args, {name: kwargs[name] for name in kwargs if name != CALL}]))
    return plain[0], {**plain[1], CALL: {**told, TYPED: True}}


def revived(value: Any) -> Any:
    """Read back every value that :func:`dumps` wrote in Celery's way; look-alikes stay as they are."""
    if isinstance(value, list):
        return [revived(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _PARTS:
        from kombu.utils.json import object_hook

        try:
            return object_hook(value)
        except (ValueError, TypeError, AttributeError, ArithmeticError):
            return value
    return {name: revived(each) for name, each in value.items()}


def as_schemas_say(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as a handler's schema describes them, where a moment or a UUID is text.

    In the place of one that holds a class which the team registered with kombu stands :data:`UNTOLD`.
    """
    given = {name: value for name, value in kwargs.items() if name != CALL}
    call = kwargs[CALL]
    if not (isinstance(call, dict) and call.get(TYPED)):
        return args, given
    return list(map(_told, args)), {name: _told(value) for name, value in given.items()}


def _told(value: Any) -> Any:
    try:
        return _texts(value)
    except _OfTheTeam:
        return UNTOLD


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _PARTS:
        if value["__type__"] not in KOMBUS:
            raise _OfTheTeam
        found = revived(value)
        return str(found) if isinstance(found, UUID) else value["__value__"]
    return {name: _texts(each) for name, each in value.items()}
