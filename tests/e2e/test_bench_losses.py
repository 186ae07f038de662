"""The scenarios that lose things on purpose, at small sizes: they count rightly and say what they found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_bench import bench

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400)]


def lines(var: Path, scenario: str, **sizes: int) -> list[dict[str, Any]]:
    given = [part for name, value in sizes.items() for part in ("--set", f"{name}={value}")]
    done = bench(var, "--scenario", scenario, *given)
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads(text) for text in done.stdout.strip().splitlines()]
    for line in found:
        for bar, met in line["verdict"].items():
            assert f"{'met   ' if met else 'MISSED'} {bar}" in done.stderr
    return found


def test_redis_is_emptied_and_nothing_is_lost(tmp_path: Path) -> None:
    sizes = {"waiting": 1500, "flushes": 1, "children": 2, "slots": 40, "small": 200, "large": 5000}
    emptied, memory = lines(tmp_path, "flushall", **sizes)
    assert emptied["accepted"] > 1500
    assert emptied["succeeded"] == emptied["stored"] == emptied["accepted"]
    assert emptied["lost"] == emptied["twice"] == emptied["unfinished"] == 0
    (cut,) = emptied["emptied"]
    assert cut["waiting"] >= 1500
    assert cut["queued"] > 0
    assert cut["keys"] > 0
    assert cut["before_per_s"] > 50
    assert memory["large"]["waiting"] >= 5000 > 10 * memory["small"]["waiting"]
    assert memory["small"]["used_mb"] > 0.3


def test_nodes_are_drained_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, "drain", tasks=4_000, task_ms=5, children=1, drains=2)
    assert [turn["given_after"] for turn in line["drained"]] == [0, 0]
    assert all(turn["queued"] > 0 for turn in line["drained"])
    assert line["succeeded"] == line["stored"] == line["accepted"] > 4_000
    assert line["lost"] == line["twice"] == line["cut_off"] == line["unfinished"] == 0


def test_workers_are_killed_and_each_task_succeeds_once(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, "million", tasks=100_000, every_s=3, backlog=5000)
    assert line["kills"] >= 1
    assert line["succeeded"] == line["stored"] == line["accepted"] == 100_000
    assert line["lost"] == line["twice"] == line["unfinished"] == 0
    assert {"dispatcher", "upkeep", "producer", "worker child"} <= line["memory_mb"].keys()


def test_neighbours_of_hostile_scripts_are_measured_at_each_level(tmp_path: Path) -> None:
    found = lines(tmp_path, "neighbours", samples=5, rounds=1, scripts=3, work_ms=20)
    if not found:
        pytest.skip("this machine offers no sandbox")
    for line in found:
        assert line["escaped"] == {}
        assert line["failed"] == 0
        assert line["alone_ms"]["n"] == 5
        assert line["beside_ms"]["n"] >= 3
        assert line["alone_ms"]["p50"] > 15
