"""The order of a run over several workers: what is long comes first, so that none is left alone with it at the end.

`--dist worksteal` gives each worker a run of equally many tests, and one that has nothing left half of what another
has not begun. The modules whose tests wait for processes are shared out evenly, and stand in the first half of each
run, between others that keep the processor busy meanwhile. Apart from that the order stays as it was drawn.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from itertools import groupby

import pytest

LONG = (
    "tests/e2e/", "tests/integration/api/test_contract.py", "tests/integration/local/", "tests/integration/packaging/",
)  # fmt: skip

Module = list[pytest.Item]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the chosen tests in order; each worker comes to the same."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = shared_out(items, workers)


def shared_out(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """The same tests, the long modules spread over the parts that the workers get."""
    modules = [list(found) for _, found in groupby(items, key=_module)]
    shares: list[list[Module]] = [[] for _ in range(workers)]
    for module in sorted(filter(_is_long, modules), key=len, reverse=True):
        min(shares, key=_count).append(module)
    short = deque(module for module in modules if not _is_long(module))
    ordered: list[pytest.Item] = []
    for n, share in enumerate(shares):
        size = (len(items) - len(ordered)) // (workers - n)
        ordered += _part(share, short, size)
    return ordered + [item for module in short for item in module]


def _part(share: Sequence[Module], short: deque[Module], size: int) -> list[pytest.Item]:
    """One worker's: after each long module some short ones, and the rest of them at the end."""
    room = (size - _count(share)) // 2
    between = room // (len(share) or 1)
    part: list[pytest.Item] = []
    for module in share:
        part += module
        taken = 0
        while short and taken < between and len(short[0]) <= room:
            room -= len(short[0])
            taken += len(short[0])
            part += short.popleft()
    while short and len(part) < size:
        module, missing = short.popleft(), size - len(part)
        part += module[:missing]
        if module[missing:]:
            short.appendleft(module[missing:])
    return part


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _is_long(module: Module) -> bool:
    return _module(module[0]).startswith(LONG)


def _count(modules: Sequence[Module]) -> int:
    return sum(map(len, modules))
