"""`slackwater COMMAND`: reads the line, asks the platform, says what came of it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from scheduler_ext.core.errors import ConfigurationError, SlackwaterError
from slackwater import exit_codes
from slackwater.cli.parser import parser
from slackwater.cli.show import Output

INTERRUPTED: Final = 130


def main(argv: Sequence[str], transport: Any = None) -> int:
    """Run one command and return its exit code; ``transport`` stands for the network."""
    words = list(argv) or ["--help"]
    try:
        options = parser(_flags() if words[0] == "submit" else {}).parse_args(words)
    except SystemExit as end:
        return int(end.code or 0)
    out = Output(sys.stdout, as_json=options.json)
    try:
        return _run(options, out, transport)
    except SlackwaterError as error:
        error.field = _as_given(error.field, options)
        return _failed(error, out)
    except BrokenPipeError:  # whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(options: argparse.Namespace, out: Output, transport: Any) -> int:
    if options.command == "verify-receipts":
        from slackwater.cli.proof import verify_receipts

        return verify_receipts(options, out)
    # httpx brings its own command, with click, rich and pygments where they are installed: half of its start.
    if "httpx" not in sys.modules:
        sys.modules["httpx._main"] = None  # type: ignore[assignment]
    from slackwater.cli.actions import ACTIONS
    from slackwater.client import Client

    sys.modules.pop("httpx._main", None)
    try:
        client = Client(options.url, transport=transport)
    except ConfigurationError as error:
        error.message += f" (on the platform's own machine: slackwater manage {options.command})"
        raise
    with client:
        return ACTIONS[options.command](client, options, out)


def _failed(error: SlackwaterError, out: Output) -> int:
    """Say what went wrong, and return the exit code of it."""
    from slackwater.client.errors import ApiError, TimedOut, Unreachable

    told = Output(sys.stderr, as_json=out.as_json)
    if out.as_json:
        told.value(error.problem if isinstance(error, ApiError) else {"code": error.code, "detail": error.message})
    else:
        told.line(f"slackwater: {error}")
        others = error.errors[1:] if isinstance(error, ApiError) else []
        for fault in others:
            told.line(f"slackwater: {fault.get('field', '')}: {fault.get('detail', '')}")
    if isinstance(error, Unreachable):
        return exit_codes.UNAVAILABLE
    return exit_codes.TIMED_OUT if isinstance(error, TimedOut) else exit_codes.exit_code(error)


def _as_given(field: str | None, options: argparse.Namespace) -> str | None:
    """The argument that stands for an id in an address of the API, which names it ``task_id`` and so on."""
    kind = (field or "").removesuffix("_id")
    if kind == field or kind not in ("task", "workflow", "schedule"):
        return field
    if getattr(options, kind, None) is not None:
        return f"--{kind}"
    if options.command == "dead-letters":
        return "--retry"
    return "id" if getattr(options, "id", None) or getattr(options, "ids", None) else field


def _flags() -> dict[str, dict[str, Any]]:
    """The options of `submit` for the fields of a task, from their declaration."""
    from slackwater.cli.fields import flags

    return flags()
