"""The agent's process, as the worker that started it sees it.

It is forked, as Celery forks the worker's children: what both have imported stands in memory once, and it is there at
once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from billiard import util as billiard_util

from scheduler_ext import forking
from scheduler_ext.worker.agent import agent

SHOWN_AS = "scheduler_ext.worker.agent"
POLL_S = 0.05


class AgentProcess:
    """A running agent; waits and signals as for any child."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        """``described`` is what :func:`agent.main` takes; of the worker's files it keeps the two named there."""
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(described)

    def poll(self) -> int | None:
        """How it ended; ``None`` while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else in this process has waited for it
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> None:
        """Wait for its end; ``TimeoutError`` when that takes longer."""
        give_up = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() >= give_up:
                raise TimeoutError
            time.sleep(POLL_S)


_after_fork: Callable[[], None] = vars(billiard_util)["_run_after_forkers"]


def _become(described: Mapping[str, Any]) -> None:
    """Be the agent, and end with it: nothing of what the worker does at its end is done here."""
    code = 1
    try:
        os.setsid()
        forking.reset_signals()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        forking.let_go({described["journal_fd"], described["killed_fd"]})
        forking.show_as(SHOWN_AS)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # Celery's go to the worker's log
        _after_fork()  # Celery's pools of connections
        code = agent.main(described)
    except BaseException:  # noqa: BLE001 - whatever it is, it must not go on as the worker
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
