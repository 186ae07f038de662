"""Calls one handler, and turns what happens into an outcome that can always be stored."""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from collections.abc import AsyncIterator, Generator, Mapping
from dataclasses import dataclass, replace
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from celery import Celery
from celery.app.task import Context, Task
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry

from scheduler_ext.core.errors import InvalidInput, SlackwaterError
from scheduler_ext.core.states import Outcome, is_final
from scheduler_ext.core.work import NEVER_AGAIN, Export, Finished, Started
from scheduler_ext.ports import WorkStore
from scheduler_ext.task import celery_json, context, handlers, network_ports, publishing, redaction, references
from scheduler_ext.task.celery_json import CALL, ERRBACK, GATHERS
from scheduler_ext.task.checkpoints import TaskYielded
from scheduler_ext.task.output import output
from scheduler_ext.worker.child import celery_run
from scheduler_ext.worker.child.celery_run import NO_HEADERS, Handler

ERROR_CHARS = 16_000
OWN_FILES = {__file__, celery_run.__file__}
"""Their lines stand first in each traceback."""
NO_CALL: Mapping[str, Any] = {}
"""No options: most tasks have none."""


@dataclass(frozen=True, slots=True)
class End:
    """How a handler ended, before times and fence are added."""

    outcome: Outcome
    result: str | None = None
    error: str | None = None
    retry_in_s: float | None = None

    def pack(self) -> bytes:
        """The journal's form; empty for :data:`SUCCESS`, as most are."""
        if self is SUCCESS:
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
        """The ledger's form."""
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
"""Why we ended a run, whoever noticed: its child, its agent, or what runs scripts."""


def printable(text: str) -> str:
    """Text that PostgreSQL can store, cut at the front: the last lines of a traceback say most."""
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
            text = celery_json.dumps(value)
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
    """Refuse NaN and the infinities, which only Python reads as JSON: ``ValueError``."""
    raise ValueError(f"{name} is no JSON")


def failure(error: BaseException, started: Started) -> End:
    """The outcome that a handler's exception means."""

    def said(text: str) -> str:
        return printable(redaction.hide(started.tenant_id, text))

    if isinstance(error, publishing.GoesOn):
        return YIELDED
    if isinstance(error, Retry):
        return End(Outcome.RETRY, error=said(str(error)), retry_in_s=publishing.seconds_until(error.when))
    if isinstance(error, Ignore):
        return SUCCESS
    if isinstance(error, Reject):
        if getattr(error, "requeue", False):
            return End(Outcome.RETRY, error=said(f"rejected: {error}"), retry_in_s=0.0)
        return End(Outcome.FAILED, error=said(f"rejected: {error}"))
    return End(Outcome.FAILED, error=said(told_of(error)))


def told_of(error: BaseException) -> str:
    """An exception with its traceback from the handler's own lines on: ours, which called it, say nothing.

    What was raised by ours alone keeps them.
    """
    told = traceback.TracebackException.from_exception(error)
    lead = next((n for n, frame in enumerate(told.stack) if frame.filename not in OWN_FILES), 0)
    del told.stack[:lead]
    return "".join(told.format())


def settled(end: End, started: Started) -> End:
    """How a run ends whose handler may have called ``retry()``: the retry stands, whatever came after."""
    again, delay = publishing.asked_again(started)
    if not again or end.outcome not in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.RETRY):
        return end
    return End(Outcome.RETRY, error=end.error or "it asked to be run again", retry_in_s=delay)


def most_retries(task: Any) -> int | None:
    """How often a Celery task may be retried, where it says so itself; Celery's default of three does not count."""
    automatic = getattr(task, "retry_kwargs", {}).get("max_retries")
    own = (vars(kind)["max_retries"] for kind in type(task).__mro__ if "max_retries" in vars(kind) and kind is not Task)
    return automatic if automatic is not None else next(own, None)


class Bodies:
    """The handlers of this process, called as Celery would call them. Whatever they raise becomes an outcome."""

    def __init__(self, app: Celery, max_result_bytes: int, hostname: str = "") -> None:
        """``hostname``: the worker's name, as Celery gives it."""
        self.app = app
        self.most = max_result_bytes
        self.hostname = hostname
        self.interrupt: Outcome | None = None
        """Why the running task is being interrupted; set by the signal handler."""
        self.soft = celery_run.SoftLimit()
        self._handlers: dict[str, Handler] = {}
        self._listened = celery_run.listened()

    def look(self) -> None:
        """Look whether anybody listens to runs; called once per slice."""
        self._listened = celery_run.listened()

    def _find(self, started: Started) -> Handler | None:
        found = self._handlers.get(started.handler)
        if found is None:
            export = handlers.find(started.handler)
            if export is not None:
                found = self._handlers[started.handler] = Handler(self.app.tasks[export.task], export, self.hostname)
        return found

    def run(self, started: Started, store: WorkStore) -> End:
        """Run one handler in the main thread to its end; no exception passes."""
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
        """Run one handler in a thread of its own; only :class:`TaskInterrupted` passes."""
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
        """How a run ends once its output is closed: chunks that cannot be kept fail it."""
        try:
            output.end(started)
        except SlackwaterError as error:
            return self._failed(error, started) if end.outcome is Outcome.SUCCEEDED else end
        return end

    async def run_coroutine(self, started: Started, store: WorkStore) -> End:
        """Run one ``async def`` handler beside others; only a cancellation passes.

        Celery's request stack belongs to the thread, which coroutines share: they have no ``self.request``.
        """
        handler = self._find(started)
        if handler is None:
            return missing(started)
        context.enter(context.TaskContext(started, store))
        try:
            started, call = self._given(started, store) if started.args or started.kwargs else (started, NO_CALL)
            gathered = self._gathered(started, call[GATHERS], store) if GATHERS in call else None
            end = gathered or await self._awaited(handler, started, call)
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
        handler = self._handlers.get(started.handler) or self._find(started)
        if handler is None:
            return missing(started)
        call = NO_CALL
        if started.args or started.kwargs:
            started, call = self._given(started, store)
            if GATHERS in call:
                return self._gathered(started, call[GATHERS], store)
        request = handler.standing
        if request is None:
            request = handler.standing = Context()
            handler.task.request_stack.push(request)
        request.__dict__ = fields = self._request(handler, started, call)
        context.enter(context.TaskContext(started, store))
        soft = fields["timelimit"][1]
        if soft:
            self.soft.set(soft)
        try:
            return self._value(handler, started, request)
        finally:
            if soft:
                self.soft.set(None)
            request.__dict__ = {}
            context.enter(None)
            if network_ports.held:
                network_ports.release(started)

    def _call(self, started: Started, store: WorkStore) -> End:
        """The same in any thread: request stacks belong to threads, which come and go."""
        handler = self._find(started)
        if handler is None:
            return missing(started)
        started, call = self._given(started, store)
        if GATHERS in call:
            return self._gathered(started, call[GATHERS], store)
        context.enter(context.TaskContext(started, store))
        try:
            return self._pushed(handler, started, call)
        finally:
            context.enter(None)
            if network_ports.held:
                network_ports.release(started)

    def _given(self, started: Started, store: WorkStore) -> tuple[Started, Mapping[str, Any]]:
        """The task with its arguments as they were given, and what a call of Celery's gave beside them."""
        started = references.filled(started, lambda task_id: celery_json.revived(store.parents(task_id)))
        if CALL not in started.kwargs:
            return started, NO_CALL
        started, call = celery_run.told(started)
        if call.get(ERRBACK) and (failed := self._ledger().unsuccessful(started, gathered=False)) is not None:
            task = self._handlers[started.handler].task
            started = replace(started, args=[*celery_run.of_failure(task, failed), *started.args])
        return started, call

    def _ledger(self) -> publishing.Ledger:
        found = publishing.of(self.app)
        assert found is not None, "who runs handlers publishes by way of the ledger"
        return found.ledger

    def _gathered(self, started: Started, feed: Any, store: WorkStore) -> End:
        """The end of a task that went on as a canvas: the canvas's."""
        other = self._ledger().unsuccessful(started, gathered=True)
        if other is None:
            gathers = replace(started, args=[{references.MARK: feed}], kwargs={})
            return dump_result(references.filled(gathers, store.parents).args[0], self.most)
        if not is_final(other.state):  # it was lost before it could yield
            return YIELDED
        return End(Outcome.FAILED, error=other.error or f"{other.handler}: {other.reason}", retry_in_s=NEVER_AGAIN)

    def _pushed(self, handler: Handler, started: Started, call: Mapping[str, Any]) -> End:
        """Run it with a request of its own."""
        request = Context(**self._request(handler, started, call))
        handler.task.request_stack.push(request)
        try:
            return self._value(handler, started, request)
        finally:
            handler.task.request_stack.pop()

    async def _awaited(self, handler: Handler, started: Started, call: Mapping[str, Any]) -> End:
        told = None
        if handler.hooked or self._listened:
            told = celery_run.Told(handler.task, Context(**self._request(handler, started, call)))
        try:
            if told is not None:
                told.before()
            value = handler.call(*started.args, **started.kwargs)
            value = await value if inspect.iscoroutine(value) else value
            if isinstance(value, AsyncGeneratorType):
                await _each(value)
                value = None
            end = dump_result(value, self.most)
        except BaseException as error:
            if told is not None:
                told.raised(error)
            if not isinstance(error, publishing.Replaced):
                raise
            other = replace(started, args=error.args_given, kwargs=error.kwargs_given)
            return await self._awaited(self._known(error.task), other, call)
        else:
            if told is not None:
                told.returned(value, end.error)
            return end
        finally:
            if told is not None:
                told.after()

    def _value(self, handler: Handler, started: Started, request: Context) -> End:
        try:
            if handler.hooked or self._listened:
                return self._told(handler, started, request)
            if not handler.carried:
                return self._returned(handler.call(*started.args, **started.kwargs))
            celery_run.push_task(handler.task)
            try:
                return self._returned(handler.call(*started.args, **started.kwargs))
            finally:
                celery_run.pop_task()
        except publishing.Replaced as other:
            return self._replaced(other, started)

    def _returned(self, value: Any) -> End:
        return SUCCESS if value is None else dump_result(_whole(value), self.most)

    def _told(self, handler: Handler, started: Started, request: Context) -> End:
        """The same, reported to the task's hooks and to signal receivers."""
        told = celery_run.Told(handler.task, request)
        celery_run.push_task(handler.task)
        try:
            told.before()
            value = _whole(handler.call(*started.args, **started.kwargs))
            end = dump_result(value, self.most)
            told.returned(value, end.error)
        except (context.TaskInterrupted, TaskYielded):
            told.interrupted(self.interrupt, started.cap_ms / 1000)
            raise
        except BaseException as error:
            told.raised(error)
            raise
        finally:
            told.after()
            celery_run.pop_task()
        return end

    def _replaced(self, other: publishing.Replaced, started: Started) -> End:
        """Go on as another task: its result, or its failure, becomes that of the running one."""
        started = replace(started, args=other.args_given, kwargs=other.kwargs_given)
        return self._pushed(self._known(other.task), started, NO_CALL)

    def tell_killed(self, task_id: str, tenant_id: int, outcome: Outcome) -> None:
        """Tell hooks and receivers of a run that another process of this worker did not survive.

        One that is repeated because it was lost is not told, as with Celery.
        """
        self.look()
        with self._ledger().of_tenant(task_id, tenant_id) as seen:
            if seen is None or (outcome is Outcome.WORKER_LOST and not is_final(seen.state)):
                return
            attempt = max(seen.earlier + 1, seen.attempts)
            started = Started(
                task_id, 0, tenant_id, seen.handler, "", "", seen.args, seen.kwargs, seen.cap_ms, attempt, "",
                earlier=seen.earlier,
            )  # fmt: skip
            handler = self._find(started)
            if handler is None or not (handler.hooked or self._listened):
                return
            started, call = celery_run.told(started) if CALL in started.kwargs else (started, NO_CALL)
            request = Context(**self._request(handler, started, call))
            handler.task.request_stack.push(request)
            try:
                celery_run.Told(handler.task, request).killed(outcome, seen.cap_ms / 1000)
            finally:
                handler.task.request_stack.pop()

    def _known(self, name: str) -> Handler:
        if name not in self.app.tasks:
            raise InvalidInput(f"replace({name}): this worker has no such task")
        return Handler(self.app.tasks[name], handlers.of_task(name) or Export(name=name, task=name), self.hostname)

    def _failed(self, error: BaseException, started: Started) -> End:
        """The outcome an exception means; the last retry that its Celery task allows fails the task for good."""
        end = failure(error, started)
        handler = self._handlers.get(started.handler)
        if end.outcome is not Outcome.FAILED or handler is None:
            return end
        most = most_retries(handler.task)
        spent = isinstance(error, MaxRetriesExceededError) or (most is not None and started.retries >= most)
        return replace(end, retry_in_s=NEVER_AGAIN) if spent else end

    def _request(self, handler: Handler, started: Started, call: Mapping[str, Any]) -> dict[str, Any]:
        """What ``self.request`` tells a handler, by the names of :class:`celery.app.task.Context`."""
        request = handler.request.copy()  # to fill a copy in costs half of making a dictionary
        request["id"] = request["root_id"] = request["correlation_id"] = started.task_id
        request["args"], request["kwargs"] = started.args, started.kwargs
        request["retries"] = started.retries
        request["timelimit"] = [started.cap_ms / 1000, handler.soft_s]
        if call is not NO_CALL:
            request["retries"] += call.get("retries") or 0
            request["timelimit"][1] = call.get("soft_time_limit") or handler.soft_s
            request["headers"] = call.get("headers", NO_HEADERS)
        return request

    def _is_interrupted(self) -> bool:
        return self.interrupt is not None

    def interrupted(self) -> End:
        """How an interrupted task ends."""
        outcome = self.interrupt or Outcome.CANCELLED
        return End(outcome, error=WORDS.get(outcome, WORDS[Outcome.CANCELLED]))


def _whole(value: Any) -> Any:
    """What a call returns in the end: a lone async handler is awaited, a generator is run through."""
    if inspect.iscoroutine(value):
        return asyncio.run(value)
    if isinstance(value, GeneratorType):
        return _yielded(value)
    if isinstance(value, AsyncGeneratorType):
        asyncio.run(_each(value))
        return None
    return value


def _yielded(chunks: Generator[Any, None, Any]) -> Any:
    """Run a handler that yields: each value is a chunk of its result stream, its return value is the result."""
    emit = context.current().emit
    while True:
        try:
            chunk = next(chunks)
        except StopIteration as end:
            return end.value
        emit(chunk)


async def _each(chunks: AsyncIterator[Any]) -> None:
    """The same for an async generator, which has no other result."""
    emit = context.current().emit
    async for chunk in chunks:
        emit(chunk)


def missing(started: Started) -> End:
    """The failure of a task whose handler this process does not have."""
    return End(Outcome.FAILED, error=f"this worker has no handler {started.handler!r}")
