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

from tests.lab.attack.forgeries import FORGERIES, RANDOM, NoPrey, Prey

EVERY_S: Final = 0.02
RARE: Final = 0.02
"""The largest is sent this seldom, so that the machine has time for anything else."""
LARGE: Final = "queue: a hundred megabytes"
PATIENCE_S: Final = 0.2
"""So long it waits for what a forgery is made of."""
ENOUGH: Final = 20
"""Tries after which it is judged whether the attacker can do anything at all."""


class Attacker:
    """Attacks for the length of a ``with``; what comes of it the judge says, as of every fault."""

    def __init__(self, url: str, seed: int) -> None:
        """``url`` is Redis' own, password and all."""
        self.client = redis.Redis.from_url(url, socket_timeout=10.0)
        self.rng = random.Random(seed)
        self.sent: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        """What could not be sent though Redis was there: it was full, or the attacker himself had spoilt it."""
        self._died: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main, name="attacker", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        self._stopping.set()
        self._thread.join()
        self.client.close()
        if error[0] is None:
            self.check()

    def check(self) -> None:
        """``RuntimeError`` when he is no attacker any more: a run beside him would show nothing."""
        sent, failed = self.sent.total(), self.failed.total()
        if self._died is not None or failed > max(sent, ENOUGH):
            raise RuntimeError(f"the attacker is broken: {sent} sent, {failed} failed") from self._died

    def _main(self) -> None:
        try:
            while not self._stopping.wait(EVERY_S):
                self._attack(self.rng.choice(list(FORGERIES)))
        except BaseException as error:  # noqa: BLE001 - whoever runs the torture is told, see check()
            self._died = error

    def _attack(self, name: str) -> None:
        if name == LARGE and self.rng.random() > RARE:
            return
        # Redis itself is among the victims of the faults.
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError, OSError):
            try:
                prey = self._prey()
                if self.rng.random() < 0.5:
                    self._double(prey)
                FORGERIES[name][1](prey)
                self.sent[name] += 1
            except (redis.ResponseError, NoPrey):
                self.failed[name] += 1

    def _prey(self) -> Prey:
        """A node, and tasks of which the feed of changes tells."""
        found: Any = self.client.keys("_kombu.binding.slackwater.node.*")
        nodes = [int(key.rpartition(b".")[2]) for key in found] or [1]
        told: Any = []
        with contextlib.suppress(redis.ResponseError):  # he may have laid a text there himself
            told = self.client.xrevrange("{sw}:changes", count=50)
        ids = [task_id for _, fields in told for task_id in _told(fields.get(b"c", b""))] or [RANDOM]
        return Prey(
            client=self.client, node=self.rng.choice(nodes), waiting=self.rng.choice(ids),
            ended=self.rng.choice(ids), tenant=1, patience_s=PATIENCE_S,
        )  # fmt: skip

    def _double(self, prey: Prey) -> None:
        """Lay the claims that wait a second time, and some where they do not belong."""
        for queue in ("urgent", "delayable", "offpeak"):
            here, there = (prey.key(f"claims:{prey.node}:{kind}:{queue}") for kind in ("process", "script"))
            for source, other in ((here, there), (there, here)):
                with contextlib.suppress(redis.ResponseError):  # a text lies there
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
