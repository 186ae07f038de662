"""Run the dispatcher of a cell; any number may run, one leads."""

from __future__ import annotations

import gc
import signal
from typing import Any

from django.core.management.base import BaseCommand

from scheduler_ext.dispatch.dispatcher import Dispatcher, HintListener, run
from slackwater.wiring import engine, heartbeat, holder_name, require_tables
from slackwater_resources.faults import FAULTS


class Command(BaseCommand):
    help = "Decide what runs next and where. Any number may run: one leads, the others stand by."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        require_tables()
        stopping = False

        def stop(*_: Any) -> None:
            nonlocal stopping
            stopping = True  # seen at the latest when the wait for a hint ends, after a second

        made, holder = engine(), holder_name()
        queues = made.queues()
        hints = HintListener(made.redis_url, queues.keys, made.conf.cell)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        rounds = made.round_store(holder)
        dispatcher = Dispatcher(rounds, queues, made.conf, holder, watch=made.watcher(rounds))
        dispatcher.turns = made.turns(rounds, lambda: dispatcher.share or rounds.share())
        beating = heartbeat("dispatcher")
        gc.freeze()  # what is there now stays: looking through it for garbage would take a tenth of each round
        run(dispatcher, hints, lambda: stopping, FAULTS)
        beating.stop()
