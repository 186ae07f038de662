"""`python -m tests.lab bench` as a user runs it: on servers of its own, with nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command

from tests.lab.benchmarks.command import Command
from tests.support.processes import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def bench(var: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
    env |= {"SLACKWATER_VAR": str(var), "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded"}
    return subprocess.run(
        [sys.executable, "-m", "tests.lab", "bench", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.mark.slow
def test_a_mixed_run_is_complete_and_counted(tmp_path: Path) -> None:
    done = bench(tmp_path, "--workload", "mixed:200", "--measures", "e2e,idle", "--idle-samples", "5")
    assert done.returncode == 0, done.stderr
    (result,) = map(json.loads, done.stdout.strip().splitlines())
    assert result["complete"] is True
    assert result["recorded"] == 240  # with the warm-up; failed ones are recorded too
    assert result["cpu_s_per_1k"] > 0
    assert {"producer", "postgres child", "redis", "dispatcher", "worker child"} <= result["cpu_by_process"].keys()
    assert result["lat_idle_ms"]["n"] == 5
    assert [path.name for path in (tmp_path / "bench").iterdir() if path.is_dir()] == [], "its servers' data is left"


@pytest.mark.slow
def test_the_small_measurements_run(tmp_path: Path) -> None:
    arguments = ("--set", "sizes=1,20", "--set", "tasks=40", "--set", "waiting=100")
    done = bench(tmp_path, "--micro", "batches", *arguments)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stdout.strip().splitlines()]
    assert [(row["step"], row["batch"]) for row in lines] == [
        (step, size) for size in (1, 20) for step in ("submit", "claim", "start", "finish")
    ]
    assert all(row["us"] >= row["postgres_us"] > 0 for row in lines)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    """The command in this process: how that ends is not the command's to say."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    settings.SLACKWATER = {**settings.SLACKWATER, "VAR": str(tmp_path)}


@pytest.mark.usefixtures("here")
def test_a_database_that_is_not_named_for_it_is_refused() -> None:
    with pytest.raises(CommandError, match="the name must contain 'bench'; this one is called 'production'"):
        call_command(Command(), "--database-url", "postgresql://nobody@127.0.0.1:1/production")


@pytest.mark.usefixtures("here")
def test_a_redis_that_holds_something_is_refused(redis_client: redis.Redis, redis_url: str) -> None:
    redis_client.set("precious", "1")
    with pytest.raises(CommandError, match="holds 1 keys of others"):
        call_command(Command(), "--redis-url", redis_url)
    assert redis_client.get("precious") == b"1"


@pytest.mark.usefixtures("here")
def test_what_does_not_exist_is_named() -> None:
    for arguments, said in (
        (("--workload", "nop"), "there is no workload 'nop'; known are noop, sleep10ms, mixed"),
        (("--micro", "dags"), "there is no scenario 'dags'"),
        (("--micro", "dag", "--set", "nodes=3"), "dag has no 'nodes'; it has tasks, edges, runs"),
        (("--measures", "speed"), "there is no 'speed'"),
    ):
        with pytest.raises(CommandError, match=said):
            call_command(Command(), *arguments)
