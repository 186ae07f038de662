"""Processes of the platform without the two seconds of imports: forked from one that has everything imported.

The first request of a test worker starts the zygote: the platform's own fork server, with no settings of its own. Each
process it makes is a real one with a pid, an environment, a session and a log of its own, which reads its settings
anew. Where siblings cannot be made so, and for everything that is not one of the platform's commands, processes are
executed as always; so are all of them in `tests/e2e/test_up.py`, whose platform has a fork server of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from ctypes import PyDLL
from pathlib import Path
from typing import IO

from scheduler_ext import forking
from slackwater.local import fork_server
from slackwater.local.fork_server import LONGEST_COMMAND, SYS_CLONE
from slackwater.local.shim import PR_SET_PDEATHSIG

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "slackwater.settings.test"
OF_SERVERS = "slackwater.settings.embedded"
COMMANDS = ("run_dispatcher", "run_upkeep")
MODULES = ("celery", "granian")


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

    def __init__(self, asked: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._asked, self._process = asked, process
        self._lock = threading.Lock()

    def fork(self, command: Sequence[str], env: Mapping[str, str], output: int) -> Forked:
        """Start a command of the platform."""
        request = {"command": list(command), "env": dict(env), "fds": [1, 2], "parent": os.getpid()}
        with self._lock:
            socket.send_fds(self._asked, [json.dumps(request).encode()], [output, output])
            answer = self._asked.recv(100)
        assert answer, "the zygote has ended"
        return Forked(int(answer), command)

    def end(self) -> None:
        """Ask no more; it ends by itself."""
        self._asked.close()
        self._process.wait()


_started: list[Zygote] = []
_starting = threading.Lock()


def fork(command: Sequence[str], *, env: Mapping[str, str], log: IO[bytes]) -> Forked:
    """Start a command from this test worker's zygote, tied to this process; the zygote itself ends with it too."""
    with _starting:
        if not _started:
            _started.append(_start(env))
    return _started[0].fork(command, env, log.fileno())


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
def main() -> None:
    """Load, answer, and in a process that was made become what was asked for."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    PyDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    fork_server.load()
    forking.share()
    request = fork_server.serve(asked)
    if request is not None:
        fork_server.tie(request["parent"], signal.SIGKILL)
        os.environ.clear()
        os.environ.update({**request["env"], "CELERY_SKIP_CHECKS": "1"})  # the zygote has made them
        fork_server.forget_settings()
        fork_server.run(request["command"])


if __name__ == "__main__":
    main()
