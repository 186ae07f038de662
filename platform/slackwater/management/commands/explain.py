"""Say why a task waits."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from slackwater.management.console import PlatformCommand, find_tenant, scoped, task_id
from slackwater_tasks.explain.explanation import explain


class Command(PlatformCommand):
    help = "Say why a task waits, what would start it, and when it will likely start."
    watches = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("id", type=task_id, help="id of the task")

    def run(self, options: dict[str, Any]) -> None:
        with scoped(find_tenant(options["tenant"])):
            found = explain(options["id"])
        if self.as_json:
            self.show(found)
            return
        predicted = found["predicted_start"] or {}
        self.show_pairs(
            {
                "task": found["task_id"], "state": found["state"], "why": found["summary"],
                "place": " ".join(found["place"]) or None,
                "latest start": found["latest_start"], "likely starts": predicted.get("likely"),
                "between": predicted.get("earliest"), "and": predicted.get("latest"),
                "hit rate": found["hit_rate"] if predicted else None,
                "not predicted": found["not_predicted"],
            }
        )  # fmt: skip
        if found["blockers"]:
            rows = [(b["kind"].replace("_", " "), b["detail"], b["clears"], b["at"]) for b in found["blockers"]]
            self.show_table("Blockers", ("what", "why", "goes when", "at"), rows, empty="")
