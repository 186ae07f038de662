"""Numbers in the units people use: a form shows ``16 MiB``, ``20 %``, ``1 h``; the column keeps bytes, thousandths, seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.db import models
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

Units = Mapping[str, int]
"""How many of what is stored are one of each unit; a bare number is of the first."""
BYTES: Final[Units] = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
MEMORY: Final[Units] = {"MiB": 1, "GiB": 1024, "TiB": 1024**2}
TIME: Final[Units] = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
PERCENT: Final[Units] = {"%": 10}
CORES: Final[Units] = {"cores": 1_000, "core": 1_000}
BANDWIDTH: Final[Units] = {"kbit/s": 1, "Mbit/s": 1_000, "Gbit/s": 1_000_000}
MONEY: Final[Units] = {"": 1_000_000}
OF: Final[tuple[tuple[str, Units], ...]] = (
    ("_bytes", BYTES), ("_mb", MEMORY), ("_permille", PERCENT), ("cpu_milli", CORES), ("_kbps", BANDWIDTH),
    ("rate_per_s", {}), ("per_s", {}), ("_s", TIME), ("_micros", MONEY),
)  # fmt: skip
"""The units of a number by the end of its name; of several the first holds."""
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
    """What a text with a unit says; ``ValidationError`` tells which units there are."""
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
    amount = Decimal(found[1]) * size
    if amount != int(amount):
        raise forms.ValidationError(
            f"is finer than the smallest step, {told(1, units) if 1 in units.values() else 0.1}"
        )
    return int(amount)


class UnitField(forms.IntegerField):
    """A whole number, filled in and shown with its unit."""

    def __init__(self, *, units: Units, **kwargs: Any) -> None:
        self.units = units
        super().__init__(**{**kwargs, "widget": UnfoldAdminTextInputWidget()})

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else told(value, self.units)

    def to_python(self, value: Any) -> int | None:
        return None if value in (None, "") else read(value, self.units) if isinstance(value, str) else int(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """By what it says: 60 min is 1 h."""
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True


class LinesField(forms.Field):
    """Numbers by name, each on a line of its own: ``urgent: 5 s``."""

    def __init__(self, *, units: Units | None, **kwargs: Any) -> None:
        self.units = units
        widget = UnfoldAdminTextareaWidget(attrs={"rows": 4})
        super().__init__(**{name: kwargs[name] for name in ("label", "help_text", "required", "initial") if name in kwargs},
                         widget=widget)  # fmt: skip

    def _of(self, name: str) -> Units:
        return self.units or units_of(name) or BARE

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return "\n".join(f"{name}: {told(amount, self._of(name))}" for name, amount in value.items())

    def to_python(self, value: Any) -> dict[str, int]:
        found = {}
        for line in filter(None, map(str.strip, (value or "").splitlines())):
            name, colon, amount = (part.strip() for part in line.partition(":"))
            if not colon or name in found:
                raise forms.ValidationError(f"{line!r}: each line is a name, a colon and a number, each name once")
            try:
                found[name] = read(amount, self._of(name))
            except forms.ValidationError as error:
                raise forms.ValidationError(f"{name}: {error.messages[0]}") from None
        return found

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != (initial or {}))
        except forms.ValidationError:
            return True


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
        if column.name not in LINES:
            return None
        return LinesField(units=units or None, **shared)
    if not units or not isinstance(column, models.IntegerField):
        return None
    return UnitField(
        units=units, **{**shared, "required": not (column.blank or column.null)}, validators=column.validators
    )


LINES: Final = frozenset({"delay_tolerance_s", "price_permille", "largest_tier"})
"""Columns of numbers by name."""


def _help(text: str) -> str:
    for raw, plain in (("In millionths of the unit you charge in.", "In the unit you charge in."), (", in seconds.", "."),
                       (", in thousandths of the tier's price", ", of the tier's price"),
                       ("Thousandths of the tenant's", "Of the tenant's")):  # fmt: skip
        text = text.replace(raw, plain)
    return text
