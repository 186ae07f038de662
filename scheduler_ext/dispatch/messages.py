"""Signs Celery's messages: only a process that has the platform's key can give a worker anything to run.

A token lends a pool child and names no work. An ordinary Celery task, which the ledger knows nothing of, is run as its
message says: so a message without the seal goes no further than the worker's consumer.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from typing import Any

from celery.app.amqp import AMQP
from kombu.serialization import dumps

from scheduler_ext.core.seals import seals

SEAL = "slackwater"
"""The header with the signature."""
SEALED = (
    "task", "id", "lang", "root_id", "parent_id", "group", "group_index", "retries", "timelimit", "eta", "expires",
    "ignore_result", "replaced_task_nesting",
)  # fmt: skip
"""The headers that say what is run, and how."""
REMEMBERED = 10_000


class SealedMessages(AMQP):
    """Celery's message factory; what it makes is signed."""

    def as_task_v2(self, *args: Any, **kwargs: Any) -> Any:
        """A signed message of protocol 2."""
        made = super().as_task_v2(*args, **kwargs)
        *_, text = dumps(made.body, serializer="json")
        nonce = os.urandom(12).hex()
        mark = seals.mark("task", _head(made.headers, nonce), str(text).encode())
        made.headers[SEAL] = {"nonce": nonce, "seal": mark}
        return made


def _head(headers: dict[str, Any], nonce: str) -> bytes:
    return json.dumps([*(headers.get(name) for name in SEALED), nonce], default=str).encode()


class Seen:
    """The signed messages that one consumer has taken, so that none is taken from it twice."""

    def __init__(self) -> None:
        self._taken: OrderedDict[str, None] = OrderedDict()

    def refusal(self, message: Any) -> str:
        """Why a message is not to be run; empty if it is the platform's."""
        headers, body = message.headers, message.body
        if not isinstance(headers, dict) or not isinstance(seal := headers.get(SEAL), dict):
            return "a Celery message without this platform's seal"
        nonce = seal.get("nonce")
        if not isinstance(nonce, str) or "compression" in headers:
            return "a Celery message with a seal that cannot be read"
        raw = body if isinstance(body, bytes) else str(body).encode(errors="replace")
        if not seals.holds(seal.get("seal"), "task", _head(headers, nonce), raw):
            return "a Celery message with a wrong seal; have all processes one SLACKWATER_SECRET_KEY?"
        return "a Celery message that was taken before" if nonce in self._taken else ""

    def took(self, message: Any) -> None:
        """Note that the worker has it: the broker may deliver it no more."""
        self._taken[message.headers[SEAL]["nonce"]] = None
        if len(self._taken) > REMEMBERED:
            self._taken.popitem(last=False)
