"""Beat as the platform runs it: it fires schedules, says that it is alive, and watches beside upkeep for alerts."""

from __future__ import annotations

import time
from typing import Any, Final

from slackwater.wiring import heartbeat
from slackwater_monitoring.alerts.evaluation import pulse
from slackwater_monitoring.alerts.thread import AlertThread
from slackwater_resources.components import Heartbeat
from slackwater_schedules.beat import ClaimingScheduler

PULSE_S: Final = 4.0


class WatchingScheduler(ClaimingScheduler):
    """The scheduler class named in ``CELERY_BEAT_SCHEDULER``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._next_pulse = 0.0
        self._watcher: AlertThread | None = None
        self._heartbeat: Heartbeat | None = None
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        if self._watcher is None:
            self._watcher = AlertThread()
            self._watcher.start()
            self._heartbeat = heartbeat("beat")
        delay = super().tick(*args, **kwargs)
        if time.monotonic() >= self._next_pulse:
            self._next_pulse = time.monotonic() + PULSE_S
            self._guarded(self._pulse, 0.0)
        return delay

    def _pulse(self) -> float:
        pulse("beat")
        return 0.0

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        super().close()
