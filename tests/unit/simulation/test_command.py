"""`manage.py simulate`."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from scheduler_ext.policies.registry import ORDER_POLICIES, SHARE_POLICIES

WORK = """
cell: {nodes: 1, slots: 2}
tenants:
  - name: a
    arrivals: {process: fixed, every_s: 1, count: 20}
    run_s: {distribution: choice, values: [1, 3]}
  - name: b
    arrivals: {process: fixed, every_s: 2, count: 10}
    run_s: {distribution: constant, value: 2}
"""


@pytest.fixture
def work(tmp_path: Path) -> str:
    path = tmp_path / "work.yaml"
    path.write_text(WORK)
    return str(path)


def simulate(*args: str) -> str:
    out = StringIO()
    call_command("simulate", *args, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_all_policies_side_by_side(work: str, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    told = simulate(work, "--policy", "all", "--json", str(numbers))
    labels = [each["label"] for each in json.loads(numbers.read_text())]
    runs = len(ORDER_POLICIES) + len(SHARE_POLICIES) - 1
    assert len(set(labels)) == len(labels) == runs
    assert all(label in told for label in labels)
    assert {"fifo/equal", "round_robin/equal", "fifo/dominant_resource"} <= set(labels)


def test_pictures_of_each_policy_and_of_all_beside_one_another(work: str, tmp_path: Path) -> None:
    simulate(work, "--policy", "fifo", "--policy", "round_robin", "--pictures", str(tmp_path / "pictures"))
    for ending in ("png", "svg"):
        assert len(list((tmp_path / "pictures").glob(f"*.{ending}"))) == 2 * 3 + 1


def test_json_alone_and_the_same_seed(work: str) -> None:
    first, again = (json.loads(simulate(work, "--json", "-", "--seed", "3"))[0] for _ in range(2))
    assert first["ended"] == first["jobs"] == 30
    assert first["wait_mean_s"] == again["wait_mean_s"]


def test_windows_come_from_the_file_or_the_options(tmp_path: Path) -> None:
    """Off-peak work that comes at eight in the evening waits two hours, or as the options say."""
    path = tmp_path / "night.yaml"
    path.write_text(
        "begins: 2026-01-05T20:00:00+01:00\n"
        "ceiling_windows: 22:00-06:00 Europe/Berlin; 06:00-22:00 Europe/Berlin offpeak=0\n"
        "tenants:\n"
        "  - {name: a, category: offpeak, arrivals: {process: fixed, every_s: 1, count: 1}, run_s: {value: 1}}\n"
    )

    def wait(*options: str) -> float:
        return float(json.loads(simulate(str(path), "--json", "-", *options))[0]["wait_mean_s"])

    assert wait() == 7200
    assert wait("--windows", "") == 0
    assert wait("--begins", "2026-01-05T21:30:00+01:00") == 1800
    assert wait("--windows", "20:00-20:10 Europe/Berlin offpeak=0") == 600


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--begins", "tomorrow", "--begins: must be a time"),
        ("--windows", "at night", "ceiling_windows: 'at night'"),
    ],
)
def test_a_wrong_window_or_beginning_is_told(work: str, option: str, value: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        simulate(work, option, value)


def test_more_nodes_wait_less_and_more_load_waits_more(work: str) -> None:
    def wait(*options: str) -> float:
        return float(json.loads(simulate(work, "--json", "-", *options))[0]["wait_mean_s"])

    assert wait("--nodes", "4") < wait() < wait("--load", "3")


def test_the_work_that_the_page_shows_ends_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it runs, keeps the nodes busy, and the policies differ."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "simulate.md").read_text()
    sample, call, told = re.findall(r"```yaml\n(.*?)```.*?\$ manage.py simulate (.*?)\n(.*?)```", page, re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    Path("work.yaml").write_text(sample)
    out = simulate(*call.split(), "--json", "numbers.json")
    assert [line.rstrip() for line in out.splitlines()] == told.splitlines()
    first, second = json.loads(Path("numbers.json").read_text())
    assert first["unplaced"] == second["unplaced"] == 0
    assert first["ended"] == first["jobs"] > 10_000
    assert 0.5 < first["utilization"] < 1
    assert first["wait_mean_s"] != second["wait_mean_s"]


@pytest.mark.slow
def test_the_quota_scenario_with_its_own_queues() -> None:
    found = json.loads(simulate("quota", "--policy", "fifo/capacity", "--json", "-"))[0]
    assert found["makespan_s"] <= 75


def worked(name: str, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(simulate("--example", name, "--json", "-", *options))[0]
    return found


def test_the_worked_examples_are_told_task_by_task() -> None:
    ends = {"fifo": [10, 15, 18], "shortest_first": [18, 8, 3], "round_robin": [17, 18, 15]}
    for name, expected in ends.items():
        found = worked(name)
        assert [task["ended_s"] for task in found["tasks"]] == expected
        assert found["end_mean_s"] == pytest.approx(sum(expected) / 3)
        assert f"mean completion {sum(expected) / 3:.2f} s" in simulate("--example", name)
    assert [task["waited_s"] for task in worked("fifo")["tasks"]] == [0, 4, 7]
    assert worked("round_robin")["tasks"][2]["turns_s"] == [[8, 10], [14, 15]]
    assert worked("fifo", "--policy", "shortest_first")["label"] == "shortest_first/equal"
    shares = [(tenant["at_once"], tenant["dominant_share"]) for tenant in worked("drf")["tenants"]]
    assert shares == [(3, pytest.approx(2 / 3)), (2, pytest.approx(2 / 3))]


def test_any_run_is_told_task_by_task_where_that_is_asked_for(work: str) -> None:
    found = json.loads(simulate(work, "--tasks", "--json", "-"))[0]
    assert len(found["tasks"]) == found["jobs"] == sum(tenant["tasks"] for tenant in found["tenants"])
    assert all(task["ended_s"] > task["started_s"] >= task["arrived_s"] for task in found["tasks"])
    assert "tasks" not in json.loads(simulate(work, "--json", "-"))[0]


def test_wrong_options_are_told(work: str, tmp_path: Path) -> None:
    for args, message in (
        ((str(tmp_path / "none.swf"),), "no file"),
        ((), "--example"),
        ((work, "--example", "fifo"), "--example"),
        ((work, "--policy", "lifo"), "known are"),
        ((work, "--policy", "fifo/none"), "known are"),
        ((work, "--nodes", "0"), "--nodes"),
        ((work, "--share-parameters", "{"), "not JSON"),
        ((work, "--load", "0"), "load"),
        ((work, "--share-parameters", '{"memory_s": -1}'), "memory_s"),
        ((work, "--pictures", "/proc/none"), "/proc/none cannot be written"),
        ((work, "--json", "/proc/none"), "/proc/none cannot be written"),
    ):
        with pytest.raises(CommandError, match=message):
            simulate(*args)
