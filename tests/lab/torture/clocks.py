"""Wall clocks that can be set, one for each process of a run, where there is a C compiler.

A namespace of the kernel shifts only the clocks that count from the machine's start, and setting the machine's own
clock would hit everything on it. So a small library (``clock.c``) is built at the start of a run and loaded before the
C library: what a process asks of the wall clock gets an offset, its monotonic clock none.
"""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
VARIABLE = "TORTURE_CLOCK"


class ClockError(Exception):
    """The library could not be built."""


def compiler() -> str | None:
    """The C compiler's path; ``None`` where there is none."""
    return shutil.which("cc") or shutil.which("gcc")


class Clocks:
    """The clocks of a run, by the names of their processes."""

    def __init__(self, folder: Path) -> None:
        """``folder`` takes the library and the clocks."""
        self.folder = folder / "clocks"

    @functools.cached_property
    def _library(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Servers may run as another user.
        self.folder.chmod(0o755)
        library = self.folder / "clock.so"
        built = subprocess.run(
            [compiler() or "cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if built.returncode:
            raise ClockError(f"the clock could not be built: {built.stderr.strip()}")
        return library

    def env(self, name: str) -> dict[str, str]:
        """What a process needs in its environment to live by the clock of that name."""
        library, clock = self._library, self.folder / name
        if not clock.exists():
            clock.write_bytes(struct.pack("q", 0))
        return {"LD_PRELOAD": str(library), VARIABLE: str(clock)}

    def set(self, name: str, offset_s: float) -> None:
        """Put a clock before (or behind) the machine's by so many seconds."""
        with (self.folder / name).open("r+b") as file:
            file.write(struct.pack("q", int(offset_s * 1e6)))
