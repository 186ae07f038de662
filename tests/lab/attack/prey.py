"""What an attacker would like to have run: a handler and an ordinary Celery task that note when they do."""

from __future__ import annotations

import os

from celery import shared_task

from slackwater import handler


def _note(line: str) -> str:
    with open(os.environ["ATTACK_WITNESS"], "a") as file:  # noqa: PTH123 - appended in one write, by several processes
        file.write(f"{line}\n")
    return line


@handler(name="prey.note")
def note(line: str) -> str:
    """A handler."""
    return _note(line)


@shared_task(name="prey.plain")
def plain(line: str) -> str:
    """An ordinary Celery task, which the ledger knows nothing of."""
    return _note(line)
