"""Small pieces of page that every list uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

from django import forms
from django.contrib import admin
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

SHORT_ID = 8
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def column(description: str, show: Callable[[Any], Any], *, ordering: str | None = None) -> Callable[[Any, Any], Any]:
    """A column of a list, or a field of a page: what ``show`` makes of the object."""

    @admin.display(description=description, ordering=ordering)
    def shown(_admin: Any, obj: Any) -> Any:
        return show(obj)

    return shown


def once(show: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A field of a page that is worked out once: the theme asks for each five times."""

    @wraps(show)
    def shown(self: Any, obj: Any) -> Any:
        kept = vars(obj).setdefault("_sw_shown", {})
        if show.__name__ not in kept:
            kept[show.__name__] = show(self, obj)
        return kept[show.__name__]

    return shown


def badge(text: str, kind: str) -> SafeString:
    """A coloured label; ``kind`` is a class of the style sheet, for example ``running``."""
    return format_html('<span class="sw-badge sw-{}">{}</span>', kind, text)


def short(value: object) -> str:
    """The last characters of an id: UUIDv7s of one moment differ there, not in front."""
    return f"…{str(value)[-SHORT_ID:]}"


def seconds(value: float | timedelta | None) -> str:
    """A length of time in the unit that reads best: ``12 ms``, ``3.4 s``, ``5 min``, ``2 h``."""
    if value is None:
        return "–"
    total = value.total_seconds() if isinstance(value, timedelta) else value
    if abs(total) < 1:
        return f"{total * 1000:.0f} ms"
    if abs(total) < 120:
        return f"{total:.1f} s" if abs(total) < 10 else f"{total:.0f} s"
    for size, unit in UNITS:
        if abs(total) >= 2 * size:
            return f"{total / size:.0f} {unit}"
    return f"{total:.0f} s"


def ago(moment: datetime | None) -> SafeString | str:
    """How long ago (or in how long) something is, with the full time as a tooltip."""
    if moment is None:
        return "–"
    gap = (timezone.now() - moment).total_seconds()
    text = f"{seconds(gap)} ago" if gap >= 0 else f"in {seconds(-gap)}"
    return format_html('<time datetime="{0}" title="{0}">{1}</time>', moment.isoformat(timespec="milliseconds"), text)


def clock(moment: datetime | None, *, day: bool = False) -> str:
    """A time of day in UTC to the millisecond, with its day and the zone where that is asked for."""
    if moment is None:
        return "–"
    form = "%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S"
    return f"{moment.astimezone(UTC).strftime(form)}.{moment.microsecond // 1000:03d}{' UTC' if day else ''}"


def facts(values: dict[str, Any]) -> SafeString:
    """Names and values below each other, in words: what reports and answers hold."""
    rows = ((name.replace("_", " "), _told(value)) for name, value in values.items())
    return format_html('<dl class="sw-facts">{}</dl>', format_html_join("", "<dt>{}</dt><dd>{}</dd>", rows))


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')}: {_told(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(str(_told(item)) for item in value) or "none"
    return (
        {None: "–", True: "yes", False: "no"}.get(value, value) if value is None or isinstance(value, bool) else value
    )


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> SafeString:
    """A small table inside a page, which scrolls where it is wider than its place; ``empty`` where it has no row."""
    if not rows:
        return format_html('<span class="sw-quiet">{}</span>', empty)
    cells = (format_html_join("", "<td>{}</td>", ((value,) for value in row)) for row in rows)
    return format_html(
        '<div class="sw-scroll" tabindex="0"><table class="sw-table"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>',
        format_html_join("", "<th>{}</th>", ((name,) for name in headers)),
        format_html_join("", "<tr>{}</tr>", ((row,) for row in cells)),
    )


def json_block(value: Any) -> SafeString:
    """JSON, indented, in a box that scrolls."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return format_html('<pre class="sw-pre">{}</pre>', text)


class JsonField(forms.JSONField):
    """JSON as text; nothing at all where it is empty. What cannot be read is told by the field's name, with the place."""

    def __init__(self, *, called: str, **kwargs: Any) -> None:
        self.called = called
        super().__init__(**kwargs)

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except forms.ValidationError:
            raise forms.ValidationError(
                f"{self.called}: is not JSON: {_fault(value)}; texts stand in double quotes"
            ) from None

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


def _fault(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        return str(error)
    return "a number that JSON has not"
