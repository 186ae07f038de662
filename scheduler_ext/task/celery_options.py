"""What becomes of every option that Celery knows: the one table, and the functions that read options by it.

An option of a task, a call or a signature becomes a field of the task in the ledger, is kept by code of Celery's or
ours, means nothing here because the ledger sends no message, or is refused by its name. None is dropped in silence: what
this table does not name is refused of a call. A task may have attributes of its team's own, so of these only those are
refused that are most like an option. ``docs/reference/celery-options.md`` is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from fractions import Fraction
from math import isfinite
from typing import Any, Final

from scheduler_ext.core.errors import ConfigurationError, InvalidInput
from scheduler_ext.core.states import Repeats
from scheduler_ext.task.celery_json import CALL

MOST_ATTEMPTS: Final = 100
MOST_PRIORITY: Final = 1000


class Fate(StrEnum):
    """What becomes of an option."""

    FIELD = "becomes a field"
    KEPT = "kept"
    CHANGED = "changed"
    MEANINGLESS = "means nothing here"
    REFUSED = "refused"


TASK, CALLED, BOTH = "task", "call", "task, call"


@dataclass(frozen=True, slots=True)
class Option:
    """One of Celery's options: where it is given, and what becomes of it."""

    name: str
    given: str
    fate: Fate
    becomes: str


def _rows(names: str, given: str, fate: Fate, *becomes: str) -> tuple[Option, ...]:
    return tuple(Option(name, given, fate, " ".join(becomes)) for name in names.split())


_MESSAGE = "It says how a message travels; the ledger sends none."
OPTIONS: Final = (
    *_rows("countdown eta", CALLED, Fate.FIELD, "`start_at`. An `eta` without a zone is UTC."),
    *_rows("expires", BOTH, Fate.FIELD, "`expires_at` or `expires_in_s`: what has not begun by then ends as",
           "`expired`, in Celery's words `REVOKED`."),
    *_rows("priority", BOTH, Fate.FIELD, "`priority`, larger first. With a broker of Redis, where Celery's 0 comes",
           "first, it is 9 less that."),
    *_rows("time_limit", BOTH, Fate.FIELD, "`execution_cap_s`. Reached, the run gets `TaskInterrupted`, `on_failure` is",
           "given `TimeLimitExceeded`, and the task has failed."),
    *_rows("soft_time_limit", BOTH, Fate.KEPT, "`SoftTimeLimitExceeded` is raised in the run, at most a quarter of a",
           "second late. It needs a process of its own."),
    *_rows("max_retries", TASK, Fate.FIELD, "`total_attempts`, one more; `None` gives 100. More than 99 is refused.",
           "`retry(max_retries=…)` raises it for the task that runs."),
    *_rows("default_retry_delay autoretry_for dont_autoretry_for retry_kwargs retry_backoff retry_backoff_max",
           TASK, Fate.KEPT, "Celery's own code computes it."),
    *_rows("retry_jitter", TASK, Fate.KEPT, "Celery's own code computes it."),
    *_rows("rate_limit", TASK, Fate.CHANGED, "An execution rate of the handler, exact and of all workers together,",
           "where Celery counts in each worker; `6/m` is one in ten seconds. One that an operator has set for the handler",
           "stays."),
    *_rows("acks_late", TASK, Fate.KEPT, "Set: a run that is lost with its worker is repeated while attempts are left.",
           "Not set: its task has failed."),
    *_rows("reject_on_worker_lost acks_on_failure_or_timeout", TASK, Fate.MEANINGLESS,
           "What becomes of a lost run `acks_late` says; one that raised has failed."),
    *_rows("throws", TASK, Fate.MEANINGLESS, "It tells Celery's log what to expect; the ledger logs no failure."),
    *_rows("headers", CALLED, Fate.KEPT, "`self.request.headers`, in repeated attempts too."),
    *_rows("link", CALLED, Fate.KEPT, "A task of the same workflow."),
    *_rows("link_error", CALLED, Fate.KEPT, "A task of the same workflow, called once all it watches has ended and something",
           "failed: with `(request, exc, traceback)`, or the id alone where it takes one argument, as Celery calls it.",
           "That of a chain watches each step, that of a chord's body the header too. It is a single signature."),
    *_rows("ignore_result store_errors_even_if_ignored", BOTH, Fate.CHANGED, "The result is kept all the same: what",
           "follows in a chain needs it. `forget()` takes it away."),
    *_rows("track_started send_events trail", TASK, Fate.MEANINGLESS, "The ledger always knows what runs, and what it",
           "has submitted."),
    *_rows("typing", TASK, Fate.CHANGED, "Arguments that do not fit are refused at submission: their names, as with Celery,",
           "and their annotations. `False` allows anything."),
    *_rows("pydantic pydantic_strict pydantic_context pydantic_dump_kwargs resultrepr_maxsize name bind base",
           TASK, Fate.KEPT, "Celery's own code does it."),
    *_rows("slackwater", CALLED, Fate.FIELD, 'Any fields of a task, for example `{"tier": "regular"}`.'),
    *_rows("queue", BOTH, Fate.MEANINGLESS, "A task goes to whichever node has its handler."),
    *_rows("routing_key exchange serializer compression delivery_mode immediate mandatory", BOTH, Fate.MEANINGLESS,
           _MESSAGE),
    *_rows("producer publisher connection router exchange_type retry retry_policy route_name reply_to add_to_parent",
           CALLED, Fate.MEANINGLESS, _MESSAGE),
    *_rows("result_cls task_type origin argsrepr kwargsrepr shadow", CALLED, Fate.MEANINGLESS, _MESSAGE),
    *_rows("root_id parent_id group_index retries replaced_task_nesting stamped_headers chord_size", CALLED,
           Fate.MEANINGLESS, "Celery's own account of a canvas; the ledger has the workflow."),
    *_rows("task_id", CALLED, Fate.REFUSED, "The ledger gives its tasks their ids; with",
           '`slackwater={"idempotency_key": …}` a repeated call is one.'),
    *_rows("chain chord group_id", CALLED, Fate.REFUSED, "Give the canvas itself: the message of an ordinary task",
           "cannot lead to a durable one."),
    *_rows("Strategy Request", TASK, Fate.REFUSED, "A class of one's own would handle messages; there are none."),
)  # fmt: skip
"""Every option, in the order of the page."""
MEANINGLESS: Final = frozenset(o.name for o in OPTIONS if o.fate is Fate.MEANINGLESS) | {"ignore_result"}
CHOSEN: Final = MEANINGLESS & {
    "queue", "routing_key", "exchange", "serializer", "compression", "delivery_mode", "immediate", "mandatory",
    "retry_policy", "shadow", "ignore_result",
}  # fmt: skip
"""Those of them that somebody may have chosen: Celery gives the others by itself."""
TASK_OPTIONS: Final = frozenset(o.name for o in OPTIONS if TASK in o.given)
_TAKEN: Final = TASK_OPTIONS | {"shared", "lazy", "filter"}
"""What Celery's decorators take."""
CLOSE: Final = 0.8
"""How alike two names are, of 1, when one is taken for a misspelling of the other: max_retry and max_retries."""
CALL_OPTIONS: Final = frozenset(o.name for o in OPTIONS if CALLED in o.given)
_USUAL: Final = {"Strategy": "celery.worker.strategy:default", "Request": "celery.worker.request:Request"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a Celery task that was carried over, as its class states them."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Default fields of its tasks; a submission overrides them."""
    repeats: Repeats = Repeats.ASKED
    rate: tuple[int, int] | None = None
    """The most starts in so many seconds."""


def terms_of(task: Any) -> Terms:
    """Read a Celery task's options; ``ConfigurationError`` names the task and an option that cannot be kept."""
    conf = task.app.conf
    fields = _fields(task, task.time_limit or conf.task_time_limit, task.soft_time_limit or conf.task_soft_time_limit)
    lost = task.acks_late if task.acks_late is not None else conf.task_acks_late
    return Terms(
        defaults={"total_attempts": 1 + max_retries(task), **fields},
        repeats=Repeats.LOST if lost else Repeats.ASKED,
        rate=_rate(task),
    )


def terms_of_function(name: str, options: Mapping[str, Any]) -> Terms:
    """Read the options of a function that ``@handler`` makes a task, which may be before there is an app.

    How often it is repeated the platform says, ``max_retries`` only at most; raises as :func:`terms_of` does.
    """
    from celery import Task, current_app  # who only reads a call's options needs no Celery

    if options.get("priority") is not None and current_app.main == "default":
        why = "is the broker's to read, up or down: make the application before the handler"
        raise ConfigurationError(f"{name}: priority {why}", field="priority")
    of_class = {key: value for key, value in options.items() if key not in {"base", "bind"}}
    stated = {"name": name, "app": current_app, "_decorated": True, **of_class}
    task: Any = type("Task", (options.get("base") or Task,), stated)
    max_retries(task)
    fields = _fields(task, task.time_limit, task.soft_time_limit)
    return Terms(defaults=fields, repeats=Repeats.ALWAYS, rate=_rate(task))


def _fields(task: Any, hard: Any, soft: Any) -> dict[str, Any]:
    """The default fields that a task's limits and priority become."""
    for name, other in own_attributes(task if isinstance(task, type) else task.__class__).items():
        if other:
            raise _refused(task, name, f"is no option of Celery's: did you mean {other}?")
    for name, usual in _USUAL.items():
        if getattr(task, name, usual) != usual:
            raise _refused(task, name, "a class of its own cannot be kept: the ledger sends no message")
    hard, soft = _seconds(task, "time_limit", hard), _seconds(task, "soft_time_limit", soft)
    if hard and soft and soft > hard:
        raise _refused(task, "soft_time_limit", "must not be longer than time_limit")
    found: dict[str, Any] = {"execution_cap_s": hard} if hard else {}
    if task.priority is not None:
        found["priority"] = _priority(task, task.priority)
    return found


def own_attributes(kind: Any) -> dict[str, str]:
    """What the decorator of a task's class was given that is no option of Celery's, each with the one it may have meant.

    An attribute that the base class has too is meant; one that resembles no option (an empty text) is the team's own.
    """
    if "_decorated" not in vars(kind):
        return {}
    known = _TAKEN | dict(kind.from_config).keys()
    own = [name for name in vars(kind) if not name.startswith("_") and name not in known]
    own = [name for name in own if not any(name in vars(base) for base in kind.__mro__[1:])]
    return {name: next(iter(get_close_matches(name, TASK_OPTIONS, 1, CLOSE)), "") for name in own}


def soft_limit(task: Any) -> float | None:
    """Seconds after which a run of the task is interrupted by its soft time limit."""
    soft = task.soft_time_limit or task.app.conf.task_soft_time_limit
    return float(soft) if soft else None


def _refused(task: Any, option: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"the Celery task {task.name} cannot be carried over: {option} {why}", field=option)


def _seconds(task: Any, option: str, value: Any) -> float | None:
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise _refused(task, option, f"must be a number of seconds, not {value!r}")
    return float(value)


def max_retries(task: Any) -> int:
    """How often it may be retried: its own ``max_retries``, or that of its automatic retries."""
    automatic = (getattr(task, "retry_kwargs", None) or {}).get("max_retries")
    most = [task.max_retries, *([automatic] if automatic is not None else [])]
    if None in most:
        return MOST_ATTEMPTS - 1
    found = int(max(most))
    if not 0 <= found < MOST_ATTEMPTS:
        raise _refused(task, "max_retries", f"must be from 0 to {MOST_ATTEMPTS - 1}, not {found}")
    return found


def _priority(task: Any, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
        raise _refused(task, "priority", f"must be a whole number from 0 to 255, not {value!r}")
    return priority(value, task.app)


def priority(value: int, app: Any) -> int:
    """The ledger's priority, larger first, for one of Celery's: RabbitMQ's order is the same, that of Redis the
    reverse.
    """
    broker = str(app.conf.broker_write_url or app.conf.broker_url or "")
    return max(0, 9 - value) if broker.startswith(("redis", "sentinel", "valkey")) else min(value, MOST_PRIORITY)


def _rate(task: Any) -> tuple[int, int] | None:
    """``"100/m"`` as (5, 3), the shortest frame of whole seconds: Celery starts one after the other, evenly."""
    if not task.rate_limit:
        return None
    number, _, unit = str(task.rate_limit).partition("/")
    frames = {"": 1, "s": 1, "m": 60, "h": 3600}
    try:
        starts = Fraction(number)
        frame = frames[unit]
    except (ValueError, KeyError, ZeroDivisionError):
        raise _refused(task, "rate_limit", f"{task.rate_limit!r} is no rate") from None
    if starts < 0:
        raise _refused(task, "rate_limit", f"{task.rate_limit!r} is no rate")
    return (starts / frame).as_integer_ratio() if starts else None


# -- of one call --------------------------------------------------------------------------------------------------
def meant(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call that say something of the task itself."""
    return {
        name: value for name, value in options.items() if name not in MEANINGLESS and value not in (None, {}, [], ())
    }


def unused(app: Any, options: Mapping[str, Any]) -> list[str]:
    """Options of a call, or of its task, that somebody chose and that mean nothing here."""
    usual = {"serializer": app.conf.task_serializer, "ignore_result": app.conf.task_ignore_result}
    return sorted(name for name in CHOSEN & options.keys() if options[name] not in (None, False, usual.get(name)))


def fields_of_call(options: Mapping[str, Any], app: Any, now: datetime | None, where: str = "") -> dict[str, Any]:
    """Turn a call's options into fields of the task, and under ``CALL`` what its run is told; else ``InvalidInput``.

    ``now``: the ledger's clock; without one a ``countdown`` is for the ledger to count.
    """
    prefix = f"{where}.options." if where else ""
    for name in options:
        if name not in CALL_OPTIONS:
            raise InvalidInput("cannot be kept: there is no such option of Celery's", field=f"{prefix}{name}")
    found: dict[str, Any] = {}
    if options.get("eta") is not None:
        found["start_at"] = _moment(options["eta"], f"{prefix}eta")
    if options.get("countdown") is not None and (countdown := _number(options["countdown"], f"{prefix}countdown")):
        # Beside an eta it is the countdown that holds, as in Celery.
        found.pop("start_at", None)
        later = {"start_in_s": max(0.0, countdown)}
        found |= later if now is None else {"start_at": _later(now, countdown, f"{prefix}countdown")}
    if (expires := options.get("expires")) is not None:
        if isinstance(expires, (int, float)):  # counted from the call, as Celery counts them
            found["expires_in_s"] = max(0.001, _number(expires, f"{prefix}expires"))
        else:
            found["expires_at"] = _moment(expires, f"{prefix}expires")
    if options.get("priority") is not None:
        value = options["priority"]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidInput(f"must be a whole number from 0 on, not {value!r}", field=f"{prefix}priority")
        found["priority"] = priority(value, app)
    if options.get("time_limit"):
        found["execution_cap_s"] = options["time_limit"]
    told = {name: options[name] for name in ("headers", "soft_time_limit") if options.get(name)}
    return {**found, CALL: told} if told else found


def _number(value: Any, field: str) -> float:
    try:
        found = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = float("nan")
    if not isfinite(found):
        raise InvalidInput(f"must be a number of seconds, not {value!r}", field=field)
    return found


def _later(now: datetime, seconds: float, field: str) -> datetime:
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        raise InvalidInput(f"is too many seconds: {seconds:g}", field=field) from None


def _moment(value: Any, field: str) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise InvalidInput(f"must be a moment, as a datetime or like 2030-01-31T09:00:00Z, not {value!r}", field=field)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
