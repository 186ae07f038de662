"""How the console shows what the REST interface answers: links within the tenant, moments, lengths of time, states."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from django import template
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.safestring import SafeString

from slackwater_adminkit import display

register = template.Library()
PHRASES: Final = frozenset({"condition", "on_late", "overlap", "missed"})
"""Fields whose words are joined by underlines."""


@register.simple_tag(takes_context=True)
def to(context: Any, name: str, *args: Any) -> str:
    """The address of a page of the tenant that is looked at."""
    return reverse(f"console:{name}", args=[context["slug"], *args])


@register.filter
def moment(text: str | None) -> SafeString | str:
    """How long ago a moment is."""
    return display.ago(datetime.fromisoformat(text) if text else None)


@register.filter
def clock(text: str | None) -> str:
    """A moment to the millisecond, with its day."""
    return display.clock(datetime.fromisoformat(text) if text else None, day=True)


def fact(name: str, value: Any) -> tuple[str, Any]:
    """A field of an answer as a person reads it: its unit, which stands in its name, goes to the value."""
    if isinstance(value, dict):
        ends = "_s" if name.endswith("_s") else ""
        return _plain(name.removesuffix("_s")), dict(fact(key + ends, each) for key, each in value.items())
    for ending, shown in UNITS.items():
        if name.endswith(ending) and isinstance(value, int | float) and not isinstance(value, bool):
            return _plain(name.removesuffix(ending)), shown(value)
    if value and (name.endswith("_at") or name == "latest_start"):
        return _plain(name), clock(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _plain(name), f"{value:,}"
    return _plain(name), _plain(value) if name in PHRASES else value


def _plain(name: str) -> str:
    return name.replace("_", " ")


UNITS: Final[dict[str, Callable[[Any], Any]]] = {
    "_s": display.seconds,
    "_bytes": filesizeformat,
    "_permille": lambda value: f"{value / 10:g} %",
    "_milli": lambda value: f"{value / 1000:g} cores",
    "_mb": lambda value: f"{value:,} MiB",
    "_kbps": lambda value: f"{value:,} kbit/s",
}
"""By the end of a name what its value is shown as."""


register.filter("seconds", display.seconds)
register.filter("json", display.json_block)


@register.filter
def badge(word: str) -> SafeString:
    """A state or status in its colour."""
    return display.badge(word.replace("_", " "), word)


@register.filter
def words(value: Any) -> Any:
    """A value as a person reads it: lists and objects in words, nothing as a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, "", [], {}):
        return "–"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return display.facts(value) if isinstance(value, dict) else value


@register.filter
def money(micros: int | None) -> str:
    """A price in the unit that is charged in."""
    return "–" if micros is None else f"{micros / 1_000_000:,.4f}"
