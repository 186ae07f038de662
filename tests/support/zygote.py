"""Processes of the platform without the two seconds of imports: forked from one that has everything imported.

The first request starts the zygote: the platform's own fork server, with no settings of its own. Each process it makes
is a real one with a pid, an environment, a session and a log of its own, which reads its settings anew. A run over
several workers imports once: its first process has a zygote, the workers are forked from that, and each of them forks a
zygote of its own before anything runs in it. Where siblings cannot be made so, and for everything that is not one of
the platform's commands, processes are executed as always; so are all of them in `tests/e2e/test_up.py`, whose platform
has a fork server of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from ctypes import PyDLL
from pathlib import Path
from typing import IO, Any

from scheduler_ext import forking
from scheduler_ext.conf import SchedulerConf
from scheduler_ext.sandbox import detect
from scheduler_ext.sandbox.base import Found
from slackwater.local import fork_server
from slackwater.local.fork_server import LONGEST_COMMAND, SYS_CLONE
from slackwater.local.shim import PR_SET_PDEATHSIG

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "slackwater.settings.test"
OF_SERVERS = "slackwater.settings.embedded"
POSSIBLE = SYS_CLONE is not None and sys.platform == "linux"
COMMANDS = ("run_dispatcher", "run_upkeep")
MODULES = ("celery", "granian")
# Nothing that starts threads of its own, as numpy does: a fork of those would have none.
OF_TESTS = ("pytest", "execnet.gateway_base", "django.test", "httpx", "jsonschema_rs", "PIL.Image", "slackwater.client")


def can_fork(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Tell whether the command is one of the platform's, under settings that what the zygote has loaded goes with."""
    if not POSSIBLE or command[0] != sys.executable:
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
        self, command: Sequence[str], env: Mapping[str, str], fds: Mapping[int, int], *, tied: bool = True
    ) -> Forked:
        """Start a command; ``fds`` tells which of ours becomes which of its, by its number."""
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


def start(env: Mapping[str, str]) -> Zygote:
    """This process's zygote, which ends with it; it may still be importing."""
    with _starting:
        if not _started:
            _started.append(_start(env))
    return _started[0]


def fork(command: Sequence[str], *, env: Mapping[str, str], log: IO[bytes]) -> Forked:
    """Start a command of the platform from this test worker's zygote, tied to this process."""
    return start(env).fork(command, env, {1: log.fileno(), 2: log.fileno()})


def bear_workers() -> None:
    """Have xdist's workers forked from this process's zygote instead of executed."""
    from execnet import gateway_base, gateway_io

    class Born(gateway_io.Popen2IOMaster):
        def __init__(self, args: list[str], execmodel: Any) -> None:
            (asked, told), (heard, said) = os.pipe(), os.pipe()
            self.popen = start(os.environ).fork(args, os.environ, {0: asked, 1: said, 2: 2}, tied=False)
            os.close(asked)
            os.close(said)
            gateway_base.Popen2IO.__init__(self, os.fdopen(told, "wb"), os.fdopen(heard, "rb"), execmodel)

    vars(gateway_io)["Popen2IOMaster"] = Born


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


_sandboxes: list[Found] = []


# -- the side that answers ----------------------------------------------------------------------------------------
def main() -> None:
    """Load, answer, and in a process that was made become what was asked for."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    PyDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    fork_server.load()
    for name in OF_TESTS:
        importlib.import_module(name)
    importlib.import_module("slackwater_api.http.reference").document()  # it is asked for by most of the workers
    _sandboxes.extend(try_sandboxes())
    forking.share()
    answer(asked)


def try_sandboxes() -> tuple[Found, ...]:
    """What this machine contains scripts with, by a process of its own: each worker of the platform would try it anew."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, pickle.dumps(asyncio.run(detect.try_all(SchedulerConf(), wanted="auto"))))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answered:
        said = answered.read()
    os.waitpid(pid, 0)
    return pickle.loads(said) if said else ()


def remember_sandboxes(found: tuple[Found, ...]) -> None:
    """Let this process be told what was found, where it asks with the usual settings."""
    really, usual = detect.try_all, SchedulerConf()

    async def try_all(conf: SchedulerConf, *, groups: bool = True, wanted: str = "") -> tuple[Found, ...]:
        as_usual = all(getattr(conf, name) == getattr(usual, name) for name in ("runner", "sandbox_uid_base"))
        known = as_usual and groups and wanted == "auto"
        return found if known else await really(conf, groups=groups, wanted=wanted)

    vars(detect)["try_all"] = try_all


def answer(asked: socket.socket) -> None:
    """Answer until nobody asks any more, or in a process that was made until that has ended."""
    request = fork_server.serve(asked)
    if request is None:
        return
    os.environ.clear()
    os.environ.update(request["env"])
    if not request["parent"]:
        work(request["command"])
        return
    fork_server.tie(request["parent"], signal.SIGKILL)
    os.environ["CELERY_SKIP_CHECKS"] = "1"  # the zygote has made them
    fork_server.forget_settings()
    if _sandboxes:
        remember_sandboxes(tuple(_sandboxes))
    fork_server.run(request["command"])


def work(command: Sequence[str]) -> None:
    """Be one of xdist's workers: what it does is read and executed, as the last word of the command says."""
    forking.show_as("\0".join(command))
    fork_server.forget_settings()
    _started.append(_zygote_of_its_own())
    sys.argv = ["-c"]
    sys.warnoptions.clear()
    exec(command[-1], {"__name__": "__main__"})


def _zygote_of_its_own() -> Zygote:
    """A zygote forked from this process, in which nothing runs yet."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = os.getpid()
    if os.fork() == 0:
        ours.close()
        PyDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        forking.show_as("zygote of a test worker")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        if os.getppid() == worker:
            answer(theirs)
        sys.exit()
    theirs.close()
    return Zygote(ours)


if __name__ == "__main__":
    # Of the module as others import it: a test worker finds its zygote there.
    importlib.import_module("tests.support.zygote").main()
