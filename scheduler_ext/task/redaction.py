"""Removes secrets from what is kept of a run: the output of scripts, and errors and log lines of handlers."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from itertools import chain
from threading import Lock
from typing import Final

MASK: Final = "***"
SHORTEST: Final = 4
"""Shorter values are not removed: seeing one tells nothing, and removing it would blot out everything."""
MAX_TENANTS: Final = 1_000

_revealed: OrderedDict[int, frozenset[str]] = OrderedDict()
"""Tenant -> the secrets its handlers have asked for in this process."""
_ordered: dict[int, tuple[frozenset[str], list[str]]] = {}
"""Those secrets with their order of removal, as last asked for: lines are written more often than secrets are read."""
_lock = Lock()


def longest_first(secrets: Iterable[str]) -> list[str]:
    """The secrets to remove, in the order of removal: one may be part of another.

    Of one with several lines each line too: what is kept line by line never shows it whole.
    """
    parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
    return sorted((part for part in parts if len(part) >= SHORTEST), key=len, reverse=True)


def blotted(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` without the secrets, which are ordered already."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def reveal(tenant_id: int, secret: str) -> str:
    """Remember that a handler of this tenant has read the secret, as it is and as it would be quoted; returns it."""
    written = (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1])
    with _lock:
        _revealed[tenant_id] = _revealed.get(tenant_id, frozenset()).union(written)
        _revealed.move_to_end(tenant_id)
        if len(_revealed) > MAX_TENANTS:
            oldest, _ = _revealed.popitem(last=False)
            _ordered.pop(oldest, None)
    return secret


def revealed() -> list[str]:
    """The secrets that handlers of any tenant have read in this process, in the order of removal."""
    return longest_first(chain.from_iterable([*_revealed.values()])) if _revealed else []


def known(tenant_id: int) -> list[str]:
    """The secrets that handlers of this tenant have read in this process, in that order."""
    secrets = _revealed.get(tenant_id)
    if secrets is None:
        return []
    found = _ordered.get(tenant_id)
    if found is None or found[0] is not secrets:  # another has been read since
        found = _ordered[tenant_id] = (secrets, longest_first(secrets))
    return found[1]


def hide(tenant_id: int, text: str) -> str:
    """Return ``text`` without the secrets that handlers of this tenant have read in this process."""
    return blotted(text, known(tenant_id))
