"""Starting real processes from a test, keeping what they say, and ending them whatever happens."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from slackwater.local.process import tied
from tests.support import zygote
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


class ManagedProcess:
    """A process in a session of its own, tied to the test run; its output goes to a file."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, name: str = "") -> None:
        self.name = name or Path(command[0]).name
        self.command = list(command)
        self._log = tempfile.NamedTemporaryFile(prefix=f"{self.name}-", suffix=".log")  # noqa: SIM115 (closed in end)
        whole = {**os.environ, **(env or {})}
        if zygote.can_fork(self.command, whole):
            self._popen: subprocess.Popen[bytes] = zygote.fork(self.command, env=whole, log=self._log.file)
            return
        self._popen = subprocess.Popen(
            tied(self.command, death_signal=signal.SIGKILL),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=whole,
            cwd=ROOT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def output(self) -> str:
        """All it has said so far, both streams."""
        return Path(self._log.name).read_text(errors="replace")

    def is_running(self) -> bool:
        """Tell whether it has not ended."""
        return self._popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def wait(self, timeout: float = 60.0) -> int:
        """Return its exit code; AssertionError, with its output, when that takes over `timeout` seconds."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{self.name} did not end within {timeout:g} s:\n{self.output[-4000:]}") from error

    def wait_for(self, text: str, *, timeout: float = 60.0) -> str:
        """Return the output once it contains `text`; AssertionError when it ends or the time is up before."""

        def said() -> bool:
            if text in self.output:
                return True
            assert self.is_running(), f"{self.name} ended before saying {text!r}:\n{self.output[-4000:]}"
            return False

        try:
            wait_until(said, timeout=timeout, message=f"{self.name} says {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-4000:]}") from None
        return self.output

    def family(self) -> list[psutil.Process]:
        """Return it and all that descends from it."""
        try:
            parent = psutil.Process(self.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def suspend(self) -> None:
        """Stop it, and all that descends from it, as a machine that sleeps."""
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        """Let it go on, and all that descends from it."""
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def end(self) -> None:
        """Kill it with all that descends from it and forget its log; repeating it is harmless."""
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._popen.wait()
        self._log.close()


@contextlib.contextmanager
def running(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, name: str = ""
) -> Iterator[ManagedProcess]:
    """Run a process for the length of a `with`; it is killed at the end unless it ended before."""
    process = ManagedProcess(command, env=env, name=name)
    try:
        yield process
    finally:
        process.end()


def manage(*arguments: str) -> list[str]:
    """Return the command line of a management command."""
    return [sys.executable, str(ROOT / "manage.py"), *arguments]
