"""What the doctor says of one task, call or beat entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scheduler_ext.task.celery_options import Fate


class Verdict(StrEnum):
    """Whether it goes on as it is."""

    CARRIES = "carries over"
    CHANGES = "changes"
    REFUSED = "refused"


OF_FATE: Final = {
    Fate.FIELD: Verdict.CARRIES,
    Fate.KEPT: Verdict.CARRIES,
    Fate.CHANGED: Verdict.CHANGES,
    Fate.MEANINGLESS: Verdict.CHANGES,
    Fate.REFUSED: Verdict.REFUSED,
}
_WORST: Final = list(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report."""

    kind: str
    """``task``, ``call`` or ``beat``."""
    subject: str
    """The task, the call or the entry."""
    where: str = ""
    """File and line of a call."""
    option: str = ""
    verdict: Verdict
    why: str = ""


def worst(findings: Sequence[Finding]) -> Verdict:
    """The verdict on all of them together."""
    return max((finding.verdict for finding in findings), key=_WORST.index, default=Verdict.CARRIES)
