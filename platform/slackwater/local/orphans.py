"""A server's worker process that does not outlive the server."""

import ctypes
import multiprocessing
import os
import signal
import sys

from slackwater.local.shim import PR_SET_PDEATHSIG


def end_with_server() -> None:
    """Have the kernel kill this worker process when the server process that started it dies, however it dies.

    Without it a worker whose server was killed goes on listening, and a new server finds its port taken. Call it from
    the main thread: the kernel forgets the request when that thread ends. Nothing happens in a process that no other
    Python process started by ``multiprocessing``, and on systems other than Linux.
    """
    server = multiprocessing.parent_process()
    if server is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != server.pid:  # it died before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)
