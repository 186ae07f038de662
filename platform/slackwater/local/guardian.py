"""The guardian ends what a killed supervisor leaves behind; this file is its program and the supervisor's hold on it.

A supervisor that is killed with -9 can clean up nothing. The kernel tells its direct children (see the shim);
their children, and whatever ignores that, are this program's, `guardian.py MARKER`: it reads `+PID` and `-PID` lines, and
when its input ends without a `done`, it waits a moment and kills all that is left of those sessions, of their
descendants, and of whatever carries MARKER in its environment. Only the standard library; run with -I -S.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STOP_TIMEOUT_S = 3.0  # seconds for the components to stop by themselves
KILL_TIMEOUT_S = 10.0  # seconds until even kill -9 is given up


class Guardian:
    """The process that cleans up should this one be killed; its program is this file."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._watched: set[int] = set()
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, or another one in place of one that is gone."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, self._marker],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            cwd="/",
        )
        for pid in self._watched:
            self._tell(f"+{pid}")

    def check(self) -> None:
        """Start another one when it is gone."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def watch(self, pid: int) -> None:
        """Let it end this session, should it come to that."""
        self._watched.add(pid)
        self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """Take a session off its list, before the number is given to another process."""
        self._watched.discard(pid)
        self._tell(f"-{pid}")

    def dismiss(self) -> None:
        """Let it go without doing anything."""
        self._tell("done")
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()


def processes() -> dict[int, tuple[int, int]]:
    """Return process id -> (parent, session) of all living processes."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if fields[0] not in "ZX":
                    found[int(entry.name)] = (int(fields[1]), int(fields[3]))
    return found


def carries(pid: int, marker: bytes) -> bool:
    """Tell whether the marker stands in the environment a process was started with."""
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def survivors(sessions: set[int], known: set[int], marker: bytes) -> set[int]:
    """Return all living processes that belong to the supervisor's."""
    alive = processes()
    family = {pid for pid, (_, session) in alive.items() if pid in known or session in sessions or carries(pid, marker)}
    grown = True
    while grown:
        children = {pid for pid, (parent, _) in alive.items() if parent in family} - family
        family |= children
        grown = bool(children)
    return family - {os.getpid()}


def end_all(sessions: set[int], marker: bytes) -> None:
    """Wait for the processes to end, then kill them."""
    started = time.monotonic()
    known: set[int] = set()
    while time.monotonic() - started < KILL_TIMEOUT_S:
        # Members stay known when their parent is gone, but only while they are alive.
        known = survivors(sessions, known, marker)
        if not known:
            return
        if time.monotonic() - started > STOP_TIMEOUT_S:
            for pid in known:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def main(marker: str) -> None:
    """Follow the supervisor until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its input, and only then
    sessions: set[int] = set()
    for line in sys.stdin:
        if line.startswith("done"):
            return
        if line[0] == "+":
            sessions.add(int(line[1:]))
        else:
            sessions.discard(int(line[1:]))
    end_all(sessions, marker.encode())


if __name__ == "__main__":
    main(sys.argv[1])
