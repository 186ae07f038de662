"""Say what of a Celery app carries over, and what Celery did otherwise than the ledger would have done."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandParser
from django.db import DatabaseError
from django.utils import timezone

from scheduler_ext.core.errors import InvalidInput
from slackwater.management.console import PlatformCommand
from slackwater.moving import beat, doctor
from slackwater.moving.findings import Verdict, worst
from slackwater_conf import conf
from slackwater_tasks.read.shadow import compare

NO_TASK: Final = "no task of the app was found"


class Command(PlatformCommand):
    help = (
        "Read a Celery app: its tasks, canvases, calls and periodic tasks; say what carries over, what changes and what "
        "is refused. Nothing is run, stored or changed. Exit code 1 when anything is refused, and an error "
        "when the app has no task. With --compare: say how what Celery did with the tasks of SHADOW differs from what the "
        "ledger would have done; exit code 1 for what is lost, doubled, refused, taken back or no JSON."
    )
    for_tenant = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]  # places may follow an option
        parser.add_argument("app", nargs="?", help="the app, as celery -A takes it: shop.celery, shop.celery:app")
        parser.add_argument("places", nargs="*", type=Path, default=[Path()], help="folders and files whose calls are read; "
                            "the folder you are in when left out")  # fmt: skip
        parser.add_argument("--task", action="append", metavar="PATTERN", help="only the tasks of that name (shop.*); may be "
                            "given several times")  # fmt: skip
        parser.add_argument("--all", action="store_true", help="list what carries over unchanged, too")

        parser.add_argument("--compare", action="store_true", help="read what the shadow has noted, in place of an app")
        parser.add_argument("--since", default="7d", help="with --compare: calls since that moment (2030-01-31T09:00:00Z), or "
                            "in the last minutes, hours or days (30m, 2h, 7d)")  # fmt: skip
        parser.add_argument("--grace", type=float, default=600.0, metavar="SECONDS", help="with --compare: what was due within "
                            "so many seconds may still begin (600)")  # fmt: skip

    def run(self, options: dict[str, Any]) -> None:
        if options["compare"]:
            self._compare(options)
            return
        if not options["app"]:
            raise InvalidInput("name the app, or give --compare", field="app")
        app = doctor.load(options["app"])
        patterns = options["task"] or ["*"]
        durable = options["task"] or [*conf().durable, *conf().shadow] or patterns
        found = doctor.examine(app, patterns, options["places"], durable)
        try:
            found += doctor.entries(beat.of_database(), app, patterns)
        except DatabaseError as error:
            self.stderr.write(f"The periodic tasks of the database are not among them: {str(error).strip()}")
        counts = Counter({verdict.value: 0 for verdict in Verdict}) + Counter(one.verdict.value for one in found)
        has_tasks = any(one.kind == "task" for one in found)
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
            self.show_table("", ("verdict", "what", "option", "where", "why"), rows,
                            empty="Nothing changes." if has_tasks else "")  # fmt: skip
            self.stdout.write(", ".join(f"{counts[one.value]} {one.value}" for one in Verdict))
        if not has_tasks:
            raise InvalidInput(NO_TASK, field="--task" if options["task"] else "app")
        if worst(found) is Verdict.REFUSED:
            raise SystemExit(1)

    def _compare(self, options: dict[str, Any]) -> None:
        found = compare(options["task"] or ["*"], _moment(options["since"]), options["grace"])
        if self.as_json:
            self.show(found.as_json())
        else:
            names = ("task", "calls", "begun", "delay p50", "p95", "the plan's", "later than that", "out of order")
            self.show_table("", names, [
                (one.task, one.calls, one.begun, _seconds(one.p50_s), _seconds(one.p95_s), _seconds(one.promised_s), one.late,
                 one.overtaken) for one in found.tasks
            ], empty="No call was noted.")  # fmt: skip
            rows = [(one.kind, one.task, one.option, one.count, one.example, one.why) for one in found.differences]
            self.show_table(
                "", ("difference", "task", "option", "how often", "one of them", "why"), rows, empty="None."
            )
            if found.missed:
                self.stdout.write(f"{found.missed} calls and runs could not be noted: the log says why.")
        if found.is_grave:
            raise SystemExit(1)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"


def _moment(given: str) -> datetime:
    """A moment, or so long ago; ``InvalidInput`` for what is neither."""
    if ago := re.fullmatch(r"(\d{1,6})([mhd])", given):
        return timezone.now() - timedelta(**{{"m": "minutes", "h": "hours", "d": "days"}[ago[2]]: int(ago[1])})
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidInput("must be a moment like 2030-01-31T09:00:00Z, or 30m, 2h, 7d", field="since") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
