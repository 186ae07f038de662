"""Past use of each tenant and pool, decaying with time. Pure; the simulator uses the same formula.

It is counted in cell-seconds: the whole cell, held for a second. What is held between two rounds is what the earlier
one left held, its own claims included; what ended between them counts until the later one. Instead of letting all that
is remembered fade at every round, what is added counts for more and more beside it ("forward decay", Cormode and
others, 2009), so that a round looks only at who holds something.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Final

from scheduler_ext.core.types import Slots, Vector
from scheduler_ext.policies.accounts import Measure

MIN_AMOUNT: Final = 1e-4
"""Past use below this many cell-seconds is forgotten."""
MAX_SPAN: Final = 300.0
"""After so many times the memory everything is counted from a new landmark, so that no number overflows."""


class PastUse:
    """Past use by name, and what each holds now."""

    def __init__(self, now: float, memory_s: float, amounts: Mapping[str, float] | None = None) -> None:
        """``amounts``: what is remembered ``now`` (Unix seconds), in cell-seconds; it fades with ``memory_s``."""
        self.at = now
        """The moment up to which everything is counted."""
        self.memory_s = memory_s
        self.landmark = now
        self.grown: dict[str, float] = dict(amounts or {})
        """Cell-seconds as counted at the landmark: only good for comparison with one another."""
        self.held: dict[str, tuple[Slots, Vector]] = {}
        """The thousandths of slots and the resources held since :attr:`at`."""

    def follow(self, now: float, measure: Measure) -> None:
        """Add what was held until ``now``; a clock that was put back counts nothing twice."""
        self.landmark -= max(0.0, self.at - now)
        before, self.at = min(self.at, now), now
        if (self.at - self.landmark) / self.memory_s > MAX_SPAN:
            faded = 1.0 / self._growth(self.landmark + MAX_SPAN * self.memory_s)
            self.grown = {name: grown * faded for name, grown in self.grown.items() if grown * faded >= MIN_AMOUNT}
            self.landmark = self.at
        if measure.whole and self.at > before:
            grown, added = self.grown, self.memory_s * (self._growth(self.at) - self._growth(before)) / measure.whole
            for name, (slots, vector) in self.held.items():
                grown[name] = grown.get(name, 0.0) + measure.share(slots, vector) * added

    def amounts(self) -> dict[str, float]:
        """Cell-seconds by name, without those that have decayed to nothing."""
        faded = 1.0 / self._growth(self.at)
        return {name: grown * faded for name, grown in self.grown.items() if grown * faded >= MIN_AMOUNT}

    def _growth(self, at: float) -> float:
        return exp((at - self.landmark) / self.memory_s)
