"""Say what of a Celery app carries over."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.db import DatabaseError

from slackwater.management.console import PlatformCommand
from slackwater.moving import beat, doctor
from slackwater.moving.findings import Verdict, worst


class Command(PlatformCommand):
    help = (
        "Read a Celery app: its tasks, canvases, calls and periodic tasks; say what carries over, what changes and what "
        "is refused. Nothing is run, stored or changed. Exit code 1 when anything is refused."
    )
    for_tenant = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("app", help="the app, as celery -A takes it: shop.celery, shop.celery:app")
        parser.add_argument("places", nargs="*", type=Path, default=[Path()], help="folders and files whose calls are read; "
                            "the folder you are in when left out")  # fmt: skip
        parser.add_argument("--task", action="append", metavar="PATTERN", help="only the tasks of that name (shop.*); may be "
                            "given several times")  # fmt: skip
        parser.add_argument("--all", action="store_true", help="list what carries over unchanged, too")

    def run(self, options: dict[str, Any]) -> None:
        app = doctor.load(options["app"])
        found = doctor.examine(app, options["task"] or ["*"], options["places"])
        try:
            found += doctor.entries(beat.of_database(), app)
        except DatabaseError as error:
            self.stderr.write(f"The periodic tasks of the database are not among them: {str(error).strip()}")
        counts = Counter({verdict.value: 0 for verdict in Verdict}) + Counter(one.verdict.value for one in found)
        shown = [one for one in found if options["all"] or one.verdict is not Verdict.CARRIES]
        if self.as_json:
            self.show(
                {
                    "counts": {one.value: counts[one.value] for one in Verdict},
                    "findings": [asdict(one) for one in found],
                }
            )
        else:
            rows = [(one.verdict, one.subject, one.option, one.where, one.why) for one in shown]
            self.show_table("", ("verdict", "what", "option", "where", "why"), rows, empty="Nothing changes.")
            self.stdout.write(", ".join(f"{counts[one.value]} {one.value}" for one in Verdict))
        if worst(found) is Verdict.REFUSED:
            raise SystemExit(1)
