"""The nodes' queues in Redis: publish, take and clear claims; and the epoch key that shows when Redis was emptied."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from scheduler_ext.conf import BATCH_US, SHORT_US, SchedulerConf
from scheduler_ext.core.types import Decision, QueueName, WorkKind
from scheduler_ext.core.work import Change
from scheduler_ext.dispatch import change_feed, redis_client
from scheduler_ext.dispatch.keys import Keys
from scheduler_ext.dispatch.refusals import Kind, refusals

if TYPE_CHECKING:
    import redis.asyncio

log = logging.getLogger(__name__)


ROOM = "room"
"""The hint that a node has free room, or that little is left of what was given ahead; what ran may have made work ready."""
CLAIM = re.compile(rb"\d{1,15}:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d{1,9}")
"""An entry as :func:`encode` writes it."""


def encode(task_id: str, fence: int, expected_us: int) -> bytes:
    """A claim as it lies in a queue, without policy or payload. What the Lua script reads stands first."""
    return f"{expected_us}:{task_id}:{fence}".encode()


def decode(entries: Iterable[bytes]) -> list[tuple[str, int]]:
    """Task id and fence of each entry, once; what is no claim is refused. The ledger decides whether a claim holds."""
    entries = list(entries)
    claims = list(filter(CLAIM.fullmatch, entries))
    if refused := len(entries) - len(claims):
        refusals.add(Kind.CLAIM, "an entry of a node's queue that is no claim", refused)
    parts = b":".join(claims).decode().split(":")  # three of each
    return list(dict.fromkeys(zip(parts[1::3], map(int, parts[2::3]), strict=True)))


def _expected(entry: bytes) -> int:
    """The microseconds that a claim is expected to run; 0: not known, or no claim."""
    return int(entry.partition(b":")[0]) if CLAIM.fullmatch(entry) else 0


class QueueManager:
    """Adds to, takes from and clears the three queues of each node."""

    def __init__(self, client: redis_client.Redis, conf: SchedulerConf) -> None:
        """``client`` is used for short commands only, never for one that blocks."""
        self.client = client
        self.conf = conf
        self.keys = Keys(conf.key_prefix)
        self._take: Any = client.register_script((files("scheduler_ext") / "lua" / "take.lua").read_text())
        self._telling, self._waiting = redis_client.DirectConnection(client), redis_client.DirectConnection(client)
        self._short = True
        """Whether what was taken last was short, so that what comes next may be a batch."""
        self.lost = False
        """Whether the last publishing found that Redis was emptied; :meth:`emptied` tells it once more."""

    def publish(self, decisions: Sequence[Decision]) -> None:
        """Push committed claims to their nodes, in order, in one round trip, which sees whether Redis was emptied."""
        if not decisions:
            return
        entries: dict[tuple[int, WorkKind, QueueName], list[bytes]] = {}
        for d in decisions:
            entry = encode(d.task_id, d.fence + 1, 0 if d.exclusive or d.alone else d.expected_us or 1)
            entries.setdefault((d.node_id, d.kind, d.queue), []).append(entry)
        with self.client.pipeline(transaction=False) as pipe:
            self._renew(pipe)
            for (node_id, kind, queue), values in entries.items():
                pipe.rpush(self.keys.claims(node_id, kind, queue), *values)
            new, *answers = pipe.execute(raise_on_error=False)
            self.lost = self.lost or new is True
            # What is no list is thrown away by whoever takes from it; its claims are ready again after a while.
            for answer in (new, *answers):
                if isinstance(answer, redis_client.ResponseError) and str(answer).startswith("WRONGTYPE"):
                    refusals.add(Kind.CLAIM, "a node's queue that is no list")
                elif isinstance(answer, Exception):
                    raise answer

    def is_empty(self, node_id: int, kind: WorkKind) -> bool:
        """Whether nothing lies in the node's queues of a kind."""
        return not self.client.exists(*self.keys.node_claims(node_id, kind))

    def take(self, node_id: int, kind: WorkKind, *, most: int | None = None) -> tuple[list[tuple[str, int]], int]:
        """Take one batch of claims, urgent first; returns them and how many are left.

        Claims of processes are batched by their expected run time; of the other kinds ``most`` are taken as they lie.
        """
        entries, left = self._taken(node_id, kind, most if most is not None else self.conf.batch_max)
        return decode(entries), left

    def wait(self, node_id: int, wait_s: float, *, crowd_s: float) -> tuple[list[tuple[str, int]], int]:
        """Take a claim of a process, waiting for at most ``wait_s`` seconds; returns it, and 0 where surely none is left.

        One that comes within ``crowd_s`` has company: of what came with it as much is taken as makes a batch. Later, or
        after a long task, the first is taken at once, and the others are whoever's has time for them.
        """
        names: list[Any] = self.keys.node_claims(node_id, WorkKind.PROCESS)
        if self._short and crowd_s > 0:
            most = self.conf.batch_max
            wait = min(wait_s, crowd_s)
            found: Any = self._waiting.ask(("BLMPOP", wait, len(names), *names, "LEFT", "COUNT", most))
            if found:
                return self._fitting(found[0], found[1])
            wait_s -= crowd_s
        found = self.client.blpop(names, timeout=wait_s) if wait_s > 0 else None
        if not found:
            return [], 0
        self._short = 0 < _expected(found[1]) <= SHORT_US
        return decode([bytes(found[1])]), int(self._short)

    def _fitting(self, queue: bytes, entries: list[bytes]) -> tuple[list[tuple[str, int]], int]:
        """Of entries taken from the head of a queue those that make a batch; the others are put back there."""
        work, fit = 0, 0
        for entry in entries:
            expected = _expected(entry)
            self._short = 0 < expected <= SHORT_US
            if fit and (work >= BATCH_US or not self._short):
                break
            work += expected
            fit += 1
            if not self._short:
                break
        rest = entries[fit:]
        if rest:
            with suppress(redis_client.RedisError):  # what is lost is taken back, like any claim that nobody begins
                self.client.lpush(queue, *reversed(rest))
        return decode(entries[:fit]), len(rest) or int(fit == self.conf.batch_max)

    async def wait_beside(self, client: redis.asyncio.Redis, node_id: int, kind: WorkKind, *, most: int,
                          wait_s: float) -> list[tuple[str, int]]:  # fmt: skip
        """Take claims of tasks that run beside others, waiting for the first: at most ``most`` of all that came by one call.

        ``client`` is the loop's own. What comes together is started together, which costs little more than to start one.
        """
        names: list[Any] = self.keys.node_claims(node_id, kind)
        try:
            found: Any = await client.blmpop(wait_s, len(names), *names, direction="LEFT", count=most)
        except redis_client.ResponseError:  # one of the queues is no list: it is thrown away
            entries, _ = await asyncio.to_thread(self._taken, node_id, kind, most)
            return decode(entries)
        return decode(found[1]) if found else []

    def _taken(self, node_id: int, kind: WorkKind, most: int) -> tuple[list[bytes], int]:
        """Entries of a batch, and how many are left."""
        reply = self._take(
            keys=self.keys.node_claims(node_id, kind),
            args=[most, BATCH_US, SHORT_US if kind is WorkKind.PROCESS else -1],
        )
        *entries, left, thrown = reply
        if int(thrown):
            refusals.add(Kind.CLAIM, "an entry of a node's queue that is no claim", int(thrown))
        return entries, int(left)

    def clear(self, node_id: int, kinds: Iterable[WorkKind] = WorkKind) -> list[tuple[str, int]]:
        """Empty a node's queues (it drains, left or was lost); returns the claims that lay there."""
        keys = [key for kind in kinds for key in self.keys.node_claims(node_id, kind)]
        with self.client.pipeline(transaction=True) as pipe:
            for key in keys:
                pipe.lrange(key, 0, -1)
            pipe.delete(*keys)
            replies = pipe.execute()
        return decode(entry for reply in replies[:-1] for entry in reply)

    def emptied(self, *, ask: bool = True) -> bool:
        """True once after Redis was emptied (or is new): the epoch key was gone, and is set again.

        Without ``ask`` only what publishing has found is told, which costs no round trip.
        """
        lost, self.lost = self.lost, False
        return bool(ask and self._renew(self.client)) or lost

    def _renew(self, through: Any) -> Any:
        """Set the epoch key if it is gone."""
        return through.set(self.keys.epoch(self.conf.cell), uuid.uuid4().hex, nx=True)

    def tell(self, changes: Sequence[Change], *, room: bool) -> None:
        """Tell followers of changes and, with ``room``, the dispatcher of free room if it listens to that.

        While Redis is away nobody is told: both look by themselves.
        """
        commands: list[Sequence[Any]] = []
        try:
            if changes:
                commands.append(change_feed.command(self.client, self.keys, changes))
            if room:
                commands.append(("PUBLISH", self.keys.room(self.conf.cell), ROOM))
            if commands:
                self._telling.send(*commands)
        except redis_client.RedisError:
            log.debug("changes not told", exc_info=True)

    def tell_nodes(self, node_ids: Iterable[int]) -> None:
        """Tell nodes to look at what is asked of their tasks; without Redis they look by themselves."""
        try:
            for node_id in node_ids:
                self.client.publish(self.keys.control(node_id), "cancel")
        except redis_client.RedisError:
            log.debug("nodes not told", exc_info=True)
