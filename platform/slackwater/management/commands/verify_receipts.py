"""Check a file of receipts."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, TextIO, cast

from django.core.management.base import CommandParser

from slackwater.cli.parser import PROOF
from slackwater.cli.proof import verify_receipts
from slackwater.cli.show import Output
from slackwater.management.console import PlatformCommand


class Command(PlatformCommand):
    help = PROOF
    for_tenant = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", type=Path, help="pages as the API answers them, one after the other")
        parser.add_argument("--keys", type=Path, required=True, help="what GET /api/v1/receipt-keys answers, saved")

    def run(self, options: dict[str, Any]) -> None:
        self.stdout.ending = ""
        out = Output(cast("TextIO", self.stdout), as_json=self.as_json)
        if code := verify_receipts(Namespace(**options), out):
            raise SystemExit(code)
