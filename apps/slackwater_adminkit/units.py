"""Numbers in the units people use: a form shows ``16 MiB``, ``20 %``, ``1 h``; the column keeps bytes, thousandths, seconds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.db import models
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from scheduler_ext.core.states import Category

Units = Mapping[str, int]
"""How many of what is stored are one of each unit; a bare number is of the first."""
BYTES: Final[Units] = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
MEMORY: Final[Units] = {"MiB": 1, "GiB": 1024, "TiB": 1024**2}
TIME: Final[Units] = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
SHORT_TIME: Final[Units] = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}
PERCENT: Final[Units] = {"%": 10}
CORES: Final[Units] = {"cores": 1_000, "core": 1_000}
BANDWIDTH: Final[Units] = {"kbit/s": 1, "Mbit/s": 1_000, "Gbit/s": 1_000_000}
MONEY: Final[Units] = {"": 1_000_000}
OF: Final[tuple[tuple[str, Units], ...]] = (
    ("_bytes", BYTES), ("_mb", MEMORY), ("_permille", PERCENT), ("cpu_milli", CORES), ("_kbps", BANDWIDTH),
    ("rate_per_s", {}), ("per_s", {}), ("_s", TIME), ("_ms", SHORT_TIME), ("_micros", MONEY),
)  # fmt: skip
"""The units of a number by the end of its name; of several the first holds."""
NAMED: Final = re.compile(r"[^\s:{][^\n:]*(?<!\s)")
"""A name that stands before a colon as it is."""
OPENING: Final = ("{", "[", '"')
NO_JSON: Final = ("NaN", "Infinity", "-Infinity")
"""Words that Python would read as JSON."""
NUMBER: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(\D*)")
LABEL: Final = re.compile(r" \((?:bytes|MiB|s|ms|‰|thousandths|millionths|kbit/s)\)| permille\b| bytes\b| (?:s|mb)\b")
BARE: Final[Units] = {"": 1}


def units_of(name: str) -> Units:
    """The units of the number with this name; empty where it is a plain number."""
    if "_micros_" in name:
        return MONEY
    return next((units for end, units in OF if name.endswith(end)), {})


def told(value: Any, units: Units) -> str:
    """The number in the largest unit in which it is whole, or has two digits after the point."""
    if value in (None, ""):
        return ""
    amount = int(value)
    fitting = [(size, unit) for unit, size in units.items() if amount >= size and amount * 100 % size == 0]
    size, unit = max(fitting, default=(min(units.values()), next(iter(units))), key=lambda each: each[0])
    number = f"{(Decimal(amount) / size).normalize():f}"
    return f"{number} {'core' if unit == 'cores' and number == '1' else unit}".strip()


def column_of(name: str) -> Any:
    """The text of this column of an object, in its units."""
    return lambda obj: told(getattr(obj, name), units_of(name))


def read(text: str, units: Units) -> int:
    """What a text with a unit says, in whole steps; ``ValidationError`` tells which units there are."""
    amount = measured(text, units)
    if amount != int(amount):
        raise forms.ValidationError(
            f"is finer than the smallest step, {told(1, units) if 1 in units.values() else 0.1}"
        )
    return int(amount)


def measured(text: str, units: Units) -> Decimal:
    """What a text with a unit says, however fine."""
    found = NUMBER.fullmatch(text.strip())
    size = None
    if found is not None:
        given = found[2].strip().lower()
        sizes = {unit.lower(): of for unit, of in units.items()}
        size = sizes.get(given, None if given else next(iter(units.values())))
    if found is None or size is None:
        known = ", ".join(filter(None, units)) or "none"
        raise forms.ValidationError(
            f"must be a number with a unit, for example {told(max(units.values()), units)}; units: {known}"
        )
    return Decimal(found[1]) * size


class UnitField(forms.IntegerField):
    """A whole number, filled in and shown with its unit."""

    def __init__(self, *, units: Units, **kwargs: Any) -> None:
        self.units = units
        super().__init__(**{**kwargs, "widget": UnfoldAdminTextInputWidget()})

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else told(value, self.units)

    def to_python(self, value: Any) -> int | None:
        return None if value in (None, "") else read(value, self.units) if isinstance(value, str) else int(value)

    def run_validators(self, value: Any) -> None:
        """Limits are told in the unit that is filled in."""
        try:
            super().run_validators(value)
        except forms.ValidationError as error:
            for each in error.error_list:
                if each.params and "limit_value" in each.params:
                    each.params["limit_value"] = told(each.params["limit_value"], self.units)
            raise

    def has_changed(self, initial: Any, data: Any) -> bool:
        """By what it says: 60 min is 1 h."""
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True


class ByNameField(forms.Field):
    """Something by name, each on a line of its own: a name, a colon, and what it has."""

    def __init__(self, **kwargs: Any) -> None:
        known = ("label", "help_text", "required", "initial")
        super().__init__(
            **{name: kwargs[name] for name in known if name in kwargs},
            widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
        )

    def of_text(self, name: str, text: str) -> Any:
        """What a line says of a name; ``ValidationError`` if it cannot be read."""
        raise NotImplementedError

    def as_text(self, name: str, value: Any) -> str:
        """What the line of a name says."""
        raise NotImplementedError

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return "\n".join(f"{name}: {self.as_text(name, one)}" for name, one in value.items())

    def to_python(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            return dict(value)
        if (value or "").lstrip().startswith("{"):
            return self._object(value)
        found: dict[str, Any] = {}
        for line in filter(None, map(str.strip, (value or "").splitlines())):
            name, colon, text = (part.strip() for part in line.partition(":"))
            if not colon or not name or name in found:
                raise forms.ValidationError(f"{line!r}: each line is a name, a colon and a value, each name once")
            try:
                found[name] = self.of_text(name, text)
            except forms.ValidationError as error:
                raise forms.ValidationError(f"{name}: {error.messages[0]}") from None
        return found

    def _object(self, text: str) -> dict[str, Any]:
        """The same as JSON has it, for who has it so."""
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise forms.ValidationError(f"is neither lines of names and values nor JSON: {error}") from None
        return found

    def has_changed(self, initial: Any, data: Any) -> bool:
        """By what it says."""
        try:
            return bool(self.to_python(data) != (initial or {}))
        except forms.ValidationError:
            return True


class LinesField(ByNameField):
    """Numbers by name: ``urgent: 5 s``."""

    def __init__(self, *, units: Units | None = None, **kwargs: Any) -> None:
        self.units = units
        super().__init__(**kwargs)

    def _of(self, name: str) -> Units:
        return self.units or units_of(name) or BARE

    def as_text(self, name: str, value: Any) -> str:
        return told(value, self._of(name))

    def of_text(self, name: str, text: str) -> int:
        return read(text, self._of(name))


class TextsField(ByNameField):
    """Texts by name: ``order: 7102``."""

    def as_text(self, name: str, value: Any) -> str:
        return str(value)

    def of_text(self, name: str, text: str) -> str:
        return text


class ValuesField(ByNameField):
    """Values of any kind by name: ``quantum_ms: 2 s``, ``quanta_ms: 1 s, 2 s``, ``pools: {"batch": {"weight": 2}}``."""

    def as_text(self, name: str, value: Any) -> str:
        if isinstance(value, list | tuple) and not any(isinstance(one, list | tuple | Mapping) for one in value):
            return ", ".join(self._one(name, one) for one in value) + ("," if len(value) < 2 else "")
        return self._one(name, value)

    def _one(self, name: str, value: Any) -> str:
        units = units_of(name)
        if units and isinstance(value, int | float) and not isinstance(value, bool):
            return told(value, units) if value == int(value) else f"{value:g} {next(iter(units))}"
        return value if isinstance(value, str) and not _is_json(value) else json.dumps(value, ensure_ascii=False)

    def of_text(self, name: str, text: str) -> Any:
        if text[:1] in ("{", "[", '"'):
            try:
                return json.loads(text)
            except ValueError as error:
                raise forms.ValidationError(f"is not JSON: {error}") from None
        if "," not in text:
            return self._read(name, text)
        return [self._read(name, part.strip()) for part in text.split(",") if part.strip()]

    def _read(self, name: str, text: str) -> Any:
        if _is_json(text):
            return json.loads(text)
        return _number(measured(text, units)) if (units := units_of(name)) else text


class ArgumentsField(ByNameField):
    """What a handler takes by name, as it is: ``to: ann@example.org``, ``limit: 5``, ``days: ["mon", "fri"]``."""

    def prepare_value(self, value: Any) -> Any:
        """JSON as a whole where a name itself could be taken for something else."""
        if isinstance(value, Mapping) and not all(NAMED.fullmatch(str(name)) for name in value):
            return json.dumps(value, ensure_ascii=False)
        return super().prepare_value(value)

    def as_text(self, name: str, value: Any) -> str:
        return _as_argument(value)

    def of_text(self, name: str, text: str) -> Any:
        return _argument(text)


class InOrderField(forms.Field):
    """What a handler takes in order, each value on a line of its own; a JSON array for who has it so."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}))

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        if value and isinstance(value[0], list | tuple):  # its line would be taken for the whole
            return json.dumps(value, ensure_ascii=False)
        return "\n".join(map(_as_argument, value))

    def to_python(self, value: Any) -> list[Any]:
        if isinstance(value, list | tuple):
            return list(value)
        text = (value or "").strip()
        if text.startswith("["):
            found: list[Any] = _argument(text)
            return found
        return [_argument(line) for line in filter(None, map(str.strip, text.splitlines()))]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """By what it says."""
        try:
            return bool(self.to_python(data) != (initial or []))
        except forms.ValidationError:
            return True


def _as_argument(value: Any) -> str:
    """A value on a line: a text as it is, unless it would be read as something else."""
    plain = isinstance(value, str) and value != "" and value == value.strip() and value.isprintable()
    if plain and value[:1] not in OPENING and (value in NO_JSON or not _is_json(value)):
        return str(value)
    return json.dumps(value, ensure_ascii=not plain)


def _argument(text: str) -> Any:
    """What a line says: a number, true, false, null, what stands as JSON; else a text."""
    if text not in NO_JSON and _is_json(text):
        return json.loads(text)
    if text[:1] in OPENING:
        try:
            json.loads(text)
        except ValueError as error:
            raise forms.ValidationError(f"{text[:60]!r} is not JSON: {error}") from None
    return text


class DefaultsField(ByNameField):
    """What tasks of some handlers have by default: ``mail.*: urgent, 5 s``."""

    CATEGORIES: Final = tuple(category.name.lower() for category in Category)

    def as_text(self, name: str, value: Any) -> str:
        after = value.get("delay_tolerance_s")
        words = (value.get("category"), None if after is None else self._after(after))
        return ", ".join(filter(None, words))

    def _after(self, after: float) -> str:
        return told(after, TIME) if after == int(after) else f"{after:g} s"

    def of_text(self, name: str, text: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            word = part.lower().replace("-", "")
            key = "category" if word in self.CATEGORIES else "delay_tolerance_s"
            if key in found:
                raise forms.ValidationError("takes one category and one time")
            found[key] = word if key == "category" else self._time(part)
        if not found:
            raise forms.ValidationError("takes a category, how long the start may be delayed, or both")
        return found

    def _time(self, part: str) -> float:
        try:
            return _number(measured(part, TIME))
        except forms.ValidationError:
            known = ", ".join(self.CATEGORIES)
            raise forms.ValidationError(f"{part!r} is neither a category ({known}) nor a time such as 5 s") from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _number(amount: Decimal) -> float:
    return int(amount) if amount == int(amount) else float(amount)


def field_of(column: models.Field[Any, Any], **kwargs: Any) -> forms.Field | None:
    """The form's field for a column whose number has a unit; ``None`` for any other."""
    units = units_of(column.name)
    label = LABEL.sub("", str(column.verbose_name))
    shared = {
        "label": label[:1].upper() + label[1:],
        "help_text": _help(str(column.help_text)),
        "required": not column.blank,
    }
    if column.has_default():
        shared["initial"] = column.get_default()
    if isinstance(column, models.JSONField):
        if column.name in LINES:
            return LinesField(units=units or None, **shared)
        return BY_NAME[column.name](**shared) if column.name in BY_NAME else None
    if not units or not isinstance(column, models.IntegerField):
        return None
    return UnitField(
        units=units, **{**shared, "required": not (column.blank or column.null)}, validators=column.validators
    )


LINES: Final = frozenset({"delay_tolerance_s", "price_permille", "largest_tier"})
"""Columns of numbers by name."""
BY_NAME: Final[Mapping[str, type[ByNameField]]] = {"handler_defaults": DefaultsField, "parameters": ValuesField}
"""Columns of something else by name."""


def _help(text: str) -> str:
    for raw, plain in (("In millionths of the unit you charge in.", "In the unit you charge in."), (", in seconds.", "."),
                       (", in thousandths of the tier's price", ", of the tier's price"),
                       ("Thousandths of the tenant's", "Of the tenant's"),
                       ('By pattern of names: {"mail.*": {"category": "urgent", "delay_tolerance_s": 5}}.',
                        "By pattern of names, one on a line: mail.*: urgent, 5 s.")):  # fmt: skip
        text = text.replace(raw, plain)
    return text
