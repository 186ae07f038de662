"""The dispatcher: one round after another, woken by hints, led by whoever holds the cell's leader row.

A round is numbered phases over a frozen view: epoch check, wake, snapshot, prioritize, claim, publish.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import first_line
from scheduler_ext.core.types import NOBODY, Decision, Grant, Plan, Reason, RoundResult, Snapshot
from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.keys import Keys
from scheduler_ext.dispatch.mutex import LockMirror
from scheduler_ext.dispatch.queue_manager import ROOM, QueueManager
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.ports import RoundStore
from scheduler_ext.preemption.controller import TurnTaking
from scheduler_ext.round.grants import all_served, grants, in_hand
from scheduler_ext.round.openings import MANY, in_the_way, lacking, openings
from scheduler_ext.round.prioritizer import prioritize

log = logging.getLogger(__name__)

ROUND_INTERVAL_S = 1.0
"""The longest time between two rounds."""
REST_S = 5.0
"""The same while the ledger is empty: each renewal of the lead looks whether it still is."""
WAKE_EVERY_S = 0.2
"""How often scheduled tasks are looked at; whoever stores one that is due sooner makes it ready at once.

As often Redis is asked whether it was emptied; between, each publishing sees it."""
BATCH = 2048
_ASIDE = {
    Reason.MUTEX: Reason.MUTEX,
    Reason.RATE: Reason.RATE,
    Reason.NO_NODE: Reason.NEVER_FITS,
    Reason.NO_LABELS: Reason.NEVER_FITS,
    Reason.NEVER_FITS: Reason.NEVER_FITS,
}
"""The reasons for which a task is parked, each with the name of that parking."""
AHEAD_S = 0.002
"""The longest time between a round that found room for all that was there, and the next one, which gives room ahead."""
ASK_S = 0.005
"""Where nobody waited for room, the least time until that is looked at again: batches of short tasks tell of it all the time."""
TRUST_S = 2.0
"""How long it holds that each line was served, where rounds look at too few tasks to tell."""
QUIET_S = 0.5
"""So long after nobody waits for room any more the dispatcher listens to what comes free."""
GOES_ON_S = 0.05
"""The least time between two rounds while nodes go on by themselves and lack nothing."""
MIN_PAUSE_MS = 4
"""Under load the least time between two rounds, so that they stay large and few."""


class Dispatcher:
    """Decides for one cell while it leads; otherwise stands by."""

    def __init__(self, store: RoundStore, queues: QueueManager, conf: SchedulerConf, holder: str,
                 share: SharePolicy | None = None, *,
                 watch: Callable[[Snapshot, Plan, Sequence[Decision], float], None] | None = None) -> None:  # fmt: skip
        """``holder`` names this process uniquely in the leader row.

        ``share`` holds instead of the one the store says is chosen; ``watch`` is shown each
        round, the claims it won and the seconds it took.
        """
        self.store = store
        self.queues = queues
        self.conf = conf
        self.holder = holder
        self.share = share
        self.watch = watch
        self._wants_ends = False
        self._kept = NOBODY
        self._grants: tuple[Grant, ...] = ()
        self._served = float("-inf")
        """When each line that waited was last seen to be served."""
        # It outlives this dispatcher until the next one leads, and renews it.
        self.locks = LockMirror(queues.client, queues.keys, conf.node_lease_s + conf.leader_lease_s)
        self.epoch = 0
        self.leads = False
        self._short = False
        """Whether some that may come find no room given ahead."""
        self.turns: TurnTaking | None = None
        """Set if running tasks are to make room for what waits."""
        self._renewed = float("-inf")
        self._woken = float("-inf")
        self._rests_until = float("-inf")
        self._empty = False
        self.last = RoundResult()

    def keep_lead(self) -> bool:
        """Renew or take leadership when it is time; True while this process leads."""
        now = time.monotonic()
        if now - self._renewed >= self.conf.leader_renew_s:
            lead = self.store.lead(self.holder)
            if lead.leads and not self.leads:
                log.info("leading cell %s, epoch %s", self.conf.cell, lead.epoch)
            if self.leads and not lead.leads:
                log.warning("leadership of cell %s lost", self.conf.cell)
            self.leads, self.epoch, self._empty = lead.leads, lead.epoch, lead.empty
            # Counted from before the statement: the row can only be valid for longer than we believe.
            self._renewed = now
        return self.leads and time.monotonic() - self._renewed < self.conf.leader_lease_s

    def renews_in_s(self) -> float:
        return max(0.0, self._renewed + self.conf.leader_renew_s - time.monotonic())

    def run_round(self) -> RoundResult:
        """Run one round; returns what it did, with a reason for each nominated task that was left."""
        began = time.monotonic()
        # 1. Bring back what Redis forgot, wake what is due, promote what is late.
        looks = began - self._woken >= WAKE_EVERY_S
        returned = self.store.return_queued() if self.queues.emptied(ask=looks) else 0
        if returned:
            log.warning("Redis was emptied: %s queued tasks are ready again", returned)
        woken = promoted = 0
        if looks:
            self._woken = began
            woken = self.store.wake(BATCH)
            moved = self.store.promote(BATCH)
            promoted = len(moved)
            if moved:
                self.queues.tell(moved, room=False)
        # 2. Take the snapshot, and decide: who runs next, and where. Room given ahead goes to what waits.
        snapshot, plan = self._decide()
        if in_the_way(snapshot, plan, self.conf):
            self.store.withdraw()
            snapshot, plan = self._decide()
        self._wants_ends, self._kept = plan.wants_ends, plan.kept
        # 3. Let nodes go on by themselves where nothing else waits; and give room ahead, where none is asked for now.
        plan, claims, given = self._give(snapshot, plan)
        self._rests_until = float("-inf") if given or plan.decisions or plan.left else began + REST_S
        # 4. Claim what was decided, if it still is what the snapshot said.
        won = self.store.claim(self.epoch, claims.decisions)
        self.locks.follow(self.store.locks, new=plan.excludes)
        # 5. Publish the claims that were won.
        self.queues.publish(won)
        # 6. Park what cannot run now, and ask running tasks to make room.
        self._set_aside(snapshot, plan)
        if self.turns is not None:
            self.turns.look(snapshot, plan, self.epoch)
        # 7. Fit the next snapshot's size, and show this round.
        deeper = self.store.look(decided=len(claims.decisions), more=claims.more)
        if self.watch is not None:
            self.watch(snapshot, plan, won, time.monotonic() - began)
        self.last = RoundResult(
            nominated=len(plan.decisions) + len(plan.left), decided=len(plan.decisions), claimed=len(won), woken=woken,
            promoted=promoted, returned=returned, left=plan.left, utilization_permille=plan.utilization_permille,
            again=deeper or self.queues.lost or len(won) >= self.conf.round_limit, seconds=time.monotonic() - began,
        )  # fmt: skip
        return self.last

    def _decide(self) -> tuple[Snapshot, Plan]:
        """Decide on this moment, without what is held back until others have started."""
        snapshot = self.store.snapshot(ends=self._wants_ends, kept=self._kept)
        if self.turns is not None:
            snapshot = self.turns.hold(snapshot)
        return snapshot, prioritize(snapshot, self.conf, self.share or self.store.share())

    def _give(self, snapshot: Snapshot, plan: Plan) -> tuple[Plan, Plan, bool]:
        """Decide ahead what rounds to come would say; returns the plan, what of it is left to claim, and whether room may be
        given ahead."""
        holds = self.turns is not None and self.turns.holds
        now = time.monotonic()
        trusted = now - self._served < TRUST_S
        self._grants = () if holds else grants(snapshot, plan, self.conf, self._grants, trusted=trusted)
        if all_served(snapshot, plan):
            self._served = now
        self.store.grant(self.epoch, self._grants)
        if self._grants and snapshot.openings:
            self.store.withdraw()  # what comes would pass what waits
        if self._grants or holds:
            plan = replace(plan, going_on=frozenset(each.node_id for each in self._grants))
            return plan, in_hand(snapshot, plan, self._grants), True
        wider = openings(snapshot, plan, self.conf, self.share or self.store.share())
        self.store.widen(self.epoch, wider)
        self._short = lacking(snapshot, wider)
        return plan, plan, bool(snapshot.openings or wider)

    def _set_aside(self, snapshot: Snapshot, plan: Plan) -> None:
        """Park what would only block its line: tasks waiting for a key, a rate, or a node that does not exist."""
        if _ASIDE.keys().isdisjoint(plan.left.values()):
            return  # nearly always
        aside: dict[Reason, list[str]] = {}
        for task_id, reason in plan.left.items():
            kind = _ASIDE.get(reason)
            if kind is not None:
                aside.setdefault(kind, []).append(task_id)
        for kind, task_ids in aside.items():
            if kind is not Reason.NEVER_FITS or snapshot.nodes:
                self.store.park(task_ids, kind)

    def goes_on(self) -> bool:
        """Whether nodes go on by themselves, and the last round had nothing to add."""
        return bool(self._grants) and not self.last.claimed

    def rests(self) -> bool:
        """Whether nothing is there to decide about, nor given ahead, so that the next round has time."""
        return self._empty and time.monotonic() < self._rests_until

    def waits_for_room(self) -> bool:
        """Whether the last round left something to wait, or some that may come find no room given ahead."""
        return bool(self.last.left or self._grants) or self._short or self.store.unseen()

    def wants_room(self) -> bool:
        """Whether free room changes anything now: the same, or something waits since, or of what was given little is left."""
        return self.waits_for_room() or self.store.wants_room()

    def pause_s(self) -> float:
        """How long to wait for a hint before the next round: until something is due, at most the round's interval."""
        due = self.store.next_due_s() if not self.last.claimed else None
        # What came has room: the next round, which decides nothing, gives room ahead to what may follow.
        longest = AHEAD_S if self.last.claimed > MANY and not self.last.left else ROUND_INTERVAL_S
        if self.turns is not None:
            longest = min(longest, self.turns.pause_s())
        return longest if due is None else min(longest, max(0.001, due))


class HintListener:
    """Waits for the dispatcher's hints on a connection of its own; without Redis it just waits.

    Every task that ends by itself tells of its room: to hear that for nothing is a tenth of what a lone task costs. So it
    listens to it only where that is waited for.
    """

    def __init__(self, url: str, keys: Keys, cell: str) -> None:
        self.url = url
        self.channel = keys.hints(cell)
        self.room = keys.room(cell)
        self._waited = time.monotonic()
        """When room was last waited for."""
        self._hears_room = True
        self._heard: set[str] = set()
        self._pubsub: Any = None
        self._client: redis_client.Redis | None = None

    def listen(self, *, to_room: bool) -> bool:
        """Listen to news of room, or after a while no more; True where some may have come free unheard: look again."""
        now = time.monotonic()
        if to_room:
            self._waited = now
        if self._hears_room == to_room or (not to_room and now - self._waited < QUIET_S):
            return False
        self._hears_room = to_room
        try:
            if self._pubsub is not None and to_room:
                self._subscribe()
            elif self._pubsub is not None:
                self._pubsub.unsubscribe(self.room)
        except (redis_client.RedisError, OSError):
            self.close()
        return to_room

    def _subscribe(self) -> None:
        """Subscribe, and wait until the server says so: what is published from then on is heard."""
        self._pubsub.subscribe(self.room)
        while message := self._pubsub.get_message(timeout=5.0):
            if message["type"] == "message":
                self._heard.add(bytes(message["data"]).decode(errors="replace"))
            elif message["type"] == "subscribe" and message["channel"] == self.room.encode():
                return
        raise redis_client.RedisError("the subscription was not confirmed")

    def wait(self, timeout: float) -> AbstractSet[str]:
        """Wait for hints for at most ``timeout`` seconds; returns which came, each once."""
        heard, self._heard = self._heard, set()
        if heard:
            return heard
        try:
            if self._pubsub is None:
                self._client = redis_client.connect(self.url, socket_timeout=5.0, socket_connect_timeout=0.5)
                self._pubsub = self._client.pubsub()  # type: ignore[no-untyped-call]  # no types
                self._pubsub.subscribe(self.channel, *([self.room] if self._hears_room else []))
            deadline = time.monotonic() + timeout
            while (left := deadline - time.monotonic()) > 0:
                message = self._pubsub.get_message(ignore_subscribe_messages=True, timeout=left)
                while message is not None:
                    heard.add(bytes(message["data"]).decode(errors="replace"))
                    message = self._pubsub.get_message(ignore_subscribe_messages=True, timeout=0)
                if heard:
                    return heard
        except (redis_client.RedisError, OSError):
            self.close()
            time.sleep(min(timeout, 0.2))
        return frozenset()

    def close(self) -> None:
        """Close the connection; the next wait opens it anew."""
        for resource in (self._pubsub, self._client):
            if resource is not None:
                try:
                    resource.close()
                except (redis_client.RedisError, OSError):
                    log.debug("closing a broken Redis connection failed", exc_info=True)
        self._pubsub = self._client = None


def _rest(dispatcher: Dispatcher, hints: HintListener, pause_s: float) -> bool:
    """Wait until something may have to be decided, and tell whether that was heard.

    Where nobody waited for room, news of it is no reason; then for some milliseconds what comes of it is asked about together.
    While nodes go on by themselves, what comes waits a little for more.
    """
    if hints.listen(to_room=dispatcher.waits_for_room()):
        return True
    began = time.monotonic()
    until, room, came = began + pause_s, False, False
    asks = began + ASK_S if dispatcher.goes_on() else began
    while (now := time.monotonic()) < until:
        if room and now >= asks:
            if dispatcher.wants_room():
                return True
            room, asks = False, now + ASK_S
        heard = hints.wait((min(asks, until) if room else until) - now)
        if heard - {ROOM}:
            came, until = True, min(until, began + GOES_ON_S) if dispatcher.goes_on() else began
        room = room or ROOM in heard
    return came


def run(dispatcher: Dispatcher, hints: HintListener, stopping: Callable[[], bool],
        faults: tuple[type[Exception], ...]) -> None:  # fmt: skip
    """Run rounds until ``stopping()``; errors of the database or Redis are logged, and the round is tried again."""
    failures, standby, heard = 0, False, True
    away: tuple[type[Exception], ...] = (redis_client.RedisError, *faults)
    while not stopping():
        try:
            if not dispatcher.keep_lead():
                if not standby:
                    log.info("standing by for cell %s", dispatcher.conf.cell)
                standby = True
                hints.listen(to_room=False)
                hints.wait(dispatcher.conf.leader_renew_s)
                continue
            standby = False
            if not heard and dispatcher.rests():
                heard = _rest(dispatcher, hints, dispatcher.renews_in_s())
                continue
            heard = True
            result = dispatcher.run_round()
            failures = 0
            if result.again:
                continue
            if result.claimed:
                time.sleep(min(MIN_PAUSE_MS / 1000, result.seconds))
            heard = _rest(dispatcher, hints, dispatcher.pause_s())
        except away as error:
            failures += 1
            log.warning("round failed, trying again: %s", first_line(error))
            time.sleep(min(1.0, 0.05 * 2 ** min(failures, 5)))
    try:
        dispatcher.store.resign(dispatcher.holder)
    except faults:
        log.debug("leadership not resigned; its lease ends by itself")
