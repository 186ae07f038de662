"""The runner as a whole: it listens, looks after what it has started, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import secrets
import signal
import stat
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from scheduler_ext.runner.connection import Cell
from scheduler_ext.runner.container import Box, BoxError, remove
from scheduler_ext.runner.engine import Engine, EngineError
from scheduler_ext.runner.options import Options
from scheduler_ext.runner.spec import RUNNER_LABEL, NotAllowed, Shape
from scheduler_ext.sandbox import frames
from scheduler_ext.sandbox.container import PROTOCOL, address, proof, read_token

log = logging.getLogger(__name__)

HELLO_S: Final = 5.0
REMOVE_TRIES: Final = 5
_GREETING_BYTES: Final = 4_096


def make_token(path: str) -> None:
    """A new secret where there is no file; only its owner may read it. ``OSError`` where it cannot be written."""
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32))


def _clear(path: str) -> None:
    """Remove the socket that a runner before this one has left; anything else stays, and is in the way."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            Path(path).unlink()


class Service:
    """One runner with one engine."""

    def __init__(self, options: Options) -> None:
        """``ValueError`` for an engine it cannot speak to, ``SlotError`` for a token that is none."""
        self.options = options
        self.engine = Engine(options.engine)
        make_token(options.token_file)
        self.token = read_token(options.token_file)
        self.image = ""
        self.ending = False
        self._about: dict[str, Any] = {}
        self._v2 = False
        self._uids = set(range(options.uid_base, options.uid_base + 2 * options.runs + 64))
        self._running = 0
        self._idle = asyncio.Event()
        """Set when a script has ended and no other runs."""
        self._cells: set[asyncio.Task[None]] = set()
        self._jobs: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until told to end. ``EngineError`` where the engine is away, or has no such image or runtime."""
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        await self._look_around()
        await self.sweep()
        server = await self._listen()
        log.info("the runner serves on %s: %s", self.options.listen, json.dumps(self.facts()))
        async with server:
            await told.wait()
            server.close()
            await self._end()

    async def _look_around(self) -> None:
        """Find out what the engine is, and pin the image."""
        info = await self.engine.ask("GET", "/info")
        self._v2 = str(info.get("CgroupVersion", "1")) == "2"
        known = info.get("Runtimes") or {}
        if self.options.runtime and self.options.runtime not in known:
            raise EngineError(
                f"the engine knows no runtime {self.options.runtime!r}; it has {', '.join(sorted(known))}"
            )
        try:
            image = await self.engine.ask("GET", f"/images/{self.options.image}/json")
        except EngineError as error:
            raise EngineError(f"image {self.options.image}: {error}; nothing is pulled here") from error
        if (image.get("Config") or {}).get("Volumes"):
            raise EngineError(
                f"image {self.options.image} declares volumes: scripts could write there without any limit"
            )
        self.image = str(image["Id"])
        self._about = {
            "image": self.image, "engine": str(info.get("ServerVersion", "")),
            "runtime": self.options.runtime or str(info.get("DefaultRuntime", "")),
        }  # fmt: skip

    def facts(self) -> dict[str, Any]:
        """What it offers, and how much runs."""
        return {
            **self._about, "network": bool(self.options.network), "containers": self._running, "groups": "engine",
            "uid": self.options.uid_base, "memory": True,
        }  # fmt: skip

    async def sweep(self) -> None:
        """Remove what a runner of this name has left: it was killed, or its machine was."""
        filters = json.dumps({"label": [f"{RUNNER_LABEL}={self.options.name}"]})
        for left in await self.engine.ask("GET", "/containers/json", all=1, filters=filters):
            log.warning("container %s was left by a runner that died: removed", left["Names"])
            await remove(self.engine, left["Id"])

    async def _listen(self) -> asyncio.Server:
        target = address(self.options.listen)
        if not isinstance(target, str):
            return await asyncio.start_server(self._connected, *target)
        _clear(target)
        before = os.umask(0o117)
        try:
            return await asyncio.start_unix_server(self._connected, target)
        finally:
            os.umask(before)

    async def _end(self) -> None:
        """Let what runs go on for a while, then end it, and leave nothing."""
        self.ending = True
        if self._running:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), self.options.stop_grace_s)
        for cell in tuple(self._cells):
            cell.cancel()
        await asyncio.gather(*self._cells, return_exceptions=True)
        while self._jobs:
            await asyncio.wait(tuple(self._jobs))
        with contextlib.suppress(EngineError):
            await self.sweep()

    # -- workers -------------------------------------------------------------------------------------------------------
    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._cells.add(task)
        try:
            node = await self._greeted(reader, writer)
            if node is not None:
                await Cell(self, node, reader, writer).serve()
        except frames.FrameError as error:
            log.warning("a worker was not understood: %s", error)
        except (OSError, asyncio.CancelledError):
            pass  # it went away, or this runner ends
        finally:
            self._cells.discard(task)
            writer.close()

    async def _greeted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
        """The node of a worker that has the token; ``None`` for anybody else."""
        nonce = secrets.token_hex(32)
        writer.write(frames.pack({"runner": PROTOCOL, "nonce": nonce}))
        try:
            async with asyncio.timeout(HELLO_S):
                frame = await frames.read(reader, _GREETING_BYTES)
        except TimeoutError:
            return None
        if frame is None:
            return None
        refused = ""
        if not hmac.compare_digest(str(frame[0].get("proof")).encode(), proof(self.token, nonce).encode()):
            refused = "it has another token"
            log.warning("a worker that says it is %r has another token", frame[0].get("node"))
        elif self.ending:
            refused = "it is about to end"
        writer.write(frames.pack({"error": refused} if refused else self.facts()))
        await writer.drain()
        return None if refused else str(frame[0].get("node"))[:64]

    # -- containers ----------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """One more script runs; ``NotAllowed`` when that is too many."""
        if self.ending:
            raise NotAllowed("the runner is about to end")
        if self._running >= self.options.runs:
            raise NotAllowed(f"the runner runs {self._running} scripts already (--runs)")
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def box(self, shape: Shape, node: str) -> Box:
        """A new container that waits for a script; ``BoxError`` where there can be none."""
        if not self._uids:
            raise BoxError("all user ids are in use: the engine does not remove its containers")
        box = Box(self.engine, self.options, shape, self._uids.pop())
        try:
            await box.start(self.image, node, v2=self._v2)
        except BaseException:
            self.discard(box)
            raise
        return box

    def discard(self, box: Box) -> None:
        """Remove a container, meanwhile; its user id is free after that."""
        self.later(self._removed(box))

    async def _removed(self, box: Box) -> None:
        for number in range(REMOVE_TRIES):
            try:
                await box.remove()
            except EngineError as error:
                log.warning("a container could not be removed: %s", error)
                await asyncio.sleep(number)
            else:
                self._uids.add(box.uid)
                return

    def later(self, job: Coroutine[Any, Any, None]) -> None:
        """Do something meanwhile that is waited for at the end."""
        task = asyncio.ensure_future(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
