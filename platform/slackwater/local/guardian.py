"""The supervisor's side of the guardian."""

import contextlib
import subprocess
import sys

from slackwater.local import server_guardian as program


class Guardian:
    """The process that cleans up should this one be killed; see slackwater.local.server_guardian."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._watched: set[int] = set()
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, or another one in place of one that is gone."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", program.__file__, self._marker],
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
