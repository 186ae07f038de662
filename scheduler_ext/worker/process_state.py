"""What a worker process knows: the engine it was given, and the journal it inherited."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from billiard import current_process
from celery import Celery, current_app

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.dispatch.refusals import refusals
from scheduler_ext.ports import NodeStore, WorkStore
from scheduler_ext.sandbox.pool import SlotPool
from scheduler_ext.worker.child.slice import Child
from scheduler_ext.worker.journal import Journal


class Engine(Protocol):
    """What the composition root gives a worker; Celery's setting ``slackwater_engine`` names the factory."""

    app: Celery
    conf: SchedulerConf
    redis_url: str
    factory: str
    """The dotted name by which the agent's process finds the same engine."""
    labels: tuple[str, ...]
    """The labels that tasks may ask for."""
    script_slots: int | None
    """How many scripts run at once; ``None``: as many as there are children."""

    def work_store(self, name: str, told: Callable[[], bool] = ...) -> WorkStore:
        """Opens a connection to the ledger; ``told()`` is False while surely no tenant wants to be told of changes."""

    def node_store(self) -> NodeStore:
        """The registry of nodes."""

    def sandbox(self) -> SlotPool:
        """The strongest sandbox this machine offers."""

    def capacity(self) -> tuple[int, ...]:
        """What this machine offers, in the order of ``core.resources.DIMENSIONS``."""


@dataclass(slots=True)
class _Inherited:
    journal: Journal | None = None
    hostname: str = ""
    child: Child | None = None


_inherited = _Inherited()


def adopt(journal: Journal, hostname: str) -> None:
    """Keep what the children inherit by fork."""
    _inherited.journal = journal
    _inherited.hostname = hostname
    refusals.also = journal.refuse


@cache
def engine() -> Engine:
    module, _, name = str(current_app.conf.slackwater_engine).partition(":")
    made: Engine = getattr(importlib.import_module(module), name)()
    return made


def child() -> Child:
    """This pool child's loop, made on first use after the fork."""
    if _inherited.child is None:
        if _inherited.journal is None:
            raise RuntimeError("this process is no child of a Slackwater worker")
        made, journal = engine(), _inherited.journal

        def told() -> bool:
            return not journal.unheard

        # The kernel shares processors among sessions (sched(7), autogroup): as one of the worker's, all children together
        # would get no more of a busy machine than a single process beside them.
        with contextlib.suppress(PermissionError):  # it leads one already
            os.setsid()
        _, index = place()
        name = f"child {_inherited.hostname} {index}"
        _inherited.child = Child(
            made.app,
            made.conf,
            made.work_store(name, told),
            made.redis_url,
            journal,
            index,
            _inherited.hostname,
            lambda thread: made.work_store(f"{name} {thread}", told),
        )
    return _inherited.child


def place() -> tuple[str, int]:
    """The name of this child's worker, and its slot there."""
    return _inherited.hostname, int(getattr(current_process(), "index", 0) or 0)


def forget(**_: Any) -> None:
    """Close what the child holds; called when its process ends."""
    if _inherited.child is not None:
        _inherited.child.close()
        _inherited.child = None
