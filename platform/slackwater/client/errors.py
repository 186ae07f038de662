"""What a client raises: a class for each of the API's codes, each with the whole problem document (RFC 9457).

They are the classes of the platform itself as well: ``except slackwater.NotFound`` catches it near and far.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from scheduler_ext.core import errors


class ApiError(errors.SlackwaterError):
    """The API refused."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        """``problem``: the answer's document, as it came."""
        Exception.__init__(self, status, problem, retry_after_s)
        self.status = status
        self.problem: dict[str, Any] = dict(problem)
        self.message = str(problem.get("detail") or problem.get("title") or f"the answer was {status}")
        self.field: str | None = problem.get("field")
        self.extra = self.problem
        self.retry_after_s = self.retry_after = retry_after_s
        # The code that came, also where it is one that this release has no class for.
        vars(self)["code"] = str(problem.get("code") or type(self).code)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Every fault of the input, each with ``code``, ``detail`` and mostly ``field``."""
        return list(self.problem.get("errors") or [])

    @property
    def suggestion(self) -> list[dict[str, Any]] | None:
        """What would mend the input, as a JSON Patch (RFC 6902), where the API knows it."""
        return self.problem.get("suggestion")

    @property
    def request_id(self) -> str | None:
        """Under which the server's logs tell of it."""
        return self.problem.get("request_id")


class InvalidInput(ApiError, errors.InvalidInput):
    """The input is not valid."""


class DoesNotFit(InvalidInput, errors.DoesNotFit):
    """It is well formed, but does not fit what is there, or its other parts."""


class UnknownDependency(InvalidInput, errors.UnknownDependency):
    """A task named as a dependency does not exist."""


class DependencyCycle(InvalidInput, errors.DependencyCycle):
    """The dependencies form a cycle."""


class DuplicateName(InvalidInput, errors.DuplicateName):
    """Two tasks of one workflow have the same name."""


class TooLarge(InvalidInput, errors.TooLarge):
    """The input is larger than is allowed."""


class Impossible(InvalidInput, errors.Impossible):
    """No registered node could ever run this."""


class NotAuthenticated(ApiError, errors.NotAuthenticated):
    """The API key is missing, unknown, expired or revoked."""


class NotPermitted(ApiError, errors.NotPermitted):
    """The key may not do this."""


class NotGranted(ApiError, errors.NotGranted):
    """The plan does not grant this."""


class NotFound(ApiError, errors.NotFound):
    """There is no such object."""


class Conflict(ApiError, errors.Conflict):
    """The object's present state does not allow this."""


class IdempotencyMismatch(Conflict, errors.IdempotencyMismatch):
    """This idempotency key was used before with another body."""


class PreconditionFailed(ApiError):
    """It has changed since; read it again."""

    code = "precondition_failed"


class LimitExceeded(ApiError, errors.LimitExceeded):
    """A limit is reached; ``retry_after_s`` says when to ask again."""


class QuotaExceeded(LimitExceeded, errors.QuotaExceeded):
    """The plan's quota is used up."""


class Unavailable(ApiError, errors.Unavailable):
    """The platform cannot take this now; try again later."""


class Unreachable(errors.SlackwaterError):
    """No answer came: the connection failed, or took too long."""

    code = "unreachable"


class TimedOut(errors.SlackwaterError, TimeoutError):
    """It has not ended in the time given."""

    code = "timed_out"


class TaskFailed(errors.SlackwaterError):
    """A task that was waited for did not succeed; ``task`` is the whole of it."""

    code = "task_failed"

    def __init__(self, task: Mapping[str, Any]) -> None:
        self.task = dict(task)
        why = task.get("error") or task.get("reason")
        super().__init__(f"task {task.get('id')} has {task.get('state')}" + (f": {why}" if why else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.task,)


BY_CODE: Final[dict[str, type[ApiError]]] = {
    found.code: found
    for found in (
        InvalidInput, DoesNotFit, UnknownDependency, DependencyCycle, DuplicateName, TooLarge, Impossible,
        NotAuthenticated, NotPermitted, NotGranted, NotFound, Conflict, IdempotencyMismatch, PreconditionFailed, LimitExceeded,
        QuotaExceeded, Unavailable,
    )
}  # fmt: skip


def refusal(status: int, content: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error that an answer tells of; a proxy's page has no problem document, and is an ``ApiError`` by its status."""
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"status": status, "detail": f"an answer {status} that is not the API's: is this its address?"}
    seconds = headers.get("retry-after", "")
    wait = problem.get("retry_after_s", float(seconds) if seconds.isdecimal() else None)
    kind = BY_CODE.get(str(problem.get("code")), Unavailable if status in (502, 503, 504) else ApiError)
    return kind(status, problem, wait)
