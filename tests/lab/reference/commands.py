"""docs/reference/commands.md, from the management commands themselves."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from django.core.management import load_command_class

import slackwater.management.commands as package
from tests.lab.reference.markdown import code, page, table

INTRO = """
Run a command as `.venv/bin/python manage.py NAME`, beside a running `make up` (it finds the servers through `var/`)
or with `SLACKWATER_DATABASE_URL` and `SLACKWATER_REDIS_URL` set. Django's own commands (`migrate`, `check`, `shell` …)
work too.
"""
COMMON = {
    "help",
    "version",
    "verbosity",
    "settings",
    "pythonpath",
    "traceback",
    "no_color",
    "force_color",
    "skip_checks",
}
"""Options every Django command has."""


def names() -> list[str]:
    """The platform's own commands."""
    folder = Path(str(package.__file__)).parent
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))


def render() -> str:
    """The page."""
    return page("Commands", "`platform/slackwater/management/commands/`", INTRO, *(section(name) for name in names()))


def section(name: str) -> str:
    """One command."""
    parser = load_command_class("slackwater", name).create_parser("manage.py", name)
    actions = [action for action in parser._actions if action.dest not in COMMON]
    parts = [f"## `{name}`", parser.description or ""]
    if actions:
        parts.append(table(("argument", "what it does"), (argument(action) for action in actions)))
    return "\n\n".join(parts)


def argument(action: argparse.Action) -> tuple[str, str]:
    """One argument with its help."""
    value = ""
    if action.nargs != 0 and action.option_strings:
        value = " " + str(action.metavar or action.dest.upper())
    if action.choices is not None:
        value = " " + "|".join(str(choice) for choice in action.choices)
    flags = ", ".join(code(option + value) for option in action.option_strings)
    filled = re.sub(r"%\((\w+)\)s", lambda found: str(getattr(action, found[1], "")), action.help or "")
    return flags or code(str(action.metavar or action.dest).upper()), filled.replace("%%", "%")
