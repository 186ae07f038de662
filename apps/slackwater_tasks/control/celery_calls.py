"""The ledger as Celery's own API submits tasks: see :mod:`scheduler_ext.task.publishing`."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from scheduler_ext.core.errors import NoTenant
from scheduler_ext.core.work import Started
from scheduler_ext.task.context import TaskContext
from scheduler_ext.task.publishing import Ledger
from slackwater_conf import conf
from slackwater_tasks.control.edit import rewrite
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.submission.canvas import compile_canvas, submit_canvas
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_in_context

ACTOR = "celery"


class CeleryCalls(Ledger):
    """Takes what an application publishes, for the tenant in context, or the one that ``SLACKWATER_TENANT`` names."""

    def is_handler(self, name: str) -> bool:
        return reference_cache.handler_id(name) is not None

    def submit(self, signature: Any, running: TaskContext | None) -> list[str]:
        if running is not None:
            return _from_task(signature, running)
        tasks, _ = compile_canvas(signature)
        tenant = self._find(signature)
        if len(tasks) > 1:
            return [str(one) for one in submit_canvas(tenant, signature, actor=ACTOR).result_ids]
        return [str(submit(tenant, _alone(tasks[0]), actor=ACTOR).task_ids[0])]

    def rewrite(self, task: Started, args: list[Any], kwargs: dict[str, Any]) -> None:
        rewrite(task, args, kwargs)

    def _find(self, signature: Any) -> Tenant:
        tenants = Tenant.objects.select_related("plan")
        tenant_id = tenant_in_context()
        if tenant_id is not None:
            return tenants.get(pk=tenant_id)
        slug = conf().tenant
        if not slug:
            raise NoTenant(
                f"{signature.task} is a handler: whose task shall it be? Name a tenant in SLACKWATER_TENANT, submit it "
                "inside tenant_scope(), or with slackwater_tasks.submission.service.submit()"
            )
        found = tenants.filter(slug=slug).first()
        if found is None:
            raise NoTenant(f"SLACKWATER_TENANT names {slug!r}; there is no such tenant")
        return found


def _alone(task: dict[str, Any]) -> dict[str, Any]:
    """A task that nothing else names needs no name."""
    return {key: value for key, value in task.items() if key not in {"name", "depends_on"}}


def _from_task(signature: Any, running: TaskContext) -> list[str]:
    """Submit for a running task. A repeated attempt that makes the same calls submits nothing twice."""
    number = running.next_call()
    tasks, results = compile_canvas(signature, prefix=f"{running.task_id}.{number}:")
    # Without the moments, which differ from one attempt to the next.
    said = [{key: value for key, value in task.items() if key != "start_at"} for task in tasks]
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]
    items = tasks if len(tasks) > 1 else [_alone(tasks[0])]
    key = f"celery:{running.task_id}:{number}:{digest}"
    ids = running.hand_in(items, key=key)
    by_name = dict(zip((task["name"] for task in tasks), ids, strict=True))
    return [by_name[name] for name in results]
