"""One server process: started tied to us, watched until ready, stopped in order, its failures explained."""

import contextlib
import json
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import psutil

from slackwater.local import process

TAIL_LINES = 20
POLL = 0.02  # seconds between looks at a server that is starting or stopping


class ServerError(Exception):
    """A server could not be prepared, started or reached."""


class ServerProcess:
    """A server, its log and the record of its process id.

    `death_signal` is both what stops it and what the kernel sends it when this process dies.
    """

    def __init__(self, name: str, *, log: Path, record: Path, stop_signal: signal.Signals) -> None:
        self.name = name
        self.log = log
        self.record = record
        self.stop_signal = stop_signal
        self.patience = 20.0  # seconds for one left by a supervisor that was killed to end
        self.env: dict[str, str] = {}  # beyond what every server gets
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self, command: Sequence[str]) -> None:
        """Start the command; whether it is of use is for `wait_ready` to find out.

        Raises ServerError when an earlier one, left by a supervisor that was killed, does not end.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._await_predecessor()
        with self.log.open("ab") as log:
            self._process = process.start(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "TZ": "UTC"} | self.env,
                cwd="/",
                death_signal=self.stop_signal,
                run_as=process.unprivileged(),
            )
        started = psutil.Process(self._process.pid).create_time()
        self.record.write_text(json.dumps({"pid": self._process.pid, "started": started}))

    def wait_ready(self, is_ready: Callable[[], bool], *, timeout: float) -> None:
        """Return once `is_ready` says so; `timeout` in seconds.

        Raises ServerError, with the tail of the log, when the server ends or the time is up.
        """
        deadline = time.monotonic() + timeout
        while not is_ready():
            code = self.exit_code()
            if code is not None:
                raise ServerError(self._explain(f"{self.name} did not start (exit code {code})"))
            if time.monotonic() > deadline:
                raise ServerError(self._explain(f"{self.name} was not ready within {timeout:g} s"))
            time.sleep(POLL)

    def exit_code(self) -> int | None:
        """Return how it ended; None while it runs."""
        if self._process is None:
            raise ServerError(f"{self.name} was not started")
        return self._process.poll()

    def stop(self, *, timeout: float) -> None:
        """Stop it in order; kill it when that takes longer than `timeout` seconds. Repeating it is harmless."""
        running, self._process = self._process, None
        if running is None:
            return
        process.stop([running], timeout=timeout, stop_signal=self.stop_signal)
        self.record.unlink(missing_ok=True)

    def tail(self) -> str:
        """Return the last lines of the log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
        return ""

    def _explain(self, what: str) -> str:
        tail = self.tail()
        if "No space left on device" in tail:
            what = f"the disk is full: {what}"
        return f"{what}; the end of {self.log}:\n{tail}"

    def _await_predecessor(self) -> None:
        try:
            record = json.loads(self.record.read_text())
            old = psutil.Process(int(record["pid"]))
            if abs(old.create_time() - float(record["started"])) > 1.0:
                return
            old.wait(self.patience)
        except psutil.TimeoutExpired as error:
            raise ServerError(
                f"an earlier {self.name} still runs on the same data as process {error.pid}; stop it first"
            ) from error
        except (OSError, ValueError, KeyError, psutil.NoSuchProcess):
            return


class EmbeddedServer(ABC):
    """A server of one folder. A context manager: entering starts it, leaving stops it.

    `data_dir` holds its data, its password and its log stand beside it; `run_dir` holds the socket and must have a
    short path. `durable=False` trades safety for speed, for tests.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    start_timeout: ClassVar[float]
    stop_timeout: ClassVar[float]
    """Both in seconds."""

    def __init__(self, data_dir: Path, run_dir: Path, *, log: Path | None = None, durable: bool = True) -> None:
        self.data_dir = data_dir
        self.run_dir = run_dir
        self.durable = durable
        self.address = ""  # one to listen on beside its own; its clients' networks must be directly connected
        self.process = ServerProcess(
            self.name,
            log=log or data_dir.with_suffix(".log"),
            record=data_dir.with_suffix(".pid"),
            stop_signal=self.stop_signal,
        )

    @abstractmethod
    def start(self) -> None:
        """Start it, and return once it can be used. Raises ServerError with what is wrong."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Tell whether it answers."""

    def wait_ready(self) -> None:
        """Return once it answers; raises ServerError with the tail of its log when it does not come to that."""
        self.process.wait_ready(self.is_ready, timeout=self.start_timeout)

    def stop(self) -> None:
        """Stop it, with everything written."""
        self.process.stop(timeout=self.stop_timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _password_file(self) -> Path:
        return self.data_dir.with_suffix(".password")
