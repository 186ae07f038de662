"""A bench at each level of containment that this machine offers."""

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_ext.sandbox.base import Level
from scheduler_ext.sandbox.pool import SlotPool
from tests.support.bench import CONF, Bench


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="slackwater-test-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="module", params=list(Level))
def bench(request: pytest.FixtureRequest, root: Path) -> Iterator[Bench]:
    conf = dataclasses.replace(CONF, sandbox=request.param)
    if request.param is Level.CONTAINER:
        runner = request.getfixturevalue("runner")
        conf = dataclasses.replace(conf, runner=runner.address, runner_token_file=str(runner.token))
    pool = SlotPool(conf)
    if pool.level != request.param:
        pytest.skip(f"this machine offers no {request.param}")
    yield Bench(pool, root / request.param)
    pool.close()


@pytest.fixture
def folder(root: Path) -> None:
    for level in Level:
        (root / level).mkdir(exist_ok=True)
