"""platform/slackwater/client/{of_tasks,of_platform,bodies}.py: what the client gets and sends, from the OpenAPI document."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final

from drf_spectacular.drainage import GENERATOR_STATS

from slackwater_api.http.reference import document

SENT: Final = (
    "PatchedTaskChange", "TaskIn", "PatchedScheduleChange", "ScheduleIn", "PreviewIn", "PatchedWebhookChange", "WebhookIn",
)  # fmt: skip
OF_TASKS: Final = (
    "Submitted", "WorkflowSubmitted", "TaskSummary", "TaskDetail", "TaskStatusOut", "Explanation", "Quote",
    "HistoryEntry", "AttemptOut", "LogLine", "ChunkOut", "ArtifactOut", "TaskGraphOut", "BulkCancelled",
    "BulkRetried", "WorkflowSummary", "WorkflowDetail", "WorkflowCancelled", "WorkflowRetried", "DeadLetterOut",
)  # fmt: skip
OF_PLATFORM: Final = (
    "ScheduleSummary", "ScheduleDetail", "FiringOut", "PreviewOut", "BackfillOut", "HandlerOut", "ScriptSummary",
    "ScriptDetail", "SecretOut", "WebhookOut", "WebhookMade", "DeliveryOut", "UsageOut", "UsageHint", "LimitsOut", "QueueOut",
    "TierOut", "NodeOut", "OrganizationOut", "ReceiptOut", "ReceiptKeyOut",
)  # fmt: skip
FILTERS: Final = {
    "list_tasks": "TaskFilter", "list_workflows": "WorkflowFilter", "list_schedules": "ScheduleFilter",
    "list_dead_letters": "DeadLetterFilter", "list_webhook_deliveries": "DeliveryFilter",
    "list_receipts": "ReceiptFilter",
}  # fmt: skip
"""Operation -> the shape of its parameters."""
NOT_FILTERS: Final = frozenset({"cursor", "fields", "limit"})
PLAIN: Final = {"integer": "int", "number": "float", "boolean": "bool", "null": "None"}
HEAD: Final = '''"""{what}, as in the OpenAPI document. Written by `make docs`."""

from __future__ import annotations

{imports}
'''


class Shapes:
    """The schemas that are reached, each as a definition that stands before those that use it."""

    def __init__(self, *, sent: bool) -> None:
        self.sent = sent
        self.words: dict[str, str] = {}
        self.made: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}

    def reach(self, name: str) -> str:
        """The name of a schema, defined."""
        schema = described()["components"]["schemas"][name]
        if "enum" in schema:
            self.words[name] = f"{name}: TypeAlias = {literal(schema['enum'])}\n"
        elif "properties" not in schema:
            return self.kind(schema)
        elif name not in self._fields:
            fields = {key: self.kind(value) for key, value in schema["properties"].items()}
            self._fields[name] = fields
            self.made[name] = self._definition(name, schema.get("description", ""), fields)
        return name

    def _definition(self, name: str, doc: str, fields: dict[str, str]) -> str:
        """As more of another shape, where it has all of that."""
        base, inner = "TypedDict", fields
        for other, its in self._fields.items():
            if other != name and len(its) > 3 and its.items() <= fields.items():
                base, inner = other, {key: kind for key, kind in fields.items() if key not in its}
        return typed_dict(name, base, doc, inner, whole=not self.sent)

    def kind(self, schema: dict[str, Any]) -> str:
        """The annotation of a value."""
        if "$ref" in schema:
            return self.reach(schema["$ref"].rsplit("/", 1)[1])
        for key in ("allOf", "oneOf", "anyOf"):
            if key in schema:
                return " | ".join(dict.fromkeys(self.kind(one) for one in schema[key]))
        if "enum" in schema:
            return literal(schema["enum"])
        kinds = schema.get("type", ())
        return " | ".join(self._plain(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)) or "Any"

    def _plain(self, kind: str, schema: dict[str, Any]) -> str:
        """The annotation of a value of one JSON type."""
        if kind == "array":
            return f"{'Sequence' if self.sent else 'list'}[{self.kind(schema['items'])}]"
        if kind == "object":
            values = schema.get("additionalProperties", {})
            return f"dict[str, {self.kind(values) if isinstance(values, dict) else 'Any'}]"
        if kind == "string":
            return "str | datetime" if self.sent and schema.get("format") == "date-time" else "str"
        return PLAIN[kind]


def literal(words: Sequence[str]) -> str:
    """A choice of words."""
    return f"Literal[{', '.join(map(json.dumps, words))}]"


def typed_dict(name: str, base: str, doc: str, fields: dict[str, str], *, whole: bool) -> str:
    """The definition of a dictionary's shape."""
    if any(map(iskeyword, fields)):
        inner = ", ".join(f'"{key}": {kind!r}' for key, kind in fields.items())
        return f'{name} = {base}("{name}", {{{inner}}})\n'
    lines = "".join(f"    {key}: {kind}\n" for key, kind in fields.items())
    doc = doc.partition("\n")[0].replace("``", "`") or name
    return f'class {name}({base}{"" if whole else ", total=False"}):\n    """{doc}"""\n\n{lines}'


def filters() -> Iterator[str]:
    """The shapes of lists' parameters."""
    for item in described()["paths"].values():
        for operation in item.values():
            if name := FILTERS.get(operation.get("operationId", "")):
                given = {
                    one["name"]: _parameter(one["schema"])
                    for one in sorted(operation["parameters"], key=lambda one: str(one["name"]))
                    if one["in"] == "query" and one["name"] not in NOT_FILTERS
                }
                yield typed_dict(name, "TypedDict", "What narrows the list, and its order.", given, whole=False)


def _parameter(schema: dict[str, Any]) -> str:
    if schema.get("format") == "date-time":
        return "str | datetime"
    if schema.get("type") == "object":
        return "Mapping[str, str]"
    return PLAIN.get(schema.get("type", ""), "str | Sequence[str]")


@cache
def described() -> dict[str, Any]:
    """The document, as it is served."""
    with GENERATOR_STATS.silence():
        found: dict[str, Any] = json.loads(json.dumps(document(), default=str))
    return found


def of_tasks() -> str:
    """What comes back of tasks and workflows."""
    return module("What comes back of tasks and workflows", Shapes(sent=False), OF_TASKS)


def of_platform() -> str:
    """What comes back of all else."""
    return module("What comes back of schedules, webhooks and the platform", Shapes(sent=False), OF_PLATFORM)


def bodies() -> str:
    """What is sent."""
    return module("What is sent", Shapes(sent=True), SENT, *filters())


def module(what: str, shapes: Shapes, names: Sequence[str], *more: str) -> str:
    """A module as the formatter leaves it."""
    for name in names:
        shapes.reach(name)
    imports = "from typing import Any, Literal, TypeAlias, TypedDict\n"
    if shapes.sent:
        imports = f"from collections.abc import Mapping, Sequence\nfrom datetime import datetime\n{imports}"
    text = "\n\n".join([
        HEAD.format(what=what, imports=imports) + "".join(shapes.words.values()), *shapes.made.values(), *more
    ])  # fmt: skip
    done = subprocess.run(
        [Path(sys.executable).with_name("ruff"), "format", "-q", "--stdin-filename", "shapes.py", "-"],
        input=text, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    return done.stdout
