"""Cancels or runs again all tasks that a filter matches: set by set, a bounded number in one transaction.

One call does at most ``limit`` tasks and says whether more match; who wants all calls again. So a transaction stays
short, whatever a filter matches, and a crash in between leaves whole batches done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet

from scheduler_ext.core.errors import InvalidInput, whole
from scheduler_ext.core.states import TaskState
from slackwater_tasks.control.cancel import cancel_some
from slackwater_tasks.control.quiesce import repeat_on_deadlock
from slackwater_tasks.control.rerun import MAY_RUN_AGAIN, run_again
from slackwater_tenants.models import Tenant

DEFAULT_LIMIT = 1_000
"""How many tasks one call handles unless it names a limit."""
MAX_LIMIT = 10_000
COUNTED = 100_000
"""Matches are counted up to this number: counting further would cost more than it tells."""
REASON_CANCEL = "cancelled on request, with others"
REASON_RETRY = "run again on request, with others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a call did, or would do."""

    matched: int
    """Tasks that match and allow the action, counted up to a bound."""
    matched_is_minimum: bool
    dry_run: bool
    more: bool
    """Whether more match than were handled: call again."""
    next: UUID | None = None
    """Set when others match beyond the last one looked at: pass it as ``after`` to go on there."""
    task_ids: list[UUID]
    """The tasks handled; in a dry run those that would come first."""
    asked_task_ids: list[UUID] = field(default_factory=list)
    """Those of ``task_ids`` that were running and have been asked to end."""
    skipped: list[dict[str, Any]] = field(default_factory=list)
    """Tasks that cannot run again as things are, each with its reason."""

    def shown(self, *without: str) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in without}


def because(what: str, reason: str) -> str:
    """What was done, and why where that is given."""
    return f"{what}: {reason}" if reason else what


def check_limit(limit: Any) -> int:
    """``limit`` as a number; ``InvalidInput`` outside 1 to 10,000."""
    limit = whole(limit)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"must be a whole number from 1 to {MAX_LIMIT}", field="limit")
    return limit


def _matching(rows: QuerySet[Any], after: UUID | None, limit: int, dry_run: bool,
              work: Callable[[list[UUID]], dict[str, Any]]) -> Done:  # fmt: skip
    """Handle the first of ``rows`` by id, starting behind ``after``: ``work`` returns what became of them."""
    if after is not None:
        rows = rows.filter(id__gt=after)
    ids: list[UUID] = list(rows.order_by("id").values_list("id", flat=True)[: limit + 1])
    matched = len(ids)
    if more := matched > limit:
        matched, ids = rows.order_by()[: COUNTED + 1].count(), ids[:limit]
    told: dict[str, Any] = {
        "matched": min(matched, COUNTED), "matched_is_minimum": matched > COUNTED, "more": more,
        "next": ids[-1] if more else None, "task_ids": ids,
    }  # fmt: skip
    return Done(**{**told, **({} if dry_run else work(ids))}, dry_run=dry_run)


def cancel_matching(
    tenant: Tenant, rows: QuerySet[Any], *, actor: str = "", limit: int = DEFAULT_LIMIT, dry_run: bool = False,
    after: UUID | None = None, reason: str = "",
) -> Done:  # fmt: skip
    """Cancel the first ``limit`` unfinished tasks of ``rows`` behind ``after``; running ones are asked to end."""
    again = Q(live__state=TaskState.RUNNING, live__cancel_requested=True)

    def work(ids: list[UUID]) -> dict[str, Any]:
        with transaction.atomic(), connection.cursor() as cur:
            targets = [str(task_id) for task_id in ids]
            changes, running = cancel_some(
                cur, tenant.cell, targets, actor=actor, reason=because(REASON_CANCEL, reason)
            )
        # Dependants that end with them are changes too, but none of what was asked for.
        wanted = set(ids)
        waiting = [task_id for change in changes if (task_id := UUID(change[0])) in wanted]
        return {"task_ids": [*waiting, *running], "asked_task_ids": running}

    return _matching(rows.filter(live__isnull=False).exclude(again), after, check_limit(limit), dry_run, work)


def retry_matching(
    tenant: Tenant, rows: QuerySet[Any], *, actor: str = "", limit: int = DEFAULT_LIMIT, dry_run: bool = False,
    after: UUID | None = None, reason: str = "",
) -> Done:  # fmt: skip
    """Run the first ``limit`` failed, cancelled or expired tasks of ``rows`` again, with fresh attempts.

    What cannot run again is skipped, and would be met again by the next call: ``after`` the last that was looked at
    there are others.

    They count against the tenant's limits like new ones, all or none: ``LimitExceeded`` leaves them as they were.
    """
    states = [int(state) for state in MAY_RUN_AGAIN]
    limit = min(check_limit(limit), max(1, tenant.plan.burst))  # more at once could never be accepted

    def work(ids: list[UUID]) -> dict[str, Any]:
        why = because(REASON_RETRY, reason)
        done, skipped = repeat_on_deadlock(partial(run_again, tenant, ids, actor=actor, reason=why))
        told = [{"task_id": task_id, "code": error.code, "detail": error.message} for task_id, error in skipped]
        # Who asks the same again meets what was skipped again: for him nothing is left to do once nothing is done.
        return {"task_ids": done, "skipped": told, **({} if done else {"more": False})}

    return _matching(rows.filter(state__in=states), after, limit, dry_run, work)
