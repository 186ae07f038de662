"""Run upkeep; any number may run."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from scheduler_ext.core.work import Changes
from scheduler_ext.dispatch.node_cleanup import forget_claims, forget_token_queues
from scheduler_ext.upkeep import Job, Upkeep
from slackwater.wiring import engine, heartbeat, require_tables
from slackwater_monitoring import upkeep as upkeep_jobs
from slackwater_monitoring.alerts.thread import AlertThread
from slackwater_monitoring.notify.sender import DeliverySender
from slackwater_monitoring.outbox import SendingThread
from slackwater_monitoring.scaling import ScalingThread
from slackwater_monitoring.scaling import is_on as scaling_is_on
from slackwater_resources.faults import FAULTS
from slackwater_tasks.ledger import hints
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.upkeep.jobs import LedgerUpkeep

LEFTOVERS_EVERY_S = 20.0


class Command(BaseCommand):
    help = (
        "Mend what crashes leave behind: expired claims, lost nodes, late tasks, unreleased dependants. "
        "Send what clients are to be told, and the spans of traced tasks."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        require_tables()
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        conf = engine().conf

        def publish(changes: Changes) -> None:
            hints.tell_changes(changes)
            hints.wake_dispatcher(conf.cell)

        ledger = LedgerUpkeep(conf, publish)
        deliveries = DeliverySender()
        jobs = [*ledger.jobs(), *upkeep_jobs.jobs(ledger.db, deliveries.wake), _leftovers(ledger)]
        upkeep = Upkeep(jobs, FAULTS, ledger.look)
        senders = [deliveries, AlertThread(), *([ScalingThread()] if scaling_is_on() else []), *_span_sender()]
        for sender in senders:
            sender.start()
        beating = heartbeat("upkeep")
        while not stopping.is_set():
            upkeep.run_due()
            stopping.wait(upkeep.pause_s())
        for sender in senders:
            sender.stop()
        beating.stop()


def _span_sender() -> list[SendingThread]:
    """The sender of traces; none, and OpenTelemetry is not even loaded, where no collector is configured."""
    if not trace_context.is_on():
        return []
    from slackwater_monitoring.tracing.exporter import SpanSender

    return [SpanSender()]


def _leftovers(ledger: LedgerUpkeep) -> Job:
    """The queues of nodes that are gone. Every time anew: a worker that wakes up late fills them once more."""
    made = engine()
    queues = made.queues()

    def forget() -> int:
        gone = ledger.gone_lately()
        if not gone:
            return 0  # and Celery is not even loaded
        return forget_token_queues(made.app, gone) + forget_claims(queues, gone)

    return Job(name="queues of gone nodes", every_s=LEFTOVERS_EVERY_S, run=forget)
