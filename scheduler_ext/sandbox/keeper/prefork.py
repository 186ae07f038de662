"""The process that becomes the script: it is forked ahead of time, drops its privileges, joins its groups and waits."""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
from dataclasses import dataclass
from typing import Any, NoReturn

from scheduler_ext.sandbox import landlock, seccomp
from scheduler_ext.sandbox.base import Level
from scheduler_ext.sandbox.keeper.cgroups import Groups

OUT, ERR = 1, 2
_PDEATHSIG = 1
MESSAGE = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the waiting process is told, as JSON, with the descriptors of stdout and stderr beside it."""

    argv: list[str]
    options: list[str]
    """Descriptors that bubblewrap needs."""
    env: dict[str, str]
    cwd: str
    rlimits: dict[str, int]
    network: bool
    counted: bool
    """Whether a control group counts its memory."""
    seccomp_fd: int


def wait_and_become(channel: socket.socket, level: Level, uid: int | None, groups: Groups, parent: int) -> NoReturn:
    """Give up all that can be given up ahead, wait for a :class:`Start`, become the script. Never returns."""
    err = ERR
    try:
        _give_up(uid, groups, parent)
        start, fds = receive(channel)
        if start is None:
            os._exit(0)
        out, err = fds
        _become(Start(**start), level, out, err)
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process must not go on as a keeper
        with contextlib.suppress(OSError):
            os.write(err, f"the script could not be started: {error}\n".encode())
    os._exit(126)


def _give_up(uid: int | None, groups: Groups, parent: int) -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    groups.enter()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("500")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    os.setsid()
    os.umask(0o077)


def _become(start: Start, level: Level, out: int, err: int) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    for number, target in ((null, 0), (out, OUT), (err, ERR)):
        os.dup2(number, target)
    for name, value in start.rlimits.items():
        _lower(getattr(resource, name), value)
    if level is Level.BUBBLEWRAP:
        os.lseek(start.seccomp_fd, 0, os.SEEK_SET)  # the last script's bubblewrap has read it to its end
        os.set_inheritable(start.seccomp_fd, True)  # noqa: FBT003 - the standard library's signature
        # Its own environment can be seen inside as that of process 1: it must have none. Its command line can be
        # seen by every user of the machine: what the script is given, secrets among it, goes by a descriptor.
        options = os.memfd_create("options", 0)
        os.write(options, b"".join(option.encode() + b"\0" for option in start.options))
        os.lseek(options, 0, os.SEEK_SET)
        os.execve(start.argv[0], [start.argv[0], "--args", str(options), *start.argv[1:]], {})
    os.chdir(start.cwd)
    if level is Level.LANDLOCK:
        code = seccomp.program(network=start.network, strict=True, counted=start.counted)
        landlock.restrict(start.cwd, network=start.network)
        seccomp.load(code)
    elif level is Level.CONTAINER:
        code = seccomp.program(network=start.network, strict=False, counted=start.counted)
        landlock.hide("/sys")  # its control groups can be read there
        seccomp.load(code)
    os.execve(start.argv[0], start.argv, start.env)


def _lower(kind: int, value: int) -> None:
    """Set soft and hard limit, never above what this process may have."""
    hard = resource.getrlimit(kind)[1]
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (wanted, wanted))


def receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive one message with its descriptors; ``None`` when the other side is gone."""
    # Not socket.recv_fds: it drops the flag, and the script would inherit the descriptors.
    data, beside, _, _ = channel.recvmsg(MESSAGE, socket.CMSG_SPACE(8 * 4), socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return (json.loads(data) if data else None), list(fds)


def tell(channel: socket.socket, message: dict[str, Any], fds: array.array[int] | list[int] | None = None) -> None:
    socket.send_fds(channel, [json.dumps(message).encode()], list(fds or []))
