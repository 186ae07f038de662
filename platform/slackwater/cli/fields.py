"""The fields of a task as options of `submit`, from what the client declares of them."""

from __future__ import annotations

import json
from typing import Any, Final, get_args, get_origin, get_type_hints

from slackwater.client.bodies import TaskIn

ELSEWHERE: Final = frozenset({"handler", "script", "args", "kwargs"})


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
    return {"type": json.loads, "metavar": "JSON"}
