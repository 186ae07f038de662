"""The keeper that works inside, started by something else than an engine: its protocol is all there is between them.

Here bubblewrap gives it a process namespace and a file system in memory; a virtual machine would do the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import pytest

from scheduler_ext.runner import spec
from scheduler_ext.sandbox import bubblewrap, frames
from scheduler_ext.sandbox.base import Limits

LIMITS = Limits(cpu_milli=1_000, memory_mb=256, disk_mb=16, cap_ms=10_000, processes=64)
SHAPE = spec.shape(LIMITS)


def command() -> list[str]:
    bwrap = bubblewrap.find()
    if bwrap is None:
        pytest.skip("there is no bwrap on this machine")
    box = [
        bwrap, "--unshare-user", "--unshare-pid", "--as-pid-1", "--unshare-net", "--unshare-ipc", "--uid", "1234",
        "--gid", "1234", "--die-with-parent", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin",
        *bubblewrap.system_mounts(), "--proc", "/proc", "--dev", "/dev", "--perms", "0700", "--size",
        str(SHAPE.disk_bytes + spec.MIB), "--tmpfs", spec.WORK, "--",
    ]  # fmt: skip
    if subprocess.run([*box, "/usr/bin/python3", "-c", "import enum; enum.StrEnum"], check=False).returncode:
        pytest.skip("no namespaces here, or /usr/bin/python3 is older than 3.11")
    return [*box, "/usr/bin/python3", "-I", "-S", "-c", spec.BOOT]


class Inside:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout

    async def send(self, message: dict[str, Any], content: bytes = b"") -> None:
        self.stdin.write(frames.pack(message, content))
        await self.stdin.drain()

    async def order(self, script: bytes, before: bytes | None = None, **changes: Any) -> None:
        parts = [script, b'{"a": 1}', *([] if before is None else [before])]
        message = {"do": "run", "limits": {**asdict(LIMITS), **changes}, "env": {"PATH": "/usr/bin:/bin"}}
        if before is not None:
            message["saves"] = {"every_s": 0.02, "most_bytes": 10_000}
        await self.send({**message, "parts": [len(part) for part in parts]}, b"".join(parts))

    async def until(self, name: str) -> tuple[dict[str, Any], bytes, bytes]:
        """The first message of this name, and all output before it."""
        said = b""
        while (frame := await frames.read(self.stdout)) is not None:
            message, content = frame
            if name in message:
                return message, content, said
            if "out" in message or "err" in message:
                said += content
        raise AssertionError(f"it ended: {said!r}")


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[Inside]:
    process = await asyncio.create_subprocess_exec(
        *command(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20
    )
    inside = Inside(process)
    try:
        inside.stdin.write(spec.first_frame(SHAPE))
        assert "memory" in (await inside.until("uid"))[0]
        yield inside
    finally:
        inside.stdin.close()
        await asyncio.wait_for(process.wait(), 10)
        process._transport.close()  # type: ignore[attr-defined]


async def ran(script: bytes, **changes: Any) -> tuple[dict[str, Any], bytes, bytes]:
    async with started() as inside:
        await inside.order(script, **changes)
        end = await inside.until("code")
        assert await inside.process.wait() == 0, "it ends with its script"
        return end


def test_inputs_go_in_and_output_result_and_exit_code_come_out() -> None:
    end, result, said = asyncio.run(ran(b'cat "$SLACKWATER_INPUTS" >"$SLACKWATER_RESULT"; echo o; echo e >&2; exit 3'))
    assert (end["code"], end["result"], result) == (3, True, b'{"a": 1}')
    assert sorted(said.split()) == [b"e", b"o"]


def test_all_output_comes_before_the_end_however_much_it_is() -> None:
    end, _, said = asyncio.run(ran(b"head -c 9000000 /dev/zero"))
    assert (end["code"], len(said)) == (0, 9_000_000)


def test_output_nobody_takes_is_not_hoarded_and_limits_hold_meanwhile() -> None:
    async def slowly() -> tuple[int, dict[str, Any]]:
        async with started() as inside:
            await inside.order(b"yes & exec yes", memory_mb=64)
            await asyncio.sleep(1.0)  # what happens meanwhile is the point: nothing may grow
            with open(f"/proc/{inside.process.pid}/status") as file:  # noqa: ASYNC230, PTH123
                held = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
            await inside.send({"do": "kill"})
            return held, (await inside.until("code"))[0]

    held, end = asyncio.run(slowly())
    assert held < 40_000
    assert end["code"] == -9


def test_too_much_disk_and_too_much_memory_are_told() -> None:
    assert asyncio.run(ran(b"head -c 60000000 /dev/zero >x; sleep 5"))[0]["exceeded"] == "disk"
    hungry = b"#!/usr/bin/python3\nx = []\nwhile True: x.append(bytearray(b'x' * (8 << 20)))\n"
    assert asyncio.run(ran(hungry))[0]["exceeded"] == "memory"


def test_a_checkpoint_comes_while_it_runs_and_is_there_the_next_time() -> None:
    async def both() -> tuple[bytes, bytes]:
        async with started() as inside:
            await inside.order(b'echo 7 >"$CHECKPOINT_DIR/at"; sleep 30', before=b"")
            _, saved, _ = await inside.until("saved")
            await inside.send({"do": "kept"})
            await inside.send({"do": "stop"})
            assert (await inside.until("code"))[0]["code"] == -15
        async with started() as inside:
            await inside.order(b'cat "$CHECKPOINT_DIR/at"', before=saved)
            return saved, (await inside.until("code"))[2]

    saved, said = asyncio.run(both())
    assert saved.endswith(b"\n7\n")
    assert said == b"7\n"


def test_it_ends_with_all_it_started_when_its_runner_is_gone() -> None:
    async def left() -> int | None:
        async with started() as inside:
            await inside.order(b"setsid sleep 60 & trap '' TERM; echo begun; while :; do sleep 1; done")
            await inside.until("out")
            inside.stdin.close()
            return await asyncio.wait_for(inside.process.wait(), 30)

    assert asyncio.run(left()) == 0


def test_its_script_cannot_end_or_look_into_it() -> None:
    script = (
        b"#!/usr/bin/python3\nimport os\n"
        b"try: os.kill(1, 9)\nexcept OSError: pass\n"
        b"for name in ('environ', 'mem', 'fd/0', 'root'):\n"
        b"    try: open(f'/proc/1/{name}', 'rb').read(1); print('ESCAPED', name)\n"
        b"    except OSError: print('refused')\n"
    )
    end, _, said = asyncio.run(ran(script))
    assert (end["code"], said) == (0, b"refused\n" * 4)
    assert os.getuid() != 1234


def test_without_a_process_namespace_it_refuses() -> None:
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-c", spec.BOOT],
        input=spec.first_frame(SHAPE),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert b"first process" in done.stderr
