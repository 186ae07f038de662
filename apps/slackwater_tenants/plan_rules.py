"""What a plan may say: tiers there are, patterns that can match, defaults that a task could have, shares in order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from django.apps import apps

UNCLOSED: Final = re.compile(r"\[(?!!?.[^\]]*\])")
"""A bracket that opens no set of characters: it would stand for itself, which no name has."""
DEFAULTS: Final = {"category", "delay_tolerance_s"}


def fault_of_tiers(slugs: Iterable[str]) -> str | None:
    """Which of the names is that of no shared tier; one's own tiers need no grant."""
    known = list(
        apps.get_model("slackwater_resources", "Tier").objects.filter(tenant=None).values_list("slug", flat=True)
    )
    unknown = ", ".join(repr(slug) for slug in slugs if slug not in known)
    return f"there is no shared tier {unknown}; known are {', '.join(known) or 'none'}" if unknown else None


def fault_of_patterns(patterns: Iterable[str]) -> str | None:
    """Which of the patterns of handler names could match none."""
    wrong = next(filter(UNCLOSED.search, patterns), None)
    return f"{wrong!r}: a [ begins a set of characters, such as [a-z], and nothing ends it" if wrong else None


def fault_of_share(guaranteed: int | None, maximum: int | None) -> str | None:
    """Whether more is guaranteed than there may be; nothing is said of a number that is missing."""
    more = guaranteed is not None and maximum is not None and guaranteed > maximum
    return "must not be more than the maximum" if more else None


def fault_of_defaults(given: Any, categories: Iterable[str]) -> str | None:
    """What no task could have of the defaults by handler."""
    if not isinstance(given, dict):
        given = {"": None}
    for pattern, own in given.items():
        if not isinstance(own, dict) or own.keys() - DEFAULTS:
            return "must be an object of patterns, each with category, delay_tolerance_s or both"
        if "category" in own and own["category"] not in categories:
            return f"{pattern}: category must be one of {', '.join(categories)}"
        if type(after := own.get("delay_tolerance_s", 0)) not in (int, float) or after < 0:
            return f"{pattern}: delay_tolerance_s must be a number of seconds"
    return fault_of_patterns(given)
