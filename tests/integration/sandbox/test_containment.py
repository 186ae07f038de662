"""What a sandbox gives and takes at every level: inputs, result, output, limits, users, network."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished
from scheduler_ext.sandbox.base import Level
from scheduler_ext.sandbox.keeper.checkpoint_folder import files_of
from scheduler_ext.worker.agent.scripts import ScriptRun
from tests.support.bench import CONF, Bench

pytestmark = pytest.mark.usefixtures("folder")


def test_inputs_go_in_and_result_output_and_exit_code_come_out(bench: Bench) -> None:
    finished, output = bench.run('cat "$SLACKWATER_INPUTS" >"$SLACKWATER_RESULT"; echo out; echo err >&2')
    assert finished.outcome is Outcome.SUCCEEDED
    assert finished.result == '{"args": [1], "kwargs": {}, "upstream": {"up": 2}}'
    assert (output, finished.exit_code) == ("out\nerr\n", 0)
    failed, _ = bench.run("echo no >&2; exit 7")
    assert (failed.outcome, failed.exit_code, failed.error) == (Outcome.FAILED, 7, "exit code 7: no")
    killed, _ = bench.run("kill -9 $$")
    assert (killed.exit_code, killed.error) == (-9, "signal 9")


def test_a_slot_is_clean_for_the_next_script(bench: Bench) -> None:
    bench.run('mkdir -p "$HOME/a"; echo secret >"$HOME/a/left"; echo 1 >"$SLACKWATER_RESULT"')
    finished, output = bench.run('find "$HOME" -mindepth 1 | sort')
    assert finished.result is None
    assert [Path(line).name for line in output.split()] == ["artifacts", "inputs.json", "script"]


def test_use_is_measured(bench: Bench) -> None:
    script = "#!/usr/bin/python3\nimport time\nx = b'x' * (60 << 20)\nwhile time.process_time() < 0.3: pass\n"
    finished, _ = bench.run(script)
    assert finished.outcome is Outcome.SUCCEEDED, finished.error
    assert 290 <= (finished.cpu_ms or 0) < 1_500
    assert 55 <= (finished.peak_memory_mb or 0) <= 128


async def begun(run: ScriptRun) -> asyncio.Future[Finished]:
    """The run, once its script has said that it has begun."""
    job = asyncio.ensure_future(run.run())
    while "begun" not in run.said["stdout"]:
        await asyncio.sleep(0.01)
    return job


def test_a_script_asked_to_end_may_clean_up(bench: Bench) -> None:
    run = bench.prepare("trap 'echo tidy; exit 3' TERM; echo begun; while :; do sleep 0.05; done")
    run.conf = dataclasses.replace(run.conf, cancel_grace_s=20.0)

    async def cancelled() -> Finished:
        job = await begun(run)
        run.stop(Outcome.CANCELLED)
        return await job

    finished = asyncio.run(cancelled())
    assert finished.outcome is Outcome.CANCELLED
    assert "tidy" in run.said["stdout"]


STUBBORN = "trap '' TERM; echo begun; while :; do sleep 0.05; done"


def test_one_that_may_run_elsewhere_by_now_is_killed_without_a_grace(bench: Bench) -> None:
    run = bench.prepare(STUBBORN, cap_ms=120_000)
    run.conf = dataclasses.replace(run.conf, cancel_grace_s=100.0)

    async def abandoned() -> Finished:
        job = await begun(run)
        run.stop(Outcome.CANCELLED)
        await asyncio.sleep(0.1)
        run.abandon()
        return await asyncio.wait_for(job, 60.0)

    finished = asyncio.run(abandoned())
    assert (finished.outcome, finished.error) == (Outcome.WORKER_LOST, "its node's lease was over")


def test_it_ends_with_the_lease_of_an_agent_that_is_silent(bench: Bench) -> None:
    run = bench.prepare(STUBBORN, cap_ms=120_000)
    run.lease_s = 4.0

    async def left() -> Finished:
        job, ends = asyncio.ensure_future(run.run()), float("inf")
        while (now := time.monotonic()) < ends:
            run.beat(now, now + 4.0)
            await asyncio.sleep(0.1)
            assert not job.done(), "its agent lives"
            if "begun" in run.said["stdout"]:
                ends = min(ends, now + 3.0)
        return await asyncio.wait_for(job, 100.0)

    finished = asyncio.run(left())
    assert (finished.outcome, finished.error) == (Outcome.WORKER_LOST, "its node's lease was over")
    assert bench.run("echo fine")[1] == "fine\n"


def test_one_that_was_abandoned_before_it_began_does_not_begin(bench: Bench) -> None:
    run = bench.prepare("echo begun")
    run.abandon()
    finished = asyncio.run(run.run())
    assert (finished.outcome, run.said["stdout"]) == (Outcome.WORKER_LOST, "")


def test_what_a_script_is_given_is_not_seen_by_other_users(bench: Bench) -> None:
    """A command line can be read by every user of the machine, an environment only by its owner."""
    run = bench.prepare('echo begun; test "$SLACKWATER_SECRET_word" = "open sesame" || exit 4; sleep 60')
    run.work = dataclasses.replace(run.work, secrets={"word": "open sesame"})

    async def looked() -> tuple[Finished, list[str]]:
        job = await begun(run)
        lines: list[str] = []
        while not any("sleep 60" in line for line in lines) and not job.done():
            await asyncio.sleep(0.01)  # "begun" is said before the shell has started what comes next
            keeper = run.runner.process  # type: ignore[union-attr]
            below = psutil.Process(keeper.pid).children(recursive=True) if keeper else psutil.process_iter()
            with contextlib.suppress(psutil.Error):
                lines = [" ".join(process.cmdline()) for process in below]
        run.stop(Outcome.CANCELLED)
        return await job, lines

    finished, lines = asyncio.run(looked())
    assert finished.outcome is Outcome.CANCELLED, finished
    assert any("sleep 60" in line for line in lines)
    assert not [line for line in lines if "sesame" in line]


def test_a_secret_that_looks_like_the_end_of_options_is_a_secret(bench: Bench) -> None:
    run = bench.prepare('echo "$SLACKWATER_SECRET_a|$SLACKWATER_SECRET_b"; env | grep -c "^SLACKWATER_SECRET_"')
    run.work = dataclasses.replace(run.work, secrets={"a": "--", "b": "after it"})
    finished = asyncio.run(run.run())
    assert finished.outcome is Outcome.SUCCEEDED, finished
    assert run.said["stdout"] == "--|after it\n2\n"


def test_too_much_is_refused_and_the_slot_goes_on(bench: Bench) -> None:
    run = bench.prepare("echo never")
    run.work = dataclasses.replace(run.work, secrets={f"s{i}": "x" * 10_000 for i in range(30)})
    finished = asyncio.run(run.run())
    assert finished.outcome is Outcome.FAILED
    assert bench.run("echo again")[1] == "again\n"


def test_a_missing_interpreter_is_told(bench: Bench) -> None:
    finished, output = bench.run("#!/no/such/interpreter\n")
    assert finished.outcome is Outcome.FAILED
    assert "No such file" in f"{finished.error} {output}"


def test_a_large_disk_is_a_folder_with_the_same_end(bench: Bench) -> None:
    vector = (1_000, 128, 300, 0, 0, 0)
    fine, output = bench.run('head -c 1000000 /dev/zero >x; echo 1 >"$SLACKWATER_RESULT"; stat -c %s x', vector=vector)
    assert (fine.outcome, fine.result, output) == (Outcome.SUCCEEDED, "1", "1000000\n")
    assert fine.peak_disk_mb == 1
    script = "#!/usr/bin/python3\nfor i in range(3): open(str(i), 'wb').write(bytes(150 << 20))\n"
    script += "import time; time.sleep(5)\n"
    over, _ = bench.run(script, cap_ms=60_000, vector=(1_000, 512, 300, 0, 0, 0))
    assert over.outcome is Outcome.RESOURCE_EXCEEDED
    assert (over.error or "").startswith("disk: it wrote more than its tier's 300 MiB")


def test_what_a_script_wrote_is_measured(bench: Bench) -> None:
    fine, _ = bench.run("head -c 5000000 /dev/zero >x", vector=(1_000, 128, 20, 0, 0, 0))
    assert (fine.outcome, fine.peak_disk_mb) == (Outcome.SUCCEEDED, 5)
    nothing, _ = bench.run("true", vector=(1_000, 128, 20, 0, 0, 0))
    assert nothing.peak_disk_mb in (0, 1)


def test_the_network_is_there_when_it_is_granted(bench: Bench, request: pytest.FixtureRequest) -> None:
    if bench.pool.level == Level.PROCESS:
        pytest.skip("plain processes always have it")
    host, port = "127.0.0.1", 0
    if bench.pool.level == Level.CONTAINER:  # which has a loopback of its own
        host = request.getfixturevalue("runner").gateway()
    elif "bandwidth" in bench.pool.enforced:  # of the node's own servers only name servers are heard
        host, port = f"127.{os.getpid() % 250}.{os.getpid() // 250 % 250}.77", 53
    script = (
        "#!/usr/bin/python3\nimport json, os, socket\n"
        "kwargs = json.load(open(os.environ['SLACKWATER_INPUTS']))['kwargs']\n"
        "print(socket.create_connection((kwargs['host'], kwargs['port']), 8).recv(5))\n"
    )

    async def tried(*, network: bool) -> tuple[Outcome, str]:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello")
            writer.close()

        server = await asyncio.start_server(greet, host, port)
        async with server:
            told = {"host": host, "port": server.sockets[0].getsockname()[1]}
            run = bench.prepare(script, kwargs=told, network=network)
            finished = await run.run()
        return finished.outcome, run.said["stdout"]

    assert asyncio.run(tried(network=True)) == (Outcome.SUCCEEDED, "b'hello'\n")
    assert asyncio.run(tried(network=False)) == (Outcome.FAILED, "")


def test_two_slots_at_once_are_two_users(bench: Bench) -> None:
    if bench.pool.level == Level.PROCESS or os.getuid() != 0:
        pytest.skip("only a worker run as root has users to give")
    if bench.pool.level == Level.CONTAINER:
        pytest.skip("its runner gives users: tests/integration/sandbox/test_container.py")

    async def both() -> list[int]:
        runs = [bench.prepare("sleep 0.4") for _ in range(2)]
        jobs = [asyncio.ensure_future(run.run()) for run in runs]
        await asyncio.gather(*jobs)
        return [slot.facts["uid"] for slot in bench.pool.slots()]

    users = asyncio.run(both())
    assert len(users) >= 2
    assert len(set(users)) == len(users)
    assert all(CONF.sandbox_uid_base <= user < CONF.sandbox_uid_base + 512 for user in users)


def test_a_killed_keeper_fails_its_script_and_is_replaced(bench: Bench) -> None:
    if bench.pool.level == Level.CONTAINER:
        pytest.skip("its keeper is in the container: tests/integration/sandbox/test_container.py")
    run = bench.prepare("echo begun; sleep 60")

    async def killed() -> Finished:
        job = await begun(run)
        os.kill(run.runner.process.pid, signal.SIGKILL)  # type: ignore[union-attr]
        return await job

    finished = asyncio.run(killed())
    assert (finished.outcome, finished.error) == (Outcome.FAILED, "the sandbox ended unexpectedly")
    assert bench.run("echo again")[1] == "again\n"


def test_what_lies_in_its_folder_of_artifacts_comes_out_and_nothing_from_elsewhere(bench: Bench) -> None:
    run = bench.prepare(
        'cd "$SLACKWATER_ARTIFACTS"; mkdir deep; printf one >first.txt; printf two >deep/second.bin; '
        'printf no >.hidden; ln -s /etc/passwd link; ln -s /etc folder; printf else >"$HOME/elsewhere"'
    )
    finished = asyncio.run(run.run())
    assert finished.outcome is Outcome.SUCCEEDED, finished
    assert run.artifacts is not None
    assert sorted(files_of(run.artifacts)) == [("deep/second.bin", b"two"), ("first.txt", b"one")]
    empty = bench.prepare("true")
    asyncio.run(empty.run())
    assert empty.artifacts is None


def test_more_artifacts_than_may_be_are_said_to_be_too_many(bench: Bench) -> None:
    run = bench.prepare('head -c 20000000 /dev/zero >"$SLACKWATER_ARTIFACTS/large"')
    finished = asyncio.run(run.run())
    assert finished.outcome is Outcome.FAILED
    assert finished.error == "its artifacts are not kept: it has 20000000 bytes, the plan allows 16777216"
    assert run.artifacts is None


def test_a_script_is_told_its_ports_and_holds_them(bench: Bench) -> None:
    vector = (1_000, 128, 32, 0, 0, 2)
    finished, said = bench.run('echo "$SLACKWATER_PORTS"', vector=vector)
    assert finished.outcome is Outcome.SUCCEEDED, finished
    ports = [int(port) for port in said.strip().split(",")]
    assert len(set(ports)) == 2
    assert all(20_000 <= port < 28_000 for port in ports)
    finished, said = bench.run('echo "${SLACKWATER_PORTS-none}"')
    assert said.strip() == "none"
    wanted, _ = bench.run("true", vector=(1_000, 128, 32, 0, 0, 9_000))
    assert wanted.outcome is Outcome.FAILED
    assert "9000 ports of 20000 to 27999 are wanted on this node" in (wanted.error or "")
