"""The ends of attempts and tasks."""

from __future__ import annotations

from scheduler_ext.core.sql import named
from slackwater_tasks.ledger.sql.claims import task_of


def gone(more: str = "") -> str:
    """The part that takes out the live rows of what has ended, where the fences hold. ``more``: further columns of them."""
    return named(f"""gone AS (
    DELETE FROM slackwater_tasks_livetask l USING ended
    WHERE l.task_id = ANY(ARRAY[ended.id]) AND l.fence = ended.fence AND l.state = :state.RUNNING AND l.node_id = %(node)s
    RETURNING l.task_id, l.tenant_id, l.attempts, l.has_children, l.queued_at, l.started_at AS running_at, l.mutex_key,
        l.latest_start, ended.*{more})""")  # noqa: S608 - names of ours


PARTS = 4
"""The rows in which a tenant's ended tasks are counted: connections that share none do not wait for each other."""
LISTENED = "SELECT EXISTS (SELECT 1 FROM slackwater_tasks_listener)"


def counted(of: str) -> str:
    """The part that counts the tenants' ended tasks, those of ``of``: last, and in order.

    Not in the rows that admission raises: each would wait for the other's commit.
    """
    return f"""counts AS (SELECT tenant_id, count(*) AS number, count(*) FILTER (WHERE category = :category.URGENT) AS urgent
    FROM {of} GROUP BY tenant_id),
counted AS (
    INSERT INTO slackwater_tenants_endcounter AS e (tenant_id, part, tasks, urgent)
    SELECT tenant_id, mod(pg_backend_pid(), {PARTS}), number, urgent FROM counts ORDER BY tenant_id
    ON CONFLICT (tenant_id, part) DO UPDATE SET tasks = e.tasks + excluded.tasks, urgent = e.urgent + excluded.urgent
    RETURNING tenant_id)"""  # noqa: S608 - names of ours


def recorded(of: str, number: str) -> str:
    """The part that writes an attempt for each row of ``of``; ``number``: which attempt it was."""
    return f"""
recorded AS (
    INSERT INTO slackwater_tasks_attempt (task_id, tenant_id, number, fence, node_id, worker, queued_at, running_at, started_at,
        finished_at, outcome, error, exit_code, cpu_ms, peak_memory_mb, peak_disk_mb)
    SELECT {of}.task_id, {of}.tenant_id, {number}, {of}.fence, %(node)s, {of}.worker, {of}.queued_at,
        {of}.running_at, to_timestamp({of}.started), to_timestamp({of}.finished), {of}.outcome, {of}.error, {of}.exit_code,
        {of}.cpu, {of}.memory, {of}.disk FROM {of})"""  # noqa: S608 - statements of ours


def finish(ended: str, *more: str, of_live: str = "", beside: str = "") -> str:
    """Delete the live rows, write final states and attempts, count them as ended: one statement for a batch.

    ``ended``: the query of what has ended. ``more``: further parts of the statement, which may read ``gone``; ``of_live``:
    columns of live rows for them. ``beside``: the end of a statement that returns more.

    Live rows are locked first, counters last and in order, here and in every other statement; and what ends is counted
    before what is submitted, where one transaction does both.
    """
    return named(f"""
WITH ended AS ({ended}),
{gone(of_live)},
done AS (
    UPDATE slackwater_tasks_task t SET state = gone.final, finished_at = to_timestamp(gone.finished),
        attempts_used = gone.attempts + 1, latest_start = gone.latest_start,
        result = gone.result::jsonb, error = gone.error, reason = gone.reason, release_pending = gone.has_children
    FROM gone WHERE {task_of("gone")}
    RETURNING t.id, t.tenant_id, t.category, t.workflow_id, gone.final, gone.has_children, gone.mutex_key,
        gone.finished),
{recorded("gone", "gone.attempts + 1")},
{"".join(more)}
{counted("done")}
SELECT done.id::text, done.final, done.has_children, done.mutex_key, done.tenant_id, done.workflow_id::text,
    done.finished{beside or " FROM done"}
""")  # noqa: S608 - statements of ours


def tell(events: str) -> str:
    """The part that tells listeners of ``events``, a sum of flags that may depend on the row of ``gone``."""
    return f"""
notices AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, outcome, fence, attempt, at, reason)
    SELECT listener.tenant_id, gone.task_id, listener.events & ({events}), gone.final, gone.outcome, gone.fence,
        gone.attempts + 1,
        to_timestamp(gone.finished), gone.reason
    FROM gone JOIN slackwater_tasks_listener AS listener ON listener.tenant_id = gone.tenant_id
    WHERE listener.events & ({events}) <> 0),"""  # noqa: S608 - statements of ours


_ENDED = """
    SELECT * FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(states)s::int[], %(outcomes)s::int[],
        %(started)s::float8[], %(finished)s::float8[], %(results)s::text[], %(errors)s::text[], %(reasons)s::text[],
        %(exits)s::int[], %(workers)s::text[], %(cpus)s::int[], %(memories)s::int[], %(disks)s::int[])
    AS given(id, fence, final, outcome, started, finished, result, error, reason, exit_code, worker, cpu, memory, disk)"""
_EVENTS = """CASE gone.final WHEN :state.SUCCEEDED THEN :event.SUCCEEDED WHEN :state.FAILED THEN :event.FAILED|DEAD_LETTERED
            WHEN :state.CANCELLED THEN :event.CANCELLED ELSE :event.EXPIRED END
        | CASE gone.outcome WHEN :outcome.CAP_EXCEEDED THEN :event.CAP_EXCEEDED
            WHEN :outcome.RESOURCE_EXCEEDED THEN :event.RESOURCE_EXCEEDED ELSE 0 END"""
_DEAD_LETTERS = """
dead AS (
    INSERT INTO slackwater_tasks_deadletter (task_id, tenant_id, at, outcome, reason, retries, next_retry_at)
    SELECT gone.task_id, gone.tenant_id, to_timestamp(gone.finished), gone.outcome, left(gone.reason, 300), 0,
        CASE WHEN plan.dead_letter_retries > 0 THEN clock_timestamp() + plan.dead_letter_after_s * interval '1 second' END
    FROM gone JOIN slackwater_tenants_tenant tenant ON tenant.id = gone.tenant_id
    JOIN slackwater_tenants_plan plan ON plan.id = tenant.plan_id WHERE gone.final = :state.FAILED
        ON CONFLICT (task_id) DO NOTHING),"""


def successes() -> str:
    """The query of a batch of handlers that all succeeded: without what is the same for each, and with times in microseconds."""
    return """
    SELECT id, fence, :state.SUCCEEDED AS final, :outcome.SUCCEEDED AS outcome, started / 1e6::float8 AS started,
        finished / 1e6::float8 AS finished, result,
        '' AS error, '' AS reason, NULL::int AS exit_code, %(worker)s::text AS worker, NULL::int AS cpu, NULL::int AS memory,
        NULL::int AS disk
    FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(started)s::int8[], %(finished)s::int8[], %(results)s::text[])
    AS given(id, fence, started, finished, result)"""


FINISH = finish(_ENDED, tell(_EVENTS), _DEAD_LETTERS)
SUCCEED = finish(successes())
SUCCEED_AND_TELL = finish(successes(), tell(":event.SUCCEEDED"))
LOCK_RUNNING = named(f"""
SELECT l.task_id::text, l.fence, l.attempts, l.total_attempts, l.cancel_requested, t.attempts_used, t.retry,
    coalesce((SELECT h.repeats FROM slackwater_resources_handler h WHERE h.id = l.handler_id), 0)
FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS given(id, fence)
JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[given.id]) AND l.fence = given.fence
JOIN slackwater_tasks_task t ON {task_of("l")}
WHERE l.state = :state.RUNNING AND l.node_id = %(node)s ORDER BY given.id FOR UPDATE OF l
""")  # noqa: S608 - statements of ours
RETRY = named(f"""
WITH ended AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(delays)s::float8[], %(outcomes)s::int[], %(started)s::float8[],
        %(finished)s::float8[], %(errors)s::text[], %(exits)s::int[], %(workers)s::text[], %(cpus)s::int[],
        %(memories)s::int[], %(disks)s::int[])
    AS given(id, delay, outcome, started, finished, error, exit_code, worker, cpu, memory, disk)),
back AS (
    UPDATE slackwater_tasks_livetask l SET state = CASE WHEN ended.delay > 0 THEN :state.SCHEDULED ELSE :state.READY END,
        attempts = l.attempts + 1,
            not_before = CASE WHEN ended.delay > 0 THEN clock_timestamp() + ended.delay * interval '1 second' END,
        node_id = NULL, last_node = %(node)s, claim_expires_at = NULL, started_at = NULL, batch = 0, progress = NULL,
        expires_at = NULL
    FROM ended JOIN slackwater_tasks_livetask was ON was.task_id = ANY(ARRAY[ended.id])
    WHERE l.task_id = ANY(ARRAY[ended.id]) AND l.state = :state.RUNNING
    RETURNING l.task_id, l.tenant_id, l.attempts, l.fence, l.queued_at, was.started_at AS running_at,
        l.state, l.mutex_key, l.not_before, ended.*),
{recorded("back", "back.attempts")},
notices AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, outcome, fence, attempt, at, retry_at, reason)
    SELECT listener.tenant_id, retried.task_id, listener.events & retried.events, retried.state, retried.outcome,
        retried.fence, retried.attempts, to_timestamp(retried.finished),
        coalesce(retried.not_before, clock_timestamp()), right(rtrim(retried.error), 300)
    FROM slackwater_tasks_listener AS listener JOIN (
        SELECT *, :event.RETRYING | CASE outcome WHEN :outcome.CAP_EXCEEDED THEN :event.CAP_EXCEEDED
            WHEN :outcome.RESOURCE_EXCEEDED THEN :event.RESOURCE_EXCEEDED ELSE 0 END AS events
                FROM back) retried USING (tenant_id)
    WHERE listener.events & retried.events <> 0)
SELECT back.task_id::text, back.state, back.mutex_key, back.tenant_id, t.workflow_id::text, back.finished
FROM back JOIN slackwater_tasks_task t ON {task_of("back")}
""")  # noqa: S608 - statements of ours
# Ends waiting tasks (cancelled, expired, impossible; and maps): live row out, final state in, event, counters.
END_WAITING = named(f"""
WITH given AS (SELECT DISTINCT unnest(%(ids)s::uuid[]) AS id),
locked AS (
    SELECT l.task_id, l.state AS was FROM given JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[given.id])
    WHERE l.state = ANY(%(states)s::int[]) ORDER BY given.id FOR UPDATE OF l),
gone AS (
    DELETE FROM slackwater_tasks_livetask l USING locked WHERE l.task_id = ANY(ARRAY[locked.task_id])
    RETURNING l.task_id, l.tenant_id, l.attempts, l.fence, l.has_children, l.mutex_key, l.latest_start, locked.was,
        left(%(reason)s || coalesce(': ' || to_char(CASE WHEN %(final)s = :state.EXPIRED
            THEN CASE WHEN %(hard)s::bool THEN l.expires_at ELSE l.latest_start END END
            AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') || ' UTC', ''), 300) AS why),
done AS (
    UPDATE slackwater_tasks_task t SET state = %(final)s, finished_at = statement_timestamp(), attempts_used = gone.attempts,
        result = %(result)s::jsonb, latest_start = gone.latest_start,
        reason = CASE WHEN %(final)s = :state.SUCCEEDED THEN '' ELSE left(gone.why, 200) END, release_pending = gone.has_children
    FROM gone WHERE {task_of("gone")}
    RETURNING t.id, t.tenant_id, t.category, t.workflow_id, gone.has_children, gone.mutex_key, gone.why),
notices AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, reason)
    SELECT listener.tenant_id, gone.task_id, listener.events & %(events)s, %(final)s, gone.fence, gone.attempts,
        gone.why
    FROM gone JOIN slackwater_tasks_listener AS listener ON listener.tenant_id = gone.tenant_id
    WHERE listener.events & %(events)s <> 0),
noted AS (
    INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
    SELECT gone.task_id, gone.tenant_id, gone.was, %(final)s, gone.fence, %(actor)s, gone.why FROM gone),
dead AS (
    INSERT INTO slackwater_tasks_deadletter (task_id, tenant_id, outcome, reason, retries)
    SELECT gone.task_id, gone.tenant_id, NULL, gone.why, 0 FROM gone
    WHERE %(final)s = :state.FAILED ON CONFLICT (task_id) DO NOTHING),
{counted("done")}
SELECT id::text, has_children, mutex_key, tenant_id, workflow_id::text, why,
    date_part('epoch', statement_timestamp()) FROM done
""")  # noqa: S608 - statements of ours
