"""Calls one handler, and turns what happens into an outcome that can always be stored."""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass, replace
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from celery import Celery
from celery.app.task import Context, Task
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from kombu.utils.json import dumps as kombu_dumps

from scheduler_ext.core.errors import InvalidInput, SlackwaterError
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import NEVER_AGAIN, Finished, Started
from scheduler_ext.ports import WorkStore
from scheduler_ext.task import context, handlers, network_ports, publishing, redaction, references
from scheduler_ext.task.checkpoints import TaskYielded
from scheduler_ext.task.output import output

ERROR_CHARS = 16_000
NO_HEADERS: dict[str, Any] = {}
"""Given to Celery's request, which would otherwise look for custom ones among all its fields: half its cost."""


@dataclass(frozen=True, slots=True)
class End:
    """How a handler ended, before times and fence are added."""

    outcome: Outcome
    result: str | None = None
    error: str | None = None
    retry_in_s: float | None = None

    def pack(self) -> bytes:
        """As the journal keeps it; empty for a success without a result."""
        if self.outcome is Outcome.SUCCEEDED and self.result is None:
            return b""
        return json.dumps([int(self.outcome), self.result, self.error, self.retry_in_s]).encode()

    @classmethod
    def unpack(cls, blob: bytes) -> End:
        if not blob:
            return cls(Outcome.SUCCEEDED)
        outcome, result, error, retry_in_s = json.loads(blob)
        return cls(Outcome(outcome), result, error, retry_in_s)

    def finished(self, task_id: str, fence: int, started_at: float, finished_at: float, worker: str,
                 cpu_ms: int | None = None) -> Finished:  # fmt: skip
        """As the ledger takes it."""
        return Finished(
            task_id, fence, self.outcome, started_at, finished_at, self.result, self.error, None,
            self.retry_in_s, cpu_ms, None, worker,
        )  # fmt: skip


SUCCESS = End(Outcome.SUCCEEDED)
YIELDED = End(Outcome.YIELDED)
WORDS = {
    Outcome.CAP_EXCEEDED: "its execution cap was reached",
    Outcome.RESOURCE_EXCEEDED: "memory: it came to hold more than its tier has",
    Outcome.CANCELLED: "cancelled while it ran",
    Outcome.PREEMPTED: "ended to make room: it runs again",
}
"""Why a run was ended by us, whoever notices: its child, its agent or the one who runs scripts."""


def printable(text: str) -> str:
    """Text that PostgreSQL can store, capped from the front: the last lines of a traceback tell most."""
    clean = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    return clean if len(clean) <= ERROR_CHARS else "…" + clean[-ERROR_CHARS:]


def dump_result(value: Any, most: int) -> End:
    """A success with its result as JSON, or the failure that says why it cannot be stored."""
    if value is None:
        return SUCCESS
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except TypeError:
        try:
            text = kombu_dumps(value)
        except Exception as error:  # noqa: BLE001 - whatever a value's own encoder raises is the handler's failure
            return End(Outcome.FAILED, error=printable(f"its result cannot be written as JSON: {error}"))
    except (ValueError, RecursionError) as error:
        return End(Outcome.FAILED, error=printable(f"its result cannot be written as JSON: {error}"))
    if len(text) > most:
        return End(Outcome.FAILED, error=f"its result has {len(text)} bytes, at most {most} are kept")
    if "\\u0000" in text or "NaN" in text or "Infinity" in text:
        try:
            json.loads(text, parse_constant=refuse_constant)
        except ValueError as error:
            return End(Outcome.FAILED, error=printable(f"its result cannot be written as JSON: {error}"))
        text = text.replace("\\u0000", "\\ufffd")
    return End(Outcome.SUCCEEDED, result=text)


def refuse_constant(name: str) -> Any:
    """NaN and the infinities, which Python reads as JSON and nobody else does: ``ValueError``."""
    raise ValueError(f"{name} is no JSON")


def failure(error: BaseException, started: Started) -> End:
    """What an exception that a handler raised means."""

    def said(text: str) -> str:
        return printable(redaction.hide(started.tenant_id, text))

    if isinstance(error, Retry):
        return End(Outcome.RETRY, error=said(str(error)), retry_in_s=publishing.seconds_until(error.when))
    if isinstance(error, Ignore):
        return SUCCESS
    if isinstance(error, Reject):
        return End(Outcome.FAILED, error=said(f"rejected: {error}"))
    return End(Outcome.FAILED, error=said("".join(traceback.format_exception(error))))


def settled(end: End, started: Started) -> End:
    """How a run ends whose handler may have called ``retry()``: that stands, whatever the handler did then."""
    again, delay = publishing.asked_again(started)
    if not again or end.outcome not in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.RETRY):
        return end
    return End(Outcome.RETRY, error=end.error or "it asked to be run again", retry_in_s=delay)


def most_retries(task: Any) -> int | None:
    """How often a Celery task may be retried, where it says so itself; Celery's default of three is no word of its."""
    automatic = getattr(task, "retry_kwargs", {}).get("max_retries")
    own = (vars(kind)["max_retries"] for kind in type(task).__mro__ if "max_retries" in vars(kind) and kind is not Task)
    return automatic if automatic is not None else next(own, None)


class Bodies:
    """The handlers of this process, called as Celery would call them. Whatever they raise is an outcome."""

    def __init__(self, app: Celery, max_result_bytes: int) -> None:
        self.app = app
        self.most = max_result_bytes
        self.interrupt: Outcome | None = None
        """Why the running task is being interrupted, set by the signal handler."""
        self._tasks: dict[str, Any] = {}
        self._requests: dict[str, Context] = {}

    def _find(self, started: Started) -> Any:
        task = self._tasks.get(started.handler)
        if task is None:
            export = handlers.find(started.handler)
            if export is not None:
                task = self._tasks[started.handler] = self.app.tasks[export.task]
        return task

    def run(self, started: Started, store: WorkStore) -> End:
        """Run one handler in the main thread to its end; nothing passes through."""
        self.interrupt = None
        try:
            end = self._run(started, store)
        except context.TaskInterrupted:
            end = self.interrupted()
        except TaskYielded:
            end = YIELDED
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit must not end the child
            end = self.interrupted() if self._is_interrupted() else self._failed(error, started)
        if output.attempts:
            end = self._closed(end, started)
        return settled(end, started) if publishing.retries else end

    def run_in_thread(self, started: Started, store: WorkStore) -> End:
        """Run one handler in a thread of its own; only :class:`TaskInterrupted` passes through."""
        try:
            end = self._call(started, store)
        except context.TaskInterrupted:
            publishing.asked_again(started)
            raise
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit must not end the thread
            end = self._failed(error, started)
        if output.attempts:
            end = self._closed(end, started)
        return settled(end, started) if publishing.retries else end

    def _closed(self, end: End, started: Started) -> End:
        """How a run ends after what it wrote is closed: what it yielded and nobody may keep fails it."""
        try:
            output.end(started)
        except SlackwaterError as error:
            return self._failed(error, started) if end.outcome is Outcome.SUCCEEDED else end
        return end

    async def run_coroutine(self, started: Started, store: WorkStore) -> End:
        """Run one ``async def`` handler beside others; only a cancellation passes through.

        Celery's request stack belongs to the thread, which coroutines share: they have no ``self.request``.
        """
        task = self._find(started)
        if task is None:
            return missing(started)
        context.enter(context.TaskContext(started, store))
        try:
            if started.args or started.kwargs:
                started = references.filled(started, store.parents)
            end = await self._awaited(task, started.args, started.kwargs)
        except asyncio.CancelledError:
            if output.attempts:
                await asyncio.to_thread(self._closed, YIELDED, started)
            raise
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit must not end the loop
            end = self._failed(error, started)
        finally:
            if network_ports.held:
                network_ports.release(started)
        if output.attempts:
            return await asyncio.to_thread(self._closed, end, started)
        return end

    def _run(self, started: Started, store: WorkStore) -> End:
        """In the main thread a task's request is put on its stack once, and filled anew for each run.

        To make, push and pop one takes as long as all the rest of a short run.
        """
        task = self._find(started)
        if task is None:
            return missing(started)
        if started.args or started.kwargs:
            started = references.filled(started, store.parents)
        request = self._requests.get(started.handler)
        if request is None:
            request = self._requests[started.handler] = Context()
            task.request_stack.push(request)
        request.__dict__ = _request(started)
        context.enter(context.TaskContext(started, store))
        try:
            return self._value(task, started)
        finally:
            request.__dict__ = {}
            context.enter(None)
            if network_ports.held:
                network_ports.release(started)

    def _call(self, started: Started, store: WorkStore) -> End:
        """The same in any thread: request stacks belong to threads, and these come and go."""
        task = self._find(started)
        if task is None:
            return missing(started)
        if started.args or started.kwargs:
            started = references.filled(started, store.parents)
        context.enter(context.TaskContext(started, store))
        task.push_request(**_request(started))
        try:
            return self._value(task, started)
        finally:
            task.pop_request()
            context.enter(None)
            if network_ports.held:
                network_ports.release(started)

    async def _awaited(self, task: Any, args: list[Any], kwargs: dict[str, Any]) -> End:
        try:
            value = task.run(*args, **kwargs)
            value = await value if inspect.iscoroutine(value) else value
            if isinstance(value, AsyncGeneratorType):
                await _each(value)
                return SUCCESS
            return dump_result(value, self.most)
        except publishing.Replaced as other:
            return await self._awaited(self._known(other.task), other.args_given, other.kwargs_given)

    def _value(self, task: Any, started: Started) -> End:
        try:
            value = task.run(*started.args, **started.kwargs)
            if value is None:
                return SUCCESS
            if inspect.iscoroutine(value):  # an async handler that must run alone
                value = asyncio.run(value)
            elif isinstance(value, GeneratorType):
                value = _yielded(value)
            elif isinstance(value, AsyncGeneratorType):
                value = asyncio.run(_each(value))
        except publishing.Replaced as other:
            return self._replaced(other, started)
        return dump_result(value, self.most)

    def _replaced(self, other: publishing.Replaced, started: Started) -> End:
        """Go on as another task: its result, or its failure, is that of the running one."""
        task = self._known(other.task)
        started = replace(started, args=other.args_given, kwargs=other.kwargs_given)
        task.push_request(**_request(started))
        try:
            return self._value(task, started)
        finally:
            task.pop_request()

    def _known(self, name: str) -> Any:
        if name not in self.app.tasks:
            raise InvalidInput(f"replace({name}): this worker has no such task")
        return self.app.tasks[name]

    def _failed(self, error: BaseException, started: Started) -> End:
        """What an exception means; the last one that its Celery task allows fails the task for good."""
        end = failure(error, started)
        task = self._tasks.get(started.handler)
        if end.outcome is not Outcome.FAILED or task is None:
            return end
        most = most_retries(task)
        spent = isinstance(error, MaxRetriesExceededError) or (most is not None and started.attempt > most)
        return replace(end, retry_in_s=NEVER_AGAIN) if spent else end

    def _is_interrupted(self) -> bool:
        return self.interrupt is not None

    def interrupted(self) -> End:
        """How a task ends that was interrupted."""
        outcome = self.interrupt or Outcome.CANCELLED
        return End(outcome, error=WORDS.get(outcome, WORDS[Outcome.CANCELLED]))


def _yielded(chunks: Generator[Any, None, Any]) -> Any:
    """Run a handler that yields: each value is a chunk of its result stream, what it returns is its result."""
    emit = context.current().emit
    while True:
        try:
            chunk = next(chunks)
        except StopIteration as end:
            return end.value
        emit(chunk)


async def _each(chunks: AsyncIterator[Any]) -> None:
    """The same of one that yields between awaits; it has no other result."""
    emit = context.current().emit
    async for chunk in chunks:
        emit(chunk)


def _request(started: Started) -> dict[str, Any]:
    """What ``self.request`` tells a handler, by the names of :class:`celery.app.task.Context`."""
    return {
        "id": started.task_id, "args": started.args, "kwargs": started.kwargs, "retries": started.attempt - 1,
        "called_directly": False, "is_eager": False, "delivery_info": {}, "hostname": "", "root_id": started.task_id,
        "headers": NO_HEADERS,
    }  # fmt: skip


def missing(started: Started) -> End:
    """The failure of a task whose handler this process does not have."""
    return End(Outcome.FAILED, error=f"this worker has no handler {started.handler!r}")
