"""Flower as the platform runs it: with a password, under known host names, and without the key that allows more than looking.

``celery -A slackwater.flower flower`` gives it a Celery app that knows the broker and nothing else: no handler, no
ledger, no seal. So whatever it is asked, the workers take from it only what looks.
"""

from __future__ import annotations

import hmac
import os
from base64 import b64encode
from typing import Any
from urllib.parse import urlsplit

import flower.command
from celery import Celery
from celery.app.control import Control
from flower.app import Flower
from tornado.web import ErrorHandler

from slackwater.settings.environment import ABSENT_REDIS_URL, celery_broker_url, env, redis_group

HOSTS = ("127.0.0.1", "localhost", "::1")
OPEN = "/healthcheck"
GREETING = "heartbeat"
"""What Celery's receiver of events sends to all workers when it begins, to hear of them sooner than in two seconds."""


class QuietControl(Control):
    """Celery's remote control without the greeting: it bears no seal, so each worker would refuse it and say so."""

    def broadcast(self, command: str, *args: Any, **kwargs: Any) -> Any:
        """Send a command, unless it is the greeting."""
        return None if command == GREETING else super().broadcast(command, *args, **kwargs)


def _app() -> Celery:
    url: str = env.str("SLACKWATER_REDIS_URL", default="") or ABSENT_REDIS_URL
    # No fixup: Celery's for Django would load the settings, which want the very secrets that Flower must not have.
    made = Celery(
        "slackwater", broker=celery_broker_url(url), set_as_current=False, fixups=[], control=QuietControl
    )  # fmt: skip
    group = redis_group(url)
    made.conf.update(
        accept_content=["json"], task_default_queue="slackwater", timezone="UTC",
        broker_connection_retry_on_startup=True, broker_transport_options=group.broker_options() if group else {},
    )  # fmt: skip
    return made


class GuardedFlower(Flower):  # type: ignore[misc]  # flower has no types
    """Flower, with a password on every address, for requests under known host names only."""

    def __init__(self, options: Any = None, **kwargs: Any) -> None:
        """``options`` as Flower reads them; without a password it does not run."""
        if not all(":" in one for one in options.basic_auth or [""]):
            raise SystemExit("flower: set FLOWER_BASIC_AUTH to NAME:PASSWORD; without a password it does not run")
        os.environ["FLOWER_UNAUTHENTICATED_API"] = "false"
        options.read_only = True
        options.enable_events = False  # the workers send theirs while somebody listens
        super().__init__(options=options, **kwargs)

    def find_handler(self, request: Any, **kwargs: Any) -> Any:
        """Who answers a request: Flower, or whoever says why not."""
        status = self.refusal(request)
        if status:
            return self.get_handler_delegate(request, Refused, {"status_code": status})
        return super().find_handler(request, **kwargs)

    def refusal(self, request: Any) -> int:
        """The status with which a request is refused; 0 when it is not."""
        headers = request.headers
        origin = headers.get("Origin")
        if _name(request.host) not in (*HOSTS, *env.list("SLACKWATER_ALLOWED_HOSTS", default=[])):
            return 421
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return 403
        if origin is not None and urlsplit(origin).netloc != request.host:
            return 403
        return 0 if request.path == OPEN or self.is_known(headers.get_list("Authorization")) else 401

    def is_known(self, given: list[str]) -> bool:
        """Whether this is the header of somebody with a password."""
        known = [b"Basic " + b64encode(one.encode()) for one in self.options.basic_auth]
        return len(given) == 1 and any(hmac.compare_digest(given[0].encode(), one) for one in known)


class Refused(ErrorHandler):
    """A refusal, in plain words."""

    def set_default_headers(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("X-Content-Type-Options", "nosniff")

    def write_error(self, status_code: int, **_: Any) -> None:
        if status_code == 401:
            self.set_header("WWW-Authenticate", 'Basic realm="Slackwater"')
        words = {401: "A name and a password are needed.", 421: "There is nothing here under that name."}
        self.finish(words.get(status_code, "Requests from other pages are refused.") + "\n")


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    return (urlsplit(f"//{host}").hostname or "") if host.isascii() else ""


app = _app()
flower.command.Flower = GuardedFlower
