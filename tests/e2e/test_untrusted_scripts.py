"""Scripts of a tenant nobody vouches for, from submission to the record of what they used."""

from __future__ import annotations

import pytest

from apps.resources.models import Node
from apps.tasks.services import store_script
from scheduler_ext.core.states import Outcome, TaskState
from tests.support.platform import Platform

pytestmark = pytest.mark.e2e

HUNGRY = b"#!/usr/bin/python3\nx = []\nwhile True: x.append(bytearray(b'x' * (16 << 20)))\n"


def test_run_contained_and_are_told_what_they_exceeded(platform: Platform) -> None:
    platform.tenant.trusted = False
    platform.tenant.save(update_fields=["trusted"])
    platform.up()
    level = Node.objects.get().sandbox
    if level == "process":
        pytest.skip("this machine offers no sandbox")
    looks = store_script(
        platform.tenant, "looks.sh", b'cat /etc/shadow 2>/dev/null; id -u >"$SLACKWATER_RESULT"\n'
    )
    hungry = store_script(platform.tenant, "hungry.py", HUNGRY)
    leaves = store_script(platform.tenant, "leaves.sh", b'printf hi >"$SLACKWATER_ARTIFACTS/out.txt"\n')
    left = platform.wait(platform.submit(script=leaves.sha256))
    (artifact,) = left.artifacts(manager="_plain").all()
    assert (left.state, artifact.name, bytes(artifact.content)) == (TaskState.SUCCEEDED, "out.txt", b"hi")
    seen = platform.wait(platform.submit(script=looks.sha256))
    assert (seen.state, [log.text for log in seen.logs(manager="_plain").all()]) == (TaskState.SUCCEEDED, [])
    assert seen.result != 0
    task = platform.wait(platform.submit(script=hungry.sha256, total_attempts=1), timeout=60)
    assert task.state == TaskState.FAILED
    assert task.error.startswith("memory: it used more than the")
    (attempt,) = platform.attempts(task.pk)
    assert attempt.outcome == Outcome.RESOURCE_EXCEEDED
    assert attempt.peak_memory_mb is not None
    assert attempt.peak_memory_mb >= 100
    assert attempt.cpu_ms is not None
    assert attempt.cpu_ms > 0
    assert attempt.peak_disk_mb is not None
