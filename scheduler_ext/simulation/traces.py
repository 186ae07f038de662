"""Readers of recorded work: SWF, WfFormat 1.5, the Azure Functions sample; ``read`` chooses by the file's name.

Every reader tells a malformed line by its number and field (``InvalidInput``).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.wfformat import MEBIBYTE, RecordedTask, read_workflow
from scheduler_ext.simulation.generator import read_yaml
from scheduler_ext.simulation.model import Cell, Job, Trace

MICRO: Final = 1_000_000
_SWF_FIELDS: Final = 18


def read(path: Path, *, seed: int = 0) -> tuple[Trace, Cell]:
    """Read a trace, with the cell it suggests; ``seed`` is for generators."""
    name = path.name.lower()
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}", field="trace")
    if name.endswith((".swf", ".swf.gz")):
        return read_swf(path)
    if name.endswith(".json"):
        return read_wfformat(path)
    if name.endswith(".csv"):
        return read_azure(path)
    if name.endswith((".yaml", ".yml")):
        return read_yaml(path, seed=seed)
    raise InvalidInput("must end in .swf, .swf.gz, .json, .csv, .yaml or .yml", field="trace")


def read_swf(path: Path) -> tuple[Trace, Cell]:
    """Standard Workload Format: a job's processors are its CPUs, its user is its tenant.

    Jobs without run time or processors (never started) are left out. The requested time is what a job is expected to
    run; where the log has none, its real one. The cell is one machine with the processors of the log's header.
    """
    jobs: list[Job] = []
    tenants: dict[int, str] = {}
    machine = 0
    begins_at = 0.0
    requested = False
    for number, line in enumerate(_lines(path), start=1):
        if line.startswith(";"):
            key, _, value = line[1:].partition(":")
            if key.strip() in ("MaxProcs", "MaxNodes") and value.strip().isdecimal():
                machine = max(machine, int(value))
            elif key.strip() == "UnixStartTime" and value.strip().isdecimal():
                begins_at = float(value)
            continue
        if not line.strip():
            continue
        values = _swf_line(line, number)
        run, processors = values[3], values[4] if values[4] > 0 else values[7]
        if run < 0 or processors <= 0 or values[1] < 0:
            continue
        tenant = values[11]
        requested = requested or values[8] > 0
        tenants.setdefault(tenant, f"user {tenant}")
        jobs.append(
            Job(
                len(jobs),
                values[1] * MICRO,
                max(1, run * MICRO),
                tenant=tenant,
                vector=(processors * 1000, 0, 0, 0, 0, 0),
                expected_us=max(1, (values[8] if values[8] > 0 else run) * MICRO),
                handler=str(values[13]),
                name=str(values[0]),
            )
        )
    widest = max((job.vector[0] // 1000 for job in jobs), default=1)
    slots = machine or widest
    trace = Trace(name=path.stem, jobs=_in_order(jobs), tenants=tenants, begins_at=begins_at, requested=requested)
    return trace, Cell(nodes=1, slots=slots)


def _swf_line(line: str, number: int) -> list[int]:
    fields = line.split()
    if len(fields) < _SWF_FIELDS:
        raise InvalidInput(f"has {len(fields)} fields, not {_SWF_FIELDS}", field=f"line {number}")
    try:
        return [int(float(field)) for field in fields]
    except ValueError as error:
        raise InvalidInput(f"is not a number: {error}", field=f"line {number}") from error


def read_wfformat(path: Path) -> tuple[Trace, Cell]:
    """A recorded workflow (WfFormat 1.5): all tasks arrive at once and wait for their parents."""
    recorded = read_workflow(path.read_text(encoding="utf-8"))
    parents = recorded.dag().parents
    jobs = [_recorded_job(index, task, parents[index]) for index, task in enumerate(recorded.tasks)]
    return Trace(name=path.stem, jobs=jobs, tenants={0: path.stem}), Cell(nodes=1, slots=4)


def _recorded_job(index: int, task: RecordedTask, parents: Iterable[int]) -> Job:
    run = max(1, int(task.runtime_s * MICRO))
    memory = (task.memory_bytes or 0) // MEBIBYTE
    return Job(index, 0, run, vector=(1000, memory, 0, 0, 0, 0), expected_us=run, parents=tuple(parents),
               name=task.id, workflow=0)  # fmt: skip


def read_azure(path: Path) -> tuple[Trace, Cell]:
    """Azure Functions 2021: an app is a tenant; an invocation arrives when it ended less its duration."""
    rows: list[tuple[int, int, str, str]] = []
    with path.open(encoding="utf-8", newline="") as source:
        for number, row in enumerate(csv.DictReader(source), start=2):
            try:
                end, run = float(row["end_timestamp"]), float(row["duration"])
                app, func = row["app"], row["func"]
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidInput(f"cannot be read: {error!r}", field=f"line {number}") from error
            rows.append((max(0, int((end - run) * MICRO)), max(1, int(run * MICRO)), app, func))
    rows.sort()
    apps = {app: index for index, app in enumerate(dict.fromkeys(row[2] for row in rows))}
    learnt: dict[str, tuple[int, int]] = {}
    jobs: list[Job] = []
    for arrived, run, app, func in rows:
        count, total = learnt.get(func, (0, 0))
        expected = total // count if count else None
        learnt[func] = (count + 1, total + run)
        jobs.append(
            Job(len(jobs), arrived, run, tenant=apps[app], expected_us=expected, name=f"{func[:8]}-{len(jobs)}")
        )
    tenants = {index: app[:8] for app, index in apps.items()}
    return Trace(name=path.stem, jobs=jobs, tenants=tenants), Cell(nodes=1, slots=4)


def _lines(path: Path) -> Iterator[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as source:
        yield from source


def hurry(trace: Trace, load: float) -> Trace:
    """The same work arriving ``load`` times as fast."""
    if load <= 0:
        raise InvalidInput("must be greater than 0", field="load")
    for job in trace.jobs:
        arrived = int(job.arrived_us / load)
        if job.latest_start_us is not None:
            job.latest_start_us += arrived - job.arrived_us
            job.latest_start = job.latest_start_us / MICRO
        job.arrived_us = arrived
        job.submitted_at = arrived / MICRO
    return trace


def limit_workflows(trace: Trace, most: int) -> None:
    """Let so many tasks of each workflow run at a time, at most; 0: as many as there are."""
    for job in trace.jobs if most else ():
        if job.workflow is not None:
            job.mutex_key, job.mutex_limit = f"workflow {job.workflow}", most


def _in_order(jobs: list[Job]) -> list[Job]:
    """Sort by arrival and number anew."""
    jobs.sort(key=lambda job: job.arrived_us)
    for index, job in enumerate(jobs):
        job.index = index
    return jobs
