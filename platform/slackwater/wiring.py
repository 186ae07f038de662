"""The composition root: builds the engine from its ports and adapters. Nothing else joins them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import django
from django.apps import apps
from django.db import DatabaseError
from django.utils.functional import SimpleLazyObject

from scheduler_ext.dispatch import redis_client
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.preemption.controller import TurnTaking
from scheduler_ext.sandbox.pool import SlotPool
from slackwater_conf import conf
from slackwater_conf.database import NO_TABLES

if TYPE_CHECKING:
    from celery import Celery

    from slackwater_resources.components import Heartbeat

IOPS = 10_000
BANDWIDTH_KBPS = 1_000_000
PORTS = 1_000


installed: list[Celery] = []
"""Applications of one's own with durable tasks."""


class Engine:
    """Adapters by the names the engine asks for."""

    factory = "slackwater.wiring:engine"

    def __init__(self) -> None:
        """Reads the settings; opens nothing."""
        self.conf = conf().scheduler
        self.redis_url: str = conf().redis_url
        self.labels: tuple[str, ...] = conf().labels
        self.script_slots: int | None = conf().script_slots or (0 if installed else None)
        self._sandbox = SlotPool(self.conf)

    @property
    def app(self) -> Celery:
        """The Celery app with all tasks registered: the one of the worker, or of the project; else the service's."""
        if installed:
            from celery import _state

            current: Celery = _state.get_current_app()
            return current if current in installed else installed[0]
        from slackwater.celery import app

        return app

    def work_store(self, name: str, told: Callable[[], bool] = lambda: True) -> Any:
        from slackwater_tasks.runtime.work_store import PgWorkStore

        return PgWorkStore(self.conf, name, told=told, add_subtasks=_add_subtasks)

    def node_store(self) -> Any:
        require_tables()
        from slackwater_resources.registry import PgNodeStore

        return PgNodeStore(self.conf, self._database("slackwater nodes"))

    def round_store(self, holder: str) -> Any:
        """The ledger as the dispatcher uses it."""
        from slackwater_tasks.ledger.round_store import PgRoundStore

        return PgRoundStore(self.conf, holder)

    def turns(self, rounds: Any, share: Callable[[], SharePolicy]) -> TurnTaking:
        """Which running tasks make room for what waits, for the dispatcher that has ``rounds``."""
        from slackwater_tasks.ledger.preemption_store import PgTurnStore

        return TurnTaking(PgTurnStore(rounds), self.queues().tell_nodes, self.conf, share)

    def watcher(self, rounds: Any) -> Any:
        """The observers of each round: the recorder and the shadow."""
        from slackwater_tasks.ledger.round_recorder import RoundWatcher

        return RoundWatcher(self.conf, rounds)

    def queues(self) -> Any:
        from scheduler_ext.dispatch.queue_manager import QueueManager

        return QueueManager(self.redis_client(), self.conf)

    def redis_client(self) -> redis_client.Redis:
        """A Redis client for short commands."""
        return redis_client.connect(self.redis_url, socket_timeout=5.0, socket_connect_timeout=1.0)

    def sandbox(self) -> SlotPool:
        self._sandbox.probe()
        return self._sandbox

    def capacity(self) -> tuple[int, ...]:
        """What this machine offers; ``SLACKWATER_CAPACITY`` overrides it (six numbers, comma-separated)."""
        if given := conf().capacity:
            return given
        import psutil

        memory = psutil.virtual_memory().total >> 20
        disk = shutil.disk_usage(tempfile.gettempdir()).free >> 20
        return ((os.cpu_count() or 1) * 1000, memory, disk, IOPS, BANDWIDTH_KBPS, PORTS)

    @staticmethod
    def _database(name: str) -> Any:
        from slackwater_tasks.ledger.connection import Database

        return Database(name)


def _add_subtasks(*args: Any, **kwargs: Any) -> Any:
    """Store what a running task submits; imported by the first that does."""
    from slackwater_tasks.control.workflows import add_subtasks

    return add_subtasks(*args, **kwargs)


def _celery_calls() -> Any:
    from slackwater_tasks.control.celery_calls import CeleryCalls

    return CeleryCalls()


celery_ledger: Any = SimpleLazyObject(_celery_calls)
"""Takes what the Celery app publishes; made at the first call, when Django is ready."""


@cache
def engine() -> Engine:
    """The engine of this process; Django is set up first where it is not."""
    if not apps.ready:
        django.setup()
    return Engine()


def require_tables() -> None:
    """End this process with a word where the database has no tables of ours; nothing where it is away, which is waited for."""
    from psycopg import Error

    from slackwater_tasks.ledger.connection import connect

    try:
        with connect(application_name="slackwater start") as conn:
            found = conn.execute("SELECT to_regclass('slackwater_tasks_livetask'), current_database()").fetchone()
    except (Error, DatabaseError):
        return
    if found is not None and found[0] is None:
        raise SystemExit(f"slackwater: {NO_TABLES.format(found[1])}")


def heartbeat(kind: str) -> Heartbeat:
    """Report from now on that this process is alive, as a component of that kind."""
    from slackwater_resources.components import Heartbeat

    made = engine()
    return Heartbeat(kind, made.conf.cell, made._database(f"slackwater {kind} heartbeat")).start()


def holder_name() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
