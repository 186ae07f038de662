"""The ledger in the admin: tasks, workflows, dead letters, and read-only views of what the services write."""

from slackwater_tasks.admin.dispatch import LeaderAdmin, LineAdmin, ScriptAdmin
from slackwater_tasks.admin.lists import AttemptAdmin, DeadLetterAdmin, TaskEventAdmin
from slackwater_tasks.admin.policies import PolicyChoiceAdmin, RankSweepAdmin
from slackwater_tasks.admin.rates import RateLimitAdmin
from slackwater_tasks.admin.task import TaskAdmin
from slackwater_tasks.admin.workflow import WorkflowAdmin

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
