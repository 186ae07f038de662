"""The fields of a schedule as a client gives them: one set of names for REST, Python, commands and the admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from scheduler_ext.core.errors import DoesNotFit, Faults, InvalidInput
from slackwater_schedules.models import MAX_JITTER_S, MAX_MISSED_LIMIT, Schedule
from slackwater_schedules.occurrences import Missed
from slackwater_schedules.recurrence import Kind
from slackwater_schedules.rules import MAX_INTERVAL_S, check_zone, read_instant, read_rule
from slackwater_tasks.field_kinds import Flag, Object, Whole, clean_name
from slackwater_tasks.spec import parse_fields
from slackwater_tasks.submission import templates
from slackwater_tasks.submission.service import WORKFLOW_FIELDS

RULE_FIELDS: Final = frozenset({"kind", "rule", "time_zone", "start_at", "end_at"})
OBJECT: Final = Object()
NOT_SCHEDULED: Final = {
    "depends_on": "a scheduled task depends on nothing; overlap orders it with the one before",
    "condition": "a scheduled task depends on nothing",
    "map": "a scheduled task depends on nothing; a scheduled workflow may have it",
    "start_at": "the schedule says when it starts",
    "start_in_s": "the schedule says when it starts",
    "expires_at": "it belongs to one firing; expires_in_s counts from each",
    "idempotency_key": "each firing is made once already",
}
"""The fields of a task that a scheduled one has not, and why."""
OF_GRAPH: Final = frozenset({"depends_on", "condition", "map"})
"""Those of them that a task of a scheduled workflow has."""


def _fail(field: str, message: str) -> NoReturn:
    raise InvalidInput(message, field=field)


def _name(value: Any, field: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 100 or value != value.strip():
        _fail(field, "must be a text of 1 to 100 characters without spaces around it")
    clean_name(value, field)
    return value


def _choice(known: Sequence[str]) -> Callable[[Any, str], str]:
    def check(value: Any, field: str) -> str:
        if not isinstance(value, str) or value not in known:
            _fail(field, f"must be one of {', '.join(known)}")
        return value

    return check


def _template(value: Any, field: str) -> dict[str, Any]:
    for name, reason in NOT_SCHEDULED.items():
        if name in OBJECT.check(value, field):
            _fail(f"{field}.{name}", reason)
    return dict(value)


IN_WORKFLOW = tuple(name for name in WORKFLOW_FIELDS if name != "idempotency_key")


def _use_of_template(value: dict[str, Any], field: str) -> dict[str, Any]:
    known = ("template", *templates.USE)
    for name in value:
        if name not in known:
            _fail(f"{field}.{name[:60]}", f"there is no such field; known are {', '.join(known)}")
    templates.NAME.check(value["template"], f"{field}.template")
    return dict(value)


def _workflow_template(value: Any, field: str) -> dict[str, Any]:
    if "template" in OBJECT.check(value, field):
        return _use_of_template(value, field)
    for name in OBJECT.check(value, field):
        if name not in IN_WORKFLOW:
            _fail(f"{field}.{name[:60]}", f"there is no such field; known are {', '.join(IN_WORKFLOW)}")
    tasks = value.get("tasks")
    if not isinstance(tasks, list) or not tasks:
        _fail(f"{field}.tasks", "must be an array with at least one task")
    names = {task.get("name") for task in tasks if isinstance(task, dict) and isinstance(task.get("name"), str)}
    for n, task in enumerate(tasks):
        where = f"{field}.tasks[{n}]"
        for name in NOT_SCHEDULED.keys() & OBJECT.check(task, where).keys() - OF_GRAPH:
            _fail(f"{where}.{name}", NOT_SCHEDULED[name])
        needs = task.get("depends_on", [])
        for place, needed in enumerate(needs if isinstance(needs, list) else []):
            if isinstance(needed, str) and needed and needed not in names:
                fault = "must be the name of a task of the template"
                raise DoesNotFit(fault, field=f"{where}.depends_on[{place}]")
    return dict(value)


def _zone(value: Any, _field: str) -> str:
    return check_zone(value)


def _instant(value: Any, field: str) -> datetime | None:
    return None if value is None else read_instant(value, field, "UTC")


ANY_MOMENT: Final = datetime(2000, 1, 1, tzinfo=UTC)
FIELDS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "name": _name,
    "kind": _choice([*Kind]),
    "rule": OBJECT.check,
    "time_zone": _zone,
    "start_at": _instant,
    "end_at": _instant,
    "jitter_s": Whole(0, MAX_JITTER_S).check,
    "paused": Flag().check,
    "missed": _choice(Missed.values),
    "missed_after_s": Whole(0, MAX_INTERVAL_S).check,
    "missed_limit": Whole(1, MAX_MISSED_LIMIT).check,
    "missed_window_s": Whole(0, MAX_INTERVAL_S).check,
    "overlap": _choice(Schedule.Overlap.values),
    "task": _template,
    "workflow": _workflow_template,
}


def parse_schedule(data: Any, *needed: str) -> dict[str, Any]:
    """Check ``data`` field by field; ``InvalidInput`` names each at fault. What belongs together is checked by services."""
    if not isinstance(data, Mapping):
        raise InvalidInput("must be an object")
    faults = Faults()
    fields = faults.unknown(data, FIELDS)
    values = {name: faults.of(FIELDS[name], value, name) for name, value in fields.items()}
    faults.needed(fields, *needed)
    _look_inside(faults, values if not needed else {"rule": {}, **values})
    faults.tell()
    return values


def _look_inside(faults: Faults, values: Mapping[str, Any]) -> None:
    """Note the faults of a rule, and of each task, that is well formed so far: one answer tells of all."""
    if values.get("kind") and values.get("rule") is not None:
        zone = values.get("time_zone") or "UTC"
        faults.of(read_rule, values["kind"], values["rule"], zone=zone, anchor=ANY_MOMENT)
    if values.get("task"):
        faults.of(parse_fields, values["task"], "task")
    for n, task in enumerate((values.get("workflow") or {}).get("tasks", ())):
        faults.of(parse_fields, task, f"workflow.tasks[{n}]")
