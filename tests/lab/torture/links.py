"""A network of the run's own: each worker is a host behind a link that can be cut, cut one way, or slowed.

Everything lives in network namespaces that end with the processes in them; the machine's own interfaces are not
touched. Cut is what crosses a link to an address of hardware nobody has: it vanishes without a word, as behind a dead
switch, and without a firewall in the kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from slackwater.local.process import start

SERVERS = "10.77.0.1"
"""Where the workers find PostgreSQL and Redis."""
NOBODY = "02:00:de:ad:00:01"
SLOW = ("rate", "64kbit", "burst", "8kb", "latency", "400ms")
CLONE_NEWNET = 0x40000000
READY_S = 5.0


class LinkError(Exception):
    """A link could not be made or changed."""


def obstacle() -> str:
    """Why there can be no links here; empty when there can."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]} on this machine (iproute2, util-linux)"
    made = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"the kernel gives no links: {made.stderr.strip()}" if made.returncode else ""


def leave_network() -> None:
    """Take this thread, and all threads and processes it starts from now on, into an empty network.

    Raises :class:`LinkError` when the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise LinkError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{SERVERS}/32", "dev", "lo")


class Links:
    """The links of some hosts, numbered from 1. To be made by a thread that has left the machine's network."""

    def __init__(self) -> None:
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def join(self, number: int) -> list[str]:
        """Make a host with its link; returns what to put before a command that is to run there."""
        command = ["unshare", "--net", "sleep", "infinity"]
        holder = start(command, stdout=None, env=os.environ, death_signal=signal.SIGKILL)
        self._holders[number] = holder
        self._await_namespace(holder)
        _run(
            "ip",
            "link",
            "add",
            f"sw{number}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(holder.pid),
        )
        _run("ip", "address", "add", f"10.77.{number}.1/24", "dev", f"sw{number}")
        _run("ip", "link", "set", f"sw{number}", "up")
        inside = self._inside(number)
        _run(*inside, "ip", "link", "set", "lo", "up")
        _run(*inside, "ip", "address", "add", f"10.77.{number}.2/24", "dev", "eth0")
        _run(*inside, "ip", "link", "set", "eth0", "up")
        _run(*inside, "ip", "route", "add", "default", "via", f"10.77.{number}.1")
        return inside

    def cut(self, number: int, *, towards: bool = True, back: bool = True) -> None:
        """Let nothing through: ``towards`` the servers, ``back`` from them, or both."""
        inside = self._inside(number)
        with self._lock:
            if towards:
                _run(*inside, "ip", "neigh", "replace", f"10.77.{number}.1", "lladdr", NOBODY, "nud", "permanent",
                     "dev", "eth0")  # fmt: skip
            if back:
                _run("ip", "neigh", "replace", f"10.77.{number}.2", "lladdr", NOBODY, "nud", "permanent", "dev",
                     f"sw{number}")  # fmt: skip

    def slow(self, number: int) -> None:
        """Let little through, both ways; raises :class:`LinkError` where the kernel cannot."""
        with self._lock:
            _run(*self._inside(number), "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *SLOW)
            _run("tc", "qdisc", "add", "dev", f"sw{number}", "root", "tbf", *SLOW)

    def heal(self, number: int) -> None:
        """Let everything through again."""
        inside = self._inside(number)
        undo = (
            (*inside, "ip", "neigh", "del", f"10.77.{number}.1", "dev", "eth0"),
            ("ip", "neigh", "del", f"10.77.{number}.2", "dev", f"sw{number}"),
            (*inside, "tc", "qdisc", "del", "dev", "eth0", "root"),
            ("tc", "qdisc", "del", "dev", f"sw{number}", "root"),
        )
        with self._lock:
            for command in undo:
                # Most of it was not done in the first place.
                with contextlib.suppress(LinkError):
                    _run(*command)

    def close(self) -> None:
        """End the hosts, and their links with them."""
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        self._holders.clear()

    def _inside(self, number: int) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._holders[number].pid}/ns/net"]

    @staticmethod
    def _await_namespace(holder: subprocess.Popen[bytes]) -> None:
        ours = Path("/proc/thread-self/ns/net").readlink()
        give_up = time.monotonic() + READY_S
        while time.monotonic() < give_up:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{holder.pid}/ns/net").readlink() != ours:
                    return
            if holder.poll() is not None:
                break
            time.sleep(0.01)
        raise LinkError("the namespace of a host did not come to be")


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LinkError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
