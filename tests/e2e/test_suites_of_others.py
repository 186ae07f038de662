"""What others test still holds on Slackwater: ``django.tasks``, and packages from the registry whose tasks become durable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slackwater.local.servers.postgres import programs
from tests.lab.matrix.moved import built_wheel, environment
from tests.lab.matrix.servers import postgres
from tests.lab.matrix.suites import SUITES, Suite, interface

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tree."""
    return built_wheel(tmp_path_factory.mktemp("wheel") / "built")


@pytest.mark.parametrize("suite", [interface("5.2"), *SUITES], ids=lambda suite: suite.package)
def test_a_suite_passes_as_it_is(suite: Suite, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = environment(tmp_path / "venv", Path(sys.executable), wheel)
    with postgres(programs() / "postgres", tmp_path, "suite") as database_url:
        found = suite.run(fresh, tmp_path, database_url)
    with capsys.disabled():
        sys.stdout.write(f"\n{suite.package} {suite.version}: {found}\n")
    assert found.passed == suite.passes
    assert found.ran == suite.ran, "how often the ledger ran which of its tasks"
