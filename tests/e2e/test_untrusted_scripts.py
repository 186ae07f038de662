"""Scripts of a tenant nobody vouches for, from submission to the record of what they used."""

from __future__ import annotations

import contextlib
import signal

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_resources.models import Node
from slackwater_tasks.submission.service import store_script
from tests.support.platform import Platform, agent_of
from tests.support.runner import Runner, skip_without_engine
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

LONG = b"trap '' TERM; test $SLACKWATER_ATTEMPT -gt 1 || while :; do sleep 0.2; done\n"
HUNGRY = b"#!/usr/bin/python3\nx = []\nwhile True: x.append(bytearray(b'x' * (16 << 20)))\n"


def use(platform: Platform, runner: Runner) -> None:
    platform.set(sandbox="container", runner=runner.address, runner_token_file=str(runner.token))


@pytest.mark.parametrize("wanted", ["auto", "container"])
def test_run_contained_and_are_told_what_they_exceeded(
    platform: Platform, wanted: str, request: pytest.FixtureRequest
) -> None:
    platform.tenant.trusted = False
    platform.tenant.save(update_fields=["trusted"])
    if wanted == "container":
        use(platform, request.getfixturevalue("runner"))
    platform.up()
    level = Node.objects.get().sandbox
    if wanted == "container":
        assert level == "container"
    if level == "process":
        pytest.skip("this machine offers no sandbox")
    looks = store_script(platform.tenant, "looks.sh", b'cat /etc/shadow 2>/dev/null; id -u >"$SLACKWATER_RESULT"\n')
    hungry = store_script(platform.tenant, "hungry.py", HUNGRY)
    leaves = store_script(platform.tenant, "leaves.sh", b'printf hi >"$SLACKWATER_ARTIFACTS/out.txt"\n')
    left = platform.wait(platform.submit(script=leaves.sha256))
    (artifact,) = left.artifacts(manager="_plain").all()
    assert (left.state, artifact.name, bytes(artifact.content or b"")) == (TaskState.SUCCEEDED, "out.txt", b"hi")
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


def test_a_killed_runner_and_a_killed_agent_lose_no_task_and_leave_nothing(
    platform: Platform,
) -> None:
    skip_without_engine()
    with contextlib.closing(Runner()) as runner:
        use(platform, runner)
        worker = platform.up()
        script = store_script(platform.tenant, "long.sh", LONG)

        def running() -> list[str]:
            return [each["Id"] for each in runner.containers() if each["State"] == "running"]

        first = platform.submit(script=script.sha256, total_attempts=3)
        platform.wait(first, TaskState.RUNNING)
        wait_until(running, message="its container runs")
        runner.process.send(signal.SIGKILL)
        wait_until(lambda: platform.attempts(first), message="the attempt is recorded")
        assert "the runner" in (platform.attempts(first)[0].error or "")
        wait_until(lambda: running() == [], message="the container has ended without its runner")
        runner.process.end()
        runner.start()
        assert platform.wait(first, timeout=60).state == TaskState.SUCCEEDED

        short = store_script(platform.tenant, "short.sh", b"sleep 3\n")
        second = platform.submit(script=short.sha256, total_attempts=3)
        platform.wait(second, TaskState.RUNNING)
        wait_until(lambda: any("waits" not in each["Names"][0] for each in runner.containers()))
        agent_of(worker).kill()
        platform.worker("w2")
        assert platform.wait(second, timeout=60).state == TaskState.SUCCEEDED
        platform.processes.close()
        wait_until(lambda: runner.containers() == [], message="no container is left")
