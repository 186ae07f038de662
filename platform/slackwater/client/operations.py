"""What a client can do with tasks and workflows: each operation once, for both clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Unpack
from urllib.parse import quote

from slackwater.client.binding import Listing, following, listing, operation
from slackwater.client.bodies import PatchedTaskChange, TaskFilter, TaskIn, WorkflowFilter
from slackwater.client.errors import TaskFailed, TimedOut
from slackwater.client.exchange import Call, Flow, Retries, ask, change, read
from slackwater.client.of_tasks import (
    ArtifactOut,
    AttemptOut,
    BulkCancelled,
    BulkRetried,
    ChunkOut,
    DeadLetterOut,
    Explanation,
    HistoryEntry,
    LogLine,
    Quote,
    Submitted,
    TaskDetail,
    TaskGraphOut,
    TaskStatusOut,
    TaskSummary,
    WorkflowCancelled,
    WorkflowDetail,
    WorkflowRetried,
    WorkflowSubmitted,
    WorkflowSummary,
)
from slackwater.client.streams import Event, Follow

ENDED: Final = frozenset({"done", "failed"})
HELD_S: Final = 25.0
"""How long one request waits: below what proxies bear with a silent connection."""


def at(pattern: str, *parts: object) -> str:
    """An address with what is named in it."""
    return pattern.format(*(quote(str(part), safe="") for part in parts))


class Base:
    """What every operation stands on."""

    retries: Retries

    def ask(self, call: Call) -> Flow[Any]:
        """One request's JSON."""
        answer = yield from ask(call, self.retries)
        found = answer.json()
        if "Idempotency-Replayed" in answer.headers and "created" in (found or ()):
            found["created"] = False  # the server gives the first answer again, word for word
        return found

    def until_ended(self, path: str, timeout_s: float | None) -> Flow[Any]:
        """Hold requests until something has ended; ``TimedOut`` when it has not."""
        until = None if timeout_s is None else monotonic() + timeout_s
        while True:
            left = HELD_S if until is None else max(0.0, min(HELD_S, until - monotonic()))
            found = yield from self.ask(read(path, {"wait": round(left, 3)}, held_s=left))
            if found["status"] in ENDED:
                return found
            if until is not None and monotonic() >= until:
                raise TimedOut(f"{found['id']} is still {found['status']} after {timeout_s:g} s")


class Tasks(Base):
    """Tasks."""

    @operation
    def submit(self, handler: str | None = None, /, **fields: Unpack[TaskIn]) -> Flow[Submitted]:
        """Submit a task: ``submit("mail.send", kwargs={"to": "a@example.org"}, priority=3)``.

        With an ``idempotency_key`` a later call with the same key and fields gets the first answer.
        """
        body = {**fields, **({} if handler is None else {"handler": handler})}
        return self.ask(change("POST", "/tasks", body, once=fields.get("idempotency_key")))

    @operation
    def submit_many(self, tasks: Iterable[TaskIn], *, idempotency_key: str | None = None) -> Flow[Submitted]:
        """Submit several tasks, all or none; they may depend on each other by ``name``."""
        return self.ask(change("POST", "/tasks", list(tasks), once=idempotency_key))

    @operation
    def quote(self, handler: str | None = None, /, **fields: Unpack[TaskIn]) -> Flow[Quote]:
        """What ``submit`` would do: checked, priced and forecast, and nothing stored."""
        body = {**fields, **({} if handler is None else {"handler": handler})}
        return self.ask(change("POST", "/tasks", body, query={"dry_run": True}))

    @operation
    def put(self, task_id: str, /, **fields: Unpack[TaskIn]) -> Flow[Submitted]:
        """Submit a task under an id of one's own, a UUID of version 7: however often it is sent, it is stored once."""
        return self.ask(change("PUT", at("/tasks/{}", task_id), fields))

    @operation
    def run(self, handler: str, /, *, timeout_s: float | None = None, **fields: Unpack[TaskIn]) -> Flow[Any]:
        """Submit a task, wait for it, and return its result; ``TaskFailed`` unless it succeeded."""
        body = {**fields, "handler": handler}
        made = yield from self.ask(change("POST", "/tasks", body, once=fields.get("idempotency_key")))
        return (yield from self._result(made["id"], timeout_s))

    @operation
    def get(self, task_id: str) -> Flow[TaskDetail]:
        """A task with all that is known of it."""
        return self.ask(read(at("/tasks/{}", task_id)))

    @operation
    def status(self, task_id: str) -> Flow[TaskStatusOut]:
        """Its state alone: the cheapest to ask."""
        return self.ask(read(at("/tasks/{}/status", task_id)))

    @operation
    def wait(self, task_id: str, *, timeout_s: float | None = None) -> Flow[TaskDetail]:
        """The task once it has ended, however; ``TimedOut`` when it has not in time."""
        return self.until_ended(at("/tasks/{}", task_id), timeout_s)

    @operation
    def result(self, task_id: str, *, timeout_s: float | None = None) -> Flow[Any]:
        """Wait for a task's result; ``TaskFailed`` unless it succeeded."""
        return self._result(task_id, timeout_s)

    def _result(self, task_id: str, timeout_s: float | None) -> Flow[Any]:
        task = yield from self.until_ended(at("/tasks/{}", task_id), timeout_s)
        if task["state"] != "succeeded":
            raise TaskFailed(task)
        return task["result"]

    @listing
    def tasks(self, /, **narrowed: Unpack[TaskFilter]) -> Listing[TaskSummary]:
        """Tasks, the newest first unless ``sort`` says otherwise."""
        return Listing("/tasks", narrowed)

    @operation
    def edit(self, task_id: str, /, **fields: Unpack[PatchedTaskChange]) -> Flow[TaskDetail]:
        """Change fields of a waiting task."""
        return self.ask(change("PATCH", at("/tasks/{}", task_id), fields))

    @operation
    def cancel(
        self, task_id: str, *, dependents: bool = False, waiting_only: bool = False, reason: str = ""
    ) -> Flow[TaskDetail]:
        """Cancel a task: at once while it waits; one that runs is asked to end, then killed, unless ``waiting_only``."""
        body = {"dependents": dependents, "reason": reason} | ({"waiting_only": True} if waiting_only else {})
        return self.ask(change("POST", at("/tasks/{}/cancel", task_id), body))

    @operation
    def forget(self, task_id: str) -> Flow[None]:
        """Delete what a task returned; its state and history stay."""
        return self.ask(change("DELETE", at("/tasks/{}/result", task_id)))

    @operation
    def retry(self, task_id: str) -> Flow[TaskDetail]:
        """Run a failed, cancelled or expired task again."""
        return self.ask(change("POST", at("/tasks/{}/retry", task_id)))

    @operation
    def cancel_matching(
        self, *, dry_run: bool = False, limit: int = 1_000, after: str | None = None, **narrowed: Unpack[TaskFilter]
    ) -> Flow[BulkCancelled]:
        """Cancel all tasks that the filters match, ``limit`` in a call; ``next`` of the answer is the next ``after``."""
        return self.ask(change("POST", "/tasks/cancel", _matching(narrowed, dry_run, limit, after)))

    @operation
    def retry_matching(
        self, *, dry_run: bool = False, limit: int = 1_000, after: str | None = None, **narrowed: Unpack[TaskFilter]
    ) -> Flow[BulkRetried]:
        """Run again all tasks that the filters match, as ``cancel_matching`` cancels them."""
        return self.ask(change("POST", "/tasks/retry", _matching(narrowed, dry_run, limit, after)))

    @operation
    def explain(self, task_id: str) -> Flow[Explanation]:
        """Why it waits, and when it will likely start."""
        return self.ask(read(at("/tasks/{}/explain", task_id)))

    @operation
    def graph(self, task_id: str) -> Flow[TaskGraphOut]:
        """What it waits for and what waits for it."""
        return self.ask(read(at("/tasks/{}/graph", task_id)))

    @listing
    def history(self, task_id: str) -> Listing[HistoryEntry]:
        """Every change of its state and every edit, the oldest first."""
        return Listing(at("/tasks/{}/history", task_id), {})

    @listing
    def attempts(self, task_id: str) -> Listing[AttemptOut]:
        """Its runs that began and ended, the oldest first."""
        return Listing(at("/tasks/{}/attempts", task_id), {})

    @listing
    def artifacts(self, task_id: str) -> Listing[ArtifactOut]:
        """The files that it left behind."""
        return Listing(at("/tasks/{}/artifacts", task_id), {})

    @operation
    def artifact(self, task_id: str, name: str) -> Flow[bytes]:
        """The content of one of its files."""
        path = at("/tasks/{}/artifacts/", task_id) + quote(name)
        return (yield from ask(read(path), self.retries)).content

    @listing
    def dead_letters(self, /, **narrowed: Any) -> Listing[DeadLetterOut]:
        """Tasks whose attempts are used up."""
        return Listing("/dead-letters", narrowed)

    @operation
    def dead_letter(self, task_id: str) -> Flow[DeadLetterOut]:
        """One of them."""
        return self.ask(read(at("/dead-letters/{}", task_id)))

    @operation
    def retry_dead_letter(self, task_id: str) -> Flow[TaskDetail]:
        """Run one of them again."""
        return self.ask(change("POST", at("/dead-letters/{}/retry", task_id)))


class Output(Base):
    """What tasks print, log, yield and tell while they run."""

    @listing
    def logs(
        self, task_id: str, *, stream: str | None = None, level: str | None = None, text: str | None = None
    ) -> Listing[LogLine]:
        """What it printed and logged so far."""
        return Listing(at("/tasks/{}/logs", task_id), {"stream": stream, "level": level, "text": text})

    @following
    def follow_logs(
        self, task_id: str, *, stream: str | None = None, level: str | None = None, after: str | None = None
    ) -> Follow[LogLine]:
        """The same, from the first line (or the one after ``after``, a line's ``place``) until it has ended."""
        return Follow(
            path=at("/tasks/{}/logs/events", task_id), query={"stream": stream, "level": level}, after=after,
            show=_data_of("line"), is_last=_is_end,
        )  # fmt: skip

    @listing
    def search_logs(self, text: str, *, workflow_id: str | None = None, handler: str | None = None) -> Listing[LogLine]:
        """Lines with a text, of a workflow's or a handler's tasks, the newest tasks first."""
        return Listing("/logs", {"text": text, "workflow_id": workflow_id, "handler": handler})

    @listing
    def chunks(self, task_id: str) -> Listing[ChunkOut]:
        """What it has yielded so far."""
        return Listing(at("/tasks/{}/chunks", task_id), {})

    @following
    def follow_chunks(self, task_id: str, *, after: str | None = None) -> Follow[ChunkOut]:
        """What it yields, from the first (or the one after ``after``, a chunk's ``place``) until it has ended."""
        path = at("/tasks/{}/chunks/events", task_id)
        return Follow(path=path, query={}, after=after, show=_data_of("chunk"), is_last=_is_end)

    @following
    def events(
        self, *, task_id: str | None = None, workflow_id: str | None = None, after: str | None = None
    ) -> Follow[Event]:
        """Events live: of a task or a workflow until it has ended, else of all that is yours; ``after``: an event's id.

        ``gap`` among them says that something may be missing: read what you need once more.
        """

        def is_last(event: Event) -> bool:
            if task_id is not None:
                return event.kind == "task" and event.data.get("status") in ENDED
            return workflow_id is not None and event.kind == "workflow" and bool(event.data.get("finished_at"))

        path = at("/tasks/{}/events", task_id) if task_id else "/events"
        path = at("/workflows/{}/events", workflow_id) if workflow_id else path
        return Follow(path=path, query={}, after=after, show=lambda event: event, is_last=is_last)


class Workflows(Base):
    """Workflows."""

    @operation
    def submit_workflow(
        self, tasks: Iterable[TaskIn], *, name: str = "", tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None, max_running: int | None = None,
        share_weight: int | None = None, idempotency_key: str | None = None,
    ) -> Flow[WorkflowSubmitted]:  # fmt: skip
        """Submit a graph of named tasks, all or none.

        ``max_running``: so many are with nodes at a time, at most. ``share_weight``: it is a member of your share.
        """
        wholes = {"max_running": max_running, "share_weight": share_weight}
        given = {field: value for field, value in wholes.items() if value is not None}
        body = {"name": name, "tags": list(tags), "metadata": dict(metadata or {}), **given, "tasks": list(tasks)}
        return self.ask(change("POST", "/workflows", body, once=idempotency_key))

    @operation
    def workflow(self, workflow_id: str) -> Flow[WorkflowDetail]:
        """A workflow with its tasks counted by state."""
        return self.ask(read(at("/workflows/{}", workflow_id)))

    @operation
    def wait_workflow(self, workflow_id: str, *, timeout_s: float | None = None) -> Flow[WorkflowDetail]:
        """The workflow once all its tasks have ended; ``TimedOut`` when they have not in time."""
        return self.until_ended(at("/workflows/{}", workflow_id), timeout_s)

    @listing
    def workflows(self, /, **narrowed: Unpack[WorkflowFilter]) -> Listing[WorkflowSummary]:
        """Workflows, the newest first."""
        return Listing("/workflows", narrowed)

    @listing
    def workflow_tasks(self, workflow_id: str, /, **narrowed: Any) -> Listing[TaskSummary]:
        """The tasks of one."""
        return Listing(at("/workflows/{}/tasks", workflow_id), narrowed)

    @operation
    def add_tasks(
        self, workflow_id: str, tasks: Iterable[TaskIn], *, idempotency_key: str | None = None
    ) -> Flow[WorkflowSubmitted]:
        """Add tasks to a workflow."""
        path = at("/workflows/{}/tasks", workflow_id)
        return self.ask(change("POST", path, {"tasks": list(tasks)}, once=idempotency_key))

    @operation
    def cancel_workflow(self, workflow_id: str, *, reason: str = "") -> Flow[WorkflowCancelled]:
        """Cancel all that waits in it, ask what runs to end."""
        return self.ask(change("POST", at("/workflows/{}/cancel", workflow_id), {"reason": reason}))

    @operation
    def retry_workflow(self, workflow_id: str, *, task_id: str | None = None) -> Flow[WorkflowRetried]:
        """Run again what failed in it, or a task and all that follows."""
        body = {} if task_id is None else {"task_id": task_id}
        return self.ask(change("POST", at("/workflows/{}/retry", workflow_id), body))

    @operation
    def delete_workflow(self, workflow_id: str) -> Flow[None]:
        """Delete one that has ended, with its tasks."""
        return self.ask(change("DELETE", at("/workflows/{}", workflow_id)))


def _matching(narrowed: Mapping[str, Any], dry_run: bool, limit: int, after: str | None) -> dict[str, Any]:
    body = {"filter": dict(narrowed), "dry_run": dry_run, "limit": limit}
    return body if after is None else {**body, "after": after}


def _data_of(kind: str) -> Any:
    return lambda event: event.data if event.kind == kind else None


def _is_end(event: Event) -> bool:
    return event.kind == "end"
