"""The example projects move from a built wheel in a fresh environment, by five lines at most, and run as they did."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slackwater.local.servers.postgres import programs
from slackwater.local.servers.redis import program
from tests.lab.matrix.moved import EXAMPLES, Example, Moved, built_wheel, environment
from tests.lab.matrix.servers import broker, postgres

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment made for this: the wheel, and from the registry what it asks for."""
    wheel = built_wheel(tmp_path_factory.mktemp("wheel") / "built")
    return environment(tmp_path_factory.mktemp("fresh") / "venv", Path(sys.executable), wheel)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_moves_and_each_task_runs_as_often_as_it_says(
    example: Example, fresh: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        postgres(programs() / "postgres", tmp_path, example.name) as database_url,
        broker(program(), tmp_path) as redis_url,
    ):
        moved = Moved(example, tmp_path, fresh, database_url=database_url, redis_url=redis_url)
        with capsys.disabled():
            sys.stdout.write(f"\n{moved.move()}")
        moved.prepare()
        moved.run()
        moved.check()
