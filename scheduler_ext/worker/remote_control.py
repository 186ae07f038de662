"""Guards Celery's remote control: whoever reaches the broker may inspect, only the platform may change anything.

``celery inspect`` and ``celery control`` of the platform's own app seal what they send. A command without the seal is
answered when it only looks; Flower has no key, and so can do no more.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Final

from celery.app.control import Control
from kombu.pidbox import Mailbox, Node

from scheduler_ext.core.seals import seals
from scheduler_ext.dispatch.refusals import Kind, refusals

LOOKS: Final = frozenset({
    "ping", "stats", "active", "reserved", "scheduled", "revoked", "registered", "active_queues", "conf", "clock",
})  # fmt: skip
"""Commands that change nothing and reveal no secret."""
SEAL: Final = "slackwater"
VALID_S: Final = 60.0
"""Seconds for which a command holds; sender's and receiver's clocks may differ by less."""


def _sealed(method: str, arguments: Any, destination: Any, pattern: Any, matcher: Any, at: Any, nonce: Any) -> bytes:
    return json.dumps([method, arguments, destination, pattern, matcher, at, nonce], sort_keys=True).encode()


class GuardedNode(Node):
    """A worker's mailbox, which tells the platform's commands from others'."""

    handlers: dict[str, Any]
    mailbox: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._heard: dict[str, float] = {}
        """When the nonce of a sealed command is forgotten."""

    def handle_message(self, body: Any, message: Any = None) -> Any:
        """Execute the message if its sender may. Its clock is not taken over: anybody can set it."""
        why = self._refusal(body)
        if why:
            refusals.add(Kind.CONTROL, why)
            return None
        arguments = {name: value for name, value in (body.get("arguments") or {}).items() if name != SEAL}
        return super().handle_message({**body, "arguments": arguments})

    dispatch_from_message = handle_message

    def _refusal(self, body: Any) -> str:
        if not isinstance(body, dict) or not isinstance(method := body.get("method"), str):
            return "a command that is none"
        if method not in self.handlers:
            return f"a command that there is none of: {method!r}"
        if not _is_well_formed(body, self.mailbox.reply_exchange.name):
            return f"the command {method} in a form that cannot be"
        seal = (body.get("arguments") or {}).get(SEAL)
        if seal is None:
            return "" if method in LOOKS else f"the command {method} without this platform's seal"
        return self._fault(body, seal)

    def _fault(self, body: dict[str, Any], seal: Any) -> str:
        """What is wrong with a command's signature."""
        method, now = body["method"], time.time()
        if not isinstance(seal, dict):
            return f"the command {method} with a wrong seal"
        at: Any = seal.get("at")
        nonce: Any = seal.get("nonce")
        arguments = {name: value for name, value in body["arguments"].items() if name != SEAL}
        said = _sealed(method, arguments, body.get("destination"), body.get("pattern"), body.get("matcher"), at, nonce)
        if not seals.holds(seal.get("seal"), "control", said):
            return f"the command {method} with a wrong seal"
        if abs(now - at) > VALID_S:
            return f"the command {method}, given {now - at:.0f} s ago by its sender's clock"
        self._heard = {known: until for known, until in self._heard.items() if until > now}
        if nonce in self._heard:
            return f"the command {method} a second time"
        self._heard[nonce] = at + 2 * VALID_S
        return ""


def _is_well_formed(body: dict[str, Any], replies: str) -> bool:
    """Whether its parts have the types that Celery gives them, and its answer goes where answers go."""
    to = body.get("reply_to")
    if to is not None and not (
        isinstance(to, dict) and to.get("exchange") == replies and isinstance(to.get("routing_key"), str)
    ):
        return False
    destination = body.get("destination")
    return (
        isinstance(body.get("arguments"), (dict, type(None)))
        and isinstance(destination, (list, type(None)))
        and all(isinstance(one, str) for one in destination or ())
        and all(isinstance(body.get(name), (str, type(None))) for name in ("pattern", "matcher", "ticket"))
        and body.keys() <= {"method", "arguments", "destination", "pattern", "matcher", "ticket", "reply_to"}
    )


class SealingMailbox(Mailbox):
    """The sender's side."""

    node_cls = GuardedNode

    def _publish(self, type: str, arguments: Any, destination: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]  # noqa: A002 - kombu's name for it, and its other parts as they come
        at, nonce = time.time(), os.urandom(12).hex()
        plain = json.loads(json.dumps(arguments or {}, default=str))
        to = list(destination) if destination else destination
        said = _sealed(type, plain, to, kwargs.get("pattern"), kwargs.get("matcher"), at, nonce)
        sealed = {**plain, SEAL: {"at": at, "nonce": nonce, "seal": seals.mark("control", said)}}
        return super()._publish(type, sealed, to, **kwargs)


class SealedControl(Control):
    """Celery's remote control with the platform's signature."""

    Mailbox = SealingMailbox
