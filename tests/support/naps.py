"""Handlers that sleep, for a test that has its platform learn how long each takes: three to learn, others met as new."""

import time

from slackwater import handler

KNOWN = ("nap.quick", "nap.fair", "nap.long")
NEW = tuple(f"nap.new_{n}" for n in range(12))


def nap(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


for name in (*KNOWN, *NEW):
    handler(name=name, idempotent=True)(nap)
