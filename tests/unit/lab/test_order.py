"""How a run's tests are shared out among its workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.order import LONG, shared_out


def module(name: str, tests: int) -> list[Any]:
    return [SimpleNamespace(nodeid=f"{name}::test_{n}") for n in range(tests)]


def test_the_long_ones_stand_in_the_first_half_of_every_part_and_nothing_is_lost() -> None:
    short = [module(f"tests/unit/test_{n}.py", 1 + n % 7) for n in range(80)]
    long = [module(f"tests/e2e/test_{n}.py", 1 + n % 5) for n in range(13)]
    items = [item for found in (*short[:40], *long, *short[40:]) for item in found]
    ordered = shared_out(items, 4)
    assert sorted(item.nodeid for item in ordered) == sorted(item.nodeid for item in items)
    rest = list(ordered)
    for n in range(4):  # as `--dist worksteal` deals them
        size = len(rest) // (4 - n)
        part, rest = rest[:size], rest[size:]
        places = [place for place, item in enumerate(part) if item.nodeid.startswith(LONG)]
        assert places[0] == 0
        assert len(places) >= 6
        assert max(places) < 0.7 * size
    where = [item.nodeid.partition("::")[0] for item in ordered]
    for found in long:
        name = found[0].nodeid.partition("::")[0]
        assert where.index(name) + len(found) == len(where) - where[::-1].index(name), "a module stays together"


def test_without_long_ones_the_order_stays() -> None:
    items = [item for n in range(9) for item in module(f"tests/unit/test_{n}.py", n)]
    assert shared_out(items, 4) == items
    only = module("tests/e2e/test_a.py", 5)
    assert shared_out(only, 4) == only
