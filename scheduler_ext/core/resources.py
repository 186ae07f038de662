"""Resource vectors: whole numbers in the order of :data:`DIMENSIONS`. No floats, so that no sum ever drifts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.types import Vector

DIMENSIONS: Final = ("cpu_milli", "memory_mb", "disk_mb", "iops", "bandwidth_kbps", "ports")
"""Thousandths of a CPU, MiB of memory, MiB of disk, I/O operations a second, kbit/s of network, ports."""

SIZE: Final = len(DIMENSIONS)
LARGEST: Final = 2**53
"""No single component is larger, so that JSON readers of any language keep it exact."""

_ZERO: Final[Vector] = (0,) * SIZE


# The arithmetic is written out by component: it runs several times for every decision.


def zero() -> Vector:
    return _ZERO


def filled(vector: Vector) -> Vector:
    """``vector`` itself, or zero for the empty tuple that views use for "nothing"."""
    return vector or _ZERO


def add(left: Vector, right: Vector) -> Vector:
    a0, a1, a2, a3, a4, a5 = left
    b0, b1, b2, b3, b4, b5 = right
    return (a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5)


def subtract(left: Vector, right: Vector) -> Vector:
    """Component-wise difference; components may become negative."""
    a0, a1, a2, a3, a4, a5 = left
    b0, b1, b2, b3, b4, b5 = right
    return (a0 - b0, a1 - b1, a2 - b2, a3 - b3, a4 - b4, a5 - b5)


def peak(left: Vector, right: Vector) -> Vector:
    """Component-wise maximum: what must be held for tasks that never run at once."""
    return tuple([max(a, b) for a, b in zip(left, right, strict=True)])


def least(left: Vector, right: Vector) -> Vector:
    """Component-wise minimum: what the end of either gives back."""
    return tuple([min(a, b) for a, b in zip(left, right, strict=True)])


def scale(vector: Vector, times: int) -> Vector:
    return tuple([component * times for component in vector])


def total(vectors: Iterable[Vector]) -> Vector:
    result = _ZERO
    for vector in vectors:
        if vector:
            result = add(result, vector)
    return result


def part(vector: Vector, of: int) -> Vector:
    """The part of a vector that each of ``of`` tasks takes when they share one place, rounded up."""
    return tuple(-(-amount // of) for amount in vector)


def fits(need: Vector, free: Vector) -> bool:
    """True when ``free`` has at least what ``need`` asks for, in every dimension."""
    n0, n1, n2, n3, n4, n5 = need
    f0, f1, f2, f3, f4, f5 = free
    return n0 <= f0 and n1 <= f1 and n2 <= f2 and n3 <= f3 and n4 <= f4 and n5 <= f5


def validate(vector: Iterable[Any], *, field: str = "resources") -> Vector:
    """Check a vector from outside and return it as a tuple; ``InvalidInput`` names the component at fault."""
    components = tuple(vector)
    if len(components) != SIZE:
        raise InvalidInput(f"must have {SIZE} numbers ({', '.join(DIMENSIONS)}), not {len(components)}", field=field)
    for name, value in zip(DIMENSIONS, components, strict=True):
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"must be a whole number, not {type(value).__name__}", field=f"{field}.{name}")
        if not 0 <= value <= LARGEST:
            raise InvalidInput(f"must be from 0 to {LARGEST}, not {value}", field=f"{field}.{name}")
    return components


def from_mapping(values: Mapping[str, Any], *, field: str = "resources") -> Vector:
    """Build a vector from names; missing ones are 0; an unknown name is ``InvalidInput``."""
    refuse_unknown(values, field)
    return validate((values.get(name, 0) for name in DIMENSIONS), field=field)


def refuse_unknown(names: Iterable[str], field: str) -> None:
    """``InvalidInput`` names the first that is no resource."""
    for name in names:
        if name not in DIMENSIONS:
            known = ", ".join(DIMENSIONS)
            raise InvalidInput(f"there is no such resource; known: {known}", field=f"{field}.{str(name)[:60]}")
