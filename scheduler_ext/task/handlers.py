"""Handlers: registered functions that tenants may run.

    @shared_task
    def thumbnail(path, width): ...

    export(thumbnail)

or, in one step, ``@handler(name="photos.thumbnail")`` on a plain function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.labels import MOST, fault_in
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import WorkKind
from scheduler_ext.core.work import Export
from scheduler_ext.task.signature import Schema, schema_of

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_exports: dict[str, Export] = {}
_functions: dict[str, Any] = {}
"""By a handler's name: what it runs."""
_patterns: list[str] = []
_shadow: list[str] = []
RESERVED = ("celery.", "slackwater.")
MOST_NAME = 200
"""Letters of a handler's name; no submission could say more."""
export_late: Callable[[str], None] | None = None
"""Exports a declared task when it is first looked for. A worker exports all at its start, and needs none."""


class HandlerTask(Protocol[P, R_co]):
    """The Celery task that ``@handler`` makes of a function: it is called, and submitted, with the function's arguments."""

    name: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here and now."""

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Submit a task; returns Celery's ``AsyncResult``."""

    def si(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """A signature that is given nothing more."""

    def s(self, *args: Any, **kwargs: Any) -> Any:
        """A signature, whose first argument may be the result of the task before it."""

    def apply_async(self, args: Any = ..., kwargs: Any = ..., **options: Any) -> Any:
        """Submit a task with Celery's options of a call; returns an ``AsyncResult``."""

    def __getattr__(self, name: str) -> Any:
        """All else that a task of Celery's has."""


def export(
    task: Any,
    *,
    name: str | None = None,
    kind: WorkKind | None = None,
    idempotent: bool = False,
    checkpoints: bool = False,
    category: str | None = None,
    delay_tolerance_s: float | None = None,
    require_labels: Sequence[str] = (),
    prefer_labels: Sequence[str] = (),
) -> Any:
    """Offer a Celery task to tenants under ``name`` (its Celery name by default); returns the task.

    It keeps Celery's meaning: see :mod:`scheduler_ext.task.celery_options`. ``kind`` is the sort of slot it needs: a
    process by default, a coroutine for an ``async def``.
    ``checkpoints``: it saves them, and yields when it is asked to.
    ``category`` and ``delay_tolerance_s``: those of its tasks, unless a tenant's plan or the submission says otherwise.
    ``require_labels``: its tasks run only on nodes that have all of them (``gpu=a100``), beside what the submission
    requires; ``prefer_labels``: those come first, unless the submission says otherwise.
    Raises :class:`ConfigurationError` when the name is taken by another task, or an option cannot be kept.
    """
    from scheduler_ext.task.celery_options import terms_of

    if name is not None:
        _check_name(name)
    schema, terms = schema_of(task.run) if getattr(task, "typing", True) else None, terms_of(task)
    _enter(inspect.unwrap(task.run), task.name, name or task.name, kind, idempotent, checkpoints, schema,
           defaults={**terms.defaults, **_urgency(category, delay_tolerance_s), **_labels(require_labels, prefer_labels)},
           repeats=terms.repeats, rate=terms.rate, soft=task.soft_time_limit)  # fmt: skip
    return task


@overload
def handler(
    *, name: str, bind: Literal[True], kind: WorkKind | None = ..., idempotent: bool = ..., checkpoints: bool = ...,
    category: str | None = ..., delay_tolerance_s: float | None = ..., require_labels: Sequence[str] = ...,
    prefer_labels: Sequence[str] = ..., **options: Any
) -> Callable[[Callable[Concatenate[Any, P], R]], HandlerTask[P, R]]: ...  # fmt: skip
@overload
def handler(
    *, name: str, kind: WorkKind | None = ..., idempotent: bool = ..., checkpoints: bool = ...,
    category: str | None = ..., delay_tolerance_s: float | None = ..., require_labels: Sequence[str] = ...,
    prefer_labels: Sequence[str] = ..., **options: Any
) -> Callable[[Callable[P, R]], HandlerTask[P, R]]: ...  # fmt: skip
def handler(
    *, name: str, kind: WorkKind | None = None, idempotent: bool = False, checkpoints: bool = False,
    category: str | None = None, delay_tolerance_s: float | None = None, require_labels: Sequence[str] = (),
    prefer_labels: Sequence[str] = (), **options: Any
) -> Callable[[Callable[..., Any]], HandlerTask[..., Any]]:  # fmt: skip
    """Make a function a Celery task and export it under ``name``; ``options`` go to Celery's ``shared_task``.

    They become what those of an exported task become (:mod:`scheduler_ext.task.celery_options`), but for its repeats: it
    is run again while attempts are left, at most ``max_retries`` times where that is given. The rest is as in
    :func:`export`. Raises :class:`ConfigurationError` likewise.
    """

    from celery import shared_task  # on first use: what only looks handlers up needs no Celery

    from scheduler_ext.task.celery_options import terms_of_function

    _check_name(name)
    terms = terms_of_function(name, options)

    def decorate(function: Callable[..., Any]) -> HandlerTask[..., Any]:
        schema = schema_of(function, bound=bool(options.get("bind"))) if options.get("typing", True) else None
        _enter(function, name, name, kind, idempotent, checkpoints, schema,
               defaults={**terms.defaults, **_urgency(category, delay_tolerance_s), **_labels(require_labels, prefer_labels)},
               repeats=terms.repeats, rate=terms.rate, soft=options.get("soft_time_limit"))  # fmt: skip
        task: HandlerTask[..., Any] = shared_task(name=name, **options)(function)  # type: ignore[no-untyped-call]  # Celery's decorator has no types
        return task

    return decorate


def _urgency(category: str | None, delay_tolerance_s: float | None) -> dict[str, Any]:
    """Check the defaults of a handler's tasks; :class:`ConfigurationError` names the one that is wrong."""
    known = [member.name.lower() for member in Category]
    if category is not None and category not in known:
        raise ConfigurationError(f"must be one of {', '.join(known)}", field="category")
    if delay_tolerance_s is not None and not delay_tolerance_s >= 0:
        raise ConfigurationError("must not be negative", field="delay_tolerance_s")
    given = {"category": category, "delay_tolerance_s": delay_tolerance_s}
    return {name: value for name, value in given.items() if value is not None}


def _labels(require: Sequence[str], prefer: Sequence[str]) -> dict[str, Any]:
    """Check the labels that a handler's tasks ask for; :class:`ConfigurationError` names the one that is wrong."""
    given = {"require_labels": require, "prefer_labels": prefer}
    for name, labels in given.items():
        if isinstance(labels, str) or len(labels) > MOST:
            raise ConfigurationError(f"must be a list of at most {MOST} labels", field=name)
        for label in labels:
            if fault := fault_in(label):
                raise ConfigurationError(f"{label!r} {fault}", field=name)
    return {name: list(labels) for name, labels in given.items() if labels}


def _enter(
    function: Callable[..., Any], task: str, name: str, kind: WorkKind | None, idempotent: bool, checkpoints: bool,
    schema: Schema | None, *, soft: float | None = None, **terms: Any,
) -> None:  # fmt: skip
    chosen = _kind_of(function, kind)
    if soft and chosen is not WorkKind.PROCESS:
        raise ConfigurationError(f"{task}: a soft_time_limit needs a process of its own", field="kind")
    known = _exports.get(name)
    if known is not None and known.task != task:
        raise ConfigurationError(f"the handler name {name!r} is already used by the task {known.task!r}", field="name")
    _functions[name] = _bare(function)
    summary = (inspect.getdoc(function) or "").split("\n\n", 1)[0]
    _exports[name] = Export(
        name=name, task=task, kind=chosen, idempotent=idempotent, description=summary, checkpoints=checkpoints,
        schema=schema, **terms,
    )  # fmt: skip


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_NAME or not name.isprintable() or " " in name:
        raise ConfigurationError(
            f"must have 1 to {MOST_NAME} letters without spaces among them, not {name!r}", field="name"
        )


def _kind_of(function: Callable[..., Any], kind: WorkKind | None) -> WorkKind:
    """The kind of slot that a function needs, chosen or its own; :class:`ConfigurationError` for one it cannot have."""
    is_coroutine = inspect.iscoroutinefunction(function)
    if kind is None:
        return WorkKind.COROUTINE if is_coroutine else WorkKind.PROCESS
    bare = inspect.unwrap(function)
    if kind is WorkKind.SCRIPT:
        raise ConfigurationError("a handler is no script", field="kind")
    if not isinstance(kind, WorkKind):
        raise ConfigurationError(
            f"must be WorkKind.PROCESS, WorkKind.THREAD or WorkKind.COROUTINE, not {kind!r}", field="kind"
        )
    if kind is WorkKind.COROUTINE and not (inspect.iscoroutinefunction(bare) or inspect.isasyncgenfunction(bare)):
        raise ConfigurationError(
            "only an async def can be a coroutine: any other would hold up its neighbours", field="kind"
        )
    return kind


def _bare(function: Any) -> Any:
    """A function without decorators, and without the task it is bound to."""
    function = inspect.unwrap(function)
    return getattr(function, "__func__", function)


def is_exported(task: Any) -> bool:
    """Whether a Celery task is a handler, whichever application it is of: a shared task belongs to several."""
    export = of_task(task.name)
    return export is not None and _functions.get(export.name) is _bare(task.run)


def declare(patterns: Iterable[str], shadow: Iterable[str] = ()) -> None:
    """Patterns of the names of Celery tasks that are handlers, wherever they are defined: ``orders.*``.

    ``shadow``: of those that stay Celery's while they are watched.
    """
    _patterns[:] = patterns
    _shadow[:] = shadow


def is_shadowed(task: str) -> bool:
    """Whether a Celery task stays Celery's, and is watched."""
    return bool(_shadow) and not task.startswith(RESERVED) and any(fnmatchcase(task, pattern) for pattern in _shadow)


def is_declared(task: str) -> bool:
    """Whether a Celery task is a handler by its name alone. Celery's own tasks, and the platform's, never are."""
    return not task.startswith(RESERVED) and any(fnmatchcase(task, pattern) for pattern in _patterns)


def export_declared(app: Any, *names: str) -> None:
    """Export an application's tasks that are handlers by name; the first that cannot be exported raises."""
    for name in names or (sorted(app.tasks) if _patterns or _shadow else ()):
        if is_shadowed(name) and (is_declared(name) or _of_task(name) is not None):
            raise ConfigurationError(f"{name} is durable and in SHADOW: it can be one of the two", field="SHADOW")
        if is_declared(name) and _of_task(name) is None:
            export(app.tasks[name], idempotent=bool(app.tasks[name].acks_late))


def find(name: str) -> Export | None:
    """A handler of this process, by its name."""
    if name not in _exports and export_late is not None and is_declared(name):
        export_late(name)
    return _exports.get(name)


def of_task(task: str) -> Export | None:
    """The export of a Celery task, by the name Celery knows it by."""
    found = _of_task(task)
    if found is None and export_late is not None and is_declared(task):
        export_late(task)
        found = _of_task(task)
    return found


def _of_task(task: str) -> Export | None:
    found = _exports.get(task)
    if found is not None and found.task == task:
        return found
    return next((export for export in _exports.values() if export.task == task), None)


def exported() -> Mapping[str, Export]:
    return MappingProxyType(_exports)
