"""Settling a child's account from its journal: what had finished is recorded, the culprit's attempt ends, the rest
goes back without spending one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Changes, Finished
from scheduler_ext.ports import WorkStore
from scheduler_ext.worker.child.handler_call import End
from scheduler_ext.worker.journal import BEGUN, ENDED, Entry, Slot, Table, to_unix_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A batch as its journal tells it."""

    ended: list[Finished]
    culprit: Entry | None
    """The task that ran when the child stopped."""
    unbegun: list[tuple[str, int]]


def read(slot: Slot, worker: str) -> Account:
    """The account of a slot whose child is dead or stopped."""
    account, begun = _read(slot.entries() if slot.is_open else [], worker)
    return replace(account, culprit=begun[-1] if begun else None)


def read_table(table: Table, worker: str) -> tuple[Account, list[Entry]]:
    """The account of tasks that ran beside one another; those that had begun are returned apart."""
    return _read([entry for _, entry in table.entries()], worker)


def _read(entries: Sequence[Entry], worker: str) -> tuple[Account, list[Entry]]:
    ended: list[Finished] = []
    begun: list[Entry] = []
    unbegun: list[tuple[str, int]] = []
    unix = to_unix_s()
    for entry in entries:
        if entry.state == ENDED:
            end = End.unpack(entry.blob)
            began, over = entry.began + unix, entry.ended + unix
            ended.append(end.finished(entry.task_id, entry.fence, began, over, worker))
        elif entry.state == BEGUN:
            begun.append(entry)
        else:
            unbegun.append((entry.task_id, entry.fence))
    return Account(ended=ended, culprit=None, unbegun=unbegun), begun


def settle(store: WorkStore, node_id: int, account: Account, worker: str, outcome: Outcome, error: str) -> Changes:
    """Write an account to the ledger; safe to repeat. ``outcome`` and ``error`` are the culprit's."""
    ended = list(account.ended)
    if account.culprit is not None:
        c, now = account.culprit, time.time()
        began = min(now, c.began + to_unix_s())
        ended.append(Finished(c.task_id, c.fence, outcome, began, now, None, error, worker=worker))
    changes = store.record(node_id, ended) if ended else []
    return changes + give_back(store, node_id, account.unbegun)


def give_back(store: WorkStore, node_id: int, unbegun: Sequence[tuple[str, int]]) -> Changes:
    """Hand back tasks that had not begun, whether they were started in the ledger or only taken from the queue."""
    if not unbegun:
        return []
    reason = "handed back unbegun: its worker stopped"
    # Queued first: a start that was still under way then fails, and one that came before is found running.
    changes = store.hand_back(node_id, unbegun, running=False, reason=reason)
    return changes + store.hand_back(node_id, unbegun, running=True, reason=reason)
