"""The kinds of values that a task's fields have: how each is checked, stored and shown."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, ClassVar, TypeVar

from django.utils.dateparse import parse_datetime

from scheduler_ext.core.errors import DoesNotFit, InvalidInput, whole
from scheduler_ext.core.labels import fault_in
from scheduler_ext.core.plain_text import PLAIN, STEERS
from scheduler_ext.core.resources import DIMENSIONS, refuse_unknown
from scheduler_ext.core.retry import RetryPolicy

T = TypeVar("T")
MAX_SECONDS = 10 * 366 * 86_400
LAST_YEAR = 9000
WRITTEN = re.compile("[!-~]*")
"""How an address is written: ASCII without spaces."""


def json_type(value: Any) -> str:
    """The type of a value in the words of JSON, for messages."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def of_type(value: Any, wanted: type[T], what: str, path: str) -> T:
    """The value; ``InvalidInput`` says that it must be ``what`` when it is of another type. No boolean is a number.

    A whole number may be written 3.0: in JSON that is one.
    """
    if wanted is int:
        value = whole(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise InvalidInput(f"must be {what}, not {json_type(value)}", field=path)
    return value


def clean_text(value: str, path: str) -> None:
    """Refuse what PostgreSQL cannot store: NUL characters and lone surrogates."""
    if "\x00" in value:
        raise InvalidInput("must not contain the NUL character", field=path)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput("is not valid Unicode", field=path) from None


def clean_name(value: str, path: str) -> None:
    """Refuse what a name may not hold either: characters that control a terminal or the direction of writing."""
    clean_text(value, path)
    if STEERS.search(value):
        raise InvalidInput("must not contain control characters", field=path)


def check_written(address: str, path: str) -> None:
    """Refuse what no address may be written with."""
    if not WRITTEN.fullmatch(address):
        fault = "must be ASCII without spaces; write other characters percent-encoded, or as xn--"
        raise InvalidInput(fault, field=path)


_ERA = datetime(2000, 1, 1, tzinfo=UTC)
_ERA_S = _ERA.timestamp()


def from_unix(seconds: float) -> datetime:
    """Seconds of Unix, to the microsecond that ``to_timestamp`` of PostgreSQL makes of them: it counts from 2000."""
    return _ERA + timedelta(microseconds=round((seconds - _ERA_S) * 1e6))


def utc_text(at: datetime) -> str:
    """A moment as every interface writes it: ISO 8601 in UTC, with ``Z``."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def seconds(milliseconds: int | None) -> float | int | None:
    """Milliseconds of the ledger as seconds of the API: a whole number where possible."""
    if milliseconds is None:
        return None
    return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000


class Kind:
    """One kind of value: what it accepts, and how a column holds it and the API shows it."""

    def check(self, value: Any, path: str) -> Any:
        """The value as :class:`~slackwater_tasks.spec.TaskSpec` holds it; ``InvalidInput`` names ``path``."""
        raise NotImplementedError

    def stored(self, value: Any) -> Any:
        """The value as its column holds it."""
        return value

    def loaded(self, value: Any) -> Any:
        """The value of a column as :class:`~slackwater_tasks.spec.TaskSpec` holds it."""
        return value

    def shown(self, value: Any) -> Any:
        """The value of a column as the API shows it."""
        return value


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A string of limited length."""

    longest: int
    empty: bool = True
    address: bool = False
    """Whether it is an address of the web."""

    @property
    def pattern(self) -> str:
        """What its characters are."""
        return WRITTEN.pattern if self.address else PLAIN

    def check(self, value: Any, path: str) -> str:
        if value is None and self.empty:
            return ""
        text = of_type(value, str, "a string", path)
        clean_name(text, path)
        if len(text) > self.longest:
            raise InvalidInput(f"must be at most {self.longest} characters", field=path)
        if not text and not self.empty:
            raise InvalidInput("must not be empty", field=path)
        if self.address:
            check_written(text, path)
        return text

    def shown(self, value: str) -> str | None:
        return value or None


class Sha256(Kind):
    """The SHA-256 of a stored script in hexadecimal digits."""

    PATTERN: ClassVar[re.Pattern[str]] = re.compile("[0-9a-f]{64}")

    def check(self, value: Any, path: str) -> str:
        text = "" if value is None else of_type(value, str, "a string", path)
        if text and not self.PATTERN.fullmatch(text):
            store = "; POST /api/v1/scripts stores a script's text and tells it"
            raise InvalidInput(f"must be the SHA-256 of a stored script: 64 characters 0-9 and a-f{store}", field=path)
        return text

    def shown(self, value: str) -> str | None:
        return value or None


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number between two limits."""

    low: int
    high: int

    def check(self, value: Any, path: str) -> int:
        number = of_type(value, int, "a whole number", path)
        if not self.low <= number <= self.high:
            raise InvalidInput(f"must be from {self.low} to {self.high}", field=path)
        return number


class Flag(Kind):
    """True or false."""

    def check(self, value: Any, path: str) -> bool:
        return of_type(value, bool, "true or false", path)


@dataclass(frozen=True, slots=True)
class Seconds(Kind):
    """A duration: seconds outside, whole milliseconds inside."""

    positive: bool = False
    LEAST: ClassVar[float] = 0.001

    def check(self, value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidInput(f"must be a number of seconds, not {json_type(value)}", field=path)
        if not 0 <= value <= MAX_SECONDS:  # false for NaN too, and exact for a whole number of any size
            raise InvalidInput(f"must be from 0 to {MAX_SECONDS} seconds", field=path)
        milliseconds = round(value * 1000)
        if self.positive and value < self.LEAST:
            raise InvalidInput("must be at least 0.001 seconds", field=path)
        return milliseconds

    def shown(self, value: int | None) -> float | int | None:
        return seconds(value)


class Choice(Kind):
    """One member of an enumeration: its name in lower case outside, the member inside, its number in the column."""

    def __init__(self, enum: type[IntEnum] | Any) -> None:
        self.enum = enum
        self.words: dict[str, Any] = {member.name.lower(): member for member in enum}
        self.names = {int(member): word for word, member in self.words.items()}

    def check(self, value: Any, path: str) -> Any:
        if not isinstance(value, str) or value not in self.words:
            raise InvalidInput(f"must be one of {', '.join(self.words)}", field=path)
        return self.words[value]

    def stored(self, value: Any) -> int:
        return int(value)

    def loaded(self, value: int) -> Any:
        return self.enum(value)

    def shown(self, value: int) -> str:
        return self.names[value]


class Moment(Kind):
    """A date and time with its zone; UTC inside."""

    def check(self, value: Any, path: str) -> datetime:
        moment = self.read(value, path)
        try:
            found = moment.astimezone(UTC)
        except (OverflowError, ValueError):
            raise DoesNotFit("is out of range", field=path) from None
        if found.year >= LAST_YEAR:  # a tolerance is added to it, and time ends with the year 9999
            raise DoesNotFit(f"must be before the year {LAST_YEAR}", field=path)
        return found

    @staticmethod
    def read(value: Any, path: str) -> datetime:
        """The moment in the zone and the year it is written in; ``InvalidInput`` names ``path``."""
        try:
            moment = parse_datetime(value) if isinstance(value, str) else value
        except ValueError:
            moment = None
        if not isinstance(moment, datetime):
            raise InvalidInput("must be an ISO 8601 date and time, for example 2030-01-31T09:00:00+01:00", field=path)
        if moment.tzinfo is None:
            raise InvalidInput("needs a time zone, for example Z or +01:00", field=path)
        return moment


@dataclass(frozen=True, slots=True)
class Texts(Kind):
    """An array of strings."""

    most: int
    longest: int
    labels: bool = False
    """Labels of nodes. Most tasks have none, and then no column is filled."""

    def check(self, value: Any, path: str) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)):
            raise InvalidInput(f"must be an array of strings, not {json_type(value)}", field=path)
        if len(value) > self.most:
            raise InvalidInput(f"must have at most {self.most} entries", field=path)
        one = Text(self.longest, empty=False)
        found = tuple(one.check(entry, f"{path}[{n}]") for n, entry in enumerate(value))
        for n, entry in enumerate(found if self.labels else ()):
            if fault := fault_in(entry):
                raise InvalidInput(fault, field=f"{path}[{n}]")
        return tuple(dict.fromkeys(found)) if self.labels else found

    def stored(self, value: tuple[str, ...]) -> list[str] | None:
        return None if self.labels and not value else list(value)

    def loaded(self, value: list[str] | None) -> tuple[str, ...]:
        return tuple(value or ())

    def shown(self, value: list[str] | None) -> list[str]:
        return list(value or ())


class Array(Kind):
    """A JSON array."""

    def check(self, value: Any, path: str) -> list[Any]:
        return of_type(list(value) if isinstance(value, tuple) else value, list, "an array", path)


class Object(Kind):
    """A JSON object."""

    def check(self, value: Any, path: str) -> dict[str, Any]:
        return of_type(value, dict, "an object", path)


class Metadata(Kind):
    """A small JSON object of strings, by which its owner finds and recognizes the task."""

    MOST: ClassVar[int] = 32
    NAME: ClassVar[Text] = Text(63, empty=False)
    VALUE: ClassVar[Text] = Text(500)

    @classmethod
    def schema(cls, value: Any = "string", **more: Any) -> dict[str, Any]:
        """What JSON Schema says of it; ``value``: the type of what a name has."""
        return {
            "type": "object",
            "maxProperties": cls.MOST,
            "propertyNames": {"minLength": 1, "maxLength": cls.NAME.longest, "pattern": f"^{PLAIN}$"},
            "additionalProperties": {"type": value, "maxLength": cls.VALUE.longest, "pattern": f"^{PLAIN}$"},
            **more,
        }

    def check(self, value: Any, path: str) -> dict[str, str]:
        found = of_type(value, dict, "an object of strings", path)
        if len(found) > self.MOST:
            raise InvalidInput(f"must have at most {self.MOST} names", field=path)
        for name, text in found.items():
            self.NAME.check(name, path)
            self.VALUE.check(of_type(text, str, "a string", f"{path}.{name}"), f"{path}.{name}")
        return found

    def stored(self, value: dict[str, str]) -> dict[str, str] | None:
        return value or None

    def loaded(self, value: dict[str, str] | None) -> dict[str, str]:
        return value or {}

    def shown(self, value: dict[str, str] | None) -> dict[str, str]:
        return value or {}


class Map(Kind):
    """A list in the result of a parent, for each element of which a task is made."""

    NAMES: ClassVar[tuple[str, ...]] = ("over", "path", "item", "index")
    NAME: ClassVar[Text] = Text(200)

    def check(self, value: Any, path: str) -> dict[str, str]:
        found = of_type(value, dict, "an object of strings", path)
        for name in found:
            if name not in self.NAMES:
                raise InvalidInput(
                    f"there is no such field; known: {', '.join(self.NAMES)}", field=f"{path}.{name[:60]}"
                )
        given = {name: self.NAME.check(text, f"{path}.{name}") for name, text in found.items()}
        if not given.get("over"):
            raise InvalidInput("must name the task whose result holds the list", field=f"{path}.over")
        if given.get("item") and given.get("item") == given.get("index"):
            raise DoesNotFit("must be another argument than the item", field=f"{path}.index")
        return {name: text for name, text in given.items() if text}

    @staticmethod
    def filled(given: Mapping[str, str], args: list[Any], kwargs: dict[str, Any], item: Any, index: int,
               ) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
        """The arguments of the task of one element: it comes first, or in the argument that is named for it."""
        kwargs = {**kwargs, given["index"]: index} if "index" in given else kwargs
        return (args, {**kwargs, given["item"]: item}) if "item" in given else ([item, *args], kwargs)


class Resources(Kind):
    """Whole numbers by resource."""

    NAMES: ClassVar[tuple[str, ...]] = DIMENSIONS
    MOST: ClassVar[int] = 2_147_483_647
    NEEDED: ClassVar[frozenset[str]] = frozenset({"cpu_milli", "memory_mb"})
    """Without which nothing runs."""

    def check(self, value: Any, path: str) -> dict[str, int]:
        found = of_type(value, dict, "an object of whole numbers", path)
        refuse_unknown(found, path)
        for name, number in found.items():
            Whole(self.least(name), self.MOST).check(number, f"{path}.{name}")
        return {name: int(number) for name, number in found.items()}

    def least(self, name: str) -> int:
        """The smallest amount of a resource that may be asked for."""
        return 1 if name in self.NEEDED else 0


class Retry(Kind):
    """A back-off between attempts."""

    def check(self, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"must be an object, not {json_type(value)}", field=path)
        RetryPolicy.from_mapping(value, field=path)
        return dict(value)


WHAT_RUNS, WHERE_AND_WHEN, RUNNING, NEEDS = "What runs", "Where and when", "Running", "Needs"
"""The groups in which forms and the documentation show fields."""
LISTED, DETAIL = "listed", "detail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The declaration of one field of a task."""

    kind: Kind
    name: str
    """Its name in every interface; the attribute's name unless given."""
    attribute: str
    """Its name in the specification."""
    default: Any
    column: str
    """The column of :class:`~slackwater_tasks.models.Task` that holds it: of its name, another, or none ("")."""
    flag: str
    """Its option of ``manage.py submit``."""
    help: str = ""
    fallback: str = ""
    """Where the value comes from when none is given, if not from ``default``."""
    editable: bool = True
    """Whether it can be changed while the task waits."""
    nullable: bool = False
    """Whether ``null`` may be given, for the default."""
    group: str = WHAT_RUNS
    """Where forms and the documentation show it."""
    shown: str = DETAIL
    """Where a stored task shows it: in lists (:data:`LISTED`), alone (:data:`DETAIL`), or not at all ("")."""


def given(kind: Kind, default: Any = "", **options: Any) -> Any:
    """Declare a field of the specification. ``options``: the parts of :class:`Field` that do not follow from its name."""
    metadata = {"given": {"kind": kind, **options}}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
