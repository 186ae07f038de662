"""What the command takes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

import slackwater

TEXT: Final = """Your tasks on a Slackwater platform, over REST: SLACKWATER_URL says where it is, SLACKWATER_KEY who you are.

  slackwater submit demo.add 2 3 --wait
  slackwater submit mail.send --kwarg to=a@example.org --category urgent
  slackwater submit --file workflow.json
  slackwater logs ID --follow"""
MORE: Final = """`slackwater manage COMMAND` and any other COMMAND (up, doctor, import-beat, …) are commands of the platform's own
machine; `slackwater manage help` lists them.

exit codes: 0 done · 1 failed · 2 wrong input · 3 not found · 4 in conflict with its state · 5 over a limit · 6 not allowed ·
10 what was waited for did not succeed · 75 unavailable, try again later · 124 not ended in the time given · 130 interrupted"""

PROOF: Final = (
    "Check receipts that were saved from GET /api/v1/receipts: that none was changed, left out or moved, and that "
    "their seals are of the given keys. Needs no server. Exit code 1 when anything is wrong."
)


def parser(flags: dict[str, dict[str, Any]]) -> argparse.ArgumentParser:
    """The whole command; ``flags`` are those of the fields of a task."""
    whole = argparse.ArgumentParser(
        "slackwater", description=TEXT, epilog=MORE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole.add_argument("--version", action="version", version=f"slackwater {slackwater.__version__}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, help: str, *, asks: bool = True) -> argparse.ArgumentParser:  # noqa: A002 - argparse's word
        made = commands.add_parser(name, help=help, description=help)
        made.add_argument("--json", action="store_true", help="print JSON for programs")
        if asks:
            made.add_argument("--url", help="where the platform is; SLACKWATER_URL unless given")
        return made

    _submit(command("submit", "Submit a task, several, or a workflow."), flags)
    one = command("status", "Show a task or a workflow, or the latest tasks.")
    one.add_argument("id", nargs="?", help="of a task or a workflow; without it, the latest tasks")
    _wait(one)
    _narrowing(one, "state", "status", "handler", "name", "tag", "category", "tier", "workflow-id")
    one = command("logs", "Show what a task printed and logged.")
    one.add_argument("id")
    one.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    one.add_argument("--chunks", action="store_true", help="show what it yields instead")
    one.add_argument("--stream", help="stdout, stderr, log or platform")
    one.add_argument("--level", help="the least: debug, info, warning, error, critical")
    one = command("cancel", "Cancel tasks: at once while they wait; one that runs is asked to end.")
    one.add_argument("ids", nargs="+", metavar="ID")
    one.add_argument("--dependents", action="store_true", help="also all that depends on them")
    one.add_argument("--reason", default="", help="why; their history tells it")
    command("retry", "Run failed, cancelled or expired tasks again.").add_argument("ids", nargs="+", metavar="ID")
    command("explain", "Say why a task waits, and when it will likely start.").add_argument("id")
    one = command("events", "Follow what happens live: of a task, a workflow, or everything.")
    one.add_argument("--task", metavar="ID")
    one.add_argument("--workflow", metavar="ID")
    one.add_argument("--after", metavar="EVENT", help="go on after this event")
    _lists(command)
    one = command("verify-receipts", PROOF, asks=False)
    one.add_argument(
        "file", type=Path, help="as `receipts --json` printed it, or pages of the API, one after the other"
    )
    one.add_argument("--keys", type=Path, required=True, help="as `receipts --keys --json` printed it")
    return whole


def _lists(command: Any) -> None:
    one = command("workflows", "Show the latest workflows, or one with its tasks; cancel it, or run it again.")
    one.add_argument("id", nargs="?")
    acts = one.add_mutually_exclusive_group()
    acts.add_argument("--cancel", action="store_true")
    acts.add_argument("--retry", action="store_true", help="run again what failed in it")
    one.add_argument("--reason", default="", help="of a cancellation")
    _wait(one)
    _narrowing(one, "status", "name", "tag")
    one = command(
        "schedules", "Show schedules, or one with its next firings; pause it, resume it, run it now, delete it."
    )
    one.add_argument("id", nargs="?")
    does = one.add_mutually_exclusive_group()
    for name in ("pause", "resume", "run", "delete"):
        does.add_argument(f"--{name}", action="store_const", const=name, dest="do")
    does.add_argument("--create", metavar="FILE", help="make one of a JSON file; - for standard input")
    _narrowing(one, "kind", "name", "handler")
    one = command("dead-letters", "Show tasks whose attempts are used up; run them again.")
    one.add_argument("--retry", nargs="+", metavar="ID", default=[], help="run these again")
    _narrowing(one, "handler", "name", "tag", "outcome")
    command("handlers", "Show what can be called, or one with the schema of its arguments.").add_argument(
        "name", nargs="?"
    )
    one = command("usage", "Show what was used, by day, tier and category, and its price.")
    one.add_argument("--since", metavar="DAY")
    one.add_argument("--until", metavar="DAY")
    one = command("receipts", "Show the receipts of what has ended: what was promised, kept and charged.")
    one.add_argument("--since", metavar="MOMENT", help="only what ended then or later: 2030-01-31T09:00:00Z")
    one.add_argument("--until", metavar="MOMENT", help="only what ended before")
    one.add_argument("--task", metavar="ID", help="only those of it")
    one.add_argument(
        "--limit", type=rows_shown, metavar="N", help="receipts at most (20; with --json all, one to a line)"
    )
    one.add_argument("--keys", action="store_true", help="show the public keys that seal them instead")
    command("limits", "Show your plan's limits, and how much of them is used.")
    command("whoami", "Show whose key this is, and what it may do.")


def _submit(one: argparse.ArgumentParser, flags: dict[str, dict[str, Any]]) -> None:
    one.add_argument("handler", nargs="?", help="name of an exported function")
    one.add_argument("arguments", nargs="*", metavar="ARG", help="its arguments: JSON, or else text")
    one.add_argument("--file", help='JSON: a task, a list of tasks, or {"name": …, "tasks": […]}; - for standard input')
    one.add_argument(
        "--kwarg", action="append", default=[], metavar="NAME=VALUE", help="one, as JSON or text; repeatable"
    )
    one.add_argument("--script", metavar="FILE", help="a file, which is stored, or the SHA-256 of a stored one")
    one.add_argument(
        "--dry-run", action="store_true", help="store nothing: check it, say its price and its likely start"
    )
    _wait(one)
    for name, how in flags.items():
        one.add_argument(name, **how)


def rows_shown(value: str) -> int:
    """An argument as a number of rows, of which there are some."""
    try:
        found = int(value)
    except ValueError:
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1, not {value!r}")
    return found


def _wait(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--wait", nargs="?", type=float, const=float("inf"), metavar="SECONDS", help="wait for the end, at most so long"
    )


def _narrowing(one: argparse.ArgumentParser, *names: str) -> None:
    one.add_argument("--limit", type=rows_shown, default=20, help="rows at most (20)")
    for name in names:
        one.add_argument(f"--{name}", dest=f"by_{name.replace('-', '_')}", metavar="VALUE", help="only those of it")
