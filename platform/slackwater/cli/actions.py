"""What each subcommand does; it returns the exit code."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Final

from scheduler_ext.core.errors import InvalidInput
from slackwater import exit_codes
from slackwater.cli.fields import read_json
from slackwater.cli.show import Output
from slackwater.client import Client, NotFound

Action = Callable[[Client, argparse.Namespace, Output], int]
TASK: Final = ("id", "status", "state", "handler", "name", "submitted_at", "reason")
RESULT: Final = ("id", "status", "state", "result", "reason")
RECEIPT: Final = ("number", "task_id", "state", "outcome", "ended_at", "late_by_s", "held_s", "charged_micros")
SHA256: Final = re.compile("[0-9a-f]{64}")


def submit(client: Client, options: argparse.Namespace, out: Output) -> int:
    """Submit, and wait where that is asked for."""
    if bool(options.file) == bool(options.handler or options.script or options.field_script_path):
        raise InvalidInput("give a handler, --script, --script-path or --file, and one of them")
    key = options.field_idempotency_key
    data = _file(options) if options.file else _task(client, options)
    if options.dry_run:
        path = "/workflows" if isinstance(data, dict) and "tasks" in data else "/tasks"
        out.pairs(client.request("POST", path, data, query={"dry_run": True}))
        return 0
    if isinstance(data, list):
        found: Any = client.submit_many(data, idempotency_key=key)
    elif isinstance(data, dict) and "tasks" in data:
        found = client.request("POST", "/workflows", data, idempotency_key=key)
    else:
        found = client.request("POST", "/tasks", data, idempotency_key=key or data.get("idempotency_key"))
    if options.wait is not None:
        tasks = [client.wait(task_id, timeout_s=_seconds(options)) for task_id in found["task_ids"]]
        _show_ended(out, tasks)
        return _outcome(tasks)
    if out.as_json:
        out.value(found)
    else:
        before = "" if found["created"] else "  (submitted before)"
        for line in found["task_ids"] if "name" not in data else [found["id"]]:
            out.line(f"{line}{before}")
    return 0


def _file(options: argparse.Namespace) -> Any:
    """What the file says, which says all of it: an option beside it would be left out."""
    given = [name for name, value in vars(options).items() if name.startswith("field_") and value is not None]
    beside = sorted({*given, *(["field_kwarg"] if options.kwarg else [])} - {"field_idempotency_key"})
    if beside:
        flag = beside[0].removeprefix("field_").replace("_", "-")
        raise InvalidInput("say it in the file", field="--" + ("tag" if flag == "tags" else flag))
    data = _read_json(options.file)
    if not isinstance(data, (dict, list)):
        raise InvalidInput("must hold an object or a list", field="--file")
    return data


def _task(client: Client, options: argparse.Namespace) -> dict[str, Any]:
    """The task that the options describe."""
    data = {
        name.removeprefix("field_"): value
        for name, value in vars(options).items()
        if name.startswith("field_") and value is not None
    }
    if options.handler:
        data |= {"handler": options.handler, "args": [_json_or_text(word) for word in options.arguments]}
    kwargs = {}
    for pair in options.kwarg:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInput(f"must read NAME=VALUE, not {pair!r}", field="--kwarg")
        kwargs[name] = _json_or_text(value)
    if options.script:
        data["script"] = _script(client, options.script)
    return {**data, "kwargs": kwargs} if kwargs else data


def _script(client: Client, given: str) -> str:
    path = Path(given)
    if path.is_file():
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{given} cannot be read: {error}", field="--script") from None
        return client.store_script(path.name, content)["sha256"]
    if not SHA256.fullmatch(given):
        raise InvalidInput(f"there is no file {given}, and it is no SHA-256 of a stored script", field="--script")
    return given


def status(client: Client, options: argparse.Namespace, out: Output) -> int:
    """A task, a workflow, or the latest tasks."""
    if options.id is None:
        _needs_id("--wait" if options.wait is not None else None)
        out.table(islice(client.tasks(**_narrowed(options)), options.limit), TASK)
        return 0
    try:
        task: Any = client.get(options.id)
    except NotFound:
        return workflows(client, argparse.Namespace(**{**vars(options), "cancel": False, "retry": False}), out)
    if options.wait is not None:
        task = client.wait(options.id, timeout_s=_seconds(options))
    out.pairs(task)
    return _outcome([task]) if options.wait is not None else 0


def logs(client: Client, options: argparse.Namespace, out: Output) -> int:
    """Lines or chunks, so far or until the end."""
    narrowed = {"stream": options.stream, "level": options.level}
    lines: Iterable[Any]
    if options.chunks:
        lines = client.follow_chunks(options.id) if options.follow else client.chunks(options.id)
    else:
        lines = client.follow_logs(options.id, **narrowed) if options.follow else client.logs(options.id, **narrowed)
    line: Any
    for line in lines:
        if out.as_json:
            out.value(line, indent=None)
        else:
            out.line(line["text"] if "text" in line else json.dumps(line["value"], ensure_ascii=False))
    return 0


def cancel(client: Client, options: argparse.Namespace, out: Output) -> int:
    """Cancel tasks."""
    done = [client.cancel(one, dependents=options.dependents, reason=options.reason) for one in options.ids]
    out.table(done, RESULT)
    return 0


def retry(client: Client, options: argparse.Namespace, out: Output) -> int:
    """Run tasks again."""
    out.table([client.retry(one) for one in options.ids], RESULT)
    return 0


def explain(client: Client, options: argparse.Namespace, out: Output) -> int:
    """Why it waits."""
    found = client.explain(options.id)
    if out.as_json:
        out.value(found)
        return 0
    predicted: Any = found["predicted_start"] or {}
    out.pairs({
        "task": found["task_id"], "state": found["state"], "why": found["summary"], "latest_start": found["latest_start"],
        **{f"start_{name}": value for name, value in predicted.items()},
        **({"hit_rate": found["hit_rate"]} if predicted else {}),
    })  # fmt: skip
    if found["blockers"]:
        out.table(found["blockers"], ("kind", "detail", "clears", "at"))
    return 0


def events(client: Client, options: argparse.Namespace, out: Output) -> int:
    """Events as they come."""
    for event in client.events(task_id=options.task, workflow_id=options.workflow, after=options.after):
        out.value({"id": event.id, "event": event.kind, "data": event.data}, indent=None)
    return 0


def workflows(client: Client, options: argparse.Namespace, out: Output) -> int:
    """The latest, or one of them."""
    if options.id is None:
        asked = {"--cancel": options.cancel, "--retry": options.retry, "--wait": options.wait is not None}
        _needs_id(next((flag for flag, given in asked.items() if given), None))
        found = islice(client.workflows(**_narrowed(options)), options.limit)
        out.table(found, ("id", "status", "task_count", "name", "submitted_at", "finished_at"))
        return 0
    if options.cancel:
        out.pairs(client.cancel_workflow(options.id, reason=getattr(options, "reason", "")))
    elif options.retry:
        out.pairs(client.retry_workflow(options.id))
    if (options.cancel or options.retry) and options.wait is None:
        return 0
    waits = options.wait is not None
    one = client.wait_workflow(options.id, timeout_s=_seconds(options)) if waits else client.workflow(options.id)
    out.pairs(one)
    if not out.as_json:
        out.table(islice(client.workflow_tasks(options.id), options.limit), TASK)
    return _outcome([one]) if waits else 0


def schedules(client: Client, options: argparse.Namespace, out: Output) -> int:
    """Schedules, or what is done to one."""
    if options.create:
        out.pairs(client.request("POST", "/schedules", _read_json(options.create)))
    elif options.id is None:
        _needs_id(f"--{options.do}" if options.do else None)
        found = islice(client.schedules(**_narrowed(options)), options.limit)
        out.table(found, ("id", "name", "kind", "paused", "next_firing_at"))
    elif options.do == "run":
        out.pairs(client.run_schedule(options.id))
    elif options.do == "delete":
        client.delete_schedule(options.id)
    elif options.do:
        out.pairs(client.edit_schedule(options.id, paused=options.do == "pause"))
    else:
        out.pairs(client.schedule(options.id))
    return 0


def dead_letters(client: Client, options: argparse.Namespace, out: Output) -> int:
    """Tasks whose attempts are used up; some of them again."""
    if options.retry:
        out.table([client.retry_dead_letter(one) for one in options.retry], RESULT)
    else:
        found = islice(client.dead_letters(**_narrowed(options)), options.limit)
        out.table(found, ("task_id", "handler", "name", "outcome", "at", "reason"))
    return 0


def handlers(client: Client, options: argparse.Namespace, out: Output) -> int:
    """What can be called."""
    if options.name:
        out.pairs(client.handler(options.name))
    else:
        out.table(client.handlers(), ("name", "description"))
    return 0


def usage(client: Client, options: argparse.Namespace, out: Output) -> int:
    """What was used."""
    found = client.usage(since=options.since, until=options.until)
    if out.as_json:
        out.value(found)
        return 0
    out.pairs({"since": found["since"], "until": found["until"], **found["total"]})
    out.table(found["items"], ("day", "tier", "category", "attempts", "succeeded", "run_s", "cpu_s", "price_micros"))
    return 0


def receipts(client: Client, options: argparse.Namespace, out: Output) -> int:
    """What was promised, kept and charged; for programs one to a line, as ``verify-receipts`` reads them."""
    if options.keys:
        out.table(client.receipt_keys(), ("id", "algorithm", "public_key", "created_at"))
        return 0
    asked = {"ended_after": options.since, "ended_before": options.until, "task_id": options.task}
    found: Any = client.receipts(**{name: value for name, value in asked.items() if value is not None})
    found = islice(found, options.limit or (None if out.as_json else 20))
    if out.as_json:
        for one in found:
            out.value(one, indent=None)
    else:
        rows = ({**one, "late_by_s": one["kept"]["late_by_s"], "held_s": one["kept"]["held_s"]} for one in found)
        out.table(rows, RECEIPT)
    return 0


def limits(client: Client, options: argparse.Namespace, out: Output) -> int:
    """The plan and its use."""
    out.pairs(client.limits())
    return 0


def whoami(client: Client, options: argparse.Namespace, out: Output) -> int:
    """Whose key it is."""
    out.pairs(client.whoami())
    return 0


def _show_ended(out: Output, tasks: list[Any]) -> None:
    if len(tasks) == 1 and not out.as_json and tasks[0]["state"] == "succeeded":
        out.line(json.dumps(tasks[0]["result"], ensure_ascii=False))
    elif len(tasks) == 1 and out.as_json:
        out.value(tasks[0])
    else:
        out.table(tasks, RESULT)


def _outcome(ended: list[Any]) -> int:
    return 0 if all(one["status"] == "done" for one in ended) else exit_codes.NOT_SUCCEEDED


def _seconds(options: argparse.Namespace) -> float | None:
    return None if options.wait == float("inf") else options.wait


def _narrowed(options: argparse.Namespace) -> dict[str, Any]:
    found = {name[3:]: value for name, value in vars(options).items() if name.startswith("by_") and value is not None}
    return {**found, "limit": min(options.limit, 500)}


def _needs_id(flag: str | None) -> None:
    if flag is not None:
        raise InvalidInput("name the ID that it is about", field=flag)


def _json_or_text(word: str) -> Any:
    try:
        return read_json(word)
    except ValueError:
        return word


def _read_json(name: str) -> Any:
    try:
        return read_json(sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot be read: {error}", field=name) from None


ACTIONS: Final[dict[str, Action]] = {
    "submit": submit, "status": status, "logs": logs, "cancel": cancel, "retry": retry, "explain": explain, "events": events,
    "workflows": workflows, "schedules": schedules, "dead-letters": dead_letters, "handlers": handlers, "usage": usage,
    "receipts": receipts, "limits": limits, "whoami": whoami,
}  # fmt: skip
