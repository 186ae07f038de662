"""Measurements of single steps, run inside a process of the platform against real servers."""

from collections.abc import Callable

from tests.lab.benchmarks.micro import batches, dag, rounds, schedules, steps

MICROS: dict[str, Callable[..., None]] = {
    "rounds": rounds.run,
    "batches": batches.run,
    "dag": dag.run,
    "steps": steps.run,
    "schedules": schedules.run,
}
