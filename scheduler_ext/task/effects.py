"""``once(key)``: an effect happens once for its key, over all attempts, tasks and workers of a tenant.

An effect in the platform's own database commits with its key, in one transaction:

    with once("transfer:42") as effect:
        if effect.first:
            Transfer.objects.create(...)

An effect outside of it goes claimed -> done. An attempt that died in between leaves its key claimed, and whoever finds
it so gets :class:`InDoubt`, unless ``verify`` can say whether it happened:

    with once("charge:42", outside=True, verify=lambda: bank.find("42")) as effect:
        if effect.first:
            effect.result = bank.charge("42", cents=1000)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from scheduler_ext.core.errors import Conflict, InvalidInput, SlackwaterError
from scheduler_ext.core.work import Claim, Effect
from scheduler_ext.ports import TaskBackend

MAX_KEY = 200


class InDoubt(SlackwaterError):
    """The effect was begun, and nobody knows whether it happened."""

    code = "in_doubt"


class UnderWay(InDoubt):
    """The effect is being done by another task at this moment."""

    code = "under_way"


class DidNotHappen(SlackwaterError):
    """Raise it inside ``once(..., outside=True)`` when it is certain that nothing happened: it frees the key."""

    code = "did_not_happen"


class AttemptReplaced(Conflict):
    """This attempt no longer holds its task. Another may run by now, so this one may do nothing more."""

    code = "attempt_replaced"


def check_key(key: object) -> str:
    """A key is text of 1 to 200 characters that PostgreSQL can store."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or "\x00" in key:
        raise InvalidInput(f"must be a text of 1 to {MAX_KEY} characters without NUL", field="key")
    return key


def perform(backend: TaskBackend, key: str, *, outside: bool, verify: Callable[[], Any] | None,
            ) -> AbstractContextManager[Effect]:  # fmt: skip
    """The context manager for one use of a key."""
    check_key(key)
    if verify is not None and not outside:
        raise InvalidInput("is for effects outside of the database: give outside=True", field="verify")
    return _outside(backend, key, verify) if outside else backend.effect_inside(key)


@contextmanager
def _outside(backend: TaskBackend, key: str, verify: Callable[[], Any] | None) -> Iterator[Effect]:
    claim = backend.claim_effect(key)
    if not claim.won and not claim.done:
        claim = _resolve(backend, key, claim, verify)
    if not claim.won:
        yield Effect(key, first=False, result=claim.result)
        return
    effect = Effect(key, first=True)
    try:
        yield effect
    except DidNotHappen:
        backend.free_effect(key)
        raise
    # Any other error leaves the key claimed: a time-out does not say whether the effect happened.
    backend.settle_effect(key, effect.result)


def _resolve(backend: TaskBackend, key: str, found: Claim, verify: Callable[[], Any] | None) -> Claim:
    """Decide about a key that an earlier attempt claimed and did not settle."""
    if found.alive:
        raise UnderWay(f"the effect {key!r} is being done by the task {found.task_id} at this moment", field="key")
    if verify is None:
        raise InDoubt(
            f"the effect {key!r} was begun by the task {found.task_id} (fence {found.fence}), which ended before it "
            "could say whether it happened; give verify= to find out",
            field="key",
        )
    happened = verify()
    if happened is None or happened is False:
        again = backend.claim_effect(key, over=found)
        if not again.won and not again.done:
            raise UnderWay(f"the effect {key!r} has just been taken up by another task", field="key")
        return again
    result = None if happened is True else happened
    backend.settle_effect(key, result, over=found)
    return Claim(won=False, done=True, result=result)
