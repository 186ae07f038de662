"""Quantiles of run times."""

from __future__ import annotations

import random
from collections import Counter

from scheduler_ext.core.run_times import ACCURACY, MEMORY, Quantiles, bucket_of, merged, pattern_of, script_keys


def test_quantiles_are_within_their_accuracy_however_the_runs_are_split() -> None:
    rng = random.Random(1)
    runs = sorted(rng.lognormvariate(12, 2) for _ in range(900))
    parts = [Counter(map(bucket_of, runs[first::3])) for first in range(3)]
    both = merged(merged(parts[0], parts[1]), parts[2])
    assert both == Counter(map(bucket_of, runs)), "merging loses nothing up to the memory"
    found = Quantiles(both)
    for part in (0.01, 0.1, 0.5, 0.9, 0.99):
        exact = runs[max(0, round(part * len(runs)) - 1)]
        assert abs(found.at(part) - exact) <= 1.01 * ACCURACY * exact
    assert abs(found.mean_us / (sum(runs) / len(runs)) - 1) <= ACCURACY
    assert found.part_within(found.at(0.9)) >= 0.9


def test_what_is_older_forgets() -> None:
    slow, fast = {bucket_of(1e6): 10.0 * MEMORY}, {bucket_of(1e3): float(MEMORY)}
    assert 0.9e3 < Quantiles(merged(slow, fast)).at(0.49) < 1.1e3
    assert bucket_of(0) == bucket_of(1) == 0


def test_a_script_is_known_by_itself_and_by_the_pattern_of_its_name() -> None:
    assert pattern_of("night 2026-11-23 (3 of 12)") == "night #-#-# (# of #)"
    assert script_keys("a" * 70, "", "night 7") == ["script:" + "a" * 64, "name:night #"]
    assert script_keys("", "x/y.py", "") == ["script:x/y.py"]
