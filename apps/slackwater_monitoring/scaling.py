"""Calls a command or a webhook when a cell needs more workers or fewer: one process of many, seldom, and noted.

An old figure is worth nothing, so a call that failed is not repeated: the next one, after the cool-down, has a new one.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import time
from functools import partial
from typing import Any

from scheduler_ext.core.errors import SlackwaterError
from slackwater_conf import conf
from slackwater_monitoring.alerts.sender import tell
from slackwater_monitoring.notify.webhook_client import NotSent
from slackwater_monitoring.outbox import SendingThread
from slackwater_tasks.ledger.connection import execute, fetch_value
from slackwater_tasks.read.autoscaling import Advice, advice

log = logging.getLogger(__name__)

ENOUGH = """
INSERT INTO slackwater_monitoring_scaling AS s (cell, labels, fewer_since) VALUES (%(cell)s, '', clock_timestamp())
ON CONFLICT (cell, labels) DO UPDATE SET fewer_since = clock_timestamp() WHERE s.fewer_since IS NULL
"""
NOT_ENOUGH = """
UPDATE slackwater_monitoring_scaling SET fewer_since = NULL WHERE cell = %(cell)s AND labels = '' AND fewer_since IS NOT NULL
"""
# Who changes the row makes the call; for all others it is too soon.
TURN = """
INSERT INTO slackwater_monitoring_scaling AS s (cell, labels, called_at, action, wanted, have, calls)
VALUES (%(cell)s, %(labels)s, clock_timestamp(), %(action)s, %(wanted)s, %(have)s, 1)
ON CONFLICT (cell, labels) DO UPDATE SET called_at = clock_timestamp(), action = excluded.action,
    wanted = excluded.wanted, have = excluded.have, calls = s.calls + 1
WHERE coalesce(s.called_at, '-infinity') <= clock_timestamp() - %(pause)s * interval '1 second' AND (
    excluded.action = 'more' OR s.fewer_since <= clock_timestamp() - %(pause)s * interval '1 second')
RETURNING s.calls
"""
RECORD = """
UPDATE slackwater_monitoring_scaling SET error = %(error)s, failures = failures + (%(error)s <> '')::int
WHERE cell = %(cell)s AND labels = %(labels)s
"""


def is_on() -> bool:
    return bool(conf().scale_command or conf().scale_webhook)


class ScalingThread(SendingThread):
    """Looks every few seconds how many workers its cell wants, and calls when it has more or fewer."""

    name = "scaling"

    def __init__(self) -> None:
        """As often as alerts are looked for."""
        super().__init__(poll_s=conf().alerts_every_s)

    def step(self) -> float:
        for one in advice(conf().cell):
            _consider(one)
        return self.poll_s


def _consider(one: Advice) -> None:
    """Call, if it is time for it and no other process does."""
    if not one.labels:
        execute(ENOUGH if one.action == "fewer" else NOT_ENOUGH, {"cell": one.cell})
    if not one.action:
        return
    row = {"cell": one.cell, "labels": one.labels, "wanted": one.wanted, "have": one.have, "action": one.action}
    number = fetch_value(TURN, {**row, "pause": conf().scale_cooldown_s})
    if number is None:
        return
    said = {**row, "kind": one.kind, "reason": one.reason, "release": list(one.release)}
    errors = []
    for name, call in (("command", _command), ("webhook", partial(_webhook, number=number))):
        try:
            call(said)
        except (OSError, NotSent, SlackwaterError, subprocess.SubprocessError) as error:
            errors.append(f"{name}: {error}")
    text = "; ".join(errors)[:300]
    execute(RECORD, {"cell": one.cell, "labels": one.labels, "error": text})
    log.log(logging.WARNING if text else logging.INFO, "cell %s: %s: %s", one.cell, one.reason, text or "called")


def _command(said: dict[str, Any]) -> None:
    """Run the command with the figures as JSON on its input, and one by one in its environment."""
    words = list(conf().scale_command)
    if not words:
        return
    told = {f"SCALE_{name.upper()}": " ".join(v) if isinstance(v, list) else str(v) for name, v in said.items()}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **told},
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _, wrote = process.communicate(json.dumps(said).encode(), conf().scale_timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise NotSent(f"it was killed after {conf().scale_timeout_s:g} s") from None
    if process.returncode:
        last = wrote.decode(errors="replace").strip().splitlines()[-1:]
        raise NotSent(" ".join([f"it ended with {process.returncode}", *last]))


def _webhook(said: dict[str, Any], number: int) -> None:
    if not conf().scale_webhook:
        return
    body = json.dumps({"type": f"workers.{said['action']}", "timestamp": int(time.time()), "data": said}).encode()
    tell("scale_webhook", "Slackwater-Scaling/1", f"scale-{said['cell']}-{said['labels']}-{number}", body)
