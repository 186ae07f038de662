"""Running one script: its folder, its process group, its cap, its output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome
from scheduler_ext.ports import Finished, ScriptWork, Started
from scheduler_ext.sandbox.base import Limits, Sandbox

CHUNK = 65_536
RESULT_FILE = "result.json"
MARK = "SLACKWATER_RUN"
"""Environment variable by which the processes of one run are known."""


class Refused(Exception):
    """The script may not run here; the message says why."""


@dataclass(slots=True)
class Output:
    """What one stream wrote, kept up to a limit."""

    most: int
    data: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def add(self, chunk: bytes) -> None:
        """Keep what fits."""
        room = self.most - len(self.data)
        self.data += chunk[:room]
        self.truncated = self.truncated or len(chunk) > room

    def text(self) -> tuple[str, bool]:
        """The text, and whether it was cut."""
        return self.data.decode("utf-8", "replace"), self.truncated


@dataclass(slots=True)
class ScriptRun:
    """One script from its start to its end."""

    conf: SchedulerConf
    task: Started
    work: ScriptWork
    sandbox: Sandbox
    root: Path
    """Folder under which the private work folder is made."""
    upstream: dict[str, Any]
    proc: asyncio.subprocess.Process | None = None
    asked: Outcome | None = None
    stdout: Output = field(init=False)
    stderr: Output = field(init=False)
    peak_mb: int = 0
    cpu_ms: int = 0

    def __post_init__(self) -> None:
        self.stdout = Output(self.conf.max_log_bytes)
        self.stderr = Output(self.conf.max_log_bytes)

    @property
    def mark(self) -> str:
        """Names this run among all others."""
        return f"{self.task.task_id}:{self.task.fence}"

    async def run(self) -> Finished:
        """Run it; always returns how it ended, and leaves neither process nor folder behind."""
        began = time.time()
        folder = self.root / f"{self.task.task_id}.{self.task.fence}"
        try:
            code = await self._execute(folder)
            return self._finished(began, folder, code)
        except Refused as error:
            return self._end(began, Outcome.FAILED, error=str(error))
        except OSError as error:
            return self._end(began, Outcome.FAILED, error=f"the script could not be started: {error}")
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def stop(self, outcome: Outcome) -> None:
        """Ask the script to end, then kill its whole tree: on cancel, at its cap, or when the node drains."""
        if self.asked is None:
            self.asked = outcome
            self._signal(signal.SIGTERM)

    async def _execute(self, folder: Path) -> int:
        script = await asyncio.to_thread(self._prepare, folder)
        limits = Limits(
            memory_mb=self.work.vector[1], disk_mb=self.work.vector[2], output_bytes=self.conf.max_log_bytes
        )
        launch = self.sandbox.prepare(script, folder, self._environment(folder), limits)
        self.proc = await asyncio.create_subprocess_exec(
            *launch.argv, env=dict(launch.env), cwd=launch.cwd, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        if self.asked is not None:
            self._signal(signal.SIGTERM)
        readers = [self._read(self.proc.stdout, self.stdout), self._read(self.proc.stderr, self.stderr)]
        watch = asyncio.create_task(self._watch(self.proc))
        try:
            code = await self.proc.wait()
        finally:
            watch.cancel()
            kill_tree(self.proc.pid, self.mark)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*readers), timeout=2.0)
        return code

    def _prepare(self, folder: Path) -> Path:
        """Make the private folder with the script in it; a path may not lead out of the tenant's own folder."""
        if not (self.work.trusted or self.sandbox.contains_untrusted):
            raise Refused(
                f"this node's sandbox level ({self.sandbox.level}) runs scripts of trusted tenants only"
            )
        folder.mkdir(parents=True, mode=0o700)
        (folder / "inputs.json").write_text(
            json.dumps({"args": self.task.args, "kwargs": self.task.kwargs, "upstream": self.upstream})
        )
        content = self.work.content
        if content is None:
            source = Path(self.work.folder, self.task.script_path).resolve()
            root = Path(self.work.folder).resolve()
            if not self.work.folder or not source.is_relative_to(root):
                raise Refused("its path leads out of the tenant's folder")
            if not source.is_file():
                raise Refused(
                    f"there is no file {self.task.script_path!r} in the tenant's folder on this node"
                )
            content = source.read_bytes()
        script = folder / "script"
        script.write_bytes(content if content.startswith(b"#!") else b"#!/bin/sh\n" + content)
        script.chmod(stat.S_IRUSR | stat.S_IXUSR)
        return script

    def _environment(self, folder: Path) -> dict[str, str]:
        """The script's whole environment: nothing of the worker's own."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8",
            "SLACKWATER_TASK_ID": self.task.task_id, "SLACKWATER_ATTEMPT": str(self.task.attempt),
            "SLACKWATER_FENCE": str(self.task.fence), "SLACKWATER_INPUTS": str(folder / "inputs.json"),
            "SLACKWATER_RESULT": str(folder / RESULT_FILE), MARK: self.mark,
        }  # fmt: skip

    async def _read(self, stream: asyncio.StreamReader | None, output: Output) -> None:
        assert stream is not None
        while chunk := await stream.read(CHUNK):
            output.add(chunk)

    async def _watch(self, proc: asyncio.subprocess.Process) -> None:
        """Enforce the cap, measure, and kill what does not end when asked."""
        deadline = time.monotonic() + self.task.cap_ms / 1000
        kill_at: float | None = None
        while True:
            now = time.monotonic()
            if kill_at is None and now >= deadline:
                self.stop(Outcome.CAP_EXCEEDED)
            if kill_at is None and self.asked is not None:
                kill_at = now + min(
                    self.conf.cancel_grace_s, 0.5 if self.asked is Outcome.CAP_EXCEEDED else 60.0
                )
            if kill_at is not None and now >= kill_at:
                kill_tree(proc.pid, self.mark)
            self._measure(proc.pid)
            until = kill_at if kill_at is not None else deadline
            await asyncio.sleep(min(0.1, max(0.005, until - now)))

    def _measure(self, pid: int) -> None:
        with contextlib.suppress(psutil.Error):
            tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            memory = cpu = 0.0
            for process in tree:
                with contextlib.suppress(psutil.Error):
                    memory += process.memory_info().rss
                    times = process.cpu_times()
                    cpu += times.user + times.system
            self.peak_mb = max(self.peak_mb, int(memory / 1_048_576))
            self.cpu_ms = max(self.cpu_ms, int(cpu * 1000))

    def _signal(self, number: int) -> None:
        if self.proc is not None and self.proc.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.proc.pid, number)

    def _finished(self, began: float, folder: Path, code: int) -> Finished:
        if self.asked is not None:
            words = {
                Outcome.CAP_EXCEEDED: "its execution cap was reached",
                Outcome.CANCELLED: "cancelled while it ran",
            }
            return self._end(
                began, self.asked, error=words.get(self.asked, self.asked.name.lower()), code=code
            )
        if code != 0:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            tail = self.stderr.text()[0].strip().splitlines()
            return self._end(
                began, Outcome.FAILED, error=f"{how}" + (f": {tail[-1][:300]}" if tail else ""), code=code
            )
        result, fault = self._result(folder)
        if fault:
            return self._end(began, Outcome.FAILED, error=fault, code=code)
        return self._end(began, Outcome.SUCCEEDED, result=result, code=code)

    def _result(self, folder: Path) -> tuple[str | None, str]:
        """What the script left in its result file, as JSON; a fault when it is none."""
        path = folder / RESULT_FILE
        if not path.is_file() or path.is_symlink():
            return None, ""
        if path.stat().st_size > self.conf.max_result_bytes:
            return (
                None,
                f"its result has {path.stat().st_size} bytes, at most {self.conf.max_result_bytes} are kept",
            )
        try:
            value = json.loads(path.read_text(), parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            return None, f"its result file is no JSON: {error}"
        return json.dumps(value).replace("\\u0000", "\\ufffd"), ""

    def _end(self, began: float, outcome: Outcome, *, error: str | None = None, result: str | None = None,
             code: int | None = None) -> Finished:  # fmt: skip
        return Finished(
            self.task.task_id, self.task.fence, outcome, began, time.time(), result, error, code, None,
            self.cpu_ms, self.peak_mb, "script",
        )  # fmt: skip


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def kill_tree(pid: int, mark: str) -> None:
    """Kill every process of a script: its group, its session, and what left both but carries its environment."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == pid or process.environ().get(MARK) == mark:
                process.kill()
