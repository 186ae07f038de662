"""What the shadow has noted: how Celery's runs and the ledger's account of the same calls differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from scheduler_ext.core.states import Category
from slackwater_conf.database import in_ledger
from slackwater_tasks.ledger.connection import fetch_all

_CALLS: Final = """
WITH calls AS MATERIALIZED (
    SELECT *, due_at < clock_timestamp() - %(grace)s * interval '1 second' AS old
    FROM slackwater_tasks_shadowcall WHERE at >= %(since)s AND task LIKE ANY(%(tasks)s)),
runs AS MATERIALIZED (
    SELECT *, began_at < clock_timestamp() - %(grace)s * interval '1 second' AS old,
        (error IN ('TimeLimitExceeded', 'SoftTimeLimitExceeded')
         OR extract(epoch FROM coalesce(ended_at, clock_timestamp()) - began_at) > limit_s) IS TRUE AS too_long
    FROM slackwater_tasks_shadowrun WHERE began_at >= %(since)s AND task LIKE ANY(%(tasks)s))
"""
"""Of the tasks asked for: the calls since then, and the runs."""
TASKS: Final = f"""{_CALLS}, begun AS (
    SELECT celery_id, task, min(began_at) FILTER (WHERE outcome <> 'REVOKED') AS began_at FROM runs GROUP BY celery_id, task),
seen AS (
    SELECT c.task, c.due_at > c.at AS later, b.began_at, greatest(0, extract(epoch FROM b.began_at - c.due_at)) AS delay,
        coalesce((c.fields->>'delay_tolerance_s')::float,
                 (p.delay_tolerance_s->>coalesce(c.fields->>'category', %(category)s))::float) AS promised,
        max(b.began_at) FILTER (WHERE c.due_at <= c.at) OVER (PARTITION BY c.task ORDER BY c.at, c.id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier_began_at
    FROM calls c LEFT JOIN begun b USING (celery_id, task) LEFT JOIN slackwater_tenants_tenant t ON t.id = c.tenant_id
    LEFT JOIN slackwater_tenants_plan p ON p.id = t.plan_id WHERE c.watched)
SELECT task, count(*), count(began_at), percentile_cont(0.5) WITHIN GROUP (ORDER BY delay) FILTER (WHERE began_at IS NOT NULL),
    percentile_cont(0.95) WITHIN GROUP (ORDER BY delay) FILTER (WHERE began_at IS NOT NULL), min(promised),
    count(*) FILTER (WHERE began_at IS NOT NULL AND delay > promised),
    count(*) FILTER (WHERE NOT later AND earlier_began_at > began_at)
FROM seen GROUP BY task ORDER BY task
"""  # noqa: S608 - texts of ours
MISSED: Final = "SELECT coalesce(sum(missed), 0) FROM slackwater_tasks_shadowcall WHERE at >= %s"
DIFFERENCES: Final = {
    "never run": """
        SELECT c.task, '', '', count(*), min(c.celery_id) FROM calls c
        WHERE c.old AND c.watched
            AND NOT EXISTS (SELECT 1 FROM runs r WHERE (r.celery_id, r.task) = (c.celery_id, c.task)) GROUP BY c.task""",
    "run twice": """
        SELECT task, '', '', count(*), min(celery_id) FROM (
            SELECT r.task, r.celery_id FROM runs r WHERE r.outcome NOT IN ('REVOKED', 'REJECTED')
            GROUP BY r.task, r.celery_id, r.retries
            HAVING count(*) > greatest(1, (SELECT count(*) FROM slackwater_tasks_shadowcall c
                                           WHERE (c.celery_id, c.task) = (r.celery_id, r.task)))) twice GROUP BY task""",
    "refused": "SELECT task, field, why, count(*), min(celery_id) FROM calls WHERE why <> '' GROUP BY task, field, why",
    "result": "SELECT task, '', fault, count(*), min(celery_id) FROM runs WHERE fault <> '' GROUP BY task, fault",
    "taken back": """
        SELECT r.task, '', '', count(*), min(r.celery_id) FROM runs r
        WHERE r.retries = 0 AND r.outcome <> 'REVOKED' AND r.old
            AND r.began_at >= (SELECT min(at) FROM slackwater_tasks_shadowcall)
            AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_shadowcall c WHERE c.celery_id = r.celery_id) GROUP BY r.task""",
    "option dropped": """
        SELECT task, option, '', count(*), min(celery_id) FROM calls, unnest(dropped) option GROUP BY task, option""",
    "over its limit": "SELECT task, '', '', count(*), min(celery_id) FROM runs WHERE too_long GROUP BY task",
    "not ended": """
        SELECT task, '', '', count(*), min(celery_id) FROM runs WHERE ended_at IS NULL AND old AND NOT too_long
        GROUP BY task""",
}
GRAVE: Final = ("never run", "run twice", "refused", "result", "taken back")
"""What somebody should look at before the tasks become durable, or a reason why they should."""
MEANS: Final = {
    "never run": "Celery was given it and did not begin it: lost, or still in its queue. The ledger keeps it",
    "run twice": "Celery ran it more than once. The ledger does so only for what was lost, where acks_late says so",
    "result": "the ledger could not return it as it is",
    "taken back": "it ran without a call that was committed: rolled back, or published where SHADOW does not hold",
    "option dropped": "it would mean nothing",
    "over its limit": "it ran longer than its time limit, or was stopped by it",
    "not ended": "it began and has not ended: it still runs, or was lost with its worker",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What Celery did with one task."""

    task: str
    calls: int
    begun: int
    p50_s: float | None
    """The delay of its start: half of the calls began within it."""
    p95_s: float | None
    promised_s: float | None
    """The delay that the plan promises for its category, or the call itself; ``None`` without a tenant."""
    late: int
    """Calls that Celery began later than that."""
    overtaken: int
    """Calls that began before an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One sort of difference of one task."""

    kind: str
    task: str
    option: str
    why: str
    count: int
    example: str
    """Celery's id of one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What Celery did and what the ledger would have done."""

    tasks: list[Watched] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    missed: int
    """Calls and runs that could not be noted."""

    @property
    def is_grave(self) -> bool:
        """Whether something should be looked at."""
        return any(one.kind in GRAVE for one in self.differences)

    def as_json(self) -> dict[str, Any]:
        """As a program reads it."""
        return asdict(self)


@in_ledger
def compare(patterns: Sequence[str], since: datetime, grace_s: float) -> Comparison:
    """Compare what was noted since then.

    ``patterns``: of the tasks' names. ``grace_s``: what was due within it may still begin.
    """
    given = {"since": since, "tasks": [_like(one) for one in patterns], "grace": grace_s,
             "category": Category.DELAYABLE.name.lower()}  # fmt: skip
    watched = [
        Watched(task=task, calls=calls, begun=begun, p50_s=p50, p95_s=p95, promised_s=promised, late=late, overtaken=overtaken)
        for task, calls, begun, p50, p95, promised, late, overtaken in fetch_all(TASKS, given)
    ]  # fmt: skip
    ((missed,),) = fetch_all(MISSED, (since,))
    return Comparison(tasks=watched, differences=list(_differences(given)), missed=int(missed))


def _differences(given: dict[str, Any]) -> Iterator[Difference]:
    for kind, statement in DIFFERENCES.items():
        for task, option, why, count, example in fetch_all(f"{_CALLS} {statement} ORDER BY 1, 2, 3", given):
            yield Difference(
                kind=kind, task=task, option=option, why=why or MEANS.get(kind, ""), count=count, example=example
            )


def _like(pattern: str) -> str:
    """A pattern of names as SQL has it."""
    escaped = pattern.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return escaped.replace("*", "%").replace("?", "_")
