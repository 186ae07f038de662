"""Settles a child's account from its journal: finished attempts are recorded, the attempt that ran when the child
stopped ends, and the others go back without spending one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Changes, Finished
from scheduler_ext.ports import WorkStore
from scheduler_ext.worker.child.handler_call import End
from scheduler_ext.worker.journal import BEGUN, ENDED, Entry, to_unix_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A batch as its journal describes it."""

    ended: list[Finished]
    begun: list[Entry]
    """What ran when the child stopped: one task, or several side by side."""
    unbegun: list[tuple[str, int]]


def read(entries: Sequence[Entry], worker: str) -> Account:
    """Read the account of a child that is dead or stopped."""
    account = Account(ended=[], begun=[], unbegun=[])
    unix = to_unix_s()
    for entry in entries:
        if entry.state == ENDED:
            end = End.unpack(entry.blob)
            began, over = entry.began + unix, entry.ended + unix
            account.ended.append(end.finished(entry.task_id, entry.fence, began, over, worker))
        elif entry.state == BEGUN:
            account.begun.append(entry)
        else:
            account.unbegun.append((entry.task_id, entry.fence))
    return account


def settle(store: WorkStore, node_id: int, account: Account, worker: str, outcome: Outcome, error: str) -> Changes:
    """Write an account to the ledger; safe to repeat. ``outcome`` and ``error`` are those of the last task begun."""
    ended = list(account.ended)
    for c in account.begun[-1:]:
        now = time.time()
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
