"""Reading recorded workflows in WfFormat 1.5 (https://wfcommons.org/format): pure, from text to values.

A file has a specification (what the workflow is: tasks, parents, children) and an execution (what happened when it ran:
run times, memory, priorities). Both are joined here by task id; everything else in a file is left alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler_ext.core.dag import Dag
from scheduler_ext.core.errors import InvalidInput

SCHEMA_VERSION = "1.5"
MEBIBYTE = 1 << 20
MAX_PRIORITY = 1000
TAG_LENGTH = 63
CAP_FACTOR = 3
CAP_EXTRA_S = 60.0
"""Execution cap of an imported task: its run time, three times, and a minute: the machine may be busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTask:
    """One task of a recorded run."""

    id: str
    name: str
    runtime_s: float
    memory_bytes: int | None
    """The most it held; ``None`` where nothing was recorded."""
    priority: int
    program: str
    parents: tuple[str, ...]
    """Ids, in the order of the file."""

    @property
    def memory_mb(self) -> int | None:
        """Its memory in MiB, rounded up."""
        return None if self.memory_bytes is None else math.ceil(self.memory_bytes / MEBIBYTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWorkflow:
    """A recorded run."""

    name: str
    tasks: tuple[RecordedTask, ...]
    makespan_s: float | None
    """How long it took where it was recorded."""

    @property
    def edges(self) -> int:
        """How many dependencies it has."""
        return sum(len(task.parents) for task in self.tasks)

    def dag(self) -> Dag:
        """Its graph by task id; ``DependencyCycle`` names a cycle."""
        return Dag.build([task.id for task in self.tasks], [task.parents for task in self.tasks])


@dataclass(frozen=True, slots=True, kw_only=True)
class TierMemory:
    """A tier one may choose, with its memory."""

    slug: str
    memory_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What is handed to the submission service, and what the reader of the report should know."""

    workflow: dict[str, Any]
    tiers: dict[str, int]
    """How many tasks each tier got."""
    too_large: dict[str, int] = field(default_factory=dict)
    """Tasks whose recorded memory no tier offers, with that memory in MiB."""


def read_workflow(text: str) -> RecordedWorkflow:
    """Read a file's text. ``InvalidInput`` says what is wrong and names the field."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"is not JSON: {error}") from None
    root = _object(data, "")
    version = root.get("schemaVersion")
    if version != SCHEMA_VERSION:
        raise InvalidInput(f"must be {SCHEMA_VERSION!r}, not {version!r}", field="schemaVersion")
    workflow = _object(root.get("workflow"), "workflow")
    specification = _object(workflow.get("specification"), "workflow.specification")
    execution = _object(workflow.get("execution"), "workflow.execution")
    runs = _runs(execution)
    tasks = _tasks(specification, runs)
    makespan = execution.get("makespanInSeconds")
    found = RecordedWorkflow(
        name=str(root.get("name") or "workflow")[:200],
        tasks=tasks,
        makespan_s=None if makespan is None else _seconds(makespan, "workflow.execution.makespanInSeconds"),
    )
    found.dag()
    return found


def _runs(execution: Mapping[str, Any]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """What was recorded of each task: id -> (field path, record)."""
    runs: dict[str, tuple[str, Mapping[str, Any]]] = {}
    where = "workflow.execution.tasks"
    for n, item in enumerate(_array(execution.get("tasks"), where)):
        path = f"{where}[{n}]"
        record = _object(item, path)
        key = _text(record.get("id"), f"{path}.id")
        if key in runs:
            raise InvalidInput(f"the id {key!r} was used before", field=f"{path}.id")
        runs[key] = (path, record)
    return runs


def _tasks(specification: Mapping[str, Any], runs: Mapping[str, tuple[str, Mapping[str, Any]]],
           ) -> tuple[RecordedTask, ...]:  # fmt: skip
    where = "workflow.specification.tasks"
    items = [_object(item, f"{where}[{n}]") for n, item in enumerate(_array(specification.get("tasks"), where))]
    if not items:
        raise InvalidInput("must not be empty", field=where)
    ids = [_text(item.get("id"), f"{where}[{n}].id") for n, item in enumerate(items)]
    parents = _parents(items, ids, where)
    tasks = []
    for n, (item, key) in enumerate(zip(items, ids, strict=True)):
        if key not in runs:
            raise InvalidInput(f"workflow.execution.tasks has no run of {key!r}", field=f"{where}[{n}].id")
        path, record = runs[key]
        tasks.append(
            RecordedTask(
                id=key,
                name=_text(item.get("name", key), f"{where}[{n}].name"),
                runtime_s=_seconds(record.get("runtimeInSeconds"), f"{path}.runtimeInSeconds"),
                memory_bytes=_memory(record.get("memoryInBytes"), f"{path}.memoryInBytes"),
                priority=_priority(record.get("priority"), f"{path}.priority"),
                program=_program(record.get("command")),
                parents=parents[key],
            )
        )
    return tuple(tasks)


def _parents(items: Sequence[Mapping[str, Any]], ids: Sequence[str], where: str) -> dict[str, tuple[str, ...]]:
    """Every task's parents: those it names, and those that name it as a child."""
    found: dict[str, dict[str, None]] = {}
    for n, key in enumerate(ids):
        if key in found:
            raise InvalidInput(f"the id {key!r} was used before", field=f"{where}[{n}].id")
        found[key] = {}
    for kind in ("parents", "children"):
        for n, (item, key) in enumerate(zip(items, ids, strict=True)):
            path = f"{where}[{n}].{kind}"
            for place, other in enumerate(_array(item.get(kind, []), path)):
                if not isinstance(other, str) or other not in found:
                    raise InvalidInput(f"there is no task {other!r}", field=f"{path}[{place}]")
                parent, child = (other, key) if kind == "parents" else (key, other)
                found[child][parent] = None
    return {key: tuple(needs) for key, needs in found.items()}


def plan_import(recorded: RecordedWorkflow, *, scale: float, tiers: Sequence[TierMemory], name: str = "",
                handler: str = "demo.sleep") -> ImportPlan:  # fmt: skip
    """A submission that does each task's recorded run time times ``scale`` (greater than 0) in a slot of its own."""
    if not (scale > 0 and math.isfinite(scale)):
        raise InvalidInput("must be a number greater than 0", field="time_scale")
    if not tiers:
        raise InvalidInput("the plan allows no tier", field="tier")
    by_memory = sorted(tiers, key=lambda tier: (tier.memory_mb, tier.slug))
    names = [task.name for task in recorded.tasks]
    # A name that two tasks share cannot say which one is needed; ids are unique.
    chosen = {task.id: task.name if len(set(names)) == len(names) else task.id for task in recorded.tasks}
    counts: dict[str, int] = {}
    too_large: dict[str, int] = {}
    tasks = []
    for task in recorded.tasks:
        tier, fits = _tier_for(task, by_memory)
        counts[tier.slug] = counts.get(tier.slug, 0) + 1
        if not fits:
            too_large[chosen[task.id]] = task.memory_mb or 0
        seconds = round(task.runtime_s * scale, 6)
        tasks.append(
            {
                "name": chosen[task.id],
                "handler": handler,
                "kwargs": {"seconds": seconds},
                "depends_on": [chosen[parent] for parent in task.parents],
                "tier": tier.slug,
                "priority": task.priority,
                "execution_cap": math.ceil(CAP_FACTOR * seconds + CAP_EXTRA_S),
                "tags": _tags("recorded", recorded.name, task.program),
            }
        )
    workflow = {"name": name or f"{recorded.name} x {scale:g}", "tasks": tasks}
    return ImportPlan(workflow=workflow, tiers=counts, too_large=too_large)


def _tier_for(task: RecordedTask, by_memory: Sequence[TierMemory]) -> tuple[TierMemory, bool]:
    """The smallest tier whose memory fits (the smallest of all where none was recorded), else the largest."""
    needed = task.memory_mb or 0
    for tier in by_memory:
        if tier.memory_mb >= needed:
            return tier, True
    return by_memory[-1], False


def _tags(*words: str) -> list[str]:
    return list(dict.fromkeys(word[:TAG_LENGTH] for word in words if word))


def _program(command: Any) -> str:
    """The name of the program that ran, where the file tells it; whole shell scripts are left out."""
    program = command.get("program") if isinstance(command, Mapping) else None
    if not isinstance(program, str) or "\n" in program or len(program) > TAG_LENGTH:
        return ""
    return program.strip()


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput("is missing" if value is None else "must be an object", field=path or None)
    return value


def _array(value: Any, path: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise InvalidInput("is missing" if value is None else "must be an array", field=path)
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput("is missing" if value is None else "must be a string that is not empty", field=path)
    return value


def _number(value: Any, path: str) -> float:
    if value is None:
        raise InvalidInput("is missing", field=path)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise InvalidInput("must be a number that is not negative", field=path)
    return float(value)


_seconds = _number


def _memory(value: Any, path: str) -> int | None:
    return None if value is None else math.ceil(_number(value, path))


def _priority(value: Any, path: str) -> int:
    return 0 if value is None else min(MAX_PRIORITY, round(_number(value, path)))
