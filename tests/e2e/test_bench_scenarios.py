"""Every scenario of `python -m tests.lab bench`, small: that it runs to its end and says what its page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_bench import bench
from tests.lab.benchmarks.scenarios import SCENARIOS

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

SMALL = {
    "rounds": ("waiting=3000", "tenants=5", "rounds=3"),
    "batches": ("sizes=1,20", "tasks=40", "waiting=100"),
    "dag": ("tasks=50", "edges=100", "runs=1"),
    "schedules": ("live=300", "due=30", "tenants=3"),
    "limiter": ("clients=20", "processes=2", "limit=10", "each=2", "seconds=2"),
    "steps": ("tasks=400", "round=64", "batch=32"),
    "quota": ("permille=20", "children=2"),
    "fairness": ("seconds=3", "slots=4", "task_ms=100"),
    "output": ("writers=10", "lines_per_s=500", "seconds=2"),
    "starts": ("task_ms=100", "orders=1"),
    "graphs": ("chains=1", "links=5", "tasks=20", "task_ms=5"),
    "way": ("lone=20", "per_s=200"),
    "rest": ("seconds=2", "settle=1"),
    "urgent": ("seconds=3", "slots=4", "task_ms=50", "overload=3", "urgent_per_s=5"),
}


ELSEWHERE = {"drain", "flushall", "million", "neighbours"}
"""These have tests of their own, of what they find."""


def test_every_scenario_has_its_small_run() -> None:
    assert SMALL.keys() | ELSEWHERE == SCENARIOS.keys()


@pytest.mark.parametrize("name", SMALL)
def test_a_scenario_runs_to_its_end(tmp_path: Path, name: str) -> None:
    settings = [word for value in SMALL[name] for word in ("--set", value)]
    page = tmp_path / "page.md"
    done = bench(tmp_path, "--scenario", name, *settings, "--page", str(page))
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.strip().splitlines()]
    assert lines
    said = set().union(*(line.keys() for line in lines))
    assert set(SCENARIOS[name].columns) <= said, "what its page shows"
    assert SCENARIOS[name].title in page.read_text()
    check = CHECKS.get(name)
    if check is not None:
        check(lines)


def _limiter(lines: list[dict[str, Any]]) -> None:
    (line,) = lines
    assert (line["accepted"], line["exact"]) == (10, True)
    assert line["refused"] > 0


def _output(lines: list[dict[str, Any]]) -> None:
    (written,) = lines
    assert (written["lines"], written["lost"], written["marks"], written["at_once"]) == (1_000, 0, 0, 10)


def _quota(lines: list[dict[str, Any]]) -> None:
    by_how = {line["how"]: line for line in lines}
    assert by_how["simulated"]["tasks"] == 15_000
    assert by_how["simulated"]["makespan_s"] <= 75
    live = by_how["live"]
    assert (live["tasks"], live["missing"]) == (30 * (7 + 2 + 1), 0)


def _fairness(lines: list[dict[str, Any]]) -> None:
    (line,) = lines
    assert min(line["served_loud_s"], line["served_quiet_s"]) > 0
    assert line["quiet_beside_ms"]["n"] > 0


def _starts(lines: list[dict[str, Any]]) -> None:
    """The last of the urgent ones come after all that are not; what was late, pressed or wide got its turn."""
    found = [(line["promise"], line["now"]) for line in lines]
    assert [now.count("A") for promise, now in found if promise == "urgency buys no share"] == [30, 30]
    assert all(now.endswith("AAAAAA") for promise, now in found if promise == "urgency buys no share")
    pressed, path, between = (now for promise, now in found if promise == "order in and between workflows")
    assert pressed.index("p") < pressed.index("c") < 12
    assert "s" in between.split(",")[0].rstrip("L"), "a small workflow goes before the rest of a large one"
    started, last = (float(word) for word in re.findall(r"[0-9.]+", found[-1][1]))
    assert started < last - 2
    assert len(path.split(",")[0]) == 10


def _urgent(lines: list[dict[str, Any]]) -> None:
    (line,) = lines
    assert line["missing"] == 0
    assert line["idle_ms"]["n"] == line["overload_ms"]["n"] == 15


def _way(lines: list[dict[str, Any]]) -> None:
    """A lone task's steps come one after the other, up to its function's first line; the others were seen too."""
    lone = [line["at_ms"] for line in lines if line["lone_ms"] != ""]
    assert len(lone) == 4
    assert lone == sorted(lone)
    assert lone[-1] == pytest.approx(lines[-1]["at_ms"], rel=0.2)
    assert [line["step"] for line in lines if line["half_ms"] == ""] == ["the function's first line"]


def _schedules(lines: list[dict[str, Any]]) -> None:
    (line,) = lines
    assert (line["live"], line["due"], line["tenants"]) == (300, 30, 3)


CHECKS = {
    "limiter": _limiter, "quota": _quota, "fairness": _fairness, "schedules": _schedules,
    "starts": _starts, "urgent": _urgent, "way": _way, "output": _output,
}  # fmt: skip
