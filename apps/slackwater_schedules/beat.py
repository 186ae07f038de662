"""celery-beat's scheduler: django-celery-beat's periodic tasks, and beside them schedules and dead letters.

Any number of beats may run. Schedules and dead letters are claimed row by row by the database's clock; of an ordinary
periodic task each due time is won by one beat, which moves ``last_run_at`` on before it sends.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from django.db import Error, close_old_connections, connection
from django.db.models import F, Q
from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from slackwater_schedules.dead_letters import retry_due
from slackwater_schedules.firing import BATCH, fire_due, prune_fires, seconds_to_next

log = logging.getLogger(__name__)

MAX_SLEEP_S: Final = 0.5
"""An edit is seen within this time."""
PERIODIC_EVERY_S: Final = 5.0
"""The same for the ordinary periodic tasks, as in the base class."""
MIN_SLEEP_S: Final = 0.005
BATCHES_A_TICK: Final = 25
DEAD_LETTERS_EVERY_S: Final = 1.0
BROKER_AWAY_S: Final = 5.0
"""Pause of the ordinary periodic tasks, which need the broker, after it did not answer."""
PRUNE_EVERY_S: Final = 60.0
PRUNE_LIMIT: Final = 5_000
FIRES_KEPT_S: Final = 90 * 86_400


class ClaimedEntry(ModelEntry):  # type: ignore[misc]  # the base class has no annotations
    """A periodic task with the contents of its row when it was read."""

    def __init__(self, model: PeriodicTask, app: Any = None) -> None:
        # The base class puts a substitute where the row has no last run.
        self.seen: datetime | None = model.last_run_at
        self.claimed = False
        super().__init__(model, app=app)

    def claim(self) -> bool:
        """Claim this due time: True for the one beat that knows the row's last run."""
        unchanged = Q(last_run_at__isnull=True) if self.seen is None else Q(last_run_at=self.seen)
        row = PeriodicTask.objects.filter(unchanged, pk=self.model.pk)
        # A query set's update sends no signal, so it does not make every beat read its tasks anew.
        won: int = row.update(last_run_at=self._default_now(), total_run_count=F("total_run_count") + 1)
        return won == 1

    def save(self) -> None:
        """Do nothing: the claim has written it, and this beat's values may be older than another's."""


class ClaimingScheduler(DatabaseScheduler):  # type: ignore[misc]  # the base class has no annotations
    """The scheduler class named in ``CELERY_BEAT_SCHEDULER``."""

    Entry = ClaimedEntry

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._next_dead_letters = self._next_prune = self._next_periodic = 0.0
        self._is_set_up = False
        super().__init__(*args, **kwargs)
        self.max_interval: float = min(kwargs.get("max_interval") or PERIODIC_EVERY_S, PERIODIC_EVERY_S)

    def setup_schedule(self) -> None:
        """Install the entries of the Celery configuration, or later while the database is away."""
        try:
            super().setup_schedule()
            self._is_set_up = True
        except Error as error:
            self._database_away(error)

    def install_default_entries(self, data: Any) -> None:
        """Celery's own clean-up of results, where results are kept at all."""
        if self.app.conf.result_backend:
            super().install_default_entries(data)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Fire everything that is due; returns the seconds to sleep. Survives the loss of the database and of the broker."""
        delay = self._guarded(self._fire, MAX_SLEEP_S)
        self._guarded(self._upkeep, 0.0)
        if not self._is_set_up:
            self._guarded(self._set_up_late, 0.0)
        if self._is_set_up and time.monotonic() >= self._next_periodic:
            close_old_connections()
            periodic = super().tick
            ahead = self._guarded(lambda: float(periodic(*args, **kwargs)), delay)
            self._next_periodic = max(self._next_periodic, time.monotonic() + ahead)
        return max(0.0, min(delay, self._next_periodic - time.monotonic())) if self._is_set_up else delay

    def reserve(self, entry: ClaimedEntry) -> Any:
        """Win the due time from the other beats before it is sent; the loser waits for the next."""
        try:
            # Before the claim: what cannot be sent stays due.
            _ = self.producer
        except Exception:
            # The base class has taken the entry from its heap already; let it be built anew.
            self._heap = None
            self._next_periodic = time.monotonic() + BROKER_AWAY_S
            raise
        entry.claimed = entry.claim()
        fresh = PeriodicTask.objects.filter(pk=entry.model.pk).first()
        following = entry if fresh is None else self.Entry(fresh, app=self.app)
        self.schedule[entry.name] = following
        return following

    def apply_entry(self, entry: ClaimedEntry, producer: Any = None) -> None:
        """Send a periodic task, if this beat has won it."""
        if entry.claimed:
            super().apply_entry(entry, producer=producer)

    def _ensure_connected(self) -> Any:
        """One try: the base class waits here for the broker, and all schedules with it."""
        return self.connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)

    def _set_up_late(self) -> float:
        self.setup_schedule()
        return 0.0

    def _fire(self) -> float:
        """Fire schedules until nothing is due; returns the seconds until something is, within the longest sleep."""
        done: Counter[str] = Counter()
        for _ in range(BATCHES_A_TICK):
            ahead = seconds_to_next()
            if ahead is None or ahead > 0:
                break
            batch = fire_due(BATCH)
            if not batch["schedules"]:
                ahead = MIN_SLEEP_S * 4  # another beat holds what is due
                break
            done += batch
        else:
            ahead = 0.0
        if done:
            log.info("fired %s", dict(done))
        return MAX_SLEEP_S if ahead is None else min(max(ahead, MIN_SLEEP_S), MAX_SLEEP_S)

    def _upkeep(self) -> float:
        now = time.monotonic()
        if now >= self._next_dead_letters:
            self._next_dead_letters = now + DEAD_LETTERS_EVERY_S
            retried = retry_due()
            if retried:
                log.info("dead letters: %s", dict(retried))
        if now >= self._next_prune:
            self._next_prune = now + PRUNE_EVERY_S
            prune_fires(FIRES_KEPT_S, PRUNE_LIMIT)
        return 0.0

    def _guarded(self, work: Callable[[], float], otherwise: float) -> float:
        """Run a part of a tick; the beat goes on with the next tick whatever it raises."""
        try:
            return work()
        except Error as error:
            self._database_away(error)
        except Exception:
            log.exception("a part of this tick failed; the next one tries again")
        return otherwise

    def _database_away(self, error: Exception) -> None:
        log.warning("the database does not answer, or refused: %s", str(error).strip().splitlines()[:1])
        connection.close()
        if self._schedule is None:
            self._initial_read = True
