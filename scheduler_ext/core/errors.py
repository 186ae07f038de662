"""The error tree. The first line of a class's docstring is its default message; ``code`` never changes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


class SlackwaterError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str | None = None, *, field: str | None = None, **extra: Any) -> None:
        """``field`` is the path of the input at fault (``tasks[3].tier``); ``extra`` goes into the API's answer."""
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.field = field
        self.extra = extra
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message

    def told(self) -> list[dict[str, Any]]:
        """Describe every fault this error stands for: code, field, message and suggested correction."""
        if "errors" in self.extra:
            return list(self.extra["errors"])
        found = {"code": self.code, "field": self.field, "detail": self.message}
        found["suggestion"] = self.extra.get("suggestion")
        return [{name: value for name, value in found.items() if value is not None}]


class InvalidInput(SlackwaterError):
    """The input is not valid."""

    code = "invalid_input"


class DoesNotFit(InvalidInput):
    """It is well formed, but does not fit what is there, or its other parts."""

    code = "does_not_fit"


MOST_FAULTS: Final = 100
"""The most faults that one answer names."""


def together(faults: Sequence[SlackwaterError]) -> SlackwaterError:
    """The first of several faults; its ``errors`` are the dictionaries of all."""
    first = faults[0]
    if len(faults) > 1:
        first.extra["errors"] = [each for fault in faults for each in fault.told()][:MOST_FAULTS]
    return first


class Faults:
    """Collects the faults of one input, so that one answer names them all."""

    def __init__(self) -> None:
        self.found: list[InvalidInput] = []

    def of(self, read: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
        """Read one part. At a fault, note it and return a placeholder: :meth:`tell` raises before anybody uses that."""
        try:
            return read(*args, **given)
        except InvalidInput as fault:
            self.found.append(fault)
            return cast("T", None)

    def unknown(self, data: Mapping[Any, Any], known: Collection[str]) -> dict[str, Any]:
        """Return ``data`` without unknown fields. Each of those is a fault that suggests the name probably meant."""
        for name in data:
            if name not in known:
                self.found.append(no_such_field(str(name), known))
        return {name: value for name, value in data.items() if name in known}

    def needed(self, data: Mapping[str, Any], *names: str) -> None:
        """Note a fault for each of ``names`` that is missing."""
        self.found += [InvalidInput("must be given", field=name) for name in names if name not in data]

    def tell(self) -> None:
        """Raise the noted faults as one error."""
        if self.found:
            raise together(self.found)


def closest(name: str, known: Collection[str]) -> str | None:
    """The known name that a misspelt one probably means."""
    return next(iter(difflib.get_close_matches(name[:60].lower(), known, n=1)), None)


def no_such_name(what: str, name: str, known: Collection[str], field: str, otherwise: str) -> DoesNotFit:
    """The fault of a name that stands for nothing; a JSON Patch replaces one that looks misspelt."""
    meant = closest(name, known)
    if meant is None:
        return DoesNotFit(f"{what}; {otherwise}" if otherwise else what, field=field)
    pointer = "/" + field.replace("[", "/").replace("]", "").replace(".", "/")
    return DoesNotFit(
        f"{what}; did you mean {meant!r}?", field=field,
        suggestion=[{"op": "replace", "path": pointer, "value": meant}],
    )  # fmt: skip


def no_such_field(name: str, known: Collection[str]) -> InvalidInput:
    """The fault of an unknown field; a JSON Patch renames it where it looks misspelt."""
    shown = name[:60].encode("ascii", "backslashreplace").decode()
    meant = closest(name, known)
    if meant is None:
        words = f"known are {', '.join(sorted(known))}" if known else "the body is empty, or {}"
        return InvalidInput(f"there is no such field; {words}", field=shown or '""')
    pointer = shown.replace("~", "~0").replace("/", "~1")
    suggestion = [{"op": "move", "from": f"/{pointer}", "path": f"/{meant}"}]
    return InvalidInput(f"there is no such field; did you mean {meant}?", field=shown, suggestion=suggestion)


class UnknownDependency(InvalidInput):
    """A task named as a dependency does not exist."""

    code = "unknown_dependency"


class DependencyCycle(InvalidInput):
    """The dependencies form a cycle."""

    code = "dependency_cycle"


class DuplicateName(InvalidInput):
    """Two tasks of one workflow have the same name."""

    code = "duplicate_name"


class TooLarge(InvalidInput):
    """The input is larger than the plan allows."""

    code = "too_large"


class StreamTooLarge(InvalidInput):
    """The task yields more than its plan keeps of a result stream."""

    code = "stream_too_large"


class Impossible(InvalidInput):
    """No registered node could ever run this."""

    code = "impossible"


class NotGranted(SlackwaterError):
    """The plan does not grant this."""

    code = "not_granted"


class NotAuthenticated(SlackwaterError):
    """The API key is missing, unknown, expired or revoked."""

    code = "not_authenticated"


class NotPermitted(SlackwaterError):
    """The key or user may not do this."""

    code = "not_permitted"


class NotFound(SlackwaterError):
    """There is no such object."""

    code = "not_found"


class Conflict(SlackwaterError):
    """The object's present state does not allow this."""

    code = "conflict"


class IdempotencyMismatch(Conflict):
    """This idempotency key was used before with another body."""

    code = "idempotency_mismatch"


class LimitExceeded(SlackwaterError):
    """Limit exceeded"""

    code = "limit_exceeded"

    def __init__(self, message: str | None = None, *, retry_after: float | None = None, **extra: Any) -> None:
        """``retry_after``: seconds until the same request could be accepted, if that is known."""
        super().__init__(message, retry_after=retry_after, **extra)
        self.retry_after = retry_after


class QuotaExceeded(LimitExceeded):
    """The plan's quota is used up."""

    code = "quota_exceeded"


class Unavailable(SlackwaterError):
    """The platform cannot take this now; try again later."""

    code = "unavailable"


class NoTenant(SlackwaterError):
    """No tenant is in context."""

    code = "no_tenant"


class ConfigurationError(SlackwaterError):
    """The configuration is wrong."""

    code = "configuration"


TYPES: Final[dict[str, Any]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
"""The types of values accepted for each plain type, by its name."""


def typed(value: Any, wanted: str, field: str) -> Any:
    """Return a configured value as the named type; ``ConfigurationError`` if it has another."""
    if not isinstance(value, TYPES[wanted]) or (isinstance(value, bool) and wanted != "bool"):
        raise ConfigurationError(f"must be {wanted}, not {type(value).__name__}", field=field)
    return float(value) if wanted == "float" else value


def whole(value: Any) -> Any:
    """``value``, a whole number that was written 3.0 as 3: in JSON that is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def placed(error: InvalidInput, where: str) -> InvalidInput:
    """The error, its faults at their places in ``where``."""
    faults = [{**fault, "field": _inside(where, fault.get("field"))} for fault in error.extra.get("errors", ())]
    error.extra |= {"errors": faults} if faults else {}
    error.field = _inside(where, error.field)
    return error


def _inside(where: str, field: str | None) -> str:
    return f"{where}.{field}" if field else where


def misfit(error: InvalidInput, where: str) -> InvalidInput:
    """The faults of a part that no schema tells of, at their places in ``where``; those with own codes keep them."""
    found = placed(error, where)
    for fault in found.extra.get("errors", ()):
        fault["code"] = DoesNotFit.code if fault["code"] == InvalidInput.code else fault["code"]
    return found if found.code != InvalidInput.code else DoesNotFit(found.message, field=found.field, **found.extra)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for logs: database errors have several."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
