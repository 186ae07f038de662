"""The torture harness in its short form: every kind of fault once, nothing lost, doubled or left unmended."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.lab.torture.faults import FAULTS
from tests.support.processes import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


def test_every_fault_once() -> None:
    command = [sys.executable, "-m", "tests.lab", "torture", "--tasks", "200", "--seed", "7", "--json"]
    # Its own servers and settings, not those of the test run.
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
    env |= {"DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded"}
    done = subprocess.run(
        [*command, "--faults", str(len(FAULTS))],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:] + done.stdout[-3000:]
    found = json.loads(done.stdout)
    assert found["side"]["accepted"] == found["side"]["finished"] > 200
    assert not any(found["at_fault"].values())
    assert sum(found["faults"].values()) >= len(FAULTS) - 3, "hardly one had nobody to strike"
    assert found["recovery_s"]["not_mended"] == 0
    for calls in ("submissions", "status_calls"):
        assert found[calls]["succeeded_percent"] >= 99
