"""The score of attacks on a platform as ``make up`` runs it; `test_newcomer.py` has the short form."""

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


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_probes_hold() -> None:
    assert [one for one in score() if not one["held"]] == []
