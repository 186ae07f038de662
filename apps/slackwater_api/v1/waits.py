"""``GET /api/v1/tasks/{id}?wait=SECONDS``, and of workflows: what is waited for, and whether this client may."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db import Error as DatabaseError

from scheduler_ext.core.errors import InvalidInput, SlackwaterError
from slackwater_api.http.auth import Principal, principal_of
from slackwater_api.live.long_poll import MAX_WAIT_S
from slackwater_tasks.read import workflows
from slackwater_tasks.read.tasks import require_task
from slackwater_tenants.models import ApiKey
from slackwater_tenants.scoping import tenant_scope
from slackwater_tenants.tickets import live_key

AWAITED = re.compile(r"/api/v1/(tasks|workflows)/([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Wait:
    """A request to wait for the end of a task or a workflow."""

    subject: UUID
    seconds: float
    workflow: bool = False

    def is_allowed(self, authorization: str) -> bool:
        """Whether this key may read it; runs in a thread, for it asks the database."""
        try:
            principal = principal_of(authorization)
            principal.require(ApiKey.Scope.READ)
            with tenant_scope(principal.tenant.pk):
                (workflows.find if self.workflow else require_task)(self.subject)
        except (SlackwaterError, DatabaseError):
            return False
        return True


def may_read(authorization: str, ticketed: ApiKey | None = None) -> bool:
    """Whether this key may still read, or that of a ticket; runs in a thread, for it asks the database."""
    try:
        principal = Principal.of(live_key(ticketed.pk)) if ticketed is not None else principal_of(authorization)
        principal.require(ApiKey.Scope.READ)
    except SlackwaterError:
        return False
    except DatabaseError:
        return True  # nobody knows; the next look will tell
    return True


def read_seconds(text: str) -> float:
    """``wait`` in seconds, at most 60; ``InvalidInput`` for anything but a plain number."""
    seconds = float(text) if SECONDS.fullmatch(text) else -1.0
    if not 0 <= seconds <= MAX_WAIT_S:
        raise InvalidInput(f"must be a number of seconds from 0 to {MAX_WAIT_S:.0f}", field="wait")
    return seconds


def asked_wait(path: str, query: Mapping[str, list[str]]) -> Wait | None:
    """The wait a request asks for; ``None`` when it asks for none, or wrongly, which the view then says."""
    found = AWAITED.fullmatch(path)
    values = query.get("wait")
    if found is None or not values:
        return None
    try:
        seconds = read_seconds(values[-1])
    except InvalidInput:
        return None
    return Wait(UUID(found[2]), seconds, workflow=found[1] == "workflows") if seconds > 0 else None
