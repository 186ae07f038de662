"""Reads a script from a tenant's own folder, which others may change at any moment."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from scheduler_ext.core.types import MAX_SCRIPT_BYTES
from scheduler_ext.sandbox.base import Refused


def read(folder: str, path: str) -> bytes:
    """Read the file ``path`` below ``folder``; links may lead within it. ``Refused`` says why it is not taken.

    What was opened is what is judged, so that nothing put in its place meanwhile is read.
    """
    missing = Refused(f"there is no file {path!r} in the tenant's folder on this node")
    try:
        source, root = Path(folder, path).resolve(), Path(folder).resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise missing from error
    if not folder or not source.is_relative_to(root):
        raise Refused("its path leads out of the tenant's folder")
    try:
        # Not blocking: a pipe that nobody writes to would hold us for ever.
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise missing from error
    try:
        if not Path(os.readlink(f"/proc/self/fd/{handle}")).is_relative_to(root):  # noqa: PTH115
            raise Refused("its path leads out of the tenant's folder")
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise missing
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(MAX_SCRIPT_BYTES + 1)
    finally:
        os.close(handle)
    if len(content) > MAX_SCRIPT_BYTES:
        raise Refused(f"{path!r} in the tenant's folder is larger than the {MAX_SCRIPT_BYTES} bytes a script may have")
    return content
