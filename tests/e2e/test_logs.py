"""Lines that handlers log: they say of which task they are, and no task waits for them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from scheduler_ext.core.states import TaskState
from slackwater_tasks.control import secrets
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.read import output
from slackwater_tasks.submission.service import store_script
from slackwater_tenants.scoping import tenant_scope
from tests.support.platform import Platform
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]


def lines(file: Path) -> list[dict[str, Any]]:
    """Of handlers, whole ones."""
    text = file.read_text() if file.exists() else ""
    found = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return [line for line in found if line["logger"] == "shop"]


def test_each_slot_keeps_a_log_that_names_task_and_tenant_and_no_secret(
    platform: Platform, tmp_path: Path, settings: Any
) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "SECRETS_KEYS": ["a key of the platform"]}
    secrets.put(platform.tenant, "KEY", 'correct "horse"')
    platform.dispatcher()
    worker = platform.worker(
        concurrency=1, SLACKWATER_LOG_DIR=str(tmp_path),
        SLACKWATER_SECRETS_KEYS="a key of the platform",
    )  # fmt: skip
    first, second = (platform.submit("test.says", text) for text in ("one", "two"))
    for task_id in (first, second):
        assert platform.wait(task_id).state == TaskState.SUCCEEDED
    (file,) = [found for found in tmp_path.iterdir() if found.suffix == ".log"]
    wait_until(lambda: len(lines(file)) == 2, message="both lines are written")
    by_task = {line["task"]: line for line in lines(file)}
    assert by_task.keys() == {str(first), str(second)}
    line = by_task[str(first)]
    assert (line["event"], line["level"], line["tenant"], line["attempt"]) == (
        "one 0", "warning", platform.tenant.pk, 1,
    )  # fmt: skip
    assert file.name == f"{line['worker']}-{line['slot']}.log" == "w1@test-0.log"

    assert platform.wait(platform.submit("test.tells", "KEY")).state == TaskState.SUCCEEDED
    wait_until(lambda: len(lines(file)) == 3, message="the line is written")
    line = lines(file)[-1]
    assert line["event"] == "tried with ***"
    assert "invalid literal for int() with base 10: '***'" in line["exception"]
    worker.wait_for("invalid literal for int() with base 10: '***'")
    assert "horse" not in file.read_text() + worker.output


def test_a_log_nobody_reads_holds_no_task_up(platform: Platform, tmp_path: Path) -> None:
    """The folder's file is a pipe that takes 64 KiB and no more."""
    platform.dispatcher()
    os.mkfifo(tmp_path / "w1@test-0.log")
    reader = os.open(tmp_path / "w1@test-0.log", os.O_RDONLY | os.O_NONBLOCK)
    try:
        platform.worker(concurrency=1, SLACKWATER_LOG_DIR=str(tmp_path))
        task = platform.wait(platform.submit("test.says", "x" * 500, 5_000), timeout=60)
        assert (task.state, task.result) == (TaskState.SUCCEEDED, 5_000)
        assert platform.wait(platform.submit("demo.echo", 1)).state == TaskState.SUCCEEDED
    finally:
        os.close(reader)


def test_what_a_task_writes_is_read_while_it_runs(platform: Platform, tmp_path: Path, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "SECRETS_KEYS": ["a key of the platform"]}
    secrets.put(platform.tenant, "KEY", "correct horse")
    platform.dispatcher()
    worker = platform.worker(SLACKWATER_SECRETS_KEYS="a key of the platform")
    gate = tmp_path / "gate"
    content = b"#!/bin/sh\necho out $SLACKWATER_SECRET_KEY\necho err >&2\nsleep 300\n"
    script = store_script(platform.tenant, "says.sh", content)
    task_id, script_id = platform.submit("test.speaks", str(gate)), platform.submit(script=script.sha256)

    def said(wanted: UUID) -> list[tuple[str, str, str]]:
        with tenant_scope(platform.tenant.pk):
            return [(line["stream"], line["level"], line["text"]) for line in output.lines(wanted)]

    first = [
        ("stdout", "info", "number 1 of 2"),
        ("stderr", "error", "as ***"),
        ("log", "warning", "logged 1 with ***"),
    ]
    wait_until(lambda: said(task_id) == first, message="the handler's lines are there")
    wait_until(lambda: sorted(said(script_id)) == [("stderr", "error", "err"), ("stdout", "info", "out ***")],
               message="the script's lines are there")  # fmt: skip
    assert platform.state(task_id) == platform.state(script_id) == TaskState.RUNNING
    with tenant_scope(platform.tenant.pk):
        assert [chunk["value"] for chunk in output.chunks(task_id)] == [1]
    gate.touch()
    assert platform.wait(task_id).state == TaskState.SUCCEEDED
    # Whoever sees the end finds all of it.
    assert said(task_id)[3:] == [
        ("stdout", "info", "number 2 of 2"), ("stderr", "error", "as ***"), ("log", "warning", "logged 2 with ***"),
        ("stdout", "info", "no line break"),
    ]  # fmt: skip
    with tenant_scope(platform.tenant.pk):
        assert [chunk["value"] for chunk in output.chunks(task_id)] == [1, 2]
    worker.wait_for("number 1 of 2")
    assert "horse" not in worker.output
    cancel(platform.tenant.pk, script_id, actor="test")
    platform.wait(script_id)
