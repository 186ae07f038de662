"""Hostile scripts at every level this machine offers; the same attacks succeed where there is no sandbox."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_ext.sandbox.base import Level
from scheduler_ext.sandbox.pool import SlotPool
from tests.lab.sandbox_score.hostile import Hostile, Verdict, attack, load, settings
from tests.lab.sandbox_score.targets import targets
from tests.support.runner import HOST, Runner, skip_without_engine
from tests.support.waiting import wait_until

SCRIPTS = {script.name: script for script in load()}
LEVELS = [level for level in Level if level.contains_untrusted]


@pytest.fixture(scope="module")
def pools(request: pytest.FixtureRequest) -> Iterator[dict[Level, SlotPool]]:
    like = request.getfixturevalue("runner").conf() if HOST else None
    made = {level: SlotPool(settings(level, like)) for level in Level}
    for pool in made.values():
        pool.probe()
    yield made
    for pool in made.values():
        pool.close()


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A folder that another user may pass through, as the agent's: pytest's own are closed."""
    with tempfile.TemporaryDirectory(prefix="slackwater-test-") as folder:
        yield Path(folder)


async def _attacked(pool: SlotPool, script: Hostile, root: Path) -> Verdict:
    async with targets() as against:
        return await attack(pool, script, against, root)


def test_there_are_at_least_sixty() -> None:
    assert len(SCRIPTS) >= 60


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_is_contained(name: str, level: Level, pools: dict[Level, SlotPool], root: Path) -> None:
    if level is Level.CONTAINER:
        skip_without_engine()
    pool = pools[level]
    if pool.level != level:
        pytest.skip(f"this machine offers no {level}")
    verdict = asyncio.run(_attacked(pool, SCRIPTS[name], root))
    assert verdict.contained, f"{verdict.why}\n{verdict.output}"


def test_no_container_is_left(pools: dict[Level, SlotPool], request: pytest.FixtureRequest) -> None:
    skip_without_engine()
    runner: Runner = request.getfixturevalue("runner")
    assert pools[Level.CONTAINER].level == Level.CONTAINER
    pools[Level.CONTAINER].close()
    wait_until(lambda: runner.containers() == [], message="the runner has removed all containers")


@pytest.mark.parametrize("name", [name for name, script in SCRIPTS.items() if script.escapes_plainly])
def test_succeeds_without_a_sandbox(name: str, pools: dict[Level, SlotPool], root: Path) -> None:
    """An attack that nothing stops would prove nothing when it fails."""
    verdict = asyncio.run(_attacked(pools[Level.PROCESS], SCRIPTS[name], root))
    assert not verdict.contained
    assert "ESCAPED" in verdict.output
