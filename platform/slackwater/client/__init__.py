"""The client of the REST interface: typed, sync and async of one making; httpx, and neither Django nor Celery."""

from __future__ import annotations

from scheduler_ext.core.errors import ConfigurationError
from slackwater.client.clients import AsyncClient, Client
from slackwater.client.errors import (
    ApiError,
    Conflict,
    DependencyCycle,
    DoesNotFit,
    DuplicateName,
    IdempotencyMismatch,
    Impossible,
    InvalidInput,
    LimitExceeded,
    NotAuthenticated,
    NotFound,
    NotGranted,
    NotPermitted,
    PreconditionFailed,
    QuotaExceeded,
    TaskFailed,
    TimedOut,
    TooLarge,
    Unavailable,
    UnknownDependency,
    Unreachable,
)
from slackwater.client.streams import Event
from slackwater.client.webhooks import BadSignature, verify

__all__ = [
    "ApiError", "AsyncClient", "BadSignature", "Client", "ConfigurationError", "Conflict", "DependencyCycle", "DoesNotFit",
    "DuplicateName", "Event",
    "IdempotencyMismatch", "Impossible", "InvalidInput", "LimitExceeded", "NotAuthenticated", "NotFound", "NotGranted",
    "NotPermitted", "PreconditionFailed", "QuotaExceeded", "TaskFailed", "TimedOut", "TooLarge", "Unavailable",
    "UnknownDependency", "Unreachable", "verify",
]  # fmt: skip
