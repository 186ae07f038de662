"""Resource vectors."""

from __future__ import annotations

import pytest

from scheduler_ext.core import resources as r
from scheduler_ext.core.errors import InvalidInput

A = (1, 2, 3, 4, 5, 6)
B = (6, 5, 4, 3, 2, 1)


def test_arithmetic_is_component_wise() -> None:
    assert r.add(A, B) == (7,) * 6
    assert r.subtract(A, B) == (-5, -3, -1, 1, 3, 5)
    assert r.peak(A, B) == (6, 5, 4, 4, 5, 6)
    assert r.scale(A, 3) == (3, 6, 9, 12, 15, 18)
    assert r.total([A, (), B]) == (7,) * 6
    assert r.filled(()) == r.zero() == (0,) * 6


@pytest.mark.parametrize("dimension", range(6))
def test_one_dimension_too_few_does_not_fit(dimension: int) -> None:
    need = (2,) * 6
    assert r.fits(need, need)
    free = tuple(1 if place == dimension else 9 for place in range(6))
    assert not r.fits(need, free)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"cpu": 1}, "resources.cpu"),
        ({"cpu_milli": -1}, "resources.cpu_milli"),
        ({"memory_mb": 1.5}, "resources.memory_mb"),
        ({"ports": True}, "resources.ports"),
        ({"iops": "3"}, "resources.iops"),
        ({"disk_mb": 2**60}, "resources.disk_mb"),
    ],
)
def test_a_wrong_component_is_named(value: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        r.from_mapping(value)
    assert caught.value.field == field


def test_names_and_length() -> None:
    assert r.from_mapping({"cpu_milli": 250, "ports": 1}) == (250, 0, 0, 0, 0, 1)
    with pytest.raises(InvalidInput, match="6 numbers"):
        r.validate([1, 2])
