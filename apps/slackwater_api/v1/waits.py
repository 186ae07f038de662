"""``GET /api/v1/tasks/{id}?wait=SECONDS``: what is waited for, and whether this client may."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db import Error as DatabaseError

from scheduler_ext.core.errors import InvalidInput, SlackwaterError
from slackwater_api.http.auth import principal_of
from slackwater_api.live.long_poll import MAX_WAIT_S
from slackwater_tasks.read.tasks import require_task
from slackwater_tenants.models import ApiKey
from slackwater_tenants.scoping import tenant_scope

TASK = re.compile(r"/api/v1/tasks/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
SECONDS = re.compile(r"\d{1,6}(\.\d{1,6})?")


@dataclass(frozen=True, slots=True)
class Wait:
    """A request to wait for a task's end."""

    task_id: UUID
    seconds: float

    def is_allowed(self, authorization: str) -> bool:
        """Whether this key may read this task; runs in a thread, for it asks the database."""
        try:
            principal = principal_of(authorization)
            principal.require(ApiKey.Scope.READ)
            with tenant_scope(principal.tenant.pk):
                require_task(self.task_id)
        except (SlackwaterError, DatabaseError):
            return False
        return True


def may_read(authorization: str) -> bool:
    """Whether this key may still read; runs in a thread, for it asks the database."""
    try:
        principal_of(authorization).require(ApiKey.Scope.READ)
    except SlackwaterError:
        return False
    except DatabaseError:
        return True  # nobody knows; the next look will tell
    return True


def read_seconds(text: str) -> float:
    """``wait`` in seconds, at most 60; ``InvalidInput`` for anything but a plain number."""
    if not SECONDS.fullmatch(text) or not text.isascii():
        raise InvalidInput(f"must be a number of seconds from 0 to {MAX_WAIT_S:.0f}", field="wait")
    return min(float(text), MAX_WAIT_S)


def asked_wait(path: str, query: Mapping[str, list[str]]) -> Wait | None:
    """The wait a request asks for; ``None`` when it asks for none, or wrongly, which the view then says."""
    found = TASK.fullmatch(path)
    values = query.get("wait")
    if found is None or not values:
        return None
    try:
        seconds = read_seconds(values[-1])
    except InvalidInput:
        return None
    return Wait(UUID(found.group(1)), seconds) if seconds > 0 else None
