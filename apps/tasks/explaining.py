"""Why a task waits: every blocker by name, what would remove it, and when the task will likely start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from apps.tasks import lookups, rate_queries
from apps.tasks.forecast import MOST_JOBS, forecast
from apps.tasks.reading import word
from apps.tasks.round_store import PgRoundStore
from apps.tenants.scoping import current_tenant_id
from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import Category, TaskState, is_final
from scheduler_ext.core.types import LineView, Reason, TaskView
from scheduler_ext.gate import Gate, ceilings
from scheduler_ext.prioritizer import prioritize

SHOWN = 20
"""Tasks named of each blocker."""
COUNT_MOST = 10_000
HEADS = 64
KINDS = (
    "dependency", "start_time", "back_off", "position", "share", "tenant_in_flight", "hard_share", "mutex", "rate",
    "peak", "paused", "no_slot", "reserved", "never_fits", "no_node", "dispatcher",
)  # fmt: skip

ROW = """
SELECT l.state, l.pending, l.parked, l.line_id, l.fence, l.rank_group, l.rank, l.kind, l.handler_id, l.priority,
       l.alone OR l.total_attempts = 1 AS by_itself, l.mutex_key, l.mutex_limit, l.last_node,
       extract(epoch FROM l.latest_start)::float8 AS latest_s, l.latest_start, l.not_before, l.attempts, l.rate_key,
       t.tenant_id, t.state AS final, n.name AS node, w.cell, w.paused AS tenant_paused, i.paused AS line_paused,
       i.category, r.slug AS tier, h.name AS handler, coalesce(h.paused, false) AS handler_paused,
       EXISTS (SELECT 1 FROM tasks_leader x WHERE x.cell = w.cell AND x.expires_at > clock_timestamp()) AS led,
       clock_timestamp() AS now, m.since AS impossible_since
FROM tasks_task t JOIN tenants_tenant w ON w.id = t.tenant_id LEFT JOIN tasks_livetask l ON l.task_id = t.id
LEFT JOIN tasks_line i ON i.id = l.line_id LEFT JOIN resources_tier r ON r.id = i.tier_id
LEFT JOIN resources_handler h ON h.id = l.handler_id LEFT JOIN resources_node n ON n.id = l.node_id
LEFT JOIN tasks_impossible m ON m.task_id = t.id
WHERE t.id = %s AND t.tenant_id = %s
"""
PARENTS = """
SELECT p.id::text, p.name, l.state FROM tasks_dependency d JOIN tasks_task p ON p.id = d.parent_id
LEFT JOIN tasks_livetask l ON l.task_id = p.id WHERE d.child_id = %s AND d.outcome = 0 ORDER BY p.id LIMIT %s
"""
HOLDERS = """
SELECT task_id::text FROM tasks_livetask WHERE mutex_key = %s AND state IN (4, 5) AND task_id <> %s LIMIT %s
"""
# Of those parked with it, or ready in its line, who comes before it.
BEFORE = """
SELECT count(*)::int FROM (
    SELECT 1 FROM tasks_livetask l WHERE l.{among}
    AND (l.rank_group, l.rank, l.task_id) < (%(rank_group)s, %(rank)s, %(id)s) LIMIT %(most)s) x
"""
IN_LINE = BEFORE.format(among="state = 3 AND l.line_id = %(line_id)s")
FOR_RATE = BEFORE.format(among="state = 1 AND l.parked = %(parked)s AND l.line_id = %(line_id)s")
FOR_KEY = BEFORE.format(among="state = 1 AND l.pending = 0 AND l.mutex_key = %(mutex_key)s")

Blocker = dict[str, Any]


class _Borrowed:
    """Django's own connection in the place of one of the engine's: what this transaction has written is seen too."""

    def __init__(self) -> None:
        connection.ensure_connection()
        self.conn = connection.connection


def explain(task_id: UUID) -> dict[str, Any]:
    """Why the task of the tenant in context waits; ``NotFound`` when it has none such. Changes nothing."""
    row = _row(task_id)
    state = TaskState(row["state"] if row["state"] is not None else row["final"])
    waits = state in (TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.READY)
    answer: dict[str, Any] = {
        "id": task_id, "state": word(state), "waiting": waits, "summary": "", "blockers": [],
        "latest_start": row["latest_start"], "predicted_start": None, "as_of": row["now"],
    }  # fmt: skip
    if not waits:
        answer["summary"] = _not_waiting(state, row)
        return answer
    why = _Why(task_id, row, state)
    answer["blockers"] = blockers = list(why.blockers())
    answer["predicted_start"] = why.predicted(blockers)
    answer["summary"] = (
        blockers[0]["detail"] if blockers else "Nothing holds it: it starts with the next round."
    )
    return answer


def _row(task_id: UUID) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(ROW, [task_id, current_tenant_id()])
        values = cursor.fetchone()
        if values is None:
            raise NotFound(f"There is no task {task_id}.")
        return dict(zip((column.name for column in cursor.description), values, strict=True))


def _not_waiting(state: TaskState, row: dict[str, Any]) -> str:
    if is_final(state):
        return f"It has ended: {word(state)}."
    if state is TaskState.RUNNING:
        return f"It runs on {row['node']}."
    return f"It is claimed for {row['node']} and starts as soon as a slot there has done what lies before it."


def _blocker(kind: str, detail: str, clears: str, *, at: datetime | None = None, tasks: list[str] | None = None,
             ahead: int | None = None) -> Blocker:  # fmt: skip
    return {"kind": kind, "detail": detail, "clears": clears, "at": at, "tasks": tasks or [], "ahead": ahead}


class _Why:
    """One task's question."""

    def __init__(self, task_id: UUID, row: dict[str, Any], state: TaskState) -> None:
        self.id = str(task_id)
        self.row = row
        self.state = state
        self.conf = replace(lookups.scheduler_conf(), cell=row["cell"])
        borrowed: Any = _Borrowed()
        self.store = PgRoundStore(self.conf, "explain", borrowed)
        lines = self._count_lines()
        ready = [self._nominated()] if not row["pending"] else []
        self.snapshot = self.store.view(max(HEADS, MOST_JOBS // max(1, lines)), ready=ready)
        self.ahead = 0

    def _count_lines(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM tasks_line")
            return int(cursor.fetchone()[0])

    def _nominated(self) -> tuple[Any, ...]:
        """The task as a round would see it if it were ready."""
        names = ("line_id", "fence", "rank_group", "rank", "kind", "handler_id", "priority", "by_itself", "mutex_key",
                 "mutex_limit", "last_node", "latest_s")  # fmt: skip
        return (self.id, *(self.row[name] for name in names))

    def blockers(self) -> Iterator[Blocker]:
        """All that holds it, the first to be removed first."""
        row = self.row
        if not row["led"]:
            yield _blocker(
                "dispatcher", f"No dispatcher leads the cell {row['cell']}.", "A dispatcher is started."
            )
        yield from self._paused()
        if row["pending"]:
            yield self._dependencies()
        if self.state is TaskState.SCHEDULED or (
            row["pending"] and row["not_before"] and row["not_before"] > row["now"]
        ):
            yield self._later()
        if row["pending"]:
            return
        yield from self._held()
        if self.state is TaskState.READY:
            yield from self._in_line()

    def _paused(self) -> Iterator[Blocker]:
        for what in ("tenant", "line", "handler"):
            if self.row[f"{what}_paused"]:
                name = f" {self.row['handler']}" if what == "handler" else ""
                yield _blocker("paused", f"Its {what}{name} is paused.", f"The {what} is resumed.")

    def _dependencies(self) -> Blocker:
        with connection.cursor() as cursor:
            cursor.execute(PARENTS, [self.id, SHOWN])
            rows = cursor.fetchall()
        names = ", ".join(f"{name or parent} ({word(TaskState(state or 6))})" for parent, name, state in rows)
        pending = self.row["pending"]
        more = f" and {pending - len(rows)} more" if pending > len(rows) else ""
        return _blocker(
            "dependency", f"It needs {pending} task{'s' * (pending > 1)} that {'have' if pending > 1 else 'has'} "
            f"not ended: {names}{more}.", "They end as its condition asks.", tasks=[r[0] for r in rows],
        )  # fmt: skip

    def _later(self) -> Blocker:
        at: datetime = self.row["not_before"]
        if self.row["attempts"]:
            return _blocker(
                "back_off", f"Its attempt {self.row['attempts']} failed; it waits before the next.",
                "The time comes.", at=at,
            )  # fmt: skip
        return _blocker("start_time", "It is to start later.", "The time comes, or it is edited.", at=at)

    # -- what holds it whatever line it stands in -----------------------------------------------------------------
    def _mine(self) -> tuple[LineView, TaskView] | None:
        for line in self.snapshot.lines:
            for task in line.heads:
                if task.task_id == self.id:
                    return line, task
        return None

    def _held(self) -> Iterator[Blocker]:
        found = self._mine()
        if found is None:  # its handler is paused, which has been said
            return
        line, task = found
        yield from self._mutex(task)
        yield from self._rates(line, task)
        gate = Gate(self.snapshot, self.conf)
        use = gate.use(line.tenant_id)
        if use.flight_left is not None and use.flight_left <= 0:
            yield _blocker("tenant_in_flight", "The plan's limit of tasks in flight is reached.",
                           "One of the tenant's tasks in flight ends.")  # fmt: skip
        if use.milli_left is not None and use.milli_left < (gate.milli(task) or 1000):
            yield _blocker("hard_share", "The plan's maximum share of the cell is used up.",
                           "One of the tenant's tasks in flight ends.")  # fmt: skip
        yield from self._fits(gate, line, task)

    def _fits(self, gate: Gate, line: LineView, task: TaskView) -> Iterator[Blocker]:
        shape = gate.ledger.shape(line.vector, task.kind, task.handler_id)
        if shape.impossible is not None:
            yield self._impossible(shape.impossible)
            return
        reason = gate.refusal(line, task, gate.milli(task))
        if reason is Reason.PEAK:
            ceiling = getattr(ceilings(self.conf, self.snapshot.now), line.category.name.lower())
            now = gate.ledger.utilization_permille()
            yield _blocker(
                "peak", f"It is peak: {now / 10:g} % of the cell is in use, {word(line.category)} work starts below "
                f"{ceiling / 10:g} %.", "Utilization falls, or an off-peak window opens.",
            )  # fmt: skip
        if reason is None:
            placed = gate.place(line, task, gate.milli(task))
            if isinstance(placed, Reason):
                fitting = sum(1 for node in gate.ledger.nodes if _could(node, shape))
                kind = "reserved" if placed is Reason.RESERVED else "no_slot"
                yield _blocker(
                    kind, f"No fitting node has room for the tier {self.row['tier']}: {fitting} could take it and "
                    "are busy.", "A task there ends, or a node joins.",
                )  # fmt: skip

    def _impossible(self, reason: Reason) -> Blocker:
        since, after = self.row["impossible_since"], self.conf.impossible_after_s
        ends = since + timedelta(seconds=after) if since and after else None
        until = f" It is given up at {ends:%H:%M:%S} UTC." if ends else ""
        if reason is Reason.NEVER_FITS:
            detail = f"The tier {self.row['tier']} is larger than every registered node.{until}"
            return _blocker(
                "never_fits", detail, "A node registers that is large enough, or its tier is edited."
            )
        what = f"handler {self.row['handler']}" if self.row["handler"] else "scripts"
        return _blocker("no_node", f"No registered node runs {what}.{until}", "A node registers that does.")

    def _mutex(self, task: TaskView) -> Iterator[Blocker]:
        key = self.row["mutex_key"]
        if key is None or self.snapshot.mutex_held.get(key, 0) < task.mutex_limit:
            return
        with connection.cursor() as cursor:
            cursor.execute(HOLDERS, [key, self.id, SHOWN])
            holders = [row[0] for row in cursor.fetchall()]
            cursor.execute(FOR_KEY, self._place())
            ahead = cursor.fetchone()[0]
        yield _blocker(
            "mutex", f"Its mutex key {key.partition(':')[2]} is held by {', '.join(holders)}; {ahead} wait for it "
            "before this one.", "A holder ends.", tasks=holders, ahead=ahead,
        )  # fmt: skip

    def _place(self) -> dict[str, Any]:
        names = ("rank_group", "rank", "line_id", "parked", "mutex_key")
        return {"id": self.id, "most": COUNT_MOST, **{name: self.row[name] for name in names}}

    def _rates(self, line: LineView, task: TaskView) -> Iterator[Blocker]:
        book, parked = self.store.rates, self.row["parked"]
        used_up = [i for i in task.rates if self.snapshot.rates_left.get(i, 1) <= 0 or i == parked]
        if not used_up:
            return
        oldest = {row[0]: row[2] for row in self.store.db.conn.execute(rate_queries.PEEK).fetchall()}
        for limit in (book.limits[i] for i in used_up):
            ahead = 0
            if limit.id == parked:
                with connection.cursor() as cursor:
                    cursor.execute(FOR_RATE, self._place())
                    ahead = cursor.fetchone()[0]
            wait = max(0.0, (oldest.get(limit.id) or 0.0) + limit.per_s) + ahead // limit.starts * limit.per_s
            subject = (
                f"the rate key {limit.key}"
                if limit.key
                else "its handler"
                if limit.handler_id
                else "its tenant"
            )
            yield _blocker(
                "rate", f"The execution rate of {subject} is used up: {limit.starts} starts in {limit.per_s} s.",
                "The time frame passes.", at=self.row["now"] + timedelta(seconds=wait), ahead=ahead,
            )  # fmt: skip

    # -- and what stands before it --------------------------------------------------------------------------------
    def _in_line(self) -> Iterator[Blocker]:
        with connection.cursor() as cursor:
            cursor.execute(IN_LINE, self._place())
            self.ahead = cursor.fetchone()[0]
        if self.ahead:
            least = " at least" if self.ahead >= COUNT_MOST else ""
            line = f"{word(Category(self.row['category']))}, {self.row['tier']}"
            yield _blocker(
                "position", f"{least.strip().capitalize() + ' ' if least else ''}{self.ahead} tasks of its line "
                f"({line}) come first.", "They start.", ahead=self.ahead,
            )  # fmt: skip
        if self._reason() is Reason.SHARE:
            yield _blocker(
                "share", "Other lines are served first: its own has had its share.", "Their turn passes."
            )

    def _reason(self) -> Reason | None:
        plan = prioritize(self.snapshot, self.conf, self.store.share())
        return plan.left.get(self.id)

    # -- and when -------------------------------------------------------------------------------------------------
    def predicted(self, blockers: list[Blocker]) -> dict[str, Any] | None:
        """The forecast as moments; ``None`` where nobody can tell."""
        kinds = {blocker["kind"] for blocker in blockers}
        if kinds & {"paused", "never_fits", "no_node", "dispatcher"}:
            return None
        found = forecast(self.conf, self.store, self.snapshot, self.id, self.row["mutex_key"], self.ahead)
        if found is None:
            return None
        now = datetime.now(UTC)
        floor = max([now, *(b["at"] for b in blockers if b["at"] is not None)])
        spans = {"earliest": found.earliest_s, "likely": found.likely_s, "latest": found.latest_s}
        return {name: max(floor, now + timedelta(seconds=min(s, 3e8))) for name, s in spans.items()}


def _could(node: Any, shape: Any) -> bool:
    return (
        shape.kind in node.slots
        and (shape.handler is None or shape.handler in node.handlers)
        and all(need <= has for need, has in zip(shape.vector, node.capacity, strict=True))
    )
