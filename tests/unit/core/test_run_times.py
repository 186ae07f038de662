"""Quantiles of run times."""

from __future__ import annotations

import random
from collections import Counter

from scheduler_ext.core.run_times import (
    ACCURACY,
    MEMORY,
    TENANTS,
    Quantiles,
    RunTime,
    RunTimes,
    bucket_of,
    merged,
    pattern_of,
    remaining_s,
    script_keys,
)


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
    assert pattern_of("import 0192f0c1-7a4e-7c3b-9d5e-0a1b2c3d4e5f of shop7") == "import # of shop#"
    assert pattern_of("build 9fceb02d0ae598e95dc970b74767f19372d61af8") == "build #"
    assert pattern_of("deface the facade") == "deface the facade", "words of such letters stay"
    assert script_keys("a" * 70, "", "night 7") == ["script:" + "a" * 64, "name:night #"]
    assert script_keys("", "x/y.py", "") == ["script:x/y.py"]


def test_a_tenants_own_run_times_hold_first_and_what_is_shown_rests_on_those_of_several_tenants() -> None:
    rows = [(1, "mail", 100, 300), (2, "mail", 200, 500)]
    assert RunTimes(rows).of(9, ["mail"]) == RunTime(150, 400), "a round decides by it, and shows nothing"
    known = RunTimes(rows, least=TENANTS)
    assert known.of(1, ["mail"]) == RunTime(100, 300)
    assert TENANTS == 3
    assert known.of(9, ["mail"]) is None, "else what is shown of a wait would tell how long another's tasks run"
    assert known.whose(9, ["mail"]) is None
    known.put(3, "mail", RunTime(600, 1000))
    assert known.of(9, ["mail"]) == RunTime(300, 600)
    assert known.whose(9, ["mail"]) == (None, "mail")
    assert known.whose(3, ["mail"]) == (3, "mail")
    known.put(3, "mail", RunTime(300, 400))
    assert known.of(9, ["mail"]) == RunTime(200, 400), "what is learnt anew takes the place of the old"


def test_a_script_is_known_to_its_tenant_alone_by_what_it_is_and_else_by_the_pattern_of_its_name() -> None:
    script, name = script_keys("a" * 64, "", "night 7")
    known = RunTimes([(tenant, name, 50, 90) for tenant in range(1, 6)])
    assert known.of(1, [script, name]) == RunTime(50, 90)
    known.put(1, script, RunTime(10, 20))
    assert known.of(1, [script, name]) == RunTime(10, 20)
    assert known.of(9, [script, name]) is None


def test_what_outruns_its_expectation_is_expected_to_run_as_long_again_and_nothing_beyond_its_cap() -> None:
    assert remaining_s(None, 10, 60) == 10
    assert remaining_s(4, 10, 60) == 6
    assert remaining_s(12, 10, 60) == 12
    assert remaining_s(50, 10, 60) == 10
    assert remaining_s(50, None, 60) == 10
    assert RunTime(10, 90).within(60) == RunTime(10, 60)
