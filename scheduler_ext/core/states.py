"""The states of a task and the legal changes between them, as data.

The page ``docs/reference/states.md`` is generated from this table; ``slackwater_tasks.ledger.transitions`` writes nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum, IntFlag
from typing import Final


class TaskState(IntEnum):
    """Where a task stands. The number is what the database stores."""

    BLOCKED = 1
    """Needs other tasks, or is parked: its mutex key is taken, its execution rate is used up, its handler is paused, or
    no registered node can run it."""
    SCHEDULED = 2
    """Starts later: at a given time, or after a retry's back-off."""
    READY = 3
    """May run now; waits in its line."""
    QUEUED = 4
    """Claimed for a node; its claim lies in one of that node's Redis queues."""
    RUNNING = 5
    """Started on a node."""
    SUCCEEDED = 6
    FAILED = 7
    """Its attempts are used up (or it can never run): it is in the dead-letter queue."""
    CANCELLED = 8
    """Stopped on request, or because what it needed failed or was cancelled."""
    EXPIRED = 9
    """Not started in time: by its ``expires_at``, or by its latest start where its client had asked to give up then."""
    SKIPPED = 10
    """A branch not taken, which is no failure: it was to run only after a failure and there was none, or a task it
    needed was skipped.
    """


class Phase(IntEnum):
    """A live task's state, QUEUED and RUNNING in one. Indexes go by it, so that a start changes none of them."""

    BLOCKED = 1
    SCHEDULED = 2
    READY = 3
    IN_FLIGHT = 4


FINAL: Final = frozenset(
    {TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED, TaskState.EXPIRED, TaskState.SKIPPED}
)
UNCLAIMED: Final = frozenset({TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.READY})
"""States in which no node has the task: it can be edited, or given up."""
IN_FLIGHT: Final = frozenset({TaskState.QUEUED, TaskState.RUNNING})

_S = TaskState
TRANSITIONS: Final[dict[tuple[TaskState | None, TaskState], str]] = {
    (None, _S.BLOCKED): "submitted, needs other tasks",
    (None, _S.SCHEDULED): "submitted with a start time",
    (None, _S.READY): "submitted",
    (_S.BLOCKED, _S.READY): "what it needed has come, or what it was parked for is over",
    (_S.BLOCKED, _S.SCHEDULED): "what it needed has come, its start time has not",
    (_S.BLOCKED, _S.SUCCEEDED): "a map whose elements have all succeeded",
    (
        _S.BLOCKED,
        _S.FAILED,
    ): "no registered node could run it for too long, or a map whose elements did not all succeed",
    (_S.BLOCKED, _S.CANCELLED): "cancelled, or what it needed did not come",
    (_S.BLOCKED, _S.SKIPPED): "a branch not taken",
    (_S.BLOCKED, _S.EXPIRED): "not started by its latest start, or before it expired",
    (_S.SCHEDULED, _S.READY): "its time has come",
    (_S.SCHEDULED, _S.CANCELLED): "cancelled",
    (_S.SCHEDULED, _S.EXPIRED): "not started by its latest start, or before it expired",
    (
        _S.READY,
        _S.BLOCKED,
    ): "parked: its mutex key is taken, its rate used up, its handler paused, or no node can run it",
    (_S.READY, _S.SCHEDULED): "start time edited",
    (_S.READY, _S.QUEUED): "claimed for a node by the dispatcher",
    (_S.READY, _S.FAILED): "no registered node can ever run it",
    (_S.READY, _S.CANCELLED): "cancelled",
    (_S.READY, _S.EXPIRED): "not started by its latest start, or before it expired",
    (_S.QUEUED, _S.RUNNING): "started by a worker",
    (_S.QUEUED, _S.READY): "handed back, taken back for an idle node, or its claim expired, or Redis was emptied",
    (_S.QUEUED, _S.CANCELLED): "cancelled",
    (_S.QUEUED, _S.EXPIRED): "not started before it expired",
    (_S.RUNNING, _S.SUCCEEDED): "finished",
    (_S.RUNNING, _S.FAILED): "the last attempt failed",
    (_S.RUNNING, _S.SCHEDULED): "an attempt failed; it retries after a back-off",
    (_S.RUNNING, _S.READY): "handed back unbegun, yielded, ended to make room, or lost with its node",
    (_S.RUNNING, _S.BLOCKED): "it goes on as others, and waits for them",
    (_S.RUNNING, _S.CANCELLED): "cancelled while running",
    (_S.FAILED, _S.READY): "run again from the dead letters",
    (_S.FAILED, _S.BLOCKED): "run again; it needs other tasks that run again",
    (_S.CANCELLED, _S.READY): "run again",
    (_S.CANCELLED, _S.BLOCKED): "run again; it needs other tasks that run again",
    (_S.EXPIRED, _S.READY): "run again",
    (_S.EXPIRED, _S.BLOCKED): "run again; it needs other tasks that run again",
    (_S.SKIPPED, _S.READY): "run again",
    (_S.SKIPPED, _S.BLOCKED): "run again; it needs other tasks that run again",
    (_S.SUCCEEDED, _S.READY): "run again",
    (_S.SUCCEEDED, _S.BLOCKED): "run again; it needs other tasks that run again",
}


class ClientStatus(IntEnum):
    """The four statuses a client sees, with the state beside them."""

    WAITING = 1
    IN_PROGRESS = 2
    DONE = 3
    FAILED = 4

    @property
    def label(self) -> str:
        """The word used in the API, for example ``in_progress``."""
        return self.name.lower()


_STATUS: Final = {
    _S.BLOCKED: ClientStatus.WAITING,
    _S.SCHEDULED: ClientStatus.WAITING,
    _S.READY: ClientStatus.WAITING,
    _S.QUEUED: ClientStatus.WAITING,
    _S.RUNNING: ClientStatus.IN_PROGRESS,
    _S.SUCCEEDED: ClientStatus.DONE,
    _S.FAILED: ClientStatus.FAILED,
    _S.CANCELLED: ClientStatus.FAILED,
    _S.EXPIRED: ClientStatus.FAILED,
    _S.SKIPPED: ClientStatus.DONE,
}


def client_status(state: TaskState) -> ClientStatus:
    return _STATUS[state]


def is_final(state: TaskState) -> bool:
    """True when the task stays as it is unless somebody acts on it."""
    return state in FINAL


class EdgeOutcome(IntEnum):
    """What a dependency edge knows of its parent's end."""

    PENDING = 0
    SUCCEEDED = 1
    FAILED = 2
    """The parent failed or expired."""
    CANCELLED = 3
    SKIPPED = 4


class RunCondition(IntEnum):
    """When a task with parents may run, decided once all of them are final."""

    ALL_SUCCEEDED = 1
    ALL_DONE = 2
    ANY_FAILED = 3
    NONE_FAILED = 4
    """No parent failed or expired; cancelled and skipped ones are allowed."""


def edge_outcome(state: TaskState) -> EdgeOutcome:
    """The outcome a final ``state`` gives to the edges that leave the task; ``ValueError`` if it is not final."""
    if state is TaskState.SUCCEEDED:
        return EdgeOutcome.SUCCEEDED
    if state is TaskState.CANCELLED:
        return EdgeOutcome.CANCELLED
    if state is TaskState.SKIPPED:
        return EdgeOutcome.SKIPPED
    if state in FINAL:
        return EdgeOutcome.FAILED
    raise ValueError(f"{state.name} is not a final state")


def turn(condition: RunCondition, outcomes: Collection[EdgeOutcome]) -> TaskState:
    """What becomes of a task whose parents are all final: READY, CANCELLED, or SKIPPED where that is no failure.

    ``outcomes``: those of its parents; how often each occurs does not matter.
    """
    failed, cancelled = EdgeOutcome.FAILED in outcomes, EdgeOutcome.CANCELLED in outcomes
    match condition:
        case RunCondition.ALL_SUCCEEDED:
            if failed or cancelled:
                return TaskState.CANCELLED
            return TaskState.SKIPPED if EdgeOutcome.SKIPPED in outcomes else TaskState.READY
        case RunCondition.ALL_DONE:
            return TaskState.READY
        case RunCondition.ANY_FAILED:
            return TaskState.READY if failed else TaskState.SKIPPED
        case RunCondition.NONE_FAILED:
            return TaskState.CANCELLED if failed else TaskState.READY


class Category(IntEnum):
    """How urgent work is. Also the order in which categories are served."""

    URGENT = 1
    DELAYABLE = 2
    PERIODIC = 3
    """A line and limits of its own; its tolerance chooses the queue."""
    OFFPEAK = 4


class Outcome(IntEnum):
    """How one attempt ended."""

    SUCCEEDED = 1
    FAILED = 2
    """The code raised, or the script returned a non-zero exit code."""
    RETRY = 3
    """The code asked to run again later; not an error."""
    CAP_EXCEEDED = 4
    CANCELLED = 5
    WORKER_LOST = 6
    """Its process, or its node, vanished while it ran."""
    RESOURCE_EXCEEDED = 7
    """Memory, disk, processes or output over its tier."""
    HANDED_BACK = 8
    """Not begun: it spends no attempt and leaves no attempt row."""
    YIELDED = 9
    """Stopped at a checkpoint to go on later; it spends no attempt."""
    PREEMPTED = 10
    """Ended to make room for others, or because its node drains; it runs again and spends no attempt."""


class Repeats(IntEnum):
    """After which outcomes a handler's task may be run again, while attempts are left."""

    ALWAYS = 0
    """After every outcome but success."""
    LOST = 1
    """When it asked for it, or was lost with its process: a Celery task with ``acks_late``."""
    ASKED = 2
    """Only when it asked for it: a Celery task."""

    def after(self, outcome: Outcome) -> bool:
        """Whether a run with this outcome may be repeated."""
        if self is Repeats.ALWAYS or outcome in (Outcome.RETRY, Outcome.HANDED_BACK):
            return True
        return self is Repeats.LOST and outcome is Outcome.WORKER_LOST


PAUSED: Final = frozenset({Outcome.YIELDED, Outcome.PREEMPTED})
"""Outcomes after which a task is READY again in its place, its attempt unspent."""


class LateMark(IntEnum):
    """What happens to a task that has not started when its latest start passes."""

    RUN_FIRST = 1
    GIVE_UP = 2
    TELL = 3
    """It runs first, and the tenant is told."""


class EffectState(IntEnum):
    """The state of an effect that happens once per key."""

    CLAIMED = 1
    """Begun outside this database: whether it happened is known only when it is done."""
    DONE = 2


class Event(IntFlag):
    """The events clients can be told of. A listener's column stores the sum of their numbers."""

    STARTED = 1
    SUCCEEDED = 2
    FAILED = 4
    RETRYING = 8
    CAP_EXCEEDED = 16
    RESOURCE_EXCEEDED = 32
    IMPOSSIBLE = 64
    LATE = 128
    EXPIRED = 256
    DEAD_LETTERED = 512
    CANCELLED = 1024
    SKIPPED = 2048
