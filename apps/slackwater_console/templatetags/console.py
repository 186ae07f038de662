"""How the console shows what the REST interface answers: links within the tenant, moments, lengths of time, states."""

from __future__ import annotations

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
        return name.removesuffix("_s").replace("_", " "), {
            key: fact(f"{key}_s" if name.endswith("_s") else key, each)[1] for key, each in value.items()
        }
    if isinstance(value, bool) or value is None:
        return name.replace("_", " "), value
    if name.endswith("_s"):
        return name.removesuffix("_s").replace("_", " "), display.seconds(value)
    if name.endswith("_at") or name == "latest_start":
        return name.replace("_", " "), clock(value)
    if name.endswith("_bytes"):
        return name.removesuffix("_bytes").replace("_", " "), filesizeformat(value)
    if name.endswith("_permille"):
        return name.removesuffix("_permille").replace("_", " "), f"{value / 10:g} %"
    return name.replace("_", " "), value.replace("_", " ") if name in PHRASES else value


register.filter("seconds", display.seconds)
register.filter("json", display.json_block)


@register.filter
def badge(word: str) -> SafeString:
    """A state or status in its colour."""
    return display.badge(word.replace("_", " "), word)


@register.filter
def words(value: Any) -> Any:
    """A value as a person reads it: lists and objects in words, nothing as a dash."""
    if value in (None, "", [], {}):
        return "–"
    return (
        display.facts(value)
        if isinstance(value, dict)
        else ", ".join(map(str, value))
        if isinstance(value, list)
        else value
    )


@register.filter
def money(micros: int | None) -> str:
    """A price in the unit that is charged in."""
    return "–" if micros is None else f"{micros / 1_000_000:,.4f}"
