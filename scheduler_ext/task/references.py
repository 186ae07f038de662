"""Results of parents as inputs: ``{"$from": "parent", "path": "a.b"}`` in an argument is filled in as the task starts.

``$from`` is a parent's name (or id), or a list of them, which gives the list of their results, lists inside it
included; ``path`` goes into each result by keys and places, separated by dots. Only a whole argument can be such a
reference; deeper in an argument it is data like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.work import Started

MARK = "$from"


def is_reference(value: Any) -> bool:
    return type(value) is dict and MARK in value


def check(value: dict[str, Any], field: str) -> list[str]:
    """The parents a reference names; ``InvalidInput`` when it cannot be filled in."""
    if set(value) - {MARK, "path"}:
        raise InvalidInput(f"a reference has the fields {MARK} and path only", field=field)
    if not isinstance(value.get("path", ""), str):
        raise InvalidInput("must be a string", field=f"{field}.path")
    return list(_names(value[MARK], field))


def _names(wanted: Any, field: str) -> Iterator[str]:
    if isinstance(wanted, str) and wanted:
        yield wanted
    elif isinstance(wanted, list) and wanted:
        for entry in wanted:
            yield from _names(entry, field)
    else:
        raise InvalidInput(f"{MARK} must be the name of a task, or a list of names", field=field)


def refers(started: Started) -> bool:
    """Whether any argument of a task stands for a parent's result."""
    return any(map(is_reference, (*started.args, *started.kwargs.values())))


def filled(started: Started, parents: Callable[[str], dict[str, Any]]) -> Started:
    """Fill the task's references in; a task without any is returned as it is, without a query.

    ``parents`` gives the results of a task's parents, each by its name and by its id.
    """
    # Loops by hand: every task passes here, and the builtins that read better cost four times as much.
    for value in started.args:
        if type(value) is dict and MARK in value:
            break
    else:
        for value in started.kwargs.values():
            if type(value) is dict and MARK in value:
                break
        else:
            return started
    results = parents(started.task_id)
    return replace(
        started,
        args=[value_of(a, results, f"args[{n}]") for n, a in enumerate(started.args)],
        kwargs={name: value_of(a, results, f"kwargs.{name}") for name, a in started.kwargs.items()},
    )


def value_of(argument: Any, results: dict[str, Any], field: str) -> Any:
    """An argument with the results of parents, each by its name, in place of a reference."""
    if not is_reference(argument):
        return argument
    steps = [step for step in argument.get("path", "").split(".") if step]
    return _results(argument[MARK], results, steps, field)


def _results(wanted: Any, results: dict[str, Any], steps: list[str], field: str) -> Any:
    if isinstance(wanted, list):
        return [_results(entry, results, steps, field) for entry in wanted]
    if wanted not in results:
        raise InvalidInput(f"the task does not depend on {wanted!r}", field=field)
    value = results[wanted]
    for step in steps:
        value = _step(value, step, wanted, field)
    return value


def _step(value: Any, step: str, wanted: str, field: str) -> Any:
    try:
        return value[int(step)] if isinstance(value, list) else value[step]
    except (KeyError, IndexError, ValueError, TypeError):
        raise InvalidInput(f"the result of {wanted!r} has no {step!r}", field=field) from None
