"""A pool child in the test's own process, over a ledger of the test's."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from celery import Celery

import slackwater_conf
from scheduler_ext.ports import WorkStore
from scheduler_ext.task import handlers
from scheduler_ext.task.output import output
from scheduler_ext.worker import journal
from scheduler_ext.worker.child.slice import INTERRUPT_SIGNAL, Child
from slackwater_tasks.runtime.work_store import PgWorkStore
from tests.support.rounds import Rounds


@contextmanager
def pool_child(app: Celery, cell: Rounds, monkeypatch: pytest.MonkeyPatch, exported: Any,
               open_store: Callable[[str], PgWorkStore]) -> Iterator[Child]:  # fmt: skip
    """The child of a cell's node, which keeps no output and gives the signals' handlers back.

    ``exported``: its one handler; ``open_store`` opens the ledger for it and its threads, by their names.
    """
    monkeypatch.setattr(type(output), "open", lambda self, make: None)
    monkeypatch.setattr(handlers, "_exports", {})
    handlers.export(exported)
    stores: list[PgWorkStore] = []

    def further(name: str) -> PgWorkStore:
        stores.append(open_store(name))
        return stores[-1]

    before = {number: signal.getsignal(number) for number in (INTERRUPT_SIGNAL, signal.SIGALRM)}
    shared = journal.Journal(journal.BATCHES)
    shared.node_id = cell.worker.node.pk
    shared.lease_deadline = shared.agent_beat = time.monotonic() + 3600
    made = Child(app, cell.conf, further("child"), slackwater_conf.conf().redis_url, shared, 0, "here", further)
    try:
        yield made
    finally:
        made.close()
        for store in stores:
            store.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def lose_answers(monkeypatch: pytest.MonkeyPatch, store: WorkStore, *, committed: bool) -> list[int]:
    """Break the connection at the first two calls that record and go on, ``committed`` or before; how much each was to record."""
    real = store.record_and_go_on
    broken: list[int] = []

    def breaks(*args: Any) -> Any:
        if len(broken) == 2:
            return real(*args)
        broken.append(len(args[1]))
        if committed:
            real(*args)
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(store, "record_and_go_on", breaks)
    return broken
