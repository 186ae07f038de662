"""What the platform's ledger says of a run, read past the platform's own code."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.lab.torture.handlers import TABLE

TASKS = """
SELECT t.id::text, coalesce(l.state, t.state), t.attempts_used, t.total_attempts, l.task_id IS NOT NULL, t.submitted_by,
    t.reason
FROM slackwater_tasks_task t LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id
"""
ATTEMPTS = "SELECT task_id::text, number, fence, outcome FROM slackwater_tasks_attempt ORDER BY task_id, number, fence"
HANDED_BACK = """
SELECT task_id::text, fence, reason FROM slackwater_tasks_taskevent WHERE from_state = 5 AND to_state = 3
"""
IN_FLIGHT = "SELECT task_id::text, fence FROM slackwater_tasks_livetask WHERE phase = 4"
COUNTERS = """
SELECT coalesce(sum(unfinished), 0)::int, (SELECT count(*)::int FROM slackwater_tasks_livetask) FROM
    slackwater_tenants_currentcounter
"""
EFFECTS = f"SELECT key, count(*)::int FROM {TABLE} GROUP BY key"
FIRES = """
SELECT count(*)::int, count(DISTINCT task_id)::int FROM slackwater_schedules_schedulefire WHERE outcome = 'submitted'
"""
STORY = """
SELECT at, what FROM (
    SELECT started_at AS at, format('attempt %%s, fence %%s: outcome %%s on node %%s as %%s until %%s', number, fence,
        outcome, node_id, worker, finished_at) AS what FROM slackwater_tasks_attempt WHERE task_id = %s
    UNION ALL
    SELECT at, format('fence %%s: %%s to %%s: %%s', fence, from_state, to_state, reason) FROM slackwater_tasks_taskevent
        WHERE task_id = %s
) AS told ORDER BY at
"""
STUCK = """
SELECT t.id::text, t.handler, l.state, l.fence, l.node_id, n.state, l.pending, l.mutex_key
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
    LEFT JOIN slackwater_resources_node n ON n.id = l.node_id
ORDER BY t.id LIMIT 20
"""
Claim = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One task of the ledger."""

    task_id: str
    state: int
    attempts_used: int
    total_attempts: int
    live: bool
    submitted_by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One recorded attempt."""

    number: int
    fence: int
    outcome: int


@dataclass(slots=True)
class Truth:
    """The ledger after a run."""

    tasks: dict[str, Row] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=lambda: defaultdict(list))
    handed_back: set[Claim] = field(default_factory=set)
    effects: dict[str, int] = field(default_factory=dict)
    counted: tuple[int, int] = (0, 0)
    """What the tenants' counters say is unfinished, and what is."""
    fires: tuple[int, int] = (0, 0)
    """Firings that were submitted, and their tasks."""


class Ledger:
    """A connection of the harness's own, opened anew after each fault."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def ask(self, query: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]] | None:
        """All rows; ``None`` while the database is away."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self.url, autocommit=True, connect_timeout=2)
            return self._connection.execute(query.encode(), params or None).fetchall()
        except psycopg.OperationalError:
            self.close()
            return None

    def prepare(self) -> None:
        """Make the table of effects; it forbids nothing, so that a doubled one is seen."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                f"CREATE TABLE {TABLE} (key text NOT NULL, task_id text NOT NULL, fence int NOT NULL)".encode()
            )

    def in_flight(self) -> set[Claim] | None:
        """Claims that are queued or running."""
        rows = self.ask(IN_FLIGHT)
        return None if rows is None else {(row[0], row[1]) for row in rows}

    def exported(self, pattern: str) -> int:
        """Handlers of that name that workers have offered."""
        rows = self.ask("SELECT count(*)::int FROM slackwater_resources_handler WHERE name LIKE %s", (pattern,))
        return int(rows[0][0]) if rows else 0

    def final(self, task_id: str) -> bool:
        """Whether a task has ended."""
        return bool(self.ask("SELECT 1 FROM slackwater_tasks_task WHERE id = %s AND state IS NOT NULL", (task_id,)))

    def unfinished(self) -> int | None:
        """Tasks that have not ended."""
        rows = self.ask("SELECT count(*)::int FROM slackwater_tasks_livetask")
        return None if rows is None else int(rows[0][0])

    def stuck(self) -> list[tuple[Any, ...]]:
        """Some of the tasks that have not ended, with where they stand."""
        return self.ask(STUCK) or []

    def story(self, task_id: str) -> list[str]:
        """What it says of one task, oldest first."""
        return [f"{at}  {what}" for at, what in self.ask(STORY, (task_id, task_id)) or []]

    def truth(self) -> Truth:
        """All of it."""
        truth = Truth()
        for task_id, state, used, total, live, by, reason in self.ask(TASKS) or []:
            truth.tasks[task_id] = Row(
                task_id=task_id, state=state, attempts_used=used, total_attempts=total, live=live, submitted_by=by,
                reason=reason,
            )  # fmt: skip
        for task_id, number, fence, outcome in self.ask(ATTEMPTS) or []:
            truth.attempts[task_id].append(Attempt(number=number, fence=fence, outcome=outcome))
        truth.handed_back = {(row[0], row[1]) for row in self.ask(HANDED_BACK) or []}
        truth.effects = {row[0]: row[1] for row in self.ask(EFFECTS) or []}
        for name, query in (("counted", COUNTERS), ("fires", FIRES)):
            rows = self.ask(query)
            if rows:
                setattr(truth, name, (rows[0][0], rows[0][1]))
        return truth

    def close(self) -> None:
        """Close the connection; the next question opens it anew."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
