"""Submit a task, several, or a workflow."""

from __future__ import annotations

import re
import sys
import time
from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import InvalidInput
from slackwater.management.console import ACTOR, PlatformCommand, find_tenant, parse_json, scoped
from slackwater_tasks.field_kinds import (
    Array,
    Choice,
    Field,
    Flag,
    Kind,
    Map,
    Metadata,
    Object,
    Resources,
    Retry,
    Seconds,
    Texts,
    Whole,
)
from slackwater_tasks.read import tasks as reading
from slackwater_tasks.spec import FIELDS
from slackwater_tasks.submission import service
from slackwater_tenants.models import Tenant

EXAMPLES = """examples:
  manage.py submit demo.add --args '[2, 3]' --wait 30
  manage.py submit mail.send --kwarg to=a@example.org --category urgent --delay-tolerance 2
  manage.py submit --script report.sh --tier regular --execution-cap 600
  manage.py submit --file workflow.json      (a task, a list of tasks, or {"name": …, "tasks": […]}; - reads stdin)
"""
POLL_S = 0.2
SHA256 = re.compile("[0-9a-f]{64}")
OPTIONS: dict[type[Kind], dict[str, Any]] = {
    Whole: {"type": int, "metavar": "NUMBER"},
    Seconds: {"type": float, "metavar": "SECONDS"},
    Flag: {"action": "store_const", "const": True},
    Texts: {"action": "append", "metavar": "TEXT"},
    Array: {"metavar": "JSON"},
    Object: {"metavar": "JSON"},
    Retry: {"metavar": "JSON"},
    Metadata: {"metavar": "JSON"},
    Map: {"metavar": "JSON"},
    Resources: {"metavar": "JSON"},
}
"""How the flags of some kinds of fields are read; the others take a text."""
JSON_KINDS = (Array, Map, Object, Retry, Metadata, Resources)


class Command(PlatformCommand):
    help = "Submit a task: a Celery task by name, or a script; or several, or a workflow, from a file."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(
            prog_name, subcommand, epilog=EXAMPLES, formatter_class=RawDescriptionHelpFormatter, **kwargs
        )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("handler", nargs="?", help="name of an exported function")
        parser.add_argument("--file", help="JSON file to submit; - for standard input")
        parser.add_argument("--script", help="a file, which is stored, or the SHA-256 of a stored one")
        parser.add_argument(
            "--kwarg", action="append", default=[], metavar="NAME=VALUE", help="one, as text; repeatable"
        )
        parser.add_argument(
            "--wait", type=float, default=0, metavar="SECONDS", help="wait for its end, at most so long"
        )
        for name, field in FIELDS.items():
            if name not in ("handler", "script"):
                how = OPTIONS.get(type(field.kind), {"metavar": "TEXT"})
                parser.add_argument(field.flag, dest=_dest(name), help=_help(field), **how)

    def run(self, options: dict[str, Any]) -> None:
        tenant = find_tenant(options["tenant"])
        data = _from_file(options["file"]) if options["file"] else _from_options(tenant, options)
        if options["file"] and options["handler"]:
            raise InvalidInput("give either a handler or --file", field="--file")
        key = options[_dest("idempotency_key")]
        if isinstance(data, list):
            found = service.submit_many(tenant, data, actor=ACTOR, idempotency_key=key)
        elif isinstance(data, dict) and "tasks" in data:
            found = service.submit_workflow(tenant, data, actor=ACTOR, idempotency_key=key)
        else:
            found = service.submit(tenant, data, actor=ACTOR, idempotency_key=key)
        self._report(tenant, found, options["wait"])

    def _report(self, tenant: Tenant, found: service.Submission, wait: float) -> None:
        ended = False
        if wait > 0:
            with self.busy("waiting for the end"):
                ended = _wait(found.task_ids, wait)
        with scoped(tenant):
            tasks = [reading.task(task_id) for task_id in found.task_ids] if wait > 0 else []
        if self.as_json:
            answer: dict[str, Any] = {
                "workflow_id": found.workflow_id, "task_ids": found.task_ids, "created": found.created,
            }  # fmt: skip
            self.show({**answer, "tasks": tasks} if wait > 0 else answer)
        else:
            if found.workflow_id is not None:
                self.stdout.write(f"workflow {found.workflow_id}")
            for task_id in found.task_ids:
                self.stdout.write(str(task_id) + ("" if found.created else "  (submitted before)"))
            if tasks:
                rows = [(t["id"], t["status"], t["state"], t["result"], t["reason"]) for t in tasks]
                self.show_table("", ["id", "status", "state", "result", "reason"], rows, empty="")
        if wait > 0 and not ended:
            raise SystemExit(124)
        if any(task["status"] == "failed" for task in tasks):
            raise SystemExit(1)


def _from_file(name: str) -> Any:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", field="--file") from None
    return parse_json(text, "--file")


def _dest(name: str) -> str:
    """Where argparse puts a field: ``args`` is taken by Django."""
    return f"field_{name}"


def _help(field: Field) -> str:
    """What the declaration says of a field, as the help of a flag."""
    text = f"{field.help[:1].lower()}{field.help[1:].removesuffix('.')}" if field.help else ""
    hints = [text, "repeatable" if isinstance(field.kind, Texts) else ""]
    if isinstance(field.kind, Choice):
        hints.append(", ".join(field.kind.words))
    return "; ".join(filter(None, hints))


def _from_options(tenant: Tenant, options: dict[str, Any]) -> dict[str, Any]:
    data = {"handler": options["handler"]} if options["handler"] is not None else {}
    for name, field in FIELDS.items():
        value = options.get(_dest(name))
        if value is not None and name != "idempotency_key":
            data[name] = parse_json(value, field.flag) if isinstance(field.kind, JSON_KINDS) else value
    for pair in options["kwarg"]:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInput(f"must read NAME=VALUE, not {pair!r}", field="--kwarg")
        data.setdefault("kwargs", {})[name] = value
    if options["script"]:
        data["script"] = _script(tenant, options["script"])
    return data


def _script(tenant: Tenant, given: str) -> str:
    path = Path(given)
    if not path.is_file():
        if not SHA256.fullmatch(given):
            raise InvalidInput(f"there is no file {given}, and it is no SHA-256 of a stored script", field="--script")
        return given
    return service.store_script(tenant, path.name, path.read_bytes()).sha256


def _wait(task_ids: list[UUID], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while len(reading.finished_ids(task_ids)) < len(task_ids):
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True
