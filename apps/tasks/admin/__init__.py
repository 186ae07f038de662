"""The ledger in the admin: tasks, workflows, dead letters, and read-only views of what the services write."""

from apps.tasks.admin.lists import AttemptAdmin, DeadLetterAdmin, TaskEventAdmin
from apps.tasks.admin.others import LeaderAdmin, LineAdmin, ScriptAdmin
from apps.tasks.admin.policies import PolicyChoiceAdmin, RankSweepAdmin
from apps.tasks.admin.rates import RateLimitAdmin
from apps.tasks.admin.task import TaskAdmin
from apps.tasks.admin.workflow import WorkflowAdmin

__all__ = [
    "AttemptAdmin",
    "DeadLetterAdmin",
    "LeaderAdmin",
    "LineAdmin",
    "PolicyChoiceAdmin",
    "RankSweepAdmin",
    "RateLimitAdmin",
    "ScriptAdmin",
    "TaskAdmin",
    "TaskEventAdmin",
    "WorkflowAdmin",
]
