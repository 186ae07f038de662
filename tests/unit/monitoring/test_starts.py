"""Who went before a task is counted as it is told, however the starts came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater_monitoring.receipts import starts
from slackwater_monitoring.receipts.starts import Starts

CELLS = {1: "one", 2: "one", 3: "two"}
MOMENTS = st.integers(-20, 20)
START = st.tuples(st.sampled_from(sorted(CELLS)), st.integers(1, 2), MOMENTS)
STARTS = st.lists(START, max_size=12)


def magnitude(count: int) -> int:
    return next((10**n for n in range(9, -1, -1) if count >= 10**n), 0)


@given(batches=st.lists(STARTS, max_size=5), asked=st.lists(st.tuples(START, MOMENTS), min_size=1, max_size=9))
def test_starts_after_and_before_are_counted_by_the_rule_that_let_them(
    batches: list[list[tuple[int, int, int]]], asked: list[tuple[tuple[int, int, int], int]]
) -> None:
    known, seen = Starts(), []
    for batch in batches:
        known.add((tenant, CELLS[tenant], category, at) for tenant, category, at in batch)
        seen += batch
        for (tenant, category, at), since in asked:
            between = [(one, kind) for one, kind, start in seen if since < start < at]
            alike = between.count((tenant, category))
            own = sum(one == tenant for one, _ in between)
            others = sum(CELLS[one] == CELLS[tenant] for one, _ in between) - own
            found = known.before(tenant, CELLS[tenant], category, since, at)
            assert found == (alike, own - alike, magnitude(others))


def test_of_very_many_starts_the_latest_are_known() -> None:
    known, most = Starts(), 2 * starts.KEPT
    known.add((1, "one", 1, at) for at in range(most))
    assert known.before(1, "one", 1, -1, most) == (most, 0, 0)
    known.add([(1, "one", 1, most)])
    assert known.before(1, "one", 1, -1, most + 1) == (most + 1 - starts.KEPT, 0, 0)
    assert known.before(1, "one", 1, most - 2, most + 1) == (2, 0, 0)
