"""`python -m tests.lab fairness`: run the cases and write their figures into docs/fairness.md."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from slackwater.settings.place import ROOT
from tests.lab.benchmarks import machine, pages
from tests.lab.benchmarks.scenarios import Scenario
from tests.lab.fairness import cases

TABLE = Scenario(
    name="promises",
    title="Each promise as a case",
    parameters={},
    columns={"promise": "promise", "case": "case", "before": "the release before", "now": "now"},
)


class Command(BaseCommand):
    """The prose of the page is written by hand; the block of the table is replaced."""

    help = "Run each promise about fairness as a case in the simulator, and write the figures into docs/fairness.md."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--page", type=Path, default=ROOT / "docs" / "fairness.md", help="where the table goes")
        parser.add_argument(
            "--recorded", type=Path, metavar="FOLDER",
            help="recorded workflows (WfFormat 1.5, .json) and logs (.swf.gz); without them their rows are left out",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        """Run, print, write."""
        rows: list[cases.Row] = []
        for make in (cases.tags, cases.ties, cases.resources, cases.late, cases.wide, cases.examples, cases.pressed):
            rows += make()
        recorded = options["recorded"]
        rows += cases.learnt(recorded)
        if recorded is not None and any(recorded.rglob("*.json")):
            rows += cases.workflows(recorded)
        else:
            self.stderr.write("no recorded workflows (--recorded FOLDER): their rows are left out")
        for row in rows:
            self.stdout.write("  ".join(row))
        lines = [row._asdict() for row in rows]
        pages.write_block(options["page"], TABLE, "make bench-fairness", lines, machine.describe("in virtual time"))
        self.stdout.write(f"written: {options['page']}")
