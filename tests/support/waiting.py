"""Waiting for something to become true, instead of sleeping and hoping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LONGEST_PAUSE_S = 0.1


def wait_until(predicate: Callable[[], T], *, timeout: float = 60.0, message: str = "", interval: float = 0.02) -> T:
    """Return the first truthy answer of `predicate`; times in seconds. It is asked less and less often, if that is long.

    Raises AssertionError with the message and the last answer when the time is up.
    """
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() > deadline  # before the look: one that was held up counts all the same
        answer = predicate()
        if answer:
            return answer
        if late:
            what = message or getattr(predicate, "__name__", "the condition")
            raise AssertionError(f"not within {timeout:g} s: {what} (last answer: {answer!r})")
        time.sleep(interval)
        interval = max(interval, min(1.1 * interval, LONGEST_PAUSE_S))
