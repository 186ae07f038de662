"""What schemathesis is told of the platform: a request that is as the document says is refused for its meaning alone."""

from __future__ import annotations

from typing import Any, Final

import schemathesis
from schemathesis.engine import observations

MEANING: Final = {
    "does_not_fit",  # names and moments that mean nothing here, parts that contradict one another
    "idempotency_mismatch",  # a key that was used for another body
    "unknown_dependency", "dependency_cycle", "duplicate_name",  # what tasks say of one another
    "impossible",  # no node could run it
}  # fmt: skip
"""The codes of a 422 that no schema could foretell; ``docs/api.md`` tells of each."""


_path_of = observations._same_origin_path


def path_or_none(value: str, origin: tuple[str, str]) -> str | None:
    """Of a text in an answer, its path on this server. One that only begins as an address does ended the whole run."""
    try:
        return _path_of(value, origin)
    except ValueError:
        return None


observations._same_origin_path = path_or_none
schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")


@schemathesis.check
def refused_only_for_its_meaning(ctx: Any, response: Any, case: Any) -> None:
    """A 422 to what the document allows has one of the codes above, in each of its faults."""
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code != 422:
        return
    problem = response.json()
    faults = problem.get("errors") or [problem]
    told = [fault for fault in faults if fault["code"] not in MEANING]
    assert not told, f"the document allows it, the server does not: {told}"


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Let nothing be waited for longer than it takes to see that it is waited for, in whatever phase."""
    text = str((case.query or {}).get("wait"))
    seconds = float(text) if text.replace(".", "", 1).isdecimal() else 0.0
    if 1 < seconds <= 60:
        case.query["wait"] = seconds / 60


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Whether a case is tried: none that is wrong only by a header nobody knows, which HTTP has passed over."""
    data = case.meta.phase.data if case.meta is not None else None
    is_header = str(getattr(getattr(data, "parameter_location", None), "value", "")) == "header"
    return not (is_header and getattr(data, "description", "") == "Object with unexpected properties")
