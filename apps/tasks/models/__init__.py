"""The ledger: the wide task, the narrow live row beside it, attempts, edges, events and dead letters.

A task's state stands in its live row while it is not final, and in ``Task.state`` from then on; the live row leaves
with the finish. Foreign keys between the hot tables carry no database constraint: checking one costs as much as the
row itself, and every writer of these tables is in ``queries.py`` (see ``docs/adr/0003-ledger-layout.md``).
"""

from apps.tasks.models.artifacts import Artifact
from apps.tasks.models.aside import Effect, Pause, Secret
from apps.tasks.models.base import LIVE_STATES, TELL_LATE, MutexScope, OnLate, new_id
from apps.tasks.models.checkpoints import Checkpoint, Resumable
from apps.tasks.models.outbox import Event, Listener, Outbox, TaskWebhook
from apps.tasks.models.past import Attempt, AttemptLog, DeadLetter, Dependency, TaskEvent
from apps.tasks.models.policies import PastUse, PolicyChoice, RankSweep, ShadowUse
from apps.tasks.models.rates import Impossible, RateLimit, RateStart
from apps.tasks.models.shelves import IdempotencyKey, Leader, Line, RunTime, Script, Workflow
from apps.tasks.models.task import LiveTask, Task
from apps.tasks.models.traces import TaskTrace

__all__ = [
    "LIVE_STATES",
    "TELL_LATE",
    "Artifact",
    "Attempt",
    "AttemptLog",
    "Checkpoint",
    "DeadLetter",
    "Dependency",
    "Effect",
    "Event",
    "IdempotencyKey",
    "Impossible",
    "Leader",
    "Line",
    "Listener",
    "LiveTask",
    "MutexScope",
    "OnLate",
    "Outbox",
    "PastUse",
    "Pause",
    "PolicyChoice",
    "RankSweep",
    "RateLimit",
    "RateStart",
    "Resumable",
    "RunTime",
    "Script",
    "Secret",
    "ShadowUse",
    "Task",
    "TaskEvent",
    "TaskTrace",
    "TaskWebhook",
    "Workflow",
    "new_id",
]
