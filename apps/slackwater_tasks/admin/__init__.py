"""The ledger in the admin: tasks, workflows, dead letters, and read-only views of what the services write."""

from slackwater_tasks.admin import bulk, dispatch, lists, policies, rates, task, work, workflow

__all__ = ["bulk", "dispatch", "lists", "policies", "rates", "task", "work", "workflow"]
