"""The tasks of one test: what was submitted, and a worker that runs them on demand."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from celery import Celery, current_app
from django.db import transaction
from django.utils import timezone

from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.core.types import Decision, QueueName, WorkKind
from scheduler_ext.core.work import Started
from scheduler_ext.task import handlers
from scheduler_ext.worker.child.handler_call import Bodies, End
from slackwater.testing.store import SharedDatabase, SharedStore
from slackwater_conf import conf
from slackwater_resources import registry
from slackwater_resources.models import Handler, Node, Tier
from slackwater_tasks.control import maps
from slackwater_tasks.control.workflows import add_subtasks
from slackwater_tasks.ledger import reference_cache, sql, transitions
from slackwater_tasks.models import LiveTask, Task
from slackwater_tasks.submission import service
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant

if TYPE_CHECKING:
    import pytest

NAME = "tests"
HOLDER = "slackwater.testing"
MOST_RUNS = 1_000
JUMP = """
UPDATE slackwater_tasks_livetask SET not_before = not_before - %(by)s, latest_start = latest_start - %(by)s,
    promote_at = promote_at - %(by)s, expires_at = expires_at - %(by)s
"""


class Accident(StrEnum):
    """What befalls a run."""

    DIES_BEFORE_COMMIT = "its worker dies before the handler's transaction commits"
    DIES_AFTER_COMMIT = "its worker dies after the handler's transaction committed, before the end is recorded"
    TWICE = "a second worker runs the same attempt"
    LEASE_LOST = "its claim is taken back while it runs"


@dataclass(frozen=True, slots=True)
class Submitted:
    """One task as it was submitted, and where it is now."""

    id: uuid.UUID
    handler: str
    args: list[Any]
    kwargs: dict[str, Any]
    tenant: str
    state: TaskState
    result: Any
    error: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a handler. ``accepted``: whether the ledger took its end."""

    task_id: uuid.UUID
    handler: str
    attempt: int
    outcome: Outcome
    accepted: bool


class Inbox:
    """The ledger of a test. Nothing is mocked: submissions are checked and stored, ends recorded, as in production."""

    def __init__(self) -> None:
        self.conf = conf().scheduler
        database = SharedDatabase()
        self._rows = database.conn
        self._admit()
        self.tenant: Tenant = Tenant.objects.filter(slug=NAME).first() or create_tenant(NAME, "Tests")
        self._store = SharedStore(self.conf, "testing", database, add_subtasks=add_subtasks)  # type: ignore[arg-type]  # as much of a Database as it uses
        self._bodies = Bodies(current_app, self.conf.max_result_bytes)
        self._accidents: dict[str, list[Accident]] = {}
        self._running = False
        now = timezone.now()
        # In a TestCase of Django a fixture's rows stay until its last test.
        self._node, _ = Node.objects.update_or_create(name=HOLDER, cell=self.conf.cell, state=Node.State.ACTIVE, defaults={
            "hostname": "localhost", "incarnation": uuid.uuid4(), "capacity": [10**6] * 6, "slots": {"process": 1},
            "handlers": list(Handler.objects.values_list("pk", flat=True)), "started_at": now, "heartbeat_at": now,
            "lease_expires_at": now + timedelta(days=1),
        })  # fmt: skip
        leads = {"cell": self.conf.cell, "holder": HOLDER, "lease": 86_400.0, "node_lease": 86_400.0}
        row = self._rows.execute(sql.leadership.LEAD, leads).fetchone()
        assert row is not None, "a dispatcher leads in the database of the tests"
        self._epoch = int(row[0])

    # -- what was submitted -------------------------------------------------------------------------------------------
    @property
    def submitted(self) -> list[Submitted]:
        """All tasks of the test, oldest first."""
        tasks = Task.objects.unscoped().select_related("tenant").order_by("submitted_at", "pk")  # whoever's they are
        live = dict(LiveTask.objects.unscoped().values_list("pk", "state"))  # likewise
        return [
            Submitted(
                id=task.pk, handler=task.handler, args=task.args, kwargs=task.kwargs, tenant=task.tenant.slug,
                state=TaskState(live[task.pk] if task.state is None else task.state), result=task.result, error=task.error,
            )
            for task in tasks
        ]  # fmt: skip

    def of(self, handler: str) -> list[Submitted]:
        """Those of one handler."""
        return [task for task in self.submitted if task.handler == handler]

    def assert_submitted(self, handler: str, *args: Any, **kwargs: Any) -> Submitted:
        """The task of ``handler`` with just these arguments; ``AssertionError`` where there is none, or several."""
        wanted = json.loads(json.dumps([args, kwargs]))
        found = [task for task in self.of(handler) if [task.args, task.kwargs] == wanted]
        seen = "\n".join(f"  {task.handler} {task.args} {task.kwargs}" for task in self.submitted) or "  nothing"
        assert len(found) == 1, f"{handler} {args} {kwargs} was submitted {len(found)} times; submitted was:\n{seen}"
        return found[0]

    def assert_nothing_submitted(self) -> None:
        """``AssertionError`` where anything was."""
        count = Counter(task.handler for task in self.submitted)
        assert not count, f"submitted was {dict(count)}"

    # -- running it ---------------------------------------------------------------------------------------------------
    def run_until_idle(self, *, jump: bool = True) -> list[Run]:
        """Run what is ready, and what that submits, releases and repeats, until nothing is left that could run.

        ``jump``: where all that is left waits for a later moment, the clock jumps there.
        """
        runs: list[Run] = []
        self._running = True
        try:
            while True:
                self._rows.execute(sql.due.WAKE, (2048,))
                ready = LiveTask.objects.unscoped().filter(state=TaskState.READY)  # the worker of all tenants
                task = ready.order_by("rank_group", "rank", "pk").first()
                if task is not None:
                    runs.append(self._run(task))
                    assert len(runs) < MOST_RUNS, f"still not idle after {MOST_RUNS} runs; the last was {runs[-1]}"
                elif not (
                    maps.advance(self._rows.execute(sql.due.MAPS, (50,)).fetchall()) or (jump and self._jump_to_next())
                ):
                    return runs
        finally:
            self._running = False

    def jump(self, by: timedelta | float) -> None:
        """Let so much time (seconds) pass for what waits: starts, latest starts and delays of retries come nearer."""
        self._rows.execute(JUMP, {"by": by if isinstance(by, timedelta) else timedelta(seconds=by)})

    def run_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on run each submission to its end at once; what a task itself submits runs after it."""
        accept = service._accept

        def accept_and_run(*args: Any, **kwargs: Any) -> service.Submission:
            found = accept(*args, **kwargs)
            if not self._running:
                self.run_until_idle()
            return found

        monkeypatch.setattr(service, "_accept", accept_and_run)

    # -- accidents ----------------------------------------------------------------------------------------------------
    def die_before_commit(self, handler: str) -> None:
        """The worker of the handler's next run dies when all is done and nothing committed: its rows are rolled back.

        Its attempt is spent. What :func:`slackwater.once` and checkpoints have kept stays, as it would.
        """
        self._befall(handler, Accident.DIES_BEFORE_COMMIT)

    def die_after_commit(self, handler: str) -> None:
        """The worker of its next run dies when all is committed, and its end not recorded: it runs again."""
        self._befall(handler, Accident.DIES_AFTER_COMMIT)

    def run_twice(self, handler: str) -> None:
        """Its next attempt is run twice, as by a worker that was cut off; the first end counts."""
        self._befall(handler, Accident.TWICE)

    def lose_lease(self, handler: str) -> None:
        """The claim of its next run is taken back while it runs: its end is refused, and it runs anew."""
        self._befall(handler, Accident.LEASE_LOST)

    def close(self) -> None:
        """``AssertionError`` for an accident that never befell: the test would have shown nothing."""
        left = {handler: str(kinds[0]) for handler, kinds in self._accidents.items() if kinds}
        assert not left, f"no run of it came: {left}"

    def _befall(self, handler: str, accident: Accident) -> None:
        if handlers.find(handler) is None:
            raise LookupError(f"no handler {handler!r} is exported")
        self._accidents.setdefault(handler, []).append(accident)

    # -- the worker ---------------------------------------------------------------------------------------------------
    @staticmethod
    def export_late(task: str) -> None:
        """Export a task that ``DURABLE`` names when it is first asked for; a worker has loaded and exported all by then.

        Raises what its module raises, and :class:`ConfigurationError` for a task that would end a worker's start.
        """
        app = current_app._get_current_object()  # type: ignore[attr-defined]  # not in the stubs
        if task not in app.tasks:
            _load(app)
        if task in app.tasks:
            handlers.export_declared(app, task)

    def _admit(self) -> None:
        """The handlers that are exported here, and a tier, as a worker and the migrations leave them."""
        reference_cache.forget()
        for _, export in sorted(handlers.exported().items()):
            self._rows.execute(registry.EXPORT, registry.row_of(export))
        if not Tier.objects.filter(tenant=None).exists():
            Tier.objects.create(slug="regular", tenant=None, cpu_milli=500, memory_mb=1024)

    def _run(self, task: LiveTask) -> Run:
        claim = Decision(
            task_id=str(task.pk), line_id=task.line_id, node_id=self._node.pk, kind=WorkKind.PROCESS,
            queue=QueueName.DELAYABLE, fence=task.fence, expected_us=0, exclusive=True,
        )  # fmt: skip
        won = transitions.claim_if_ready(self._rows, self.conf, self._epoch, HOLDER, [claim], [1_000])
        assert won, f"{task.pk} could not be claimed"
        (started,) = self._store.start(self._node.pk, [(claim.task_id, claim.fence + 1)])
        waiting = self._accidents.get(started.handler)
        return self._ended(started, waiting.pop(0) if waiting else None)

    def _ended(self, started: Started, accident: Accident | None) -> Run:
        began = time.time()
        if accident is Accident.LEASE_LOST:
            claims = [(started.task_id, started.fence)]
            self._store.hand_back(self._node.pk, claims, running=True, reason=str(accident))
        end = self._rolled_back(started) if accident is Accident.DIES_BEFORE_COMMIT else self._call(started)
        if accident is Accident.TWICE:
            self._call(started)
        if accident in (Accident.DIES_BEFORE_COMMIT, Accident.DIES_AFTER_COMMIT):
            end = End(Outcome.WORKER_LOST, error=str(accident))
        finished = end.finished(started.task_id, started.fence, began, max(began, time.time()), HOLDER)
        changes = self._store.record(self._node.pk, [finished])
        accepted = any(str(change[0]) == started.task_id for change in changes)
        return Run(uuid.UUID(started.task_id), started.handler, started.attempt, finished.outcome, accepted)

    def _call(self, started: Started) -> End:
        return self._bodies.run(started, self._store)

    def _rolled_back(self, started: Started) -> End:
        """Run it and roll back what it wrote; not what a worker writes over a connection of its own."""
        journal = self._rows.journal = []
        with transaction.atomic():
            end = self._call(started)
            transaction.set_rollback(True)
        self._rows.journal = None
        for query, params in journal:
            self._rows.execute(query, params)
        return end

    def _jump_to_next(self) -> bool:
        waiting = LiveTask.objects.unscoped().filter(state=TaskState.SCHEDULED)  # the worker of all tenants
        due = waiting.order_by("not_before").values_list("not_before", flat=True).first()
        if due is None:
            return False
        self.jump(max(timedelta(), due - timezone.now()) + timedelta(seconds=1))
        return True


@cache
def _load(app: Celery) -> None:
    """Import the modules that a worker of the application imports."""
    app.loader.import_default_modules()
