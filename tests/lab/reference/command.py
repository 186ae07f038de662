"""`python -m tests.lab docs`: write the generated pages of docs/, or tell which are out of date."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from slackwater.settings.place import ROOT
from tests.lab.reference import PAGES


class Command(BaseCommand):
    """Every page comes from code: states, settings, environment, commands, policies, rooms."""

    help = "Write the generated pages of docs/; with --check, only say which are out of date."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
        parser.add_argument("--folder", type=Path, default=ROOT / "docs", help="where the pages lie (default docs/)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Compare each page with its file."""
        stale = []
        for name, render in PAGES.items():
            path: Path = options["folder"] / name
            text = render()
            if path.exists() and path.read_text(encoding="utf-8") == text:
                continue
            stale.append(name)
            if not options["check"]:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                self.stdout.write(f"wrote {path}")
        if stale and options["check"]:
            raise CommandError(f"out of date, run `make docs`: {', '.join(stale)}")
        if not stale:
            self.stdout.write("all pages are up to date")
