"""A plain Celery project without a database calls durable tasks over REST, on a real platform."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slackwater_tenants.services import create_api_key
from tests.support.platform import Platform
from tests.support.processes import ROOT
from tests.support.submitters import free_port, is_up
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e


def test_calls_canvases_and_results_go_over_rest_and_nothing_is_published(platform: Platform, tmp_path: Path) -> None:
    platform.dispatcher()
    platform.upkeep()
    platform.worker(SLACKWATER_HANDLERS="tests.support.calling")
    port = free_port()
    granian = [sys.executable, "-m", "granian", "--interface", "asginl", "--port", str(port), "--no-ws"]
    platform.start("api", [*granian, "slackwater.asgi:application"])
    wait_until(lambda: is_up(port), timeout=60, message="the API answers")
    key = create_api_key(platform.tenant, "web", ("submit", "read", "cancel"))[1]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.away", f"http://127.0.0.1:{port}", key, str(tmp_path)],
        cwd=ROOT, env={"PYTHONPATH": ".:platform:apps", "PATH": ""}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {way: found[way] for way in ("delay", "by_name", "options", "group", "chain", "chord")} == {
        "delay": 5, "by_name": 6, "options": 7, "group": [2, 4], "chain": 13, "chord": 10,
    }  # fmt: skip
    assert found["values"] == [True, True, {"who": "ann"}]
    assert found["failure"] == ["ValueError", "no"]
    of_chain, of_chord = found["cannot come"]
    assert of_chain == ["ValueError", "no"]
    assert (of_chord[0], of_chord[1].split(" raised ")[1]) == ("ChordError", "ValueError('no')")
    assert found["states"] == ["FAILURE", True, False, True, "no"]
    assert found["children"]
    assert found["once"]
    assert found["linked"] == 3
    assert found["pending"] == ["PENDING", False]
    assert found["timeout"][0] == "TimeoutError"
    assert found["revoked"][:2] == ["REVOKED", "TaskRevokedError"]
    assert found["forgotten"] == [9, None]
    assert found["unknown"][0] == "DoesNotFit"
    assert "calls.nobodys" in found["unknown"][1]
    assert found["option"][0] == "InvalidInput"
    assert found["wrong key"][0] == "NotAuthenticated"
    assert found["away"][0] == "Unreachable"
    assert not found["django"]
