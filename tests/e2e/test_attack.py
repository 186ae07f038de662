"""The score of attacks on a platform as ``make up`` runs it: the short form here, all of it among the slow tests."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.e2e


def score(*options: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab", "attack", "--json", *options],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("["), done.stderr[-4000:]
    found: list[dict[str, object]] = json.loads(done.stdout.splitlines()[0])
    return found


@pytest.mark.timeout(600)
def test_the_quick_probes_hold() -> None:
    found = score("--short", "--door", "redis", "--door", "flower")
    assert len(found) > 15
    assert [one for one in found if not one["held"]] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_probes_hold() -> None:
    assert [one for one in score() if not one["held"]] == []
