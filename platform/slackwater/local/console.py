"""One readable log of many processes, and a file for each."""

import contextlib
import sys
from datetime import datetime
from pathlib import Path
from typing import TextIO

COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
MAX_FILE_BYTES = 10 * 1024 * 1024  # bytes; then one older file is kept beside it
NAME_WIDTH = 11


class Console:
    """Writes lines under the name of who said them; names keep their colour on a terminal."""

    def __init__(self, folder: Path, stream: TextIO | None = None) -> None:
        self.folder = folder
        self._stream = stream or sys.stdout
        self._colours: dict[str, int] = {}
        self._coloured = self._stream.isatty()
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Return the log file of a component."""
        return self.folder / f"{name}.log"

    def line(self, name: str, text: str) -> None:
        """Write one line of a component."""
        # A log that cannot be written, for a full disk or a closed terminal, must not stop the work.
        with contextlib.suppress(OSError):
            self._append(name, text)
        head = f"{datetime.now().astimezone():%H:%M:%S} {name:<{NAME_WIDTH}} |"
        if self._coloured:
            colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
            head = f"\x1b[{colour}m{head}\x1b[0m"
        self.plain(f"{head} {text}")

    def plain(self, text: str) -> None:
        """Write text as it is, on the common log only."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def _append(self, name: str, text: str) -> None:
        path = self.path(name)
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{datetime.now().astimezone().isoformat(timespec='milliseconds')} {text}\n")
            full = file.tell() > MAX_FILE_BYTES
        if full:
            path.replace(path.with_suffix(".log.1"))
