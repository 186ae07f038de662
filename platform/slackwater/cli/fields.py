"""The fields of a task as options of `submit`, from what the client declares of them."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from math import isfinite
from typing import Any, Final, get_args, get_origin, get_type_hints

from slackwater.client.bodies import TaskIn

ELSEWHERE: Final = frozenset({"handler", "script", "args", "kwargs"})


def read_json(text: str) -> Any:
    """JSON as the standard has it; ValueError also for numbers that only Python writes, and for what is too deep."""
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise ArgumentTypeError(f"must be JSON: {error}") from None


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is no number of JSON")
    return value


def flags() -> dict[str, dict[str, Any]]:
    """Each option with how argparse reads it."""
    found = {}
    for name, kind in get_type_hints(TaskIn).items():
        if name not in ELSEWHERE:
            flag = "--tag" if name == "tags" else "--" + name.replace("_", "-")
            found[flag] = {"dest": f"field_{name}", **_reading(kind)}
    return found


def _reading(kind: Any) -> dict[str, Any]:
    kinds = {get_origin(one) or one for one in (get_args(kind) if "|" in str(kind) else (kind,))}
    if bool in kinds:
        return {"action": "store_const", "const": True}
    for plain in (int, float):
        if plain in kinds:
            return {"type": plain, "metavar": "NUMBER"}
    if str in kinds:
        return {"metavar": "TEXT"}
    if "Literal" in str(kind):
        return {"choices": get_args(kind)}
    if "Sequence" in str(kind):
        return {"action": "append", "metavar": "TEXT"}
    return {"type": _json, "metavar": "JSON"}
