"""Starts a batch of claims, even if the connection breaks meanwhile, and whoever put them into the queue.

A claim is a hint that comes through Redis. What may begin the ledger says; what is of another kind goes back to it, and
what somebody else of this node holds is his.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler_ext.core.types import WorkKind
from scheduler_ext.core.work import Started
from scheduler_ext.dispatch.refusals import Kind, refusals
from scheduler_ext.ports import WorkStore
from scheduler_ext.task import handlers

Claim = tuple[str, int]
"""Task id and fence."""


class Starting:
    """The start of one batch. It can be called again after a fault: nothing is lost or starts twice."""

    def __init__(self, store: WorkStore, node_id: int, claims: Sequence[Claim], kind: WorkKind,
                 of_others: Callable[[], set[Claim]], *, asked: bool = False) -> None:  # fmt: skip
        """``claims`` were taken from the node's queues of that ``kind``; ``of_others``: what others here hold now.

        ``asked``: they were asked for before, without an answer.
        """
        self.store = store
        self.node_id = node_id
        self.claims = claims
        self.kind = kind
        self.of_others = of_others
        self._asked = asked

    def __call__(self) -> list[Started]:
        """Start them; after a call without an answer, take over what that call had started."""
        again, self._asked = self._asked, True
        if again:
            others = self.of_others()
            self.claims = [claim for claim in self.claims if claim not in others]
        started = self.store.start(self.node_id, self.claims, again=again) if self.claims else []
        if all(_belongs(handler, self.kind) for handler in {task.handler for task in started}):
            return started
        return self._without_misplaced(started)

    def _without_misplaced(self, started: Sequence[Started]) -> list[Started]:
        """Hand back a claim that lay in the queue of another kind: it would be run as what it is not."""
        wrong = [task for task in started if not _belongs(task.handler, self.kind)]
        refusals.add(Kind.CLAIM, f"a claim in the queue of another kind ({self.kind.value})", len(wrong))
        reason = "handed back unbegun: its claim lay in the queue of another kind"
        claims = [(task.task_id, task.fence) for task in wrong]
        self.store.hand_back(self.node_id, claims, running=True, reason=reason)
        return [task for task in started if _belongs(task.handler, self.kind)]


def _belongs(handler: str, here: WorkKind) -> bool:
    """Whether a task of a handler (empty: a script) may lie in a queue of this kind.

    A task that is to run alone has a process, whatever its handler is.
    """
    if not handler or here is WorkKind.SCRIPT:
        return not handler and here is WorkKind.SCRIPT
    found = handlers.find(handler)
    return here is WorkKind.PROCESS or found is None or found.kind is here
