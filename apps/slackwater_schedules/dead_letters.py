"""Dead letters that their plan retries by itself, each as often as the plan says."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final
from uuid import UUID

from django.db import transaction

from scheduler_ext.core.errors import LimitExceeded, NotFound, SlackwaterError
from scheduler_ext.core.sql import named
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.ledger.connection import execute, fetch_all, fetch_value

log = logging.getLogger(__name__)

ACTOR: Final = "dead letters"
BATCH: Final = 100
LATER_S: Final = 60.0
"""How long a retry is put off that the tenant's limits do not allow now."""

# How often the policy has retried a task is read from its history: a retried letter's own row is gone by then.
CLAIM: Final = named("""
SELECT d.task_id, d.tenant_id, p.dead_letter_retries, (
    SELECT count(*) FROM slackwater_tasks_taskevent e WHERE e.task_id = d.task_id
        AND e.from_state = :state.FAILED AND e.actor = %s)
FROM slackwater_tasks_deadletter d JOIN slackwater_tenants_tenant t ON t.id = d.tenant_id
    JOIN slackwater_tenants_plan p ON p.id = t.plan_id
WHERE d.next_retry_at <= statement_timestamp() ORDER BY d.next_retry_at LIMIT %s FOR UPDATE OF d SKIP LOCKED
""")
ANY_DUE: Final = (
    "SELECT EXISTS (SELECT 1 FROM slackwater_tasks_deadletter WHERE next_retry_at <= statement_timestamp())"
)
GIVE_UP: Final = "UPDATE slackwater_tasks_deadletter SET next_retry_at = NULL, retries = %s WHERE task_id = %s"
PUT_OFF: Final = """
UPDATE slackwater_tasks_deadletter SET next_retry_at = statement_timestamp() + %s * interval '1 second', retries = %s
WHERE task_id = %s
"""


def retry_due(limit: int = BATCH) -> Counter[str]:
    """Run again up to ``limit`` dead letters whose time has come; any number of processes may call it at once.

    Returns how many were ``retried``, ``put off``, or ``given up``: retried as often as the plan allows, or refused
    for good.
    """
    if not fetch_value(ANY_DUE):
        return Counter()
    with transaction.atomic():
        # In the order of the tenants, whose counters each retry locks until the commit.
        rows = sorted(fetch_all(CLAIM, (ACTOR, limit)), key=lambda row: row[1])
        return Counter(_retry(*row) for row in rows)


def _retry(task_id: UUID, tenant_id: int, allowed: int, used: int) -> str:
    if used >= allowed:
        execute(GIVE_UP, (used, task_id))
        return "given up"
    try:
        with transaction.atomic():
            retry(tenant_id, task_id, actor=ACTOR, reason=f"retry {used + 1} of {allowed} from the dead letters")
    except LimitExceeded as error:
        execute(PUT_OFF, (max(error.retry_after or 0.0, LATER_S), used, task_id))
        return "put off"
    except NotFound:
        execute("DELETE FROM slackwater_tasks_deadletter WHERE task_id = %s", (task_id,))
        return "given up"
    except SlackwaterError as error:
        log.warning("dead letter %s cannot run again: %s", task_id, error)
        execute(GIVE_UP, (used, task_id))
        return "given up"
    return "retried"
