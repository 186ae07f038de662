"""Check a file of receipts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from slackwater.management.console import PlatformCommand
from slackwater_monitoring.receipts import chain


class Command(PlatformCommand):
    help = (
        "Check receipts that were saved from GET /api/v1/receipts: that none was changed, left out or moved, and that "
        "their seals are of the given keys. Needs no server. Exit code 1 when anything is wrong."
    )
    for_tenant = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", type=Path, help="pages as the API answers them, one after the other")
        parser.add_argument("--keys", type=Path, required=True, help="what GET /api/v1/receipt-keys answers, saved")

    def run(self, options: dict[str, Any]) -> None:
        try:
            with options["keys"].open() as keys, options["file"].open() as file:
                proof = chain.verify(chain.read(file), chain.read_keys(keys))
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from None
        bad = sum(proof.kinds.values())
        if self.as_json:
            self.show({**asdict(proof), "ok": not bad})
        else:
            rows = [(one.number, one.kind, one.detail) for one in proof.findings]
            self.show_table("", ("receipt", "what", "detail"), rows, empty="Nothing is wrong.")
            span = f", {proof.first} to {proof.last}" if proof.count else ""
            charged = f"{proof.charged_micros / 1_000_000:.6f}"
            self.stdout.write(f"{proof.count} receipts{span}; {proof.seals} seals; charged {charged}; {bad} faults")
        if bad:
            raise SystemExit(1)
