"""Turn Celery's periodic tasks into schedules."""

from __future__ import annotations

from itertools import chain
from typing import Any

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import Conflict, SlackwaterError
from slackwater.management.console import ACTOR, PlatformCommand, find_tenant, scoped
from slackwater.moving import beat, doctor
from slackwater_schedules.services import create_schedule


class Command(PlatformCommand):
    help = (
        "Turn an app's beat_schedule and django-celery-beat's periodic tasks into schedules of a tenant. One of a name that "
        "is there already is left as it is. What is imported stays in beat too: stop beat, or disable it there. "
        "Exit code 1 when any could not be imported."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("app", help="the app, as celery -A takes it: shop.celery, shop.celery:app")
        parser.add_argument("--paused", action="store_true", help="import them paused, to look at them first")

    def run(self, options: dict[str, Any]) -> None:
        app = doctor.load(options["app"])
        tenant = find_tenant(options["tenant"])
        rows = []
        with scoped(tenant):
            for entry in chain(beat.of_app(app), beat.of_database()):
                if beat.is_over(entry):
                    rows.append((entry.name, "is over", ""))
                    continue
                try:
                    data = beat.schedule_of(entry, app)
                    made = create_schedule(tenant, data | ({"paused": True} if options["paused"] else {}), actor=ACTOR)
                    rows.append((entry.name, "imported", f"next {made.next_fire_at:%Y-%m-%d %H:%M:%S %Z}"))
                except Conflict:
                    rows.append((entry.name, "is there already", ""))
                except SlackwaterError as error:
                    rows.append((entry.name, "not imported", str(error)))
        columns = ("name", "outcome", "detail")
        said = [dict(zip(columns, row, strict=True)) for row in rows]
        self.answer_table(said, "Periodic tasks", columns, rows, empty="There are no periodic tasks.")
        if any(outcome == "not imported" for _, outcome, _ in rows):
            raise SystemExit(1)
