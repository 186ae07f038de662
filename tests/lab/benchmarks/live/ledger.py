"""What stands in the ledger at the end of a scenario, whatever anyone else says."""

from __future__ import annotations

from django.db import connection

from scheduler_ext.core.states import Outcome, TaskState

RECORD = f"""
SELECT (SELECT count(*) FROM slackwater_tasks_task), (SELECT count(*) FROM slackwater_tasks_task
    WHERE state = {TaskState.SUCCEEDED:d}),
    (SELECT count(*) FROM slackwater_tasks_livetask), s.attempts, s.tasks,
    (SELECT count(*) FROM slackwater_tasks_attempt WHERE outcome = {Outcome.WORKER_LOST:d})
FROM (SELECT count(*) AS attempts, count(DISTINCT task_id) AS tasks FROM slackwater_tasks_attempt
    WHERE outcome = {Outcome.SUCCEEDED:d}) s
"""
READY = f"SELECT count(*) FROM slackwater_tasks_livetask WHERE state = {TaskState.READY:d}"
QUEUED = f"SELECT count(*) FROM slackwater_tasks_livetask WHERE state = {TaskState.QUEUED:d}"
RUNNING = f"SELECT count(*) FROM slackwater_tasks_livetask WHERE state = {TaskState.RUNNING:d}"
UNFINISHED = "SELECT coalesce(sum(unfinished), 0)::bigint FROM slackwater_tenants_currentcounter"


def record(accepted: int) -> dict[str, int]:
    """What became of ``accepted`` tasks: how many succeeded, are lost, or succeeded more than once.

    ``lost`` are accepted and have not succeeded; ``twice`` are successes beyond the first of each task.
    """
    with connection.cursor() as cur:
        cur.execute(RECORD)
        stored, succeeded, live, attempts, distinct, cut_off = cur.fetchone()
    return {
        "accepted": accepted, "stored": stored, "succeeded": succeeded, "unfinished": live,
        "lost": accepted - min(succeeded, distinct), "twice": attempts - distinct, "cut_off": cut_off,
    }  # fmt: skip
