"""One connection of a worker, which is one of its slots: it runs one script at a time and may keep a container ready."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any, Final

from scheduler_ext.runner.container import Box, BoxError, Containers
from scheduler_ext.runner.spec import NotAllowed, Shape, Wanted, answer, seconds, wanted
from scheduler_ext.sandbox import frames
from scheduler_ext.sandbox.base import is_forsaken

log = logging.getLogger(__name__)

KILL_TIMEOUT_S: Final = 5.0
"""A keeper that has not ended a script within this many seconds is ended itself."""
KILLED: Final = -9
POLL_S: Final = 0.1
"""Seconds between two checks whether a worker is silent."""


class Cell:
    """Serves one slot of a worker until it leaves."""

    def __init__(
        self, service: Containers, node: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.service = service
        self.node = node
        self.reader = reader
        self.writer = writer
        self.box: Box | None = None
        """The container of the script that runs."""
        self._told = False
        """Whether the script has its order, so that it can be asked to end."""
        self._asked: list[dict[str, Any]] = []
        self._killing: asyncio.Task[None] | None = None
        self._heard = self._until = 0.0
        """When the worker last said that it lives, and until when its lease holds by its last word."""
        self._forsaken = False
        """Whether the script was ended because both were over."""
        self._left = False
        self._warm: asyncio.Task[Box] | None = None
        self._warm_shape: Shape | None = None
        self._chilling: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        """Serve until the worker leaves or the runner ends."""
        running: asyncio.Task[None] | None = None
        try:
            while (frame := await frames.read(self.reader)) is not None:
                message, content = frame
                kind = message.get("do")
                busy = running is not None and not running.done()
                if kind == "run" and not busy:
                    running = asyncio.create_task(self._serve_run(message, content))
                elif kind == "status" and not busy:
                    await self._say(self.service.facts())
                elif kind == "beat":
                    self._hear(message)
                elif kind in {"stop", "kill", "kept"}:
                    await self._relay({"do": kind}, busy=busy)
                else:
                    raise frames.FrameError(f"it asks for {kind!r} now")
        finally:
            self._left = True
            self._chill()
            if running is not None and not running.done():
                running.cancel()
                await asyncio.wait([running])

    async def _say(self, message: dict[str, Any], content: bytes = b"") -> None:
        self.writer.write(frames.pack(message, content))
        await self.writer.drain()

    async def _relay(self, message: dict[str, Any], *, busy: bool) -> None:
        """Pass on what the worker asks of its script; requests that come before the order wait for it."""
        if not busy:
            return
        if message["do"] == "kill" and self._killing is None:
            self._killing = asyncio.create_task(self._kill_in_a_while())
        if self.box is not None and self._told:
            await self.box.send(message)
        else:
            self._asked.append(message)

    def _hear(self, message: dict[str, Any]) -> None:
        try:
            left_s = seconds(message.get("left_s"), "left_s")
        except NotAllowed as error:
            raise frames.FrameError(str(error)) from error
        self._heard = time.monotonic()
        self._until = self._heard + left_s

    async def _follow_lease(self, lease_s: float) -> None:
        """End the script when its node's lease is over and the worker silent: it may run elsewhere by now."""
        while True:
            if is_forsaken(time.monotonic(), until=self._until, heard=self._heard, lease_s=lease_s):
                break
            await asyncio.sleep(POLL_S)
        self._forsaken = True
        log.warning("the worker of node %s is silent and its lease over: its script is ended", self.node)
        await self._relay({"do": "kill"}, busy=True)

    async def _kill_in_a_while(self) -> None:
        await asyncio.sleep(KILL_TIMEOUT_S)
        if self.box is not None:
            await self.box.kill()

    # -- one script ----------------------------------------------------------------------------------------------------
    async def _serve_run(self, message: dict[str, Any], content: bytes) -> None:
        try:
            order = wanted(message, content, self.service.options)
            ended, result = await self._run(order)
            await self._say(ended, result)
        except (NotAllowed, BoxError) as error:
            await self._say({"error": str(error)})
        except OSError:
            pass  # the worker is gone: nobody wants to know

    async def _run(self, order: Wanted) -> frames.Frame:
        self._told, self._asked, self._forsaken = False, [], False
        self._heard = time.monotonic()
        self._until = self._heard + order.left_s
        lease = None
        with self.service.counted():
            try:
                lease = asyncio.ensure_future(self._follow_lease(order.lease_s)) if order.lease_s else None
                self.box = await self._take(order.shape)
                if self._forsaken:
                    return _end("lease"), b""
                asyncio.ensure_future(self.box.rename(order.name))  # noqa: RUF006 - nothing depends on it
                await self.box.send(order.message, order.content)
                self._told = True
                for asked in self._asked:
                    await self.box.send(asked)
                grace = self.service.options.cap_grace_s
                try:
                    async with asyncio.timeout(order.limits.cap_ms / 1000 + grace):
                        return await self._pass_on(self.box, order)
                except TimeoutError:
                    return await self._too_late(self.box)
            finally:
                if lease is not None:
                    lease.cancel()
                if self._killing is not None:
                    self._killing.cancel()
                    self._killing = None
                if self.box is not None:
                    self.service.discard(self.box)
                self.box = None
                self._prepare(order.shape)

    async def _pass_on(self, box: Box, order: Wanted) -> frames.Frame:
        """Pass on what is said inside, until it ends."""
        try:
            while (frame := await box.read()) is not None:
                message, content = frame
                said = answer(message, content, order)
                if "code" not in said:
                    await self._say(said, content)
                    continue
                # Its keeper has ended all of the script before it says so. The container's first process, itself, ends
                # meanwhile, and is ended in any case: to wait for that would take three times as long.
                if self._forsaken:
                    said["exceeded"] = "lease"
                elif said["code"] != 0 and not said["exceeded"] and await box.ended():
                    said["exceeded"] = "memory"
                return said, content
        except frames.FrameError as error:
            raise BoxError(f"the keeper in the container is not to be trusted: {error}") from error
        return await self._vanished(box)

    async def _vanished(self, box: Box) -> frames.Frame:
        """The end of a script whose keeper has ended without a word."""
        if self._forsaken:
            return _end("lease"), b""
        if await box.ended():
            return _end("memory"), b""
        if self._killing is not None:
            return _end(), b""
        raise BoxError(f"the container ended unexpectedly: {box.said()}")

    async def _too_late(self, box: Box) -> frames.Frame:
        await box.kill()
        await box.ended()
        return _end(fault="the runner ended it: its worker had not, long after its execution cap"), b""

    # -- containers ahead ----------------------------------------------------------------------------------------------
    async def _take(self, shape: Shape) -> Box:
        """Take the waiting container if it fits, else a new one."""
        warm, fits = self._warm, self._warm_shape == shape
        if warm is not None and fits:
            self._forget()
            with contextlib.suppress(BoxError):
                box = await warm
                if box.waits():
                    return box
                self.service.discard(box)
        self._chill()
        return await self.service.box(shape, self.node)

    def _prepare(self, shape: Shape) -> None:
        """Start a container for the next script, which will likely be of the same tier."""
        wait = self.service.options.warm_s
        if wait <= 0 or self.service.ending or self._left:
            return
        self._chill()
        self._warm, self._warm_shape = asyncio.create_task(self.service.box(shape, self.node)), shape
        self._chilling = asyncio.get_running_loop().call_later(wait, self._chill)

    def _forget(self) -> None:
        self._warm = self._warm_shape = None
        if self._chilling is not None:
            self._chilling.cancel()
            self._chilling = None

    def _chill(self) -> None:
        """Let the waiting container go."""
        warm = self._warm
        self._forget()
        if warm is not None:
            self.service.later(_discarded(warm, self.service))


async def _discarded(warm: asyncio.Task[Box], service: Containers) -> None:
    with contextlib.suppress(BoxError):
        service.discard(await warm)


def _end(exceeded: str = "", fault: str = "") -> dict[str, Any]:
    """The end of a script that was killed with all around it."""
    return {
        "code": KILLED, "exceeded": exceeded, "fault": fault, "result": False, "cpu_ms": 0, "peak_mb": 0,
        "disk_mb": 0,
    }  # fmt: skip
