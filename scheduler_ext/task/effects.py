"""``once(key)``: an effect that happens once for its key, over all attempts, tasks and workers of a tenant.

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
from dataclasses import dataclass
from typing import Any, Protocol

from scheduler_ext.core.errors import Conflict, InvalidInput, SlackwaterError

MAX_KEY = 200


class InDoubt(SlackwaterError):
    """The effect was begun, and nobody knows whether it happened."""

    code = "in_doubt"


class UnderWay(InDoubt):
    """The effect is being done by another task at this moment."""

    code = "under_way"


class DidNotHappen(SlackwaterError):
    """Raise it inside ``once(..., outside=True)`` when it is certain that nothing happened: the key is free again."""

    code = "did_not_happen"


class AttemptReplaced(Conflict):
    """This attempt no longer holds its task; another may run by now, so it may do nothing more."""

    code = "attempt_replaced"


@dataclass(slots=True)
class Effect:
    """What ``once`` hands to its body."""

    key: str
    first: bool
    """True when it has not happened yet: do it now."""
    result: Any = None
    """Any JSON value. Set by who does it, found by all who come later."""
    connection: Any = None
    """Of an effect in the platform's database: the open psycopg connection, inside the transaction of the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a ledger answers to a claim of a key for an effect outside."""

    won: bool
    done: bool = False
    result: Any = None
    task_id: str = ""
    """Who holds it."""
    fence: int = 0
    alive: bool = False
    """Whether that attempt still runs."""


class EffectStore(Protocol):
    """The keys in the ledger, for one running attempt."""

    def inside(self, key: str) -> AbstractContextManager[Effect]:
        """A transaction on the platform's database that stores the key when it commits."""
        ...

    def claim(self, key: str, *, over: Claim | None = None) -> Claim:
        """Claim a key in a transaction of its own; ``over``: take it from this attempt, which did not do it."""
        ...

    def settle(self, key: str, result: Any, *, over: Claim | None = None) -> None:
        """Mark a key done; held by this attempt, or by that of ``over``."""
        ...

    def free(self, key: str) -> None:
        """Give back a key this attempt holds."""
        ...


def check_key(key: object) -> str:
    """A key is text of 1 to 200 characters that PostgreSQL can store."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or "\x00" in key:
        raise InvalidInput(f"must be a text of 1 to {MAX_KEY} characters without NUL", field="key")
    return key


def perform(store: EffectStore, key: str, *, outside: bool, verify: Callable[[], Any] | None,
            ) -> AbstractContextManager[Effect]:  # fmt: skip
    """The context manager of one use of a key."""
    check_key(key)
    if verify is not None and not outside:
        raise InvalidInput("is for effects outside of the database: give outside=True", field="verify")
    return _outside(store, key, verify) if outside else store.inside(key)


@contextmanager
def _outside(store: EffectStore, key: str, verify: Callable[[], Any] | None) -> Iterator[Effect]:
    claim = store.claim(key)
    if not claim.won and not claim.done:
        claim = _resolve(store, key, claim, verify)
    if not claim.won:
        yield Effect(key, first=False, result=claim.result)
        return
    effect = Effect(key, first=True)
    try:
        yield effect
    except DidNotHappen:
        store.free(key)
        raise
    # Any other error leaves the key claimed: a time-out does not say whether the effect happened.
    store.settle(key, effect.result)


def _resolve(store: EffectStore, key: str, found: Claim, verify: Callable[[], Any] | None) -> Claim:
    """What becomes of a key somebody claimed and did not settle."""
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
        again = store.claim(key, over=found)
        if not again.won and not again.done:
            raise UnderWay(f"the effect {key!r} has just been taken up by another task", field="key")
        return again
    result = None if happened is True else happened
    store.settle(key, result, over=found)
    return Claim(won=False, done=True, result=result)
