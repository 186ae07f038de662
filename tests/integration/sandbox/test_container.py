"""The runner on a real engine: what its containers are, and who ends them when somebody dies."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.runner.engine import Engine
from scheduler_ext.sandbox.base import Ended, Level, Limits, Order, SlotError
from scheduler_ext.sandbox.container import ContainerSlot
from scheduler_ext.sandbox.detect import try_level
from scheduler_ext.sandbox.pool import SlotPool
from slackwater_tasks.checks import messages
from tests.support.runner import HOST, IMAGE, Runner, skip_without_engine
from tests.support.waiting import wait_until

LIMITS = Limits(cpu_milli=500, memory_mb=64, disk_mb=16, cap_ms=20_000, processes=32)
FOREVER = b"trap '' TERM; echo begun; while :; do sleep 1; done"


@pytest.fixture(autouse=True)
def engine() -> Engine:
    skip_without_engine()
    return Engine(HOST)


@pytest.fixture
def own() -> Iterator[type[Runner]]:
    """Runners of the test's own."""
    with contextlib.ExitStack() as ended:

        class Own(Runner):
            def __init__(self, *arguments: str, **options: str) -> None:
                super().__init__(*arguments, **options)
                ended.callback(self.close)

        yield Own


def order(script: bytes, **changes: Any) -> Order:
    env = {"PATH": "/usr/bin:/bin", "SLACKWATER_RUN": "a-task:7"}
    return Order(script=script, inputs=b"{}", env=env, limits=dataclasses.replace(LIMITS, **changes))


async def ran(slot: ContainerSlot, what: Order) -> tuple[Ended, bytes]:
    """How it ended, and its output, which must be short."""
    out, null = os.pipe(), os.open(os.devnull, os.O_WRONLY)
    try:
        ended = await slot.run(what, out[1], null)
        os.set_blocking(out[0], False)
        with contextlib.suppress(BlockingIOError):
            return ended, os.read(out[0], 65_536)
        return ended, b""
    finally:
        for handle in (*out, null):
            os.close(handle)


class Begun:
    """A script that has said that it began."""

    def __init__(self, slot: ContainerSlot, what: Order) -> None:
        self.out, self._in = os.pipe()
        self.job: asyncio.Task[Ended] = asyncio.ensure_future(slot.run(what, self._in, self._in))

    async def __aenter__(self) -> asyncio.Task[Ended]:
        os.set_blocking(self.out, False)
        while not self.job.done():
            with contextlib.suppress(BlockingIOError):
                if os.read(self.out, 100):
                    break
            await asyncio.sleep(0.01)
        return self.job

    async def __aexit__(self, *_: object) -> None:
        self.job.cancel()
        await asyncio.wait([self.job])
        os.close(self.out)
        os.close(self._in)


async def until_refused(slot: ContainerSlot) -> str:
    while True:
        try:
            await ran(slot, order(b"true"))
        except SlotError as error:
            return str(error)


def waiting(runner: Runner) -> list[dict[str, Any]]:
    """All there are, when all of them wait for a script."""
    there = runner.containers()
    return there if all("waits" in each["Names"][0] for each in there) else []


def of_the_run(runner: Runner) -> list[dict[str, Any]]:
    return [each for each in runner.containers() if "a-task-7" in each["Names"][0]]


def test_its_containers_can_do_nothing_and_say_whose_they_are(runner: Runner, engine: Engine) -> None:
    async def looked() -> tuple[dict[str, Any], str, int]:
        slot = ContainerSlot(runner.conf())
        async with Begun(slot, order(FOREVER)):
            await asyncio.to_thread(wait_until, lambda: of_the_run(runner))
            (found,) = await asyncio.to_thread(of_the_run, runner)
            seen = await engine.ask("GET", f"/containers/{found['Id']}/json")
            process = Path(f"/proc/{seen['State']['Pid']}")
            status, owner = (process / "status").read_text(), (process / "environ").stat().st_uid
        slot.close()
        return seen, status, owner

    seen, status, owner = asyncio.run(looked())
    assert owner == 0, "its keeper is not dumpable, so nobody of its user may look into it"
    image = asyncio.run(engine.ask("GET", f"/images/{IMAGE}/json"))["Id"]
    assert seen["Image"] == image
    assert seen["Config"]["Labels"]["slackwater.node"] == socket.gethostname()
    assert seen["HostConfig"]["NetworkMode"] == "none"
    assert set(seen["NetworkSettings"]["Networks"]) <= {"none"}
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(facts["CapBnd"], 16) == int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == 0
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert 59_000 <= int(facts["Uid"].split()[0]) < 59_500
    assert not [mount for mount in seen["Mounts"] if mount["Type"] == "bind"]


def test_two_scripts_at_once_are_two_users(runner: Runner) -> None:
    async def both() -> set[bytes]:
        slots = [ContainerSlot(runner.conf()) for _ in range(2)]
        ended = await asyncio.gather(*(ran(slot, order(b"id -u; sleep 0.5")) for slot in slots))
        for slot in slots:
            slot.close()
        return {said for _, said in ended}

    assert len(asyncio.run(both())) == 2


def test_the_next_script_of_a_tier_finds_its_container_started(runner: Runner) -> None:
    async def twice() -> list[str]:
        slot = ContainerSlot(runner.conf())
        await ran(slot, order(b"true"))
        await asyncio.to_thread(
            wait_until,
            lambda: [each["State"] for each in waiting(runner)] == ["running"],
            message="one is ahead",
        )
        waits = {each["Id"] for each in await asyncio.to_thread(runner.containers)}
        async with Begun(slot, order(FOREVER)):
            await asyncio.to_thread(wait_until, lambda: of_the_run(runner))
            runs = {each["Id"] for each in await asyncio.to_thread(of_the_run, runner)}
        slot.close()
        return sorted(runs - waits)

    assert asyncio.run(twice()) == []
    wait_until(lambda: runner.containers() == [], message="what waited went with its worker")


def test_a_worker_that_dies_takes_its_script_along(runner: Runner) -> None:
    worker = (
        "import asyncio, sys\n"
        "from scheduler_ext.conf import SchedulerConf\n"
        "from scheduler_ext.sandbox.base import Limits, Order\n"
        "from scheduler_ext.sandbox.container import ContainerSlot\n"
        "conf = SchedulerConf(runner=sys.argv[1], runner_token_file=sys.argv[2])\n"
        "limits = Limits(cpu_milli=500, memory_mb=64, disk_mb=16, cap_ms=20000, processes=32)\n"
        f"order = Order(script={FOREVER!r}, inputs=b'', env={{'SLACKWATER_RUN': 'a-task:7'}}, limits=limits)\n"
        "asyncio.run(ContainerSlot(conf).run(order, 1, 2))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", worker, runner.address, str(runner.token)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        wait_until(lambda: of_the_run(runner))
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: runner.containers() == [], message="its container is removed")


def test_the_cap_holds_though_the_worker_does_nothing(own: type[Runner]) -> None:
    """As when the worker is stopped, or cut off and nobody has noticed."""
    runner = own("--cap-grace-s", "0.5")

    async def capped() -> Ended:
        slot = ContainerSlot(runner.conf())
        try:
            return (await asyncio.wait_for(ran(slot, order(FOREVER, cap_ms=300)), 15))[0]
        finally:
            slot.close()

    ended = asyncio.run(capped())
    assert ended.code == -9
    assert "long after its execution cap" in ended.fault


def test_a_runner_that_is_killed_leaves_nothing_that_runs_and_its_successor_cleans_up(
    own: type[Runner],
) -> None:
    runner = own()

    async def killed() -> str:
        slot = ContainerSlot(runner.conf())
        async with Begun(slot, order(FOREVER)) as job:
            runner.process.send(signal.SIGKILL)
            with pytest.raises(SlotError) as told:
                await job
        slot.close()
        return str(told.value)

    assert "the runner went away" in asyncio.run(killed())
    wait_until(
        lambda: [each["State"] for each in runner.containers() if each["State"] == "running"] == [],
        message="without its runner a script ends",
    )
    assert runner.containers() != []
    runner.process.end()
    runner.start()
    assert runner.containers() == []
    assert "was left by a runner that died" in runner.process.output


def test_a_runner_that_is_told_to_end_lets_scripts_end(own: type[Runner]) -> None:
    runner = own("--stop-grace-s", "20")

    async def ending() -> tuple[Ended, str]:
        slot, late = ContainerSlot(runner.conf()), ContainerSlot(runner.conf())
        await late.start()
        async with Begun(slot, order(b"echo begun; sleep 1; exit 5")) as job:
            runner.process.send(signal.SIGTERM)
            refused = await until_refused(late)
            ended = await job
        for each in (slot, late):
            each.close()
        return ended, refused

    ended, refused = asyncio.run(ending())
    assert ended.code == 5
    assert "about to end" in refused
    wait_until(lambda: not runner.process.is_running(), message="it has ended")


def test_more_than_it_may_is_refused_and_the_slot_goes_on(own: type[Runner]) -> None:
    runner = own("--most-memory-mb", "100", "--runs", "1")

    async def asked() -> list[str]:
        slot, second = ContainerSlot(runner.conf()), ContainerSlot(runner.conf())
        refused = []
        for changes in ({"memory_mb": 101}, {"network": True}):
            with pytest.raises(SlotError) as told:
                await ran(slot, order(b"true", tmpfs_mb=64, **changes))
            refused.append(str(told.value))
        async with Begun(slot, order(FOREVER, tmpfs_mb=64)):
            with pytest.raises(SlotError) as told:
                await ran(second, order(b"true", tmpfs_mb=64))
            refused.append(str(told.value))
        for each in (slot, second):
            each.close()
        return refused

    memory, network, runs = asyncio.run(asked())
    assert "memory_mb is 101, this runner grants at most 100" in memory
    assert "no network to give" in network
    assert "1 scripts already" in runs


def test_who_has_another_token_gets_nothing_and_a_node_says_why(runner: Runner) -> None:
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder, "token")
        other.write_text("another-token-of-some-length")
        conf = runner.conf(runner_token_file=str(other), sandbox="auto")
        pool = SlotPool(conf)
        (found,) = [one for one in pool.found if one.level is Level.CONTAINER]
        assert "the runner refused: it has another token" in found.why
        assert pool.level != Level.CONTAINER
        said = messages(pool.found, "auto")
        assert "it has another token" in str(said[0].hint)


def test_strangers_are_not_listened_to(own: type[Runner]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    runner = own(listen=f"tcp:127.0.0.1:{port}")
    with socket.create_connection(("127.0.0.1", port), 5) as stranger:
        stranger.settimeout(10)
        assert b'"nonce"' in stranger.recv(4096)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(4096) == b""

    async def hello() -> bytes:
        slot = ContainerSlot(runner.conf())
        try:
            return (await ran(slot, order(b"echo hello")))[1]
        finally:
            slot.close()

    assert asyncio.run(hello()) == b"hello\n"


def test_the_runtime_that_was_chosen_is_the_one_that_is_used(own: type[Runner], engine: Engine) -> None:
    known = asyncio.run(engine.ask("GET", "/info"))
    other = next(name for name in known["Runtimes"] if name != known["DefaultRuntime"])
    runner = own("--runtime", other)

    async def used() -> str:
        slot = ContainerSlot(runner.conf())
        async with Begun(slot, order(FOREVER)):
            await asyncio.to_thread(wait_until, lambda: of_the_run(runner))
            (found,) = await asyncio.to_thread(of_the_run, runner)
            seen = await engine.ask("GET", f"/containers/{found['Id']}/json")
        assert slot.facts["runtime"] == other
        slot.close()
        return str(seen["HostConfig"]["Runtime"])

    assert asyncio.run(used()) == other


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--runtime", "nonesuch"], "the engine knows no runtime 'nonesuch'"),
        (["--image", "none/such:image"], "nothing is pulled here"),
        (["--engine", "unix:///none/such"], "cannot be reached"),
        (["--engine", "tcp://127.0.0.1:2375"], "over its local socket only"),
    ],
)
def test_a_runner_that_cannot_work_says_why_and_ends(arguments: list[str], said: str, tmp_path: Path) -> None:
    given = [
        "--listen",
        f"unix:{tmp_path}/s",
        "--token-file",
        f"{tmp_path}/t",
        "--engine",
        HOST,
        "--image",
        IMAGE,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "scheduler_ext.runner", *given, *arguments], capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert said in done.stderr


def test_an_image_with_volumes_is_refused(engine: Engine, tmp_path: Path) -> None:
    """What is written there is limited by nobody."""

    async def made() -> str:
        base = await engine.ask("POST", "/containers/create", {"Image": IMAGE, "Cmd": ["true"]})
        image = await engine.ask("POST", "/commit", {}, container=base["Id"], changes="VOLUME /data")
        await engine.ask("DELETE", f"/containers/{base['Id']}", v=1)
        return str(image["Id"])

    image = asyncio.run(made())
    try:
        given = ["--listen", f"unix:{tmp_path}/s", "--token-file", f"{tmp_path}/t", "--engine", HOST]
        done = subprocess.run(
            [sys.executable, "-m", "scheduler_ext.runner", *given, "--image", image], capture_output=True,
            text=True, timeout=30, check=False,
        )  # fmt: skip
    finally:
        asyncio.run(engine.ask("DELETE", f"/images/{image}"))
    assert done.returncode == 1
    assert "declares volumes" in done.stderr


def test_a_node_offers_the_level_and_its_check_says_so(runner: Runner) -> None:
    pool = SlotPool(runner.conf(sandbox="auto"))
    assert pool.level == Level.CONTAINER, "the strongest there is"
    said = messages(pool.found, "auto")
    assert "contains scripts by container" in str(said[0].msg)
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(try_level(Level.CONTAINER, folder, runner.conf()))
    assert (found.works, found.groups, found.own_uid) == (True, "engine", True)


def test_what_fills_the_engine_with_answers_is_json() -> None:
    """The engine's errors come through in its own words."""
    with pytest.raises(Exception, match="No such container"):
        asyncio.run(Engine(HOST).ask("GET", "/containers/none-such/json"))
    assert asyncio.run(Engine(HOST).ask("DELETE", "/containers/none-such", absent_ok=True)) is None
    assert json.dumps(asyncio.run(Engine(HOST).ask("GET", "/version")))
