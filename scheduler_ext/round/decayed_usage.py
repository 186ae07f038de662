"""Past use of each tenant and pool, which decays with time. Pure; the simulator counts by the same formula.

It is counted in cell-seconds: the whole cell, held for a second. What is held between two rounds is what the earlier
one left held, its own claims included; what ended between them counts until the later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler_ext.core.types import Vector
from scheduler_ext.policies.accounts import Measure, remembered

MIN_AMOUNT: Final = 1e-4
"""Cell-seconds below which past use is forgotten."""


class PastUse:
    """Past use by name, and what is held now."""

    def __init__(self, now: float, amounts: Mapping[str, float] | None = None) -> None:
        self.at = now
        """Until when all is counted (Unix seconds)."""
        self.amounts: dict[str, float] = dict(amounts or {})
        """Cell-seconds."""
        self.held: dict[str, tuple[int, Vector]] = {}
        """Thousandths of slots and resources held since then."""

    def follow(self, now: float, memory_s: int, measure: Measure) -> None:
        """Add what was held until ``now``, and let what is older fade; a clock put back counts nothing twice."""
        span_s, self.at = max(0.0, now - self.at), now
        if not measure.whole:
            return
        found: dict[str, float] = {}
        for name in self.amounts.keys() | self.held.keys():
            milli, vector = self.held.get(name, (0, ()))
            share = measure.share(milli, list(vector)) / measure.whole if milli else 0.0
            amount = remembered(self.amounts.get(name, 0.0), share, span_s, memory_s)
            if amount >= MIN_AMOUNT:
                found[name] = amount
        self.amounts = found
