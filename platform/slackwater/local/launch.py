"""Command lines that die with their parent, and the choice of whom a server runs as."""

import enum
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from slackwater.local import shim

SHIM = Path(shim.__file__).resolve()


class RunAs(enum.Enum):
    """Whom a program runs as; see the modes of the shim."""

    SELF = "self"
    NAMESPACE = "namespace"
    NOBODY = "nobody"


def tied(
    command: Sequence[str],
    *,
    death_signal: signal.Signals = signal.SIGTERM,
    run_as: RunAs = RunAs.SELF,
) -> list[str]:
    """Return the command line that runs `command` and sends it `death_signal` when this process dies.

    The kernel watches the thread that starts it, so start it from one that lives as long as the process.
    """
    prefix = [
        sys.executable,
        "-I",
        "-S",
        str(SHIM),
        str(int(death_signal)),
        str(os.getpid()),
        run_as.value,
        "--",
    ]
    return [*prefix, *command]


@functools.cache
def unprivileged() -> RunAs:
    """Choose how servers that refuse root are run by this process: plainly, in a namespace, or as nobody."""
    if os.geteuid() != 0:
        return RunAs.SELF
    probe = subprocess.run(
        tied(["true"], run_as=RunAs.NAMESPACE), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return RunAs.NAMESPACE if probe.returncode == 0 else RunAs.NOBODY


def give_to_server(path: Path, run_as: RunAs) -> None:
    """Make a file or folder the server's own, where the server is really another user."""
    if run_as is RunAs.NOBODY:
        os.chown(path, shim.NOBODY, shim.NOBODY)
