"""`manage.py up`: the whole platform on this machine."""

import ctypes
import os
import signal
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from slackwater.local.program import become
from slackwater.local.shim import PR_SET_PDEATHSIG
from slackwater.local.supervisor import UpOptions
from slackwater.settings.environment import ABSENT_REDIS_URL, given_database_url
from slackwater_conf import conf
from slackwater_tasks.checks import wrong_settings


class Command(BaseCommand):
    help = "Run the whole platform on this machine until Ctrl-C; its data stays in var/."
    requires_system_checks = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--workers", type=_positive, default=1, help="worker nodes to run (default 1)")
        parser.add_argument("--concurrency", type=_positive, default=2, help="processes of each worker (default 2)")
        parser.add_argument(
            "--die-with-parent", action="store_true", help="stop when the process that started this one is gone"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["die_with_parent"]:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        _check_configuration()
        given = conf()
        up = UpOptions(
            var=Path(given.var),
            host=given.host,
            port=given.port,
            insists="SLACKWATER_PORT" in os.environ,
            workers=options["workers"],
            concurrency=options["concurrency"],
            database_url=given_database_url(),
            redis_url="" if given.redis_url == ABSENT_REDIS_URL else given.redis_url,
            public_url=given.public_url,
        )
        become(up)


def _check_configuration() -> None:
    if wrong := wrong_settings():
        raise CommandError("\n".join(wrong))


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number from 1, not {text!r}")
    return int(text)
