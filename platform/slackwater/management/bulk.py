"""Shared by the commands that act on all tasks a filter matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import InvalidInput
from slackwater.management.console import ACTOR, PlatformCommand, find_tenant, scoped, task_id
from slackwater_api.v1.filters import TaskFilter, matching_tasks
from slackwater_tasks.control import bulk
from slackwater_tenants.models import Tenant

SHOWN = 20


class BulkCommand(PlatformCommand):
    """A command on tasks by id, or on all that filters match."""

    matching: Callable[..., bulk.Done]
    """The service that does a batch."""
    done_word = ""

    def do_one(self, tenant_id: int, wanted: UUID, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Do it to one task; returns the result as data and as a sentence."""
        raise NotImplementedError

    def run(self, options: dict[str, Any]) -> None:
        """Do it to each id, or to all that match; the first id that refuses ends the command."""
        tenant = find_tenant(options["tenant"])
        filters = self.filters_of(options)
        if filters is not None:
            self.do_matching(tenant, filters, options)
            return
        done = [self.do_one(tenant.pk, wanted, options) for wanted in options["ids"]]
        self.answer([row for row, _ in done], *(said for _, said in done))

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("ids", nargs="*", type=task_id, metavar="ID")
        names = ", ".join(sorted(TaskFilter.base_filters))
        parser.add_argument(
            "--filter",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"instead of ids: all tasks that match; several narrow together ({names})",
        )
        parser.add_argument("--dry-run", action="store_true", help="with --filter: only tell how many, and which")
        parser.add_argument(
            "--limit", type=int, default=bulk.DEFAULT_LIMIT, help=f"tasks in one transaction ({bulk.DEFAULT_LIMIT})"
        )

    def filters_of(self, options: Mapping[str, Any]) -> dict[str, str] | None:
        """The filters by name; ``None`` where ids are given instead."""
        if bool(options["ids"]) == bool(options["filter"]):
            raise InvalidInput("give either ids or --filter", field="--filter")
        if options["ids"]:
            if options["dry_run"]:
                raise InvalidInput("goes with --filter", field="--dry-run")
            return None
        found = {}
        for text in options["filter"]:
            name, equals, value = text.partition("=")
            if not equals or name in found:
                raise InvalidInput(f"must be NAME=VALUE, each name once, not {text!r}", field="--filter")
            found[name] = value
        return found

    def do_matching(self, tenant: Tenant, filters: dict[str, str], options: Mapping[str, Any]) -> None:
        """Do it batch by batch until nothing more matches; each batch is done whole."""
        how: dict[str, Any] = {
            "actor": ACTOR,
            "limit": bulk.check_limit(options["limit"]),
            "dry_run": options["dry_run"],
        }
        ids: list[Any] = []
        asked: list[Any] = []
        skipped: dict[Any, dict[str, Any]] = {}
        with scoped(tenant), self.bar() as progress:
            bar = progress.add_task(self.done_word, total=None)
            while True:
                done = type(self).matching(tenant, matching_tasks(filters, "--filter"), **how)
                ids += done.task_ids
                asked += done.asked_task_ids
                skipped |= {row["task_id"]: row for row in done.skipped}
                total = None if done.matched_is_minimum else len(ids) + len(skipped) - _met(done) + done.matched
                progress.update(bar, completed=len(ids) + len(skipped), total=total)
                if how["dry_run"] or done.next is None:
                    break
                how["after"] = done.next
        self._tell(done, ids, asked, list(skipped.values()))

    def _tell(self, last: bulk.Done, ids: list[Any], asked: list[Any], skipped: list[dict[str, Any]]) -> None:
        if self.as_json:
            self.show({**last.shown(), "task_ids": ids, "asked_task_ids": asked, "skipped": skipped})
            return
        if last.dry_run:
            least = "at least " if last.matched_is_minimum else ""
            self.stdout.write(f"{least}{last.matched} would be {self.done_word}")
            for one in ids[:SHOWN]:
                self.stdout.write(str(one))
            return
        self.stdout.write(f"{len(ids) - len(asked)} {self.done_word}")
        if asked:
            self.stdout.write(f"{len(asked)} running ones asked to end")
        for row in skipped[:SHOWN]:
            self.stdout.write(f"{row['id']} skipped: {row['detail']}")


def _met(done: bulk.Done) -> int:
    return len(done.task_ids) + len(done.skipped)
