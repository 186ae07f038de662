"""What a key that only reads is not shown: values in tasks, schedules and webhooks that look like secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from scheduler_ext.core.errors import NotPermitted
from scheduler_ext.task.redaction import MASK

GIVEN: Final = frozenset(
    {"args", "kwargs", "metadata", "progress", "result", "value", "task", "workflow", "payload", "detail"}
)
"""The fields of answers that hold what clients and tasks made up, of any shape."""
TEXTS: Final = frozenset({"error", "reason"})
NAME: Final = re.compile(
    r"pass(word|wd|phrase|code)|(^|[_\-.])(pwd|pin|dsn|auth|jwt|otp)$|secret|token|credential|authorization|cookie|signature"
    r"|(api|access|private|signing|encryption|master|account)[_\-. ]?key",
    re.IGNORECASE,
)
"""Names of members whose value is a secret: of arguments, of an environment, of headers."""
VALUE: Final = re.compile(
    r"""(?ix)
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \b(?:bearer|basic)\ +[\w.~+/=-]{8,}
    | \bsw_[0-9a-f]{8}_[\w-]{20,}
    | \bwhsec_[\w+/=-]{16,}
    | \b(?:ghp|gho|ghu|ghs|ghr|github_pat|glpat|npm|pypi|sk|rk|pk|xox[abeoprs])[_-][\w-]{16,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[\w-]{35}
    | \beyJ[\w-]{8,1024}+\.[\w-]{8,}+\.[\w-]*+
    | (?<=://)[^\s/:@]*:[^\s/@]+(?=@)
    | (?<=hooks\.slack\.com/)[\w/-]+
    | (?:(?<=password)|(?<=passwd)|(?<=secret)|(?<=token)|(?<=api_key)|(?<=apikey))["']?\s*[=:]\s*["']?[^\s"'&,;]+
    """,
    re.DOTALL,
)
"""Texts that are one by their form: keys of well-known kinds, signed tokens, passwords in addresses and in assignments."""
ADDRESS: Final = re.compile(r"(?<=://)([^/?#]*)[/?#].+")
ASKED: Final = re.compile(r"metadata\[(.*)\]", re.DOTALL)
LENGTH: Final = 65_536
"""A text that is longer is looked at by its beginning, and the rest is left out."""


def blotted(data: Any) -> Any:
    """An answer without what looks like a secret in it."""
    if isinstance(data, list):
        return [blotted(each) for each in data]
    if not isinstance(data, dict):
        return data
    return {name: _shown(name, value) for name, value in data.items()}


def refuse_hidden(query: Mapping[str, Any]) -> None:
    """``NotPermitted`` names a filter by metadata that is blotted out: whoever guesses would be told."""
    for name, value in query.items():
        asked = ASKED.fullmatch(name)
        if asked and _given({asked[1]: value}) != {asked[1]: value}:
            raise NotPermitted("is shown to keys that may submit alone, and narrows for them alone", field=name[:60])


def _shown(name: str, value: Any) -> Any:
    if name == "url" and isinstance(value, str):
        return ADDRESS.sub(rf"\1/{MASK}", _text(value))  # whoever has a webhook's address can write to it
    if name in GIVEN:
        return _given(value)
    if name in TEXTS and isinstance(value, str):
        return _text(value)
    return blotted(value)


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: MASK if _is_secret(name, inner) else _given(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_given(each) for each in value]
    return _text(value) if isinstance(value, str) else value


def _is_secret(name: Any, value: Any) -> bool:
    """Whether a member is one by its name; what is true, false, null or empty tells nothing."""
    return value not in (None, "", [], {}) and not isinstance(value, bool) and bool(NAME.search(str(name)))


def _text(text: str) -> str:
    shown = VALUE.sub(MASK, text[:LENGTH])
    return shown if len(text) <= LENGTH else f"{shown}{MASK}"
