"""``python -m tests.lab control_room``: measure what the pages promise, and write the figures into docs/control-room.md."""

from __future__ import annotations

import logging
import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from slackwater.settings.place import ROOT
from tests.lab.benchmarks import machine, pages
from tests.lab.control_room.parts import PARTS, Failed


class Command(BaseCommand):
    """The prose of the page is written by hand; the block of each table is replaced."""

    help = "Measure what the control room promises, part by part, and write the figures into docs/control-room.md."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        names = [part.name for part in PARTS]
        parser.add_argument("--part", action="append", choices=names, help="only this table; repeatable (all)")
        parser.add_argument("--page", type=Path, default=ROOT / "docs" / "control-room.md", help="where they go")

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure, write after each part, and say at the end what did not hold."""
        logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for each submission
        failed = []
        for part in PARTS:
            if options["part"] and part.name not in options["part"]:
                continue
            here = f"{machine.describe('servers of its own')}; load before: {os.getloadavg()[0]:.1f}"
            try:
                lines = part.measure()
            except Failed as error:
                failed.append(f"{part.name}: {error}")
                continue
            for line in lines:
                self.stdout.write("  ".join(str(line.get(name, "")) for name in part.columns))
            command = f"python -m tests.lab control_room --part {part.name}"
            pages.write_block(options["page"], part.table, command, lines, here)
        if failed:
            raise CommandError("; ".join(failed))
        self.stdout.write(f"written: {options['page']}")
