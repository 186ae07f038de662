"""Checkpoints of running tasks."""

from __future__ import annotations

from scheduler_ext.core.sql import named

DECLARE = """
INSERT INTO slackwater_tasks_resumable (task_id, tenant_id, declared, level)
SELECT u.id, %s, true, u.level FROM unnest(%s::uuid[], %s::int[]) AS u(id, level)
ON CONFLICT (task_id) DO UPDATE SET declared = true
"""
# The live row is held for the moment: nobody can take the task away between the look and the commit.
SAVE = named("""
WITH held AS (
    SELECT l.task_id, l.tenant_id FROM slackwater_tasks_livetask l JOIN slackwater_tenants_tenant n ON n.id = l.tenant_id
    JOIN slackwater_tenants_plan p ON p.id = n.plan_id
    WHERE l.task_id = %(id)s AND l.fence = %(fence)s AND l.state = :state.RUNNING
        AND p.max_checkpoint_bytes >= %(size)s FOR SHARE OF l),
last AS (SELECT coalesce(max(number), 0) AS number FROM slackwater_tasks_checkpoint WHERE task_id = %(id)s),
old AS (
    DELETE FROM slackwater_tasks_checkpoint c USING held, last WHERE c.task_id = held.task_id AND c.number < last.number)
INSERT INTO slackwater_tasks_checkpoint (task_id, number, tenant_id, fence, format, content, sha256, size)
SELECT held.task_id, last.number + 1, held.tenant_id, %(fence)s, %(format)s, %(content)s, %(sha256)s, %(size)s
FROM held, last RETURNING number
""")
LIMIT_OF = """
SELECT p.max_checkpoint_bytes FROM slackwater_tenants_tenant n JOIN slackwater_tenants_plan p ON p.id = n.plan_id WHERE n.id = %s
"""
LOAD = """
SELECT number, format, content, sha256 FROM slackwater_tasks_checkpoint WHERE task_id = %s AND tenant_id = %s
ORDER BY number DESC
"""
DAMAGED = named("""
WITH gone AS (DELETE FROM slackwater_tasks_checkpoint WHERE task_id = %(id)s AND number = %(number)s RETURNING task_id, tenant_id)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.RUNNING, :state.RUNNING, %(fence)s, %(actor)s, %(reason)s FROM gone
""")
NOTE = named("""
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.RUNNING, :state.RUNNING, fence, %(actor)s, %(reason)s FROM slackwater_tasks_livetask
WHERE task_id = %(id)s AND fence = %(fence)s AND state = :state.RUNNING
""")
FORGET = "DELETE FROM slackwater_tasks_checkpoint WHERE task_id = ANY(%s::uuid[])"
ANEW = """
WITH r AS (
    UPDATE slackwater_tasks_resumable SET level = 0, used_ms = 0, asked = NULL, asked_fence = NULL, asked_at = NULL
    WHERE task_id = ANY(%s::uuid[]) RETURNING task_id, declared)
UPDATE slackwater_tasks_livetask l SET alone = true FROM r WHERE l.task_id = ANY(ARRAY[r.task_id]) AND r.declared
"""
# A failed task keeps its checkpoints as long as it stays a dead letter: run again, it goes on from there.
DELETE_ENDED = """
DELETE FROM slackwater_tasks_checkpoint c WHERE (c.task_id, c.number) IN (
    SELECT x.task_id, x.number FROM slackwater_tasks_checkpoint x
    WHERE NOT EXISTS (SELECT 1 FROM slackwater_tasks_livetask l WHERE l.task_id = x.task_id)
        AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_deadletter d WHERE d.task_id = x.task_id)
    LIMIT %s)
"""
