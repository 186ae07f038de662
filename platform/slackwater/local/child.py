"""One supervised process: its output goes to the console, its group ends with it."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping

from scheduler_ext.core.plain_text import harmless
from slackwater.local.components import Component
from slackwater.local.console import Console
from slackwater.local.fork_server import Forked, ForkServer
from slackwater.local.guardian import Guardian
from slackwater.local.process import kill_group, start_async

MAX_LINE_BYTES = 1024 * 1024  # bytes
MIN_BACK_OFF_S = 0.5  # seconds
MAX_BACK_OFF_S = 15.0
STEADY_AFTER_S = 30.0  # seconds of running after which an end counts as the first again
DRAIN_TIMEOUT_S = 2.0  # seconds to read what is still in the pipe of a process that has ended


class Child:
    """Keeps one component running until it is told to stop."""

    def __init__(
        self,
        component: Component,
        *,
        env: Mapping[str, str],
        console: Console,
        guardian: Guardian,
        forks: ForkServer | None = None,
    ) -> None:
        self.component = component
        self._forks = forks
        self._env = {**env, **component.env}
        self._console = console
        self._guardian = guardian
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | Forked | None = None

    async def keep(self) -> None:
        """Run it; when it ends unasked, run it again after a back-off that grows with each quick end."""
        back_off = MIN_BACK_OFF_S
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self.run_once()
            if self._stopping.is_set():
                return
            if time.monotonic() - started > STEADY_AFTER_S:
                back_off = MIN_BACK_OFF_S
            self._say(f"{self.component.name} ended ({_how(code)}); it is started again in {back_off:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(back_off):
                    await self._stopping.wait()
            back_off = min(back_off * 2, MAX_BACK_OFF_S)

    async def run_once(self) -> int:
        """Run it to its end and return its exit code."""
        # A pipe of our own: asyncio's would hold back the news of its end while a grandchild keeps it open.
        reading, writing = os.pipe()
        try:
            process = await self._start(writing)
        finally:
            os.close(writing)
        self._process = process
        self._guardian.watch(process.pid)
        if self._stopping.is_set():  # it was asked to end while it was being made
            process.terminate()
        pump = asyncio.create_task(self._pump(reading))
        code = await process.wait()
        # What it leaves behind would hold its port and its pipe.
        kill_group(process.pid)
        self._guardian.forget(process.pid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await pump
        self._process = None
        return code

    async def _start(self, output: int) -> asyncio.subprocess.Process | Forked:
        command, env = self.component.command, self.component.env
        if self.component.forked and self._forks is not None:
            forked = await self._forks.fork(command, env=env, output=output)
            if forked is not None:
                return forked
        return await start_async(command, output=output, env=self._env)

    async def stop(self) -> None:
        """Ask it to end, and kill it when it takes too long."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self.component.stop_timeout):
                await process.wait()
        except TimeoutError:
            self._say(f"{self.component.name} did not stop within {self.component.stop_timeout:g} s; killing it")
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """End it and its group at once."""
        self._stopping.set()
        if self._process is not None:
            kill_group(self._process.pid)

    async def _pump(self, reading: int) -> None:
        reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", buffering=0)
        )
        with contextlib.closing(transport):
            while True:
                try:
                    line = await reader.readline()
                except ValueError:
                    continue  # a line beyond the limit, which the reader has thrown away
                if not line:
                    return
                self._show(line.decode(errors="replace").rstrip())

    def _show(self, text: str) -> None:
        text = harmless(text, lines=True)  # of a line: what is said in it may be a tenant's
        if self.component.plain:
            self._console.plain(text)
        else:
            self._console.line(self.component.name, text)

    def _say(self, text: str) -> None:
        self._console.line("up", text)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
