"""Somebody who can write to Redis, beside all faults: forged and broken messages, and every claim twice."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections import Counter
from typing import Any, Final, Self
from uuid import UUID

import redis

from tests.lab.attack.forgeries import FORGERIES, RANDOM, Prey

EVERY_S: Final = 0.1
RARE: Final = 0.02
"""The largest is sent this seldom, so that the machine has time for anything else."""
LARGE: Final = "queue: a hundred megabytes"


class Attacker:
    """Attacks for the length of a ``with``; what comes of it the judge says, as of every fault."""

    def __init__(self, url: str, seed: int) -> None:
        """``url`` is Redis' own, password and all."""
        self.client = redis.Redis.from_url(url, socket_timeout=10.0)
        self.rng = random.Random(seed)
        self.sent: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main, name="attacker", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        died = not self._thread.is_alive()
        self._stopping.set()
        self._thread.join()
        self.client.close()
        if died:
            raise RuntimeError("the attacker gave up before the end: what it was to show is not shown")

    def _main(self) -> None:
        while not self._stopping.wait(EVERY_S):
            name = self.rng.choice(list(FORGERIES))
            if name == LARGE and self.rng.random() > RARE:
                continue
            # Redis itself is among the victims of the faults, and a queue may be empty just now.
            with contextlib.suppress(redis.RedisError, OSError, LookupError, ValueError, AssertionError):
                prey = self._prey()
                if self.rng.random() < 0.5:
                    self._double(prey)
                FORGERIES[name][1](prey)
                self.sent[name] += 1

    def _prey(self) -> Prey:
        """A node, and tasks of which the feed of changes tells."""
        found: Any = self.client.keys("_kombu.binding.slackwater.node.*")
        told: Any = self.client.xrevrange("{sw}:changes", count=50)
        ids = [task_id for _, fields in told for task_id in _told(fields.get(b"c", b""))] or [RANDOM]
        return Prey(
            client=self.client, node=int(self.rng.choice(found).rpartition(b".")[2]), waiting=self.rng.choice(ids),
            ended=self.rng.choice(ids), tenant=1,
        )  # fmt: skip

    def _double(self, prey: Prey) -> None:
        """Lay the claims that wait a second time, and some where they do not belong."""
        for queue in ("urgent", "delayable", "offpeak"):
            here, there = (prey.key(f"claims:{prey.node}:{kind}:{queue}") for kind in ("process", "script"))
            for source, other in ((here, there), (there, here)):
                entries: Any = self.client.lrange(source, 0, 50)
                if entries:
                    self.client.rpush(source, *entries)
                    self.client.rpush(other, self.rng.choice(entries))


def _told(text: bytes) -> list[str]:
    """The tasks of an entry of the feed; none of one that is a forgery."""
    try:
        return [str(UUID(row[0])) for row in json.loads(text)]
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return []
