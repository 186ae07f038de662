"""Which handlers a plan grants."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase


def is_granted(patterns: Iterable[str], handler: str) -> bool:
    """Whether one of the patterns (``*``, ``?``, case counts) matches the whole name."""
    return any(fnmatchcase(handler, pattern) for pattern in patterns)
