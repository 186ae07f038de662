"""Exit codes of all commands, those of tenants over REST and those of the platform, by error."""

from __future__ import annotations

from typing import Final

from scheduler_ext.core import errors

FAILED: Final = 1
"""Anything that has no code of its own."""
NOT_SUCCEEDED: Final = 10
"""What was waited for has ended otherwise than well."""
TIMED_OUT: Final = 124
"""What was waited for has not ended in the time given."""
UNAVAILABLE: Final = 75
"""Try again later."""
EXIT_CODES: Final[dict[type[errors.SlackwaterError], int]] = {
    errors.InvalidInput: 2,
    errors.ConfigurationError: 2,
    errors.NotFound: 3,
    errors.Conflict: 4,
    errors.LimitExceeded: 5,
    errors.NotAuthenticated: 6,
    errors.NotGranted: 6,
    errors.NotPermitted: 6,
    errors.Unavailable: UNAVAILABLE,
}


def exit_code(error: Exception) -> int:
    """The exit code of an error."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), FAILED)
