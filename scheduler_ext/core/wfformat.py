"""Reads recorded workflows in WfFormat 1.5 (https://wfcommons.org/format): pure, from text to values.

A file has a specification (what the workflow is: tasks, parents, children) and an execution (what happened when it ran:
run times, memory, priorities). Both are joined here by task id; everything else in a file is left alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler_ext.core.dag import Dag
from scheduler_ext.core.errors import InvalidInput

SCHEMA_VERSION = "1.5"
MEBIBYTE = 1 << 20
MAX_PRIORITY = 1000
MAX_PROGRAM = 63
"""The longest name of a program; what is longer is a script's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTask:
    """One task of a recorded run."""

    id: str
    name: str
    runtime_s: float
    memory_bytes: int | None
    """The most memory it held; ``None`` where nothing was recorded."""
    priority: int
    program: str
    parents: tuple[str, ...]
    """Ids, in the order of the file."""

    @property
    def memory_mb(self) -> int | None:
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
        return sum(len(task.parents) for task in self.tasks)

    def dag(self) -> Dag:
        """Its graph by task id; ``DependencyCycle`` names a cycle."""
        return Dag.build([task.id for task in self.tasks], [task.parents for task in self.tasks])


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
        makespan_s=None if makespan is None else _number(makespan, "workflow.execution.makespanInSeconds"),
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
                runtime_s=_number(record.get("runtimeInSeconds"), f"{path}.runtimeInSeconds"),
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


def _program(command: Any) -> str:
    """The name of the program that ran, where the file tells it; whole shell scripts are left out."""
    program = command.get("program") if isinstance(command, Mapping) else None
    if not isinstance(program, str) or "\n" in program or len(program) > MAX_PROGRAM:
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


def _memory(value: Any, path: str) -> int | None:
    return None if value is None else math.ceil(_number(value, path))


def _priority(value: Any, path: str) -> int:
    return 0 if value is None else min(MAX_PRIORITY, round(_number(value, path)))
