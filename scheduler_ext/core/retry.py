"""Computes when a failed attempt is tried again: exponential back-off with jitter and a cap. Times are seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from scheduler_ext.core.errors import InvalidInput

MAX_DELAY_S = 31_536_000.0
"""A year: no delay is longer."""
LIMITS = {"base_s": (0.0, MAX_DELAY_S), "factor": (1.0, 1_000_000.0), "max_s": (0.0, MAX_DELAY_S), "jitter": (0.0, 1.0)}
"""The least and the most of each setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to wait before the next attempt."""

    base_s: float = 2.0
    """Delay after the first failed attempt."""
    factor: float = 2.0
    """Each further delay is this many times the one before."""
    max_s: float = 3600.0
    """No delay is longer."""
    jitter: float = 0.25
    """Part of the delay, from 0 to 1, that is drawn at random, so that failures do not come back in step."""

    def __post_init__(self) -> None:
        for spec in fields(self):
            if not isfinite(getattr(self, spec.name)):
                raise InvalidInput("must be a finite number", field=spec.name)
            low, high = LIMITS[spec.name]
            if not low <= getattr(self, spec.name) <= high:
                unit = " seconds" if spec.name.endswith("_s") else ""
                raise InvalidInput(f"must be from {low:.0f} to {high:.0f}{unit}", field=spec.name)

    def delay(self, attempt: int, chance: Callable[[], float]) -> float:
        """Seconds to wait after failed attempt number ``attempt`` (the first is 1), at most ``max_s``.

        The delay is drawn evenly from ``[full * (1 - jitter), full]``, where ``full`` grows by ``factor``;
        ``chance`` draws a number from 0 up to, but not including, 1.
        """
        if attempt < 1:
            raise ValueError("the first attempt is number 1")
        try:
            full = min(self.max_s, self.base_s * self.factor ** (attempt - 1))
        except OverflowError:
            full = self.max_s if self.base_s else 0.0
        return full - full * self.jitter * chance()

    @classmethod
    def from_mapping(
        cls, values: Mapping[str, Any] | None, *, default: RetryPolicy | None = None, field: str = "retry"
    ) -> RetryPolicy:
        """Build it from a task's ``retry`` mapping; what it leaves out comes from ``default``.

        ``InvalidInput`` names the field for an unknown name, a wrong type or a value out of range.
        """
        start = default or cls()
        clean = {spec.name: getattr(start, spec.name) for spec in fields(cls)}
        for name, value in (values or {}).items():
            if name not in clean:
                known = ", ".join(clean)
                raise InvalidInput(f"there is no such setting; known are {known}", field=f"{field}.{name}")
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InvalidInput(f"must be a number, not {type(value).__name__}", field=f"{field}.{name}")
            clean[name] = float(min(value, 2 * MAX_DELAY_S))  # a whole number may be larger than any float
        try:
            return cls(**clean)
        except InvalidInput as error:
            raise InvalidInput(error.message, field=f"{field}.{error.field}") from error
