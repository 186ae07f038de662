"""The runner's service: it listens for workers, checks their token, and ends what it has started when it stops."""

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
from pathlib import Path
from typing import Final

from scheduler_ext.conf import runner_address
from scheduler_ext.runner.connection import Cell
from scheduler_ext.runner.container import Containers
from scheduler_ext.runner.engine import EngineError
from scheduler_ext.runner.options import Options
from scheduler_ext.sandbox import frames
from scheduler_ext.sandbox.container import PROTOCOL, proof, read_token

log = logging.getLogger(__name__)

HELLO_S: Final = 5.0
_GREETING_BYTES: Final = 4_096


def make_token(path: str) -> None:
    """Write a new secret where there is no file; only its owner may read it. ``OSError`` where that fails."""
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32))


def _clear(path: str) -> None:
    """Remove the socket that an earlier runner left; anything else stays, and is in the way."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            Path(path).unlink()


class Service(Containers):
    """One runner with one engine."""

    def __init__(self, options: Options) -> None:
        """``ValueError`` for an engine it cannot speak to, ``SlotError`` for an invalid token."""
        super().__init__(options)
        make_token(options.token_file)
        self.token = read_token(options.token_file)
        self._cells: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until told to end. ``EngineError`` where the engine is away, or has no such image or runtime."""
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        await self.look_around()
        await self.sweep()
        server = await self._listen()
        log.info("the runner serves on %s: %s", self.options.listen, json.dumps(self.facts()))
        async with server:
            await told.wait()
            server.close()
            await self._end()

    async def _listen(self) -> asyncio.Server:
        target = runner_address(self.options.listen)
        if not isinstance(target, str):
            return await asyncio.start_server(self._connected, *target)
        _clear(target)
        before = os.umask(0o117)
        try:
            return await asyncio.start_unix_server(self._connected, target)
        finally:
            os.umask(before)

    async def _end(self) -> None:
        """Let running scripts go on for a while, then end them, and leave nothing."""
        self.ending = True
        if self.running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.options.stop_grace_s):
                    await self.idle.wait()
        for cell in tuple(self._cells):
            cell.cancel()
        await asyncio.gather(*self._cells, return_exceptions=True)
        while self.jobs:
            await asyncio.wait(tuple(self.jobs))
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
