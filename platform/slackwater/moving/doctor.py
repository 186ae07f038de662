"""The doctor: what of a Celery app carries over, what changes, what is refused."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from celery import Celery
from celery.app.task import Task
from celery.app.utils import find_app

from scheduler_ext.core.errors import ConfigurationError, InvalidInput
from scheduler_ext.task.celery_options import OPTIONS, TASK, Fate, own_attributes, terms_of
from slackwater.moving import beat, call_sites
from slackwater.moving.findings import OF_FATE, Finding, Verdict

ANYWAY: Final = {"name", "bind", "base"}
"""Every task has them."""
USUAL: Final = {"typing": True}
"""What Celery says of each task by itself."""
OF_TASKS: Final = [option for option in OPTIONS if TASK in option.given and option.name not in ANYWAY]


def load(name: str) -> Celery:
    """The app that ``celery -A NAME`` would find, with all its tasks; ``InvalidInput`` where there is none."""
    sys.path[:0] = [str(Path.cwd())]
    try:
        app: Celery = find_app(name)
        app.loader.import_default_modules()
    except Exception as error:
        raise InvalidInput(f"cannot be loaded: {type(error).__name__}: {error}", field="app") from error
    app.finalize()
    return app


def examine(
    app: Celery, patterns: Collection[str], places: Collection[Path], durable: Collection[str]
) -> list[Finding]:
    """Everything there is to say of the tasks that ``patterns`` name, the calls in ``places``, and the periodic tasks.

    ``durable``: patterns of those that are to be durable; the others stay Celery's.
    """
    tasks = [task for name, task in sorted(app.tasks.items()) if _is_asked_for(name, patterns)]
    found = [finding for task in tasks for finding in _task(task)]
    functions = _functions(tasks)
    kept = _functions([task for name, task in app.tasks.items() if _is_asked_for(name, durable)])
    ordinary = _functions([task for name, task in app.tasks.items() if _is_asked_for(name, ["*"])]) - kept
    for path in call_sites.files(places):
        found += call_sites.read(path, functions, kept, ordinary)
    return found + list(entries(beat.of_app(app), app, patterns))


def entries(periodic: Iterable[beat.Entry], app: Celery, patterns: Collection[str]) -> Iterator[Finding]:
    """Whether each periodic task that ``patterns`` name can be told as a schedule."""
    for entry in periodic:
        if not _is_asked_for(entry.task, patterns):
            continue
        if entry.task not in app.tasks:
            yield Finding(kind="beat", subject=entry.name, option="task", verdict=Verdict.REFUSED,
                          why=f"the app has no task {entry.task}")  # fmt: skip
            continue
        try:
            beat.schedule_of(entry, app)
        except InvalidInput as error:
            yield Finding(kind="beat", subject=entry.name, option=error.field or "", verdict=Verdict.REFUSED,
                          why=error.message)  # fmt: skip
        else:
            yield Finding(kind="beat", subject=entry.name, verdict=Verdict.CARRIES, why="`slackwater import-beat`")


def _functions(tasks: Iterable[Any]) -> set[str]:
    return {task.name.rpartition(".")[2] for task in tasks} | {task.run.__name__ for task in tasks}


def _is_asked_for(name: str, patterns: Collection[str]) -> bool:
    return not name.startswith(("celery.", "slackwater.")) and any(fnmatchcase(name, one) for one in patterns)


def _task(task: Any) -> Iterator[Finding]:
    try:
        terms_of(task)
    except ConfigurationError as error:
        yield Finding(
            kind="task", subject=task.name, option=error.field or "", verdict=Verdict.REFUSED, why=error.message
        )
        return
    if task.soft_time_limit and inspect.iscoroutinefunction(inspect.unwrap(task.run)):
        yield Finding(kind="task", subject=task.name, option="soft_time_limit", verdict=Verdict.REFUSED,
                      why="a soft time limit needs a process of its own: a coroutine has none")  # fmt: skip
        return
    said = [option for option in OF_TASKS if option.fate is not Fate.REFUSED and _sets(task, option.name)]
    for option in said:
        yield Finding(
            kind="task", subject=task.name, option=option.name, verdict=OF_FATE[option.fate], why=option.becomes
        )
    own = own_attributes(task.__class__)
    for name in own:
        yield Finding(kind="task", subject=task.name, option=name, verdict=Verdict.CARRIES,
                      why="an attribute of your own: Celery has no such option")  # fmt: skip
    if not said and not own:
        yield Finding(kind="task", subject=task.name, verdict=Verdict.CARRIES)


def _sets(task: Any, option: str) -> bool:
    """Whether the task, its base class or the app says something else than Celery does of itself."""
    unset = object()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Celery's, of options that it will give up
        value, usual = getattr(task, option, unset), getattr(Task, option, unset)
    if option in dict(Task.from_config):
        # Celery copies the app's settings onto its tasks.
        usual = task.app.conf.defaults[-1].get(dict(Task.from_config)[option], usual)
    return value is not unset and value not in (None, usual, USUAL.get(option))
