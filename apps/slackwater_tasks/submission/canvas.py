"""A durable Celery canvas: a chain, group or chord is stored as a workflow, and survives Redis and every worker.

    submit_canvas(tenant, chain(fetch.s(url), chord(group(thumb.s(100), thumb.s(200)), publish.s())))

What becomes of it says :mod:`scheduler_ext.task.canvas`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from scheduler_ext.task.canvas import compile_canvas
from scheduler_ext.task.steps import names_in
from slackwater_conf.database import in_ledger
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.submission.service import submit_workflow
from slackwater_tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class CanvasSubmission:
    """A stored canvas."""

    workflow_id: UUID
    task_ids: list[UUID]
    """Its tasks, in the order in which the canvas names them."""
    result_ids: list[UUID]
    """The tasks whose results are the canvas's: one for a chain or chord, one for each member of a group."""
    created: bool


@in_ledger
def submit_canvas(tenant: Tenant, canvas: Any, *, name: str = "", actor: str = "",
                  idempotency_key: str | None = None) -> CanvasSubmission:  # fmt: skip
    """Store a signature, chain, group or chord as a workflow of the tenant, all or nothing.

    Every task in it must be exported. ``InvalidInput`` names the place in the canvas that cannot be kept; the other
    errors are those of a workflow's submission.
    """
    tasks, last = compile_canvas(canvas, now=reference_cache.now)
    found = submit_workflow(tenant, {"name": name, "tasks": tasks}, actor=actor, idempotency_key=idempotency_key)
    assert found.workflow_id is not None
    ids = dict(zip((task["name"] for task in tasks), found.task_ids, strict=True))
    return CanvasSubmission(
        workflow_id=found.workflow_id, task_ids=found.task_ids, result_ids=[ids[one] for one in names_in(last.feed)],
        created=found.created,
    )  # fmt: skip
