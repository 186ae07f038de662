"""What holds a waiting task: each blocker by name, and what would remove it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from scheduler_ext.core.labels import admits, with_names
from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.states import Category, TaskState
from scheduler_ext.core.types import LineView, Reason, TaskView
from scheduler_ext.preemption.controller import MAX_HOLD_S
from scheduler_ext.round.gate import Gate, ceilings, short_milli
from scheduler_ext.round.prioritizer import kept_for, prioritize
from scheduler_ext.round.reservations import offers
from slackwater_conf import conf
from slackwater_tasks.explain import queries
from slackwater_tasks.explain.forecast import MAX_JOBS
from slackwater_tasks.ledger import sql
from slackwater_tasks.ledger.connection import Borrowed, fetch_all, fetch_value
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.read.tasks import word
from slackwater_tasks.spec import OF_WORKFLOW

SHOWN = 20
"""How many tasks are named for each blocker."""
MAX_COUNTED = 10_000
HEADS = 64
KINDS = (
    "dependency", "start_time", "back_off", "position", "share", "tenant_in_flight", "hard_share", "mutex", "rate",
    "peak", "paused", "no_slot", "no_resource", "reserved", "yielded", "never_fits", "no_labels", "no_node", "dispatcher",
)  # fmt: skip

Blocker = dict[str, Any]


def blocker(kind: str, detail: str, clears: str, *, at: datetime | None = None, tasks: list[str] | None = None,
             ahead: int | None = None) -> Blocker:  # fmt: skip
    return {"kind": kind, "detail": detail, "clears": clears, "at": at, "task_ids": tasks or [], "ahead": ahead}


class Blockers:
    """The search for one task's blockers."""

    def __init__(self, task_id: UUID, row: dict[str, Any], state: TaskState) -> None:
        self.id = str(task_id)
        self.row = row
        self.state = state
        self.conf = replace(conf().scheduler, cell=row["cell"])
        borrowed: Any = Borrowed()
        self.store = PgRoundStore(self.conf, "explain", borrowed)
        lines = fetch_value("SELECT count(*) FROM slackwater_tasks_line")
        ready = [self._nominated()] if not row["pending"] else []
        self.snapshot = self.store.view(max(HEADS, MAX_JOBS // max(1, lines)), ready=ready, ends=True)
        self.ahead = 0

    def _nominated(self) -> tuple[Any, ...]:
        """The task as a round would see it if it were ready."""
        names = ("line_id", "fence", "rank_group", "rank", "kind", "handler_id", "priority", "by_itself", "mutex_key",
                 "mutex_limit", "last_node", "latest_s")  # fmt: skip
        return (self.id, *(self.row[name] for name in names))

    def found(self) -> Iterator[Blocker]:
        """All that holds it, the first to be removed first."""
        row = self.row
        if not row["led"]:
            yield blocker("dispatcher", f"No dispatcher leads the cell {row['cell']}.", "A dispatcher is started.")
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
            yield from self._let_by()
            yield from self._in_line()

    def _paused(self) -> Iterator[Blocker]:
        for what in ("tenant", "line", "handler"):
            if self.row[f"{what}_paused"]:
                name = f" {self.row['handler']}" if what == "handler" else ""
                yield blocker("paused", f"Its {what}{name} is paused.", f"The {what} is resumed.")

    def _dependencies(self) -> Blocker:
        rows = fetch_all(queries.PARENTS, [self.id, SHOWN])
        names = ", ".join(f"{name or parent} ({word(TaskState(state or 6))})" for parent, name, state in rows)
        pending = self.row["pending"] - self.row["mapped"]
        if not pending:
            return blocker(
                "dependency", "What it maps over has come: its elements are made, or their results gathered.",
                "Upkeep does so, and the plan's limits have room for the elements.",
            )  # fmt: skip
        more = f" and {pending - len(rows)} more" if pending > len(rows) else ""
        return blocker(
            "dependency", f"It needs {counted(pending, 'task that has', plural='tasks that have')} not ended: {names}{more}.",
            "What it needs ends as its condition asks.", tasks=[r[0] for r in rows],
        )  # fmt: skip

    def _later(self) -> Blocker:
        at: datetime = self.row["not_before"]
        if self.row["attempts"]:
            return blocker(
                "back_off", f"Its attempt {self.row['attempts']} failed; it waits before the next.",
                "The time comes.", at=at,
            )  # fmt: skip
        return blocker("start_time", "It is to start later.", "The time comes, or it is edited.", at=at)

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
            yield blocker("tenant_in_flight", "The plan's limit of tasks in flight is reached.",
                           "One of the tenant's tasks in flight ends.")  # fmt: skip
        if use.milli_left is not None and use.milli_left.get(task.kind, 0) < (short_milli(task) or 1000):
            yield blocker("hard_share", "The plan's maximum share of the cell is used up.",
                           "One of the tenant's tasks in flight ends.")  # fmt: skip
        yield from self._fits(gate, line, task)

    def _fits(self, gate: Gate, line: LineView, task: TaskView) -> Iterator[Blocker]:
        shape = gate.ledger.shape(line.vector, task.kind, task.handler_id, line.labels)
        if shape.impossible is not None:
            yield self._impossible(shape.impossible, line)
            return
        reason = gate.refusal(line, task, short_milli(task))
        if reason is Reason.PEAK:
            ceiling = ceilings(self.conf, self.snapshot.now)[line.category]
            now = gate.ledger.utilization_permille((task.kind,))
            yield blocker(
                "peak", f"It is peak: {now / 10:g} % of the cell's {task.kind} slots, or of a resource, are in use; "
                f"{word(line.category)} work starts below {ceiling / 10:g} %.",
                "Utilization falls, or a window with another ceiling opens.",
            )  # fmt: skip
        if reason is None and isinstance(gate.place(line, task, short_milli(task)), Reason):
            able = [node for node in gate.ledger.nodes if offers(node, shape)]
            fitting, slots = len(able), sum(1 for node in able if node.room(task.kind) > 0)
            if slots:
                yield blocker(
                    "no_resource", f"A slot is free on {slots} of {counted(fitting, 'node')} that could take the tier "
                    f"{self.row['tier']}, but not the resources it asks for.", "A task there ends, or a node joins.",
                )  # fmt: skip
                return
            labelled = sorted(line.labels.require) if line.labels is not None else []
            whose = f" with the label{'s' * (len(labelled) > 1)} {', '.join(labelled)}" if labelled else ""
            yield blocker(
                "no_slot", f"No fitting node{whose} has room for the tier {self.row['tier']}: "
                f"{f'all {fitting}' if fitting > 1 else 'the one'} that could take it {'are' if fitting > 1 else 'is'} busy.",
                "A task there ends, or a node joins.",
            )  # fmt: skip
        elif reason is None and self._left((replace(line, heads=(task,)),)) is Reason.HARD_SHARE:
            where = f"the pool {line.pool}" if line.pool else "its tenant"
            yield blocker(
                "hard_share", f"The share of the cell that {where} may have is used up, or what is left is kept for "
                "others.", "A task that holds part of the share ends.",
            )  # fmt: skip

    def _impossible(self, reason: Reason, line: LineView) -> Blocker:
        since, after = self.row["impossible_since"], self.conf.impossible_after_s
        ends = since + timedelta(seconds=after) if since and after else None
        until = f" It is given up at {ends:%H:%M:%S} UTC." if ends else ""
        if reason is Reason.NEVER_FITS:
            detail = f"The tier {self.row['tier']} is larger than every registered node.{until}"
            return blocker("never_fits", detail, "A node registers that is large enough, or its tier is edited.")
        asked = line.labels.require if line.labels is not None else frozenset()
        kind = "no_labels" if reason is Reason.NO_LABELS else "no_node"
        if (found := self._not_at_work(kind, asked, until)) is not None:
            return found
        if reason is Reason.NO_LABELS:
            return self._no_labels(asked, until)
        if self.row["awaited"]:
            detail = f"No worker has exported the handler {self.row['handler']} yet: it is declared, and waits for the first."
            return blocker("no_node", detail, "A node registers that does.")
        what = f"handler {self.row['handler']}" if self.row["handler"] else "scripts"
        return blocker("no_node", f"No registered node runs {what}.{until}", "A node registers that does.")

    def _not_at_work(self, kind: str, asked: frozenset[str], until: str) -> Blocker | None:
        """Nodes that would run it, but start or drain."""
        values = [self.row["cell"], self.row["handler_id"], self.row["handler_id"]]
        nodes = [(name, state) for name, state, labels in fetch_all(queries.NOT_AT_WORK, values)
                 if admits(with_names(labels), asked)]  # fmt: skip
        for wanted, does, clears in (
            ("starting", "is starting", "It has started."),
            ("draining", "drains, and takes nothing new", "It is given work again, or another registers."),
        ):
            if named := [name for name, state in nodes if state == wanted]:
                detail = f"The node that could run it {does}: {', '.join(named[:SHOWN])}.{until}"
                return blocker(kind, detail, clears)
        return None

    def _no_labels(self, asked: frozenset[str], until: str) -> Blocker:
        """The labels that no node has at all; all of them if each exists somewhere, but no node has all."""
        if not asked:
            detail = (
                f"Every registered node that could run it is reserved for work that requires one of its labels.{until}"
            )
            return blocker("no_labels", detail, "A node that is not reserved registers, or the task is edited.")
        had = frozenset().union(*(node.labels for node in self.snapshot.nodes))
        lacking = sorted(asked - had)
        named = ", ".join(lacking or sorted(asked))
        detail = f"No registered node that could run it has the label{'s' * (',' in named)} {named}"
        return blocker("no_labels", f"{detail}{'' if lacking else ' together'}.{until}",
                       "A node with them registers, or the task is edited.")  # fmt: skip

    def _mutex(self, task: TaskView) -> Iterator[Blocker]:
        key = self.row["mutex_key"]
        if key is None or self.snapshot.mutex_held.get(key, 0) < task.mutex_limit:
            return
        holders = [row[0] for row in fetch_all(queries.HOLDERS, [key, self.id, SHOWN])]
        ahead = fetch_value(queries.FOR_KEY, self._place())
        name = key.partition(":")[2]
        held = f"Its mutex key {name} is held by"
        if name.startswith(OF_WORKFLOW):
            held = f"Its workflow runs at most {task.mutex_limit} of its tasks at once (max_running), now"
        yield blocker("mutex", f"{held} {', '.join(holders)}; {ahead} wait for it before this one.", "A holder ends.",
                      tasks=holders, ahead=ahead)  # fmt: skip

    def _place(self) -> dict[str, Any]:
        names = ("rank_group", "rank", "line_id", "parked", "mutex_key")
        return {"id": self.id, "most": MAX_COUNTED, **{name: self.row[name] for name in names}}

    def _rates(self, line: LineView, task: TaskView) -> Iterator[Blocker]:
        book, parked = self.store.rates, self.row["parked"]
        used_up = [i for i in task.rates if self.snapshot.rates_left.get(i, 1) <= 0 or i == parked]
        if not used_up:
            return
        oldest = {row[0]: row[2] for row in self.store.db.conn.execute(sql.rates.PEEK).fetchall()}
        for limit in (book.limits[i] for i in used_up):
            ahead = fetch_value(queries.FOR_RATE, self._place()) if limit.id == parked else 0
            wait = max(0.0, (oldest.get(limit.id) or 0.0) + limit.per_s) + ahead // limit.starts * limit.per_s
            subject = f"the rate key {limit.key}" if limit.key else "its handler" if limit.handler_id else "its tenant"
            yield blocker(
                "rate", f"The execution rate of {subject} is used up: {limit.starts} starts in {limit.per_s} s.",
                "The time frame passes.", at=self.row["now"] + timedelta(seconds=wait), ahead=ahead,
            )  # fmt: skip

    # -- and what stands before it --------------------------------------------------------------------------------
    def _in_line(self) -> Iterator[Blocker]:
        self.ahead = fetch_value(queries.IN_LINE, self._place())
        if self.ahead:
            least = " at least" if self.ahead >= MAX_COUNTED else ""
            line = f"{word(Category(self.row['category']))}, {self.row['tier']}"
            yield blocker(
                "position", f"{least.strip().capitalize() + ' ' if least else ''}{counted(self.ahead, 'task')} of its line "
                f"({line}) {'comes' if self.ahead == 1 else 'come'} first.", "Those before it start.", ahead=self.ahead,
            )  # fmt: skip
        yield from self._others_first()

    def _others_first(self) -> Iterator[Blocker]:
        """What would keep it even at the head of its line and with nobody else waiting."""
        found = self._mine()
        if found is None or found[0].paused:
            return
        line, task = found
        alone = replace(line, heads=(task,))
        if self._left((alone,)) is not None:
            return  # which has been said
        lines = tuple(alone if each is line else each for each in self.snapshot.lines)
        reason = self._left(lines)
        if reason is Reason.RESERVED:
            snapshot = replace(self.snapshot, lines=lines)
            kept = kept_for(snapshot, self.conf, self.store.share())
            mine = {head.task_id for each in lines if each.tenant_id == line.tenant_id for head in each.heads}
            named = sorted(kept & mine)
            whom = ", ".join(named) if named else "another tenant's"
            yield blocker(
                "reserved", f"The room it would take is kept for a larger task that waits longer: {whom}.",
                "The larger task starts, or is cancelled, or a node joins.", tasks=named,
            )  # fmt: skip
        elif reason is not None:
            whose = (
                f"its workflow, with a weight of {line.weight} in its tenant's share," if line.workflow else "its own"
            )
            yield blocker(
                "share", f"Other lines are served first, and take what room there is: {whose} has had its share.",
                "Their turn passes, or room for more is there.",
            )  # fmt: skip

    def _left(self, lines: tuple[LineView, ...]) -> Reason | None:
        """Why a round on these lines would leave the task; ``None`` if it would start."""
        snapshot = replace(self.snapshot, lines=lines)
        return prioritize(snapshot, self.conf, self.store.share()).left.get(self.id)

    def _let_by(self) -> Iterator[Blocker]:
        """The hold of a task that was asked to make room and did: it starts only after those it made room for."""
        row = self.row
        if not row["made_room"] or not row["lets_by"]:
            return
        until = row["asked_at"] + timedelta(seconds=self.conf.yield_grace_s + MAX_HOLD_S)
        if until <= row["now"]:
            return
        waiting = fetch_all(queries.LET_BY, [row["tenant_id"], row["lets_by"]])
        if waiting:
            named = [task_id for task_id, own in waiting if own][:SHOWN]
            yield blocker(
                "yielded", f"It has made room for {counted(len(waiting), 'task that starts', plural='tasks that start')} first"
                f"{': ' if named else ''}{', '.join(named)}.", "They start, or wait no more.", at=until, tasks=named,
            )  # fmt: skip
