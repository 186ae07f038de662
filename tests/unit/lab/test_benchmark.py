"""The measuring code itself: the channel, the account, the workloads, and what is made of the lines."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.core.dag import Dag
from slackwater.local.process import tied
from slackwater.local.servers import ServerError
from tests.lab.benchmarks import compare, pages
from tests.lab.benchmarks.account import cpu_clock, memory_mb, own_memory_mb, usage
from tests.lab.benchmarks.channel import Channel
from tests.lab.benchmarks.live.flushall import AFTER_S, BASE_S, back_s
from tests.lab.benchmarks.live.million import thirds
from tests.lab.benchmarks.measure import percentiles
from tests.lab.benchmarks.micro.dag import graph
from tests.lab.benchmarks.peer import Config
from tests.lab.benchmarks.scenarios import SCENARIOS
from tests.lab.benchmarks.workloads import WORKLOADS, item

BURN = """
import time
while time.process_time() < 0.3:
    pass
print(flush=True)
time.sleep(30)
"""


def test_the_channel_is_shared_between_those_who_open_it(tmp_path: Path) -> None:
    writer = Channel.create(tmp_path / "timing", 10)
    reader = Channel(tmp_path / "timing")
    before = time.monotonic()
    writer.work(3, 5)
    asyncio.run(writer.awork(4, 5))
    for number in (3, 4):
        assert before <= reader.begun(number) <= reader.ended(number) - 0.005
    assert reader.ended(5) == 0
    assert reader.slots == 10


def test_what_a_peer_imports_needs_the_standard_library_alone() -> None:
    code = f"import sys; sys.path.append({str(compare.ROOT)!r}); import tests.lab.benchmarks.measure"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_account_counts_a_tree_by_name() -> None:
    with subprocess.Popen(tied([sys.executable, "-c", BURN]), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = usage({"burner": process.pid})
        assert found.by_name["burner"] == pytest.approx(0.3, abs=0.1)
        assert time.clock_gettime(cpu_clock(process.pid)) >= 0.3
        assert memory_mb({"burner": process.pid})["burner"][0] > 1
        # The same process as a child of this one: counted once, under the name nearest to it.
        both = usage({"me": os.getpid(), "burner": process.pid})
        assert both.by_name["burner"] == pytest.approx(found.by_name["burner"], abs=0.05)
        process.kill()
    assert usage({"gone": process.pid}).total == 0


def test_percentiles_are_milliseconds_by_the_nearest_rank() -> None:
    found = percentiles([n / 1000 for n in range(100, 0, -1)])
    assert found == {"p50": 51.0, "p95": 96.0, "p99": 100.0, "max": 100.0, "n": 100}


def test_the_mixed_workload_is_what_it_says() -> None:
    items = [item(WORKLOADS["mixed"], n) for n in range(1000)]
    assert {i["category"] for i in items} == {"urgent", "delayable", "offpeak"}
    assert sum(i["handler"] == "bench.fail" for i in items) == 10
    names = [i.get("name", f"loose{n}") for n, i in enumerate(items)]
    needs = [i.get("depends_on", []) for i in items]
    dag = Dag.build(names, needs, path=lambda index, place: f"{index}/{place}")
    assert dag.edges == 6 * 100
    failing = {n for n, i in enumerate(items) if i["handler"] == "bench.fail"}
    assert not failing & {parent for parents in dag.parents for parent in parents}, "a failure would cancel others"
    assert "depends_on" not in item(WORKLOADS["mixed"], 4, alone=True)


@pytest.mark.parametrize(("tasks", "edges"), [(10, 20), (500, 1500), (1000, 2999)])
def test_the_large_workflow_has_the_edges_asked_for(tasks: int, edges: int) -> None:
    items = graph(tasks, edges)
    dag = Dag.build([i["name"] for i in items], [i["depends_on"] for i in items], path=lambda *_: "")
    assert (len(items), dag.edges) == (tasks, edges)


def test_a_config_survives_the_way_to_a_peers_process() -> None:
    config = Config(peer="celery", measures=("e2e",), servers={"redis": 5}, ms=10)
    assert Config.from_json(config.to_json()) == config


def test_runs_are_interleaved() -> None:
    specs = [("celery", "default"), ("slackwater", "default")]
    assert [run for run, _, _ in compare.interleaved(specs, 2)] == [1, 1, 2, 2]
    assert [name for _, name, _ in compare.interleaved(specs, 2)] == ["celery", "slackwater"] * 2


def test_an_unknown_peer_or_variant_is_named() -> None:
    assert compare.parse("pgqueuer:b100") == ("pgqueuer", "b100")
    with pytest.raises(ServerError, match="no peer 'celeri'; known are slackwater, celery"):
        compare.parse("celeri")
    with pytest.raises(ServerError, match="celery has no variant 'fast'"):
        compare.parse("celery:fast")


def test_every_rival_has_its_script_and_exact_pins() -> None:
    for rival in compare.RIVALS.values():
        assert (compare.SCRIPTS / rival.script).is_file()
        assert all("==" in package for package in rival.packages)


def line(peer: str, rate: float, run: int, **more: Any) -> dict[str, Any]:
    return {
        "peer": peer, "variant": "default", "version": f"{peer} 1", "workload": "noop", "tasks": 500, "run": run,
        "durable_pg": peer == "slackwater", "tasks_per_s": rate, "cpu_s_per_1k": 1 / rate, "load1_before": 0.2, **more,
    }  # fmt: skip


def test_the_page_has_medians_spread_ratios_and_the_lines_beside_it(tmp_path: Path) -> None:
    results = [line("celery", rate, run) for run, rate in enumerate((100, 120, 80), 1)]
    results += [line("slackwater", rate, run, lat_idle_ms={"p50": 2, "p95": 3, "p99": 4})
                for run, rate in enumerate((1000, 2000, 1500), 1)]  # fmt: skip
    page = tmp_path / "benchmarks.md"
    pages.write_comparison(page, results, "2 cores")
    text = page.read_text()
    assert "| celery | no | 100 (80–120) | 1.00 |" in text
    assert "| slackwater | yes | 1,500 (1,000–2,000) | 15.00 |" in text
    assert "2.0 / 3.0 / 4.0" in text
    assert "A small run" in text
    assert [json.loads(row)["peer"] for row in (tmp_path / "benchmarks.jsonl").read_text().splitlines()] == (
        ["celery"] * 3 + ["slackwater"] * 3
    )
    picture = (tmp_path / "images" / "benchmarks.svg").read_text()
    assert "1,500" in picture


def test_a_large_run_is_not_called_small_and_a_failure_is_not_hidden(tmp_path: Path) -> None:
    results = [{**line("celery", 100, run), "tasks": 20_000} for run in (1, 2, 3)]
    results.append({**line("slackwater", 500, 1), "tasks": 20_000, "error": "RuntimeError: lost"})
    page = tmp_path / "benchmarks.md"
    pages.write_comparison(page, results, "2 cores")
    assert "A small run" not in page.read_text()
    assert "| slackwater (1 failed) |" in page.read_text()


def test_a_measured_block_is_replaced_where_it_stands(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n\nBefore.\n")
    scenario = SCENARIOS["dag"]
    for seconds in (1.0, 2.0):
        pages.write_block(page, scenario, "python -m tests.lab bench", [{"tasks": 1000, "seconds": seconds}], "2 cores")
    text = page.read_text()
    assert text.startswith("# Performance\n\nBefore.\n")
    assert text.count("<!-- measured: dag -->") == 1
    assert "| 1,000 |  | 2.0 |" in text
    assert "1.0" not in text


def _rates(*gaps: tuple[float, float, float]) -> Any:
    """Throughput of 100 a second but for the gaps: from, until, and the rate in between."""

    def per_s(since: float, until: float) -> float:
        lost = sum(max(0.0, min(until, b) - max(since, a)) * (100 - rate) for a, b, rate in gaps)
        return 100 - lost / (until - since)

    return per_s


def test_throughput_is_back_when_it_stays_back() -> None:
    assert back_s(0.0, 100.0, _rates()) == 0.0
    # The window of two seconds may begin while a twentieth of it is still lost.
    assert back_s(0.0, 100.0, _rates((0.0, 3.0, 0.0))) == 2.9
    # Tasks that were running go on for a while after the emptying: what counts is the dip that follows.
    assert back_s(0.0, 100.0, _rates((2.0, 4.0, 20.0))) == pytest.approx(3.9, abs=0.11)
    assert back_s(0.0, 100.0, _rates((0.0, AFTER_S, 90.0))) is None
    assert BASE_S > 0


def test_memory_is_compared_by_thirds() -> None:
    samples = [(at, {"steady": 50.0, "leaks": 10.0 + at, **({"early": 5.0} if at < 5 else {})}) for at in range(31)]
    found = thirds(samples, 0.0, 30.0)
    assert found["steady"] == {"first": 50.0, "last": 50.0, "ratio": 1.0}
    assert found["leaks"]["ratio"] == round(39.0 / 19.0, 3)
    assert "early" not in found
    # A worker that has just been started again is small, and one large sample is no leak.
    sizes = [2.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0] * 3
    sizes[25] = 2.0
    found = thirds([(float(at), {"worker": size}) for at, size in enumerate(sizes)], 0.0, 30.0)
    assert found["worker"]["ratio"] == 1.0


def test_shared_memory_is_not_a_process_own() -> None:
    before = memory_mb({"me": os.getpid()})["me"][0]  # twice: it may shrink and grow between two looks
    own = own_memory_mb({"me": os.getpid()})["me"][0]
    assert 5 < own <= max(before, memory_mb({"me": os.getpid()})["me"][0])
