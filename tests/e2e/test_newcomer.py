"""What a newcomer has after `make up`: the examples as their readers run them, and attackers whom it does not mind.

One platform for all: starting it costs more than they do, and none of them ends a part of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.e2e.test_up import START, STOP, belongings, environment, settings_in
from tests.lab.attack import ground, probes
from tests.support.processes import ROOT, manage
from tests.unit.submission.test_wfformat import RECORDED, document

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
PHOTOS = ROOT / "examples" / "photos"


@pytest.fixture(scope="module")
def up() -> Iterator[ground.Ground]:
    """The platform as `make up` runs it, with one module more of handlers."""
    with ground.platform() as made:
        made.process.wait_for("ready", timeout=START)
        yield made
        made.process.send(signal.SIGTERM)
        assert made.process.wait(STOP) == 0
        assert belongings(made.var) == []


@pytest.fixture
def var(up: ground.Ground) -> Path:
    """Its folder."""
    return up.var


def uploaded(var: Path, photo: Path) -> subprocess.CompletedProcess[str]:
    """What the walk-through's command says."""
    env = {"PATH": os.environ["PATH"], "SLACKWATER_VAR": str(var), **settings_in(var / "demo.env")}
    command = [sys.executable, str(PHOTOS / "upload.py"), str(photo)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def states(said: str) -> dict[str, str]:
    """Task -> state, as the example prints them."""
    rows = [line.split() for line in said.splitlines() if line.startswith("  ")]
    return {row[0]: row[1] for row in rows}


def test_the_quick_attacks_are_held(up: ground.Ground) -> None:
    chosen = probes.load(["redis", "flower"], short=True)
    assert len(chosen) > 15
    scores = [probes.attempt(one, up) for one in chosen]
    assert [(one.probe.name, one.probe.expected, one.got) for one in scores if not one.held] == []


def test_recorded_workflows_run_in_order(var: Path, tmp_path: Path) -> None:
    path = tmp_path / "diamond.json"
    path.write_text(json.dumps(document()))
    _a_recorded_workflow_runs_in_order(var, path, tasks=4, edges=4)
    for montage in RECORDED.glob("montage-*.json"):  # none where the recorded inputs are not at hand
        _a_recorded_workflow_runs_in_order(var, montage, tasks=58, edges=114)


def test_a_photo_is_published_when_all_is_done_and_only_once(var: Path) -> None:
    first = uploaded(var, PHOTOS / "harbour.jpg")
    assert first.returncode == 0, first.stdout + first.stderr
    assert set(states(first.stdout).values()) == {"succeeded"}
    assert "published: open " in first.stdout
    shared = var / "photos"
    index: dict[str, Any] = json.loads((shared / "published" / "index.json").read_text())
    assert list(index) == ["incoming/harbour.jpg"]
    for rendition in index["incoming/harbour.jpg"]["renditions"]:
        with Image.open(shared / rendition["file"]) as image:
            assert (image.format, image.width) == ("WEBP", rendition["width"])
    assert [r["width"] for r in index["incoming/harbour.jpg"]["renditions"]] == [320, 800, 1600]

    again = uploaded(var, PHOTOS / "harbour-again.jpg")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "not published: it shows the same picture as incoming/harbour.jpg" in again.stdout
    assert json.loads((shared / "published" / "index.json").read_text()) == index


def test_what_is_no_picture_stops_everything_after_it(var: Path) -> None:
    said = uploaded(var, ROOT / "Makefile")
    assert said.returncode == 1
    assert "UnidentifiedImageError" in said.stdout
    found = states(said.stdout)
    assert found.pop("receive") == "failed"
    assert set(found.values()) == {"cancelled"}
    assert len(found) == 5


def test_a_photo_outside_the_shared_folder_is_refused(up: ground.Ground) -> None:
    (up.var / "photos").mkdir(exist_ok=True)
    task = {"handler": "photos.receive", "args": ["../secret_key"], "total_attempts": 1}
    kind = {"Content-Type": "application/json"}
    made = json.loads(up.ask("/api/v1/tasks", "POST", body=json.dumps(task).encode(), headers=kind, key=True).body)
    ended = json.loads(up.ask(f"/api/v1/tasks/{made['id']}?wait=50", key=True, timeout=60).body)
    assert ended["state"] == "failed"
    assert "lies outside the folder of photos" in ended["error"]


def _a_recorded_workflow_runs_in_order(var: Path, path: Path, *, tasks: int, edges: int) -> None:
    done = subprocess.run(
        manage("import_workflow", str(path), "--time-scale", "0.01", "--wait", "--json"),
        env=environment(var), capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["states"] == {"succeeded": tasks}
    assert (report["tasks"], report["edges"], report["violations"], report["slots"]) == (tasks, edges, 0, 2)
    assert report["makespan_s"] >= report["bound_s"], "no schedule can be faster than the bound"


def test_the_readmes_first_tasks_run_as_they_stand(var: Path) -> None:
    text = (ROOT / "README.md").read_text()
    shell = next(block for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "curl" in block)
    python = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "Client" in block)
    command_line, wanted = re.findall(r"^\.venv/bin/python (-m slackwater .*)\n# (.*)$", text, re.MULTILINE)[0]
    env = {"PATH": os.environ["PATH"]}
    command = ["sh", "-c", shell.replace("var/demo.env", str(var / "demo.env"))]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout
    assert json.loads(said)["created"] is True
    env |= settings_in(var / "demo.env")
    said = subprocess.run([sys.executable, "-c", python], env=env, capture_output=True, text=True, check=True).stdout
    assert said == "{'left': 5, 'right': 9}\n"
    words = [sys.executable, *command_line.split()]
    assert subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout == f"{wanted}\n"
