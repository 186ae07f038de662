"""The mixed workload of a run: what is submitted, and how each task of it must end. Drawn from the seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SUCCEEDS, FAILS = "succeeded", "failed"
KEYS = 4
"""Mutex keys in use."""
MANY = 10
"""Attempts a task is allowed that must get through whatever is killed under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What must become of one task."""

    kind: str
    ends: str = SUCCEEDS
    parents: tuple[int, ...] = ()
    """Places of the tasks it needs within its submission."""
    mutex_key: str = ""
    """Held so shortly that nobody may be seen acting beside it."""
    effect: str = ""
    """Key of its effect; ``inside`` or ``outside`` by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One call of a client: a path, a body, and what is expected of each task in it."""

    number: int
    path: str
    body: Any
    expected: tuple[Expected, ...] = field(default=())


def workload(tasks: int, seed: int, folder: str) -> Iterator[Submission]:
    """Submissions with ``tasks`` tasks in all."""
    rng = random.Random(seed)
    left, number = tasks, 0
    while left > 0:
        submission = _one(rng, number, folder, left)
        left -= len(submission.expected)
        number += 1
        yield submission


def _one(rng: random.Random, number: int, folder: str, left: int) -> Submission:
    draw = rng.random()
    if draw < 0.10 and left >= 8:
        return _many_short(rng, number, folder, min(left, rng.randint(8, 24)))
    if draw < 0.17 and left >= 5:
        return _graph(rng, number, folder)
    body, expected = _task(rng, number, folder)
    return Submission(number=number, path="/tasks", body=body, expected=(expected,))


def _many_short(rng: random.Random, number: int, folder: str, count: int) -> Submission:
    item = {"handler": "torture.short", "args": [folder], "total_attempts": MANY}
    return Submission(number=number, path="/tasks", body=[item] * count, expected=(Expected(kind="short"),) * count)


def _task(rng: random.Random, number: int, folder: str) -> tuple[dict[str, Any], Expected]:
    kind = rng.choices(
        ["short", "long", "steps", "flaky", "failing", "capped", "mutex", "guarded", "inside", "outside"],
        [28, 8, 16, 8, 4, 5, 10, 2, 10, 9],
    )[0]
    base: dict[str, Any] = {
        "total_attempts": MANY, "retry": {"max_s": 1}, "args": [folder],
        "category": rng.choice(["urgent", "delayable", "delayable"]),
        "tags": [f"n{number}"],
    }  # fmt: skip
    if kind == "short":
        return {**base, "handler": "torture.short"}, Expected(kind=kind)
    if kind == "long":
        seconds = round(rng.uniform(0.3, 2.5), 2)
        return {**base, "handler": "torture.long", "args": [folder, seconds]}, Expected(kind=kind)
    if kind == "steps":
        seconds = round(rng.uniform(1.0, 6.0), 2)
        return {**base, "handler": "torture.steps", "args": [folder, seconds]}, Expected(kind=kind)
    if kind == "flaky":
        times = rng.randint(1, 2)
        return {**base, "handler": "torture.flaky", "args": [folder, times]}, Expected(kind=kind)
    if kind == "failing":
        body = {**base, "handler": "torture.flaky", "args": [folder, 99], "total_attempts": 2}
        return body, Expected(kind=kind, ends=FAILS)
    if kind == "capped":
        body = {**base, "handler": "torture.endless", "execution_cap_s": 1, "total_attempts": rng.randint(1, 2)}
        return body, Expected(kind=kind, ends=FAILS)
    if kind == "mutex":
        key = f"key-{rng.randrange(KEYS)}"
        seconds = round(rng.uniform(0.02, 0.4), 2)
        body = {**base, "handler": "torture.exclusive", "args": [folder, seconds], "mutex_key": key}
        return body, Expected(kind=kind, mutex_key=key)
    if kind == "guarded":
        # Longer than a lease: a holder behind a cut link is replaced while it acts.
        key, seconds = f"guarded-{rng.randrange(KEYS)}", round(rng.uniform(4.0, 7.0), 2)
        body = {**base, "handler": "torture.guarded", "args": [folder, key, seconds], "mutex_key": key}
        return body, Expected(kind=kind)
    effect = f"effect-{number}"
    return {**base, "handler": f"torture.{kind}", "args": [folder, effect]}, Expected(kind=kind, effect=effect)


def _graph(rng: random.Random, number: int, folder: str) -> Submission:
    """A start, two to four beside each other, and an end that needs them all."""
    middle = rng.randint(2, 4)
    tasks: list[dict[str, Any]] = [{"name": "start", **_step(rng, folder)}]
    expected = [Expected(kind="graph")]
    for n in range(middle):
        tasks.append({"name": f"m{n}", "depends_on": ["start"], **_step(rng, folder)})
        expected.append(Expected(kind="graph", parents=(0,)))
    needed = [f"m{n}" for n in range(middle)]
    tasks.append({"name": "end", "depends_on": needed, **_step(rng, folder)})
    expected.append(Expected(kind="graph", parents=tuple(range(1, middle + 1))))
    body = {"name": f"n{number}", "tasks": tasks}
    return Submission(number=number, path="/workflows", body=body, expected=tuple(expected))


def _step(rng: random.Random, folder: str) -> dict[str, Any]:
    if rng.random() < 0.7:
        return {"handler": "torture.short", "args": [folder], "total_attempts": MANY}
    seconds = round(rng.uniform(0.05, 0.5), 2)
    return {"handler": "torture.long", "args": [folder, seconds], "total_attempts": MANY}
