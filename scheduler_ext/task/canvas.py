"""Celery's canvases as tasks that depend on each other: one making of them, for the database and for REST.

As in Celery, a task of a chain gets the result of the one before it as its first argument, the body of a chord the list
of its header's results, and an immutable signature (``.si()``) gets nothing. What becomes of a signature's
options says :mod:`scheduler_ext.task.celery_options`; fields of a Slackwater task are set with
``signature.set(slackwater={"tier": "regular", "category": "urgent"})``; with ``{"map": {}}`` among them it runs once for each
element of the list that the one before it returns, and hands on the list of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from celery.canvas import Signature, maybe_signature

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.task import handlers
from scheduler_ext.task.celery_json import CALL, ERRBACK
from scheduler_ext.task.celery_options import fields_of_call, meant
from scheduler_ext.task.in_flight import MAPS
from scheduler_ext.task.references import MARK
from scheduler_ext.task.steps import Feed, Step, names_in

ACCUMULATE: Final = "celery.accumulate"
"""Celery's task that stands behind a group for the list of its results."""
TIMING: Final = ("countdown", "eta")
_OWN: Final = frozenset(("task_id", "group_id", "chord", "chain"))
WHOLES: Final = {"chain": _OWN | {"link", "link_error"}, "group": _OWN, "chord": _OWN}
"""What a canvas may be given as a whole: Celery's own account of it, and what follows a chain."""


@dataclass(slots=True)
class _Compiler:
    """Turns signatures into tasks whose names begin with ``prefix``."""

    prefix: str
    now: Callable[[], datetime] | None
    tasks: list[dict[str, Any]] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    """Of the tasks so far, without callbacks and errbacks."""

    def compile(self, signature: Any, before: Step | None, where: str, header: Sequence[str] = ()) -> Step:
        """Add the tasks of a signature that gets the result of ``before``; returns its last step.

        ``header``: the tasks whose failure its errbacks hear of too, as the body of a chord.
        """
        kind = signature.get("subtask_type")
        if kind in WHOLES:
            _refuse_of_whole(signature, kind, where)
        if kind == "chain":
            return self._chain(signature, before, where, header)
        if kind == "group":
            return self._group(_members(signature["kwargs"]["tasks"]), before, where)
        if kind == "chord":
            return self._chord(signature, before, where)
        if kind is not None:
            raise InvalidInput(f"a {kind} cannot be stored; write it as a group", field=where)
        return self._task(signature, before, where, header)

    def _chain(self, signature: Any, before: Step | None, where: str, header: Sequence[str]) -> Step:
        steps = [(n, step) for n, step in enumerate(_members(signature["kwargs"]["tasks"])) if not _holds_nothing(step)]
        if not steps:
            raise InvalidInput("the chain is empty", field=where)
        first = len(self._names)
        for n, step in steps:
            before = self.compile(step, before, f"{where}.tasks[{n}]", () if n > steps[0][0] else header)
        assert before is not None
        return self._callbacks(signature, before, where, [*header, *self._names[first:]])

    def _group(self, members: list[Any], before: Step | None, where: str) -> Step:
        if all(map(_holds_nothing, members)):
            raise InvalidInput("the group is empty", field=where)
        last = tuple(
            self.compile(member, before, f"{where}.tasks[{n}]")
            for n, member in enumerate(members)
            if not _holds_nothing(member)
        )
        return Step([one.feed for one in last], before, last)

    def _chord(self, signature: Any, before: Step | None, where: str) -> Step:
        members, body = _header(signature), signature["kwargs"].get("body")
        if body is None:
            raise InvalidInput("the chord has no body", field=f"{where}.body")
        first = len(self._names)
        nothing = all(map(_holds_nothing, members))  # the body is given an empty list then
        collected = Step([], before) if nothing else self._group(members, before, f"{where}.header")
        if body.get("task") == ACCUMULATE:
            return self._callbacks(body, collected, f"{where}.body", self._names[first:])
        return self.compile(body, collected, f"{where}.body", self._names[first:])

    def _task(self, signature: Any, before: Step | None, where: str, header: Sequence[str] = ()) -> Step:
        if signature["task"] in (*MAPS, "celery.chunks"):
            raise InvalidInput("chunks, map and starmap cannot be stored; write them as a group", field=where)
        immutable, feed = bool(signature.get("immutable")), before.feed if before is not None else None
        args = list(signature.get("args") or ())
        name = f"{self.prefix}{len(self.tasks)}:{signature['task']}"[:200]
        kwargs, fields = dict(signature.get("kwargs") or {}), self._options(signature, where)
        if CALL in fields:
            kwargs[CALL] = fields.pop(CALL)
        if "map" in fields:
            fields["map"] = _over(fields["map"], feed, where)
        elif feed is not None and not immutable:
            args.insert(0, {MARK: feed} if feed else [])
        self.tasks.append({
            "name": name, "handler": _handler(signature["task"]), "args": args, "kwargs": kwargs,
            "depends_on": _awaited(before), **fields,
        })  # fmt: skip
        self._names.append(name)
        return self._callbacks(signature, Step(name, before), where, [*header, name])

    def _callbacks(self, signature: Any, step: Step, where: str, watched: list[str]) -> Step:
        """``link`` runs on success with the result; ``link_error`` where one of ``watched`` fails, told which and why."""
        options, names = signature.get("options") or {}, self._names
        for n, callback in enumerate(_members(options.get("link"))):
            self._names = []
            self.compile(callback, step, f"{where}.link[{n}]")
        for n, errback in enumerate(_members(options.get("link_error"))):
            if errback.get("subtask_type") is not None:
                raise InvalidInput("must be a single signature", field=f"{where}.link_error[{n}]")
            self._names, place = [], len(self.tasks)
            self._task(errback, None, f"{where}.link_error[{n}]")
            task = self.tasks[place]
            task |= {"condition": "any_failed", "depends_on": list(dict.fromkeys(watched))}
            if not errback.get("immutable"):
                task["kwargs"][CALL] = {**task["kwargs"].get(CALL, {}), ERRBACK: True}
        self._names = names
        return step

    def _options(self, signature: Any, where: str) -> dict[str, Any]:
        """The fields that a signature's options become; under ``CALL`` what its run is told."""
        options = signature.get("options") or {}
        found = fields_of_call(options, signature.app, self.now and self.now(), where)
        own = options.get("slackwater") or {}
        if not isinstance(own, Mapping) or {"name", "handler", "args", "kwargs", "depends_on"} & set(own):
            raise InvalidInput(
                "may set a task's fields, but not what the canvas says", field=f"{where}.options.slackwater"
            )
        return {**found, **own}


def _awaited(step: Step | None) -> list[str]:
    """The tasks that have ended when a step has: behind an empty header those before it."""
    return [] if step is None else list(dict.fromkeys(names_in(step.feed))) or _awaited(step.before)


def _holds_nothing(signature: Any) -> bool:
    """Whether a group or chain has no task in it: inside of another canvas Celery leaves it out."""
    if signature.get("subtask_type") not in ("chain", "group"):
        return False
    return all(map(_holds_nothing, _members(signature["kwargs"]["tasks"])))


def _over(given: Any, feed: Feed | None, where: str) -> dict[str, Any]:
    """The map of a signature over the result of the one before it."""
    if not isinstance(feed, str) or not isinstance(given, Mapping):
        raise InvalidInput(
            "must be an object, of a signature that follows a single one", field=f"{where}.options.slackwater.map"
        )
    return {**given, "over": feed}


def _refuse_of_whole(signature: Any, kind: str, where: str) -> None:
    """``InvalidInput`` for what a chain, group or chord is given as a whole: nothing of it would reach its tasks."""
    for name in meant(signature.get("options") or {}):
        if name not in WHOLES[kind]:
            raise InvalidInput(f"a {kind} cannot keep it: give it to its signatures", field=f"{where}.options.{name}")
    if signature.get("args"):
        raise InvalidInput(f"a {kind} cannot keep them: give them to its signatures", field=f"{where}.args")


def called_with(canvas: Any, options: Mapping[str, Any]) -> Any:
    """A copy of a canvas whose signatures have the options of its call, where Celery puts them.

    Of a chain its first step has them, of a group each member, of a chord its header and its body, but when to start only
    the header. As in Celery they go before what a signature says itself.
    """
    copy, later = canvas.clone(), {name: value for name, value in options.items() if name not in TIMING}
    match copy.get("subtask_type"):
        case "chain":
            copy.tasks = _first_with(_members(copy.tasks), options, later)
        case "group":
            copy.tasks = [called_with(one, options) for one in _members(copy.tasks)]
        case "chord":
            header = _header(copy)
            copy.tasks = [called_with(one, options) for one in header]
            copy.body = called_with(maybe_signature(copy.body), options if all(map(_holds_nothing, header)) else later)
        case _:
            copy.options.update(options)
            return copy
    for name in options:
        copy.options.pop(name, None)
    return copy


def _first_with(steps: list[Any], options: Mapping[str, Any], later: Mapping[str, Any]) -> list[Any]:
    """The steps of a chain whose first has the options; a group and what follows it are a chord, as in Celery."""
    for n, step in enumerate(steps[:2]):
        if n == 0 or steps[0].get("subtask_type") == "group":
            steps[n] = called_with(step, later if n else options)
    return steps


def _header(signature: Any) -> list[Any]:
    header = signature["kwargs"]["header"]
    return _members(header["kwargs"]["tasks"] if isinstance(header, Mapping) else header)


def _members(value: Any) -> list[Any]:
    if value is None:
        return []
    several = value if isinstance(value, (list, tuple)) else [value]
    return [maybe_signature(one) for one in several]


def _handler(task: str) -> str:
    export = handlers.of_task(task)
    return export.name if export is not None else task


def compile_canvas(
    canvas: Any, *, prefix: str = "", now: Callable[[], datetime] | None = None
) -> tuple[list[dict[str, Any]], Step]:
    """The tasks of a signature, chain, group or chord, and its last step.

    ``now``: the ledger's clock; without one, what is counted from the call is left to the ledger to count.
    """
    signature: Any = maybe_signature(canvas)
    if not isinstance(signature, Signature):
        raise InvalidInput("must be a Celery signature, chain, group or chord", field="canvas")
    compiler = _Compiler(prefix=prefix, now=now)
    last = compiler.compile(signature, None, "canvas")
    if not compiler.tasks:
        raise InvalidInput("holds no task", field="canvas")
    return compiler.tasks, last


def alone(task: dict[str, Any]) -> dict[str, Any]:
    """The only task of what was compiled: nothing names it, so it needs no name."""
    return {key: value for key, value in task.items() if key not in {"name", "depends_on"}}
