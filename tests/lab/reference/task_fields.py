"""docs/reference/task-fields.md, from the declaration of a task's fields."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from slackwater_tasks.field_kinds import Choice, Field, Text
from slackwater_tasks.spec import FIELDS
from tests.lab.reference.markdown import code, page, table
from tests.support.task_values import values_of

INTRO = """
What a task may be given, by the names that every interface uses: `POST /api/v1/tasks`, `slackwater.submit`, the admin's
form and the flags of `manage.py submit`. Exactly one of `handler`, `script` and `script_path` must be given; an unknown
field, or a value outside its limits, is refused with the field's path.
"""


def render() -> str:
    """The page."""
    parts: list[str] = []
    for group, fields in groupby(FIELDS.values(), key=lambda field: field.group):
        parts += [f"## {group}", table(("field", "value", "default", "flag", "can change while it waits", "meaning"),
                                       map(row, fields))]  # fmt: skip
    return page("Fields of a task", "`apps/slackwater_tasks/spec.py`", INTRO, *parts)


def row(field: Field) -> tuple[str, ...]:
    """One field."""
    flag = {"handler": "(first argument)"}.get(field.name, code(field.flag))
    null = ", or null" if field.nullable else ""
    return (
        code(field.name), values_of(field).words + null, default(field), flag, "yes" if field.editable else "", field.help
    )  # fmt: skip


def default(field: Field) -> str:
    """The value of a task that is not given the field."""
    if field.fallback:
        return field.fallback
    value: Any = field.kind.shown(field.default) if isinstance(field.kind, Choice) else field.default
    if value in (None, "", ()) and not isinstance(value, bool):
        return "" if isinstance(field.kind, Text) else "none"
    return code(str(value).lower() if isinstance(value, bool) else str(value))
