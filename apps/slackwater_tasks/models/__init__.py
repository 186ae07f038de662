"""The ledger: the wide task, the narrow live row beside it, attempts, edges, events and dead letters.

A task's state stands in its live row while it is not final, and in ``Task.state`` from then on; the live row leaves
with the finish. Foreign keys between the hot tables carry no database constraint: checking one costs as much as the
row itself, and every writer of these tables is in ``ledger/sql`` (see ``docs/adr/0003-ledger-layout.md``).
"""

from slackwater_tasks.models.base import MutexScope, OnLate, new_id
from slackwater_tasks.models.bulk import BulkOperation, BulkPart
from slackwater_tasks.models.dispatch import Forecast, ForecastRecord, Grant, Leader, Line, Opening, Pause, RunTime
from slackwater_tasks.models.history import Attempt, AttemptLog, Chunk, DeadLetter, Dependency, MapNode, TaskEvent
from slackwater_tasks.models.outbox import Listener, Outbox, TaskTrace
from slackwater_tasks.models.policies import PastUse, PolicyChoice, RankSweep, ShadowUse
from slackwater_tasks.models.rates import Impossible, RateLimit, RateStart
from slackwater_tasks.models.runtime import (
    Artifact,
    Checkpoint,
    Effect,
    EmptiedFolder,
    Resumable,
    Secret,
    Upload,
    UploadPart,
)
from slackwater_tasks.models.shadow import ShadowCall, ShadowRun
from slackwater_tasks.models.submission import IdempotencyKey, Script, Workflow, WorkflowTemplate
from slackwater_tasks.models.task import LiveTask, Task

__all__ = [
    "Artifact",
    "Attempt",
    "AttemptLog",
    "BulkOperation",
    "BulkPart",
    "Checkpoint",
    "Chunk",
    "DeadLetter",
    "Dependency",
    "Effect",
    "EmptiedFolder",
    "Forecast",
    "ForecastRecord",
    "Grant",
    "IdempotencyKey",
    "Impossible",
    "Leader",
    "Line",
    "Listener",
    "LiveTask",
    "MapNode",
    "MutexScope",
    "OnLate",
    "Opening",
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
    "ShadowCall",
    "ShadowRun",
    "ShadowUse",
    "Task",
    "TaskEvent",
    "TaskTrace",
    "Upload",
    "UploadPart",
    "Workflow",
    "WorkflowTemplate",
    "new_id",
]
