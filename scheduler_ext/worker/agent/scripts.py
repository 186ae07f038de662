"""Runs one script: its sandbox, its cap, its output."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.resources import DIMENSIONS
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished, ScriptWork, Started
from scheduler_ext.sandbox.base import Ended, Limits, Order, Refused, Saves, SlotError
from scheduler_ext.sandbox.pool import SlotPool
from scheduler_ext.sandbox.slot import Runner
from scheduler_ext.task import network_ports, redaction, references
from scheduler_ext.task.network_ports import Held, NoPorts
from scheduler_ext.task.output import output
from scheduler_ext.worker.agent import mounted_scripts
from scheduler_ext.worker.child.handler_call import WORDS, refuse_constant

CHUNK = 65_536
SAID_CHARS = 4_096
IOPS, KBPS, PORTS = (DIMENSIONS.index(name) for name in ("iops", "bandwidth_kbps", "ports"))
MIN_IOPS, MIN_KBPS = 100, 1_000
"""The least that every script gets, even if its tier has none."""
LEASE_OVER = "its node's lease was over"
CAP_GRACE_S = 0.5
"""A script at its cap is asked to end this many seconds before it is killed."""
MUTEX_FENCE = "SLACKWATER_MUTEX_FENCE"
SECRET = "SLACKWATER_SECRET_"
MARK = "SLACKWATER_RUN"
"""The environment variable that marks the processes of one run."""
PAUSE_CODE = os.EX_TEMPFAIL
"""Exit code (75) of a script with checkpoints that has saved and is to resume later."""


@dataclass(slots=True)
class ScriptRun:
    """One script from its start to its end."""

    conf: SchedulerConf
    task: Started
    work: ScriptWork
    sandbox: SlotPool
    root: Path
    """The folder under which the slots have theirs."""
    upstream: dict[str, Any]
    parents: dict[str, Any] = field(default_factory=dict)
    """What references in its arguments may name; set where it has some."""
    saves: Saves | None = None
    """Set if it declares checkpoints."""
    lease_s: float | None = None
    """Set once :meth:`beat` is called: then the script ends when the beats stop and the node's lease is over."""
    runner: Runner | None = None
    asked: Outcome | None = None
    hidden: Sequence[str] = field(init=False)
    """Secrets that must not be shown."""
    said: dict[str, str] = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    """The last characters of each stream, without secrets."""
    written: int = 0
    """Bytes of output, kept or not."""
    peak_mb: int = 0
    disk_mb: int | None = None
    cpu_ms: int = 0
    read_sha256: str = ""
    """For a script in the tenant's folder: its content this time."""
    artifacts: bytes | None = None
    """The artifacts it left in its folder, packed."""
    _held: Held | None = None
    """Its ports, if its tier has some."""
    _until: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.hidden = redaction.longest_first(self.work.secrets.values())

    async def run(self) -> Finished:
        """Run it; always returns how it ended, and leaves neither process nor folder behind."""
        began = time.monotonic()
        try:
            self.task = references.filled(self.task, lambda _: self.parents)
            content = await asyncio.to_thread(self._content)
            self.runner = self.sandbox.take(self.root, trusted=self.work.trusted)
            try:
                if self.asked is Outcome.WORKER_LOST:
                    return self._end(began, Outcome.WORKER_LOST, error=LEASE_OVER)
                if wanted := self.work.vector[PORTS]:
                    self._held = network_ports.take(self.conf, wanted)
                ended = await self._execute(self.runner, content)
            finally:
                if self._held:
                    self._held.release()
                self.sandbox.give_back(self.runner)
        except (Refused, SlotError, NoPorts, InvalidInput) as error:
            return self._end(began, Outcome.FAILED, error=str(error))
        except OSError as error:
            return self._end(began, Outcome.FAILED, error=f"the script could not be started: {error}")
        output.end(self.task)
        self.cpu_ms, self.peak_mb, self.artifacts = ended.cpu_ms, ended.peak_mb, ended.artifacts
        self.disk_mb = ended.disk_mb
        return self._finished(began, ended)

    def stop(self, outcome: Outcome) -> None:
        """Ask the script to end, then kill its whole tree: on cancel, at its cap, or to make room.

        To yield it has longer; a cancellation meanwhile still counts.
        """
        if self.asked is None or (self.asked is Outcome.YIELDED and outcome is Outcome.CANCELLED):
            self.asked = outcome
            self._changed.set()

    def abandon(self) -> None:
        """Kill it at once: its node's lease is over, so it may run elsewhere by now."""
        self.asked = Outcome.WORKER_LOST
        self._changed.set()
        if self.runner is not None:
            self.runner.kill()

    def beat(self, now: float, until: float) -> None:
        """Tell its sandbox that the agent lives ``now``, and until when the lease holds: monotonic times."""
        self._until = until
        if self.runner is not None:
            self.runner.beat(now, until)

    async def _execute(self, runner: Runner, content: bytes) -> Ended:
        given = {"args": self.task.args, "kwargs": self.task.kwargs, "upstream": self.upstream}
        order = Order(
            script=content, inputs=json.dumps(given).encode(), env=self._environment(), limits=self._limits(),
            saves=self.saves, lease_s=self.lease_s, lease_until=self._until,
        )  # fmt: skip
        async with self._reading("stdout") as out, self._reading("stderr") as err:
            running = asyncio.ensure_future(runner.run(order, out, err))
            watch = asyncio.ensure_future(self._watch(runner))
            try:
                return await running
            finally:
                watch.cancel()

    def _limits(self) -> Limits:
        vector = self.work.vector
        return Limits(
            cpu_milli=vector[0], memory_mb=vector[1], disk_mb=vector[2], cap_ms=self.task.cap_ms,
            processes=self.conf.script_processes, files=self.conf.script_files,
            result_bytes=self.conf.max_result_bytes, tmpfs_mb=self.conf.script_tmpfs_mb,
            network=self.work.network, iops=max(vector[IOPS], MIN_IOPS),
            bandwidth_kbps=max(vector[KBPS], MIN_KBPS),
        )  # fmt: skip

    def _content(self) -> bytes:
        """The script; a path may not lead out of the tenant's own folder."""
        if self.work.content is not None:
            return self.work.content
        content = mounted_scripts.read(self.work.folder, self.task.script_path)
        self.read_sha256 = hashlib.sha256(content).hexdigest()
        return content

    def _environment(self) -> dict[str, str]:
        """The script's environment, with nothing of the worker's own. The sandbox adds where its files are."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "USER": "task", "LOGNAME": "task",
            "SLACKWATER_TASK_ID": self.task.task_id, "SLACKWATER_ATTEMPT": str(self.task.attempt),
            "SLACKWATER_FENCE": str(self.task.fence), MARK: f"{self.task.task_id}:{self.task.fence}",
            **({network_ports.ENV: ",".join(map(str, self._held.ports))} if self._held else {}),
            **({MUTEX_FENCE: str(self.work.mutex_fence)} if self.work.mutex_fence is not None else {}),
            **{f"{SECRET}{name}": value for name, value in self.work.secrets.items()},
            # By the names that OpenTelemetry's convention gives the headers in an environment.
            **{name.upper(): value for name, value in self.work.trace.items()},
        }  # fmt: skip

    @contextlib.asynccontextmanager
    async def _reading(self, stream: str) -> AsyncIterator[int]:
        """A descriptor to write to; what is written to it is kept as lines of ``stream``."""
        readable, writable = os.pipe()
        reader = asyncio.StreamReader(limit=CHUNK)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(readable, "rb", 0)
        )
        job = asyncio.ensure_future(self._read(reader, stream))
        try:
            yield writable
        finally:
            os.close(writable)
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout(2.0):
                    await job
            transport.close()

    async def _read(self, reader: asyncio.StreamReader, stream: str) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while chunk := await reader.read(CHUNK):
            lines = output.write(self.task, stream, decode(chunk), lambda: self.hidden)
            self.said[stream] = "".join([self.said[stream], *(line + "\n" for line in lines)])[-SAID_CHARS:]
            self.written += len(chunk)
            if self.written > self.conf.script_output_bytes and self.asked is None:
                self.stop(Outcome.RESOURCE_EXCEEDED)
        self.said[stream] += "".join(output.close(self.task, stream))

    async def _watch(self, runner: Runner) -> None:
        """Enforce the cap, and kill what does not end when asked."""
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout((self.task.cap_ms - self.work.used_ms) / 1000):
                await self._changed.wait()
        self.stop(Outcome.CAP_EXCEEDED)
        if self.asked not in (Outcome.RESOURCE_EXCEEDED, Outcome.WORKER_LOST):
            runner.stop()
            if self.asked is Outcome.YIELDED:
                await asyncio.sleep(self.conf.yield_grace_s)
            else:
                short = self.asked is Outcome.CAP_EXCEEDED
                await asyncio.sleep(min(self.conf.cancel_grace_s, CAP_GRACE_S if short else 60.0))
        while True:
            runner.kill()
            await asyncio.sleep(0.2)

    def _finished(self, began: float, ended: Ended) -> Finished:
        code = ended.code
        forsaken = self.asked is Outcome.WORKER_LOST or ended.exceeded == "lease"
        if forsaken and code != 0:
            return self._end(began, Outcome.WORKER_LOST, error=LEASE_OVER, code=code)
        # It may have come to its end all the same: told to yield; or with the lease, and whether that counts is for the
        # ledger to say. And of itself it may ask to go on later.
        at_end = code == 0 and (forsaken or self.asked is Outcome.YIELDED)
        if (
            self.saves is not None
            and not at_end
            and (self.asked is Outcome.YIELDED or (self.asked is None and code == PAUSE_CODE))
        ):
            killed = "it did not yield in time: it goes on from its last checkpoint"
            return self._end(began, Outcome.YIELDED, error=killed if code == -9 else None, code=code)
        if self.asked is not None and not at_end:
            much = f"output: it wrote more than {self.conf.script_output_bytes} bytes"
            words = {**WORDS, Outcome.RESOURCE_EXCEEDED: much}
            error = words.get(self.asked, self.asked.name.lower())
            return self._end(began, self.asked, error=error, code=code)
        if ended.exceeded and not forsaken:
            error = f"{ended.exceeded}: {self._allowed(ended.exceeded)}"
            return self._end(began, Outcome.RESOURCE_EXCEEDED, error=error, code=code)
        if code != 0:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            tail = self.said["stderr"].strip().splitlines()
            error = how + (f": {tail[-1][:300]}" if tail else "")
            return self._end(began, Outcome.FAILED, error=ended.fault or error, code=code)
        result, fault = _value(ended.result)
        if ended.fault or fault:
            return self._end(began, Outcome.FAILED, error=ended.fault or fault, code=code)
        return self._end(began, Outcome.SUCCEEDED, result=result, code=code)

    def _allowed(self, what: str) -> str:
        limits = self._limits()
        return {
            "memory": f"it used more than the {limits.memory_mb} MiB of its tier",
            "disk": f"it wrote more than its tier's {limits.disk_mb} MiB, or more than {limits.files} files",
            "processes": f"it started more than {limits.processes} processes and threads",
        }.get(what, "it used more than it may")

    def _end(self, began: float, outcome: Outcome, *, error: str | None = None, result: str | None = None,
             code: int | None = None) -> Finished:  # fmt: skip
        now = time.time()
        began = now - (time.monotonic() - began)
        return Finished(
            self.task.task_id, self.task.fence, outcome, began, now, result, error, code, None,
            self.cpu_ms, self.peak_mb, "script", self.disk_mb,
        )  # fmt: skip


def _value(result: bytes | None) -> tuple[str | None, str]:
    """What the script left in its result file, as JSON; an error if it is not JSON."""
    if result is None:
        return None, ""
    try:
        value = json.loads(result, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        return None, f"its result file is no JSON: {error}"
    return json.dumps(value).replace("\\u0000", "\\ufffd"), ""
