"""Bare Celery with Redis: prefork, results ignored. What a task was is gone with its message."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from celery import Celery

from tests.lab.benchmarks.measure import main
from tests.lab.benchmarks.peers.common import CONFIG, Rival, channel

app = Celery("celery_peer", broker=CONFIG.redis_url)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task(name="work", ignore_result=True)
def work(number: int, ms: float) -> None:
    """The measured function."""
    channel().work(number, ms)


class BareCelery(Rival):
    """One message a task."""

    packages = ("celery", "kombu", "redis")

    def setup(self) -> None:
        self.empty_servers()

    def reset(self) -> None:
        self.flush_redis()

    def workers(self) -> Mapping[str, list[str]]:
        options = ["worker", "-P", "prefork", "-c", str(CONFIG.concurrency), "-l", "WARNING"]
        return {"worker": [sys.executable, "-m", "celery", "-q", "-A", "celery_peer", *options]}

    def submit(self, number: int) -> None:
        work.delay(number, CONFIG.ms)


if __name__ == "__main__":
    main(BareCelery())
