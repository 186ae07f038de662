"""A slot as its agent sees it: a keeper at the other end of a socket, started on first use and after it died."""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import asdict
from pathlib import Path
from typing import Any

import scheduler_ext
from scheduler_ext.sandbox.base import Ended, Level, Order, Saves, SlotError
from scheduler_ext.sandbox.keeper import prefork
from scheduler_ext.sandbox.keeper.channels import memory_file
from scheduler_ext.sandbox.keeper.keeper import Plan

READY_TIMEOUT_S = 10.0


class Runner(ABC):
    """Runs one script at a time through a keeper, on this machine or elsewhere."""

    level: Level
    """The level at which it contains."""

    @abstractmethod
    async def run(self, order: Order, out: int, err: int) -> Ended:
        """Run a script with its output going to the two descriptors; returns when nothing of it is left.

        ``SlotError`` when the sandbox itself fails.
        """

    @abstractmethod
    def beat(self, now: float, until: float) -> None:
        """Say that the agent lives, and until when its node's lease holds (monotonic times)."""

    @abstractmethod
    def _tell_if_there(self, message: dict[str, Any]) -> None:
        """Send a short message, if anybody is there to receive it."""

    async def _keep(self, saves: Saves, answer: dict[str, Any], content: bytes | None) -> bool:
        """Keep what the script saved; False when the answer tells of its end instead."""
        if "saved" in answer:
            await saves.keep(content or b"")
        elif "unsaved" in answer:
            await saves.refuse(str(answer["unsaved"]))
        else:
            return False
        self._tell_if_there({"do": "kept"})
        return True

    def stop(self) -> None:
        """Ask the script to end."""
        self._tell_if_there({"do": "stop"})

    def kill(self) -> None:
        """End the script and all it has started."""
        self._tell_if_there({"do": "kill"})


class Slot(Runner):
    """A slot on this machine."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.level = Level(plan.level)
        self.facts: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    async def start(self) -> None:
        """Start the keeper unless it runs; ``SlotError`` if it cannot offer its level."""
        if self.process is not None and self.process.poll() is None:
            return
        self._launch()
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                self.facts, _ = await self._receive()
        except TimeoutError:
            self.facts = {"error": f"it was not ready within {READY_TIMEOUT_S:g} s"}
        if "error" in self.facts:
            error = str(self.facts["error"])
            self.close()
            raise SlotError(f"the sandbox {self.plan.level} could not be started: {error}")

    def _launch(self) -> None:
        self._forget()
        Path(self.plan.root).mkdir(parents=True, exist_ok=True)
        Path(self.plan.root).chmod(0o711)  # whatever the umask: the slot's user must get through
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
        home = str(Path(scheduler_ext.__file__).parent.parent)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "scheduler_ext.sandbox.keeper.keeper",
                 json.dumps(asdict(self.plan)), str(theirs.fileno())],
                env={"PATH": "/usr/bin:/bin", "PYTHONPATH": home, "LANG": "C.UTF-8"}, cwd=self.plan.root,
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        self._socket = ours

    async def run(self, order: Order, out: int, err: int) -> Ended:
        await self.start()
        saves = order.saves
        message: dict[str, Any] = {"do": "run", "limits": asdict(order.limits), "env": dict(order.env)}
        message |= {"lease_s": order.lease_s, "at": time.monotonic(), "until": order.lease_until}
        if saves is not None:
            message["saves"] = {"every_s": saves.every_s, "most_bytes": saves.most_bytes}
        with contextlib.ExitStack() as held:
            files = [memory_file("order", content) for content in (order.script, order.inputs)]
            if saves is not None:
                files.append(memory_file("order", saves.content or b""))
            for handle in files:
                held.callback(os.close, handle)
            self._tell(message, [out, err, *files])
        artifacts = None
        while True:
            answer, content = _with_content(*await self._receive())
            if "artifacts" in answer:
                artifacts = content
                continue
            if saves is None or not await self._keep(saves, answer, content):
                break
        if "error" in answer:
            raise SlotError(str(answer["error"]))
        return Ended(result=content, artifacts=artifacts, **answer)

    def beat(self, now: float, until: float) -> None:
        self._tell_if_there({"do": "beat", "at": now, "until": until})

    def close(self) -> None:
        """End the keeper, and with it whatever runs."""
        self._forget()
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, message: dict[str, Any], fds: list[int]) -> None:
        if self._socket is None:
            raise SlotError("the slot is closed")
        try:
            prefork.tell(self._socket, message, array.array("i", fds))
        except OSError as error:
            raise SlotError(f"the sandbox could not be reached: {error}") from error

    def _tell_if_there(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(SlotError):
            self._tell(message, [])

    async def _receive(self) -> tuple[dict[str, Any], list[int]]:
        """The keeper's next message."""
        assert self._socket is not None
        handle, readable = self._socket, asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(handle, readable.set)
        try:
            while True:
                await readable.wait()
                readable.clear()
                with contextlib.suppress(BlockingIOError):
                    message, fds = prefork.receive(handle)
                    return message or {"error": "the sandbox ended unexpectedly"}, fds
        except OSError as error:
            return {"error": f"the sandbox ended unexpectedly: {error}"}, []
        finally:
            loop.remove_reader(handle)


def _with_content(answer: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], bytes | None]:
    """Build the answer from a message and the file that came with it."""
    if not fds:
        return answer, None
    with os.fdopen(fds[0], "rb") as file:
        return answer, os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
