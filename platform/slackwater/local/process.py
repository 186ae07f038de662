"""Starting a process that dies with this one, waiting for it and ending it; and the user that a server runs as."""

import asyncio
import contextlib
import enum
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from slackwater.local import shim

SHIM = Path(shim.__file__).resolve()


Output = int | IO[Any]
"""A file, a descriptor, or one of the constants of :mod:`subprocess`."""


class RunAs(enum.Enum):
    """The user that a program runs as; see the modes of the shim."""

    SELF = "self"
    NAMESPACE = "namespace"
    NOBODY = "nobody"


def tied(
    command: Sequence[str], *, death_signal: signal.Signals = signal.SIGTERM, run_as: RunAs = RunAs.SELF
) -> list[str]:
    """Return the command line that runs `command` and sends it `death_signal` when this process dies.

    The kernel watches the thread that starts it, so start it from one that lives as long as the process.
    """
    prefix = [sys.executable, "-I", "-S", str(SHIM), str(int(death_signal)), str(os.getpid()), run_as.value, "--"]
    return [*prefix, *command]


def start(
    command: Sequence[str],
    *,
    stdout: Output | None,
    stderr: Output | None = None,
    env: Mapping[str, str],
    cwd: str | Path | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
    run_as: RunAs = RunAs.SELF,
) -> subprocess.Popen[bytes]:
    """Start `command`, tied to this process, in a session of its own and without input."""
    return subprocess.Popen(
        tied(command, death_signal=death_signal, run_as=run_as),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )


async def start_async(command: Sequence[str], *, output: Output, env: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Do the same on the event loop, with one place for all its output."""
    return await asyncio.create_subprocess_exec(
        *tied(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, start_new_session=True
    )


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    run_as: RunAs = RunAs.SELF,
) -> subprocess.CompletedProcess[str]:
    """Run `command` to its end, tied to this process; returns its exit code and what it wrote."""
    return subprocess.run(
        tied(command, run_as=run_as),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd=cwd,
    )


def stop(
    processes: Iterable[subprocess.Popen[bytes]], *, timeout: float, stop_signal: signal.Signals = signal.SIGTERM
) -> None:
    """Ask processes to end, all at once; kill those that take longer than `timeout` seconds, with their groups."""
    asked = list(processes)
    for process in asked:
        process.send_signal(stop_signal)  # nothing where it has ended
    for process in asked:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            kill_group(process.pid)
            process.wait()


def kill_group(pid: int) -> None:
    """Kill the process group that `pid` leads, as far as there is one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


@functools.cache
def unprivileged() -> RunAs:
    """Choose how this process runs servers that refuse root: plainly, in a namespace, or as nobody."""
    if os.geteuid() != 0:
        return RunAs.SELF
    return RunAs.NAMESPACE if run(["true"], run_as=RunAs.NAMESPACE).returncode == 0 else RunAs.NOBODY


def give_to_server(path: Path, run_as: RunAs) -> None:
    """Make a file or folder the server's own, where the server is really another user."""
    if run_as is RunAs.NOBODY:
        os.chown(path, shim.NOBODY, shim.NOBODY)
