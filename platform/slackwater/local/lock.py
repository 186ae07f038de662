"""One supervisor for each folder: a lock that ends with its holder, however that ends."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from slackwater.local.servers import ServerError
from slackwater.settings.local import LOCK_FILE


@contextlib.contextmanager
def folder_lock(var: Path, *, patience: float = 1.0) -> Iterator[None]:
    """Hold the folder for the length of a `with`; raises ServerError naming the process that holds it.

    `patience` in seconds covers the instant in which another command merely looks whether it is held.
    """
    var.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    with (var / LOCK_FILE).open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.seek(0)
                    holder = file.read().strip() or "unknown"
                    raise ServerError(
                        f"the platform already runs in {var} (process {holder}); stop it with `kill {holder}`"
                    ) from None
                time.sleep(0.05)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
