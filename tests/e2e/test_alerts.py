"""The real processes watch each other: who is killed is told of, and told to be back."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from slackwater_monitoring.models import Alert, Pulse
from slackwater_tasks.models import Leader
from tests.support.platform import Platform
from tests.support.processes import ManagedProcess, manage
from tests.support.receiver import receiving
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
RULES = {
    "dispatcher": {"after_s": 0.5, "clear_after_s": 0.5},
    "upkeep": {"threshold": 4, "after_s": 0.5, "clear_after_s": 0.5},
}


def test_who_is_killed_is_an_alert_until_another_is_at_work(platform: Platform) -> None:
    with receiving() as receiver:
        env = {
            "SLACKWATER_ALERTS": json.dumps(RULES),
            "SLACKWATER_ALERTS_EVERY_S": "0.25",
            "SLACKWATER_ALERT_WEBHOOK": receiver.url,
        }

        def upkeep() -> ManagedProcess:
            return platform.start("upkeep", manage("run_upkeep"), **env)

        def is_told(event: str, rule: str) -> bool:
            return (event, rule) in [(one.event, one.json["data"]["rule"]) for one in receiver.got]

        dispatcher = platform.dispatcher()
        wait_until(Leader.objects.exists, message="a dispatcher leads")
        mending = upkeep()
        os.kill(dispatcher.pid, signal.SIGKILL)
        wait_until(lambda: is_told("alert.raised", "dispatcher"), message="they are told that none leads")
        assert Alert.objects.get(rule="dispatcher").cell == "default"
        platform.dispatcher()
        wait_until(lambda: is_told("alert.cleared", "dispatcher"), message="they are told that one leads")
        # Upkeep cannot tell that it is gone itself; beat does.
        command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "slackwater", "beat", "--pidfile="]
        platform.start("beat", command, **env)
        wait_until(lambda: Pulse.objects.exclude(kind="alerts").count() == 2, message="both are at work")
        os.kill(mending.pid, signal.SIGKILL)
        wait_until(lambda: is_told("alert.raised", "upkeep"), message="they are told that upkeep is gone")
        upkeep()
        wait_until(lambda: is_told("alert.cleared", "upkeep"), message="they are told that it is back")
        assert Alert.objects.filter(cleared_at=None).exclude(raised_at=None).count() == 0
