"""Notes when the steps of a task's way begin and end, in processes that have this folder on their path.

Python imports a module of this name at its start. What is to be watched is wrapped when its module is loaded; the
platform knows nothing of it. Each line of a process's file: when it began and when it ended (nanoseconds of
CLOCK_MONOTONIC, which all processes of a machine share), and the step.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "SLACKWATER_BENCH_PROBE"
"""The variable that names the folder of the files."""
WATCHED = {
    "scheduler_ext.dispatch.dispatcher": {
        "HintListener.wait": "wait", "Dispatcher.run_round": "round", "prioritize": "prioritize",
    },
    "slackwater_tasks.ledger.round_store": {"PgRoundStore.snapshot": "snapshot", "PgRoundStore.claim": "claim"},
    "scheduler_ext.dispatch.queue_manager": {"QueueManager.publish": "publish"},
    "scheduler_ext.worker.child.slice": {"Child._take": "take", "Child._start": "start", "Child._run": "run"},
    "scheduler_ext.worker.child.recorder": {"record": "record"},
}  # fmt: skip


def watched(function: Callable[..., Any], step: str) -> Callable[..., Any]:
    """The same function, of which each call is noted."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        began = time.monotonic_ns()
        try:
            return function(*args, **kwargs)
        finally:
            line = f"{began} {time.monotonic_ns()} {step}\n".encode()
            with (Path(os.environ[FOLDER]) / str(os.getpid())).open("ab", buffering=0) as file:
                file.write(line)

    return noted


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are watched, once each, and wraps what is watched of them."""

    def __init__(self) -> None:
        self.left = dict(WATCHED)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, with a loader that wraps."""
        names = self.left.pop(fullname, None)
        spec = importlib.util.find_spec(fullname) if names else None
        if names is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for name, step in names.items():
                *owner, last = name.split(".")
                holder: Any = getattr(module, owner[0]) if owner else module
                setattr(holder, last, watched(getattr(holder, last), step))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get(FOLDER):
    sys.meta_path.insert(0, Finder())
