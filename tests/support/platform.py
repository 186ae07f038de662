"""The real platform for a test: dispatcher, upkeep and workers as processes, on this test's database and Redis."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any
from uuid import UUID

import psutil
from django.conf import settings
from django.db import connection

from scheduler_ext.core.states import TaskState, is_final
from slackwater_tasks.models import Attempt, LiveTask, Task, TaskEvent
from slackwater_tasks.submission.service import submit, submit_workflow
from slackwater_tenants.models import CurrentCounter, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import furnish
from tests.support.processes import ManagedProcess, manage
from tests.support.waiting import wait_until

# Leases outlast a machine so busy that an agent is late; a test that waits for the end of one takes BRIEF. For the same
# reason a claim stays where it is, unless a test is about its going elsewhere.
FAST = {
    "node_lease_s": 6.0, "node_renew_s": 0.5, "leader_lease_s": 6.0, "leader_renew_s": 0.5, "claim_ttl_s": 6.0,
    "steal_after_s": 0.0, "retry_base_s": 0.1, "cancel_grace_s": 0.5,
}  # fmt: skip
BRIEF = {"node_lease_s": 3.0, "claim_ttl_s": 3.0}

AT_WORK = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
    AND state = 'active' AND pid <> pg_backend_pid()
"""


class Platform:
    """Starts what a test asks for, and ends it all."""

    def __init__(self, database_url: str, redis_url: str, **conf: Any) -> None:
        self.env = {
            "SLACKWATER_DATABASE_URL": database_url,
            "SLACKWATER_REDIS_URL": redis_url,
            "SLACKWATER_SCHEDULER": json.dumps({**FAST, **conf}),
            "SLACKWATER_HANDLERS": "tests.support.handlers",
            "DJANGO_SETTINGS_MODULE": "slackwater.settings.test",
            "SLACKWATER_SECRET_KEY": settings.SECRET_KEY,
            "PYTHONPATH": os.pathsep.join([".", "platform", "apps"]),
        }
        self.processes = contextlib.ExitStack()
        furnish()
        self.tenant: Tenant = create_tenant("acme", "Acme", trusted=True)

    def set(self, **conf: Any) -> None:
        """Change settings of what is started from now on."""
        self.env["SLACKWATER_SCHEDULER"] = json.dumps({**json.loads(self.env["SLACKWATER_SCHEDULER"]), **conf})

    def start(self, name: str, command: list[str], **env: str) -> ManagedProcess:
        """Start a process of the platform."""
        process = ManagedProcess(command, env={**self.env, **env}, name=name)
        self.processes.callback(process.end)
        return process

    def dispatcher(self) -> ManagedProcess:
        """Start a dispatcher."""
        return self.start("dispatcher", manage("run_dispatcher"))

    def upkeep(self) -> ManagedProcess:
        """Start upkeep."""
        return self.start("upkeep", manage("run_upkeep"))

    def worker(self, name: str = "w1", concurrency: int = 2, **env: str) -> ManagedProcess:
        """Start a worker and wait until it is registered and ready."""
        process = self.start_worker(name, concurrency, **env)
        process.wait_for(f"{name}@test ready")
        return process

    def start_worker(self, name: str = "w1", concurrency: int = 2, **env: str) -> ManagedProcess:
        """Start a worker."""
        options = [
            "-n",
            f"{name}@test",
            "-c",
            str(concurrency),
            "--without-gossip",
            "--without-mingle",
            "-l",
            "INFO",
        ]
        command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "slackwater", "worker", *options]
        return self.start(name, command, **env)

    def up(self) -> ManagedProcess:
        """Start one of each; returns the worker."""
        self.dispatcher()
        self.upkeep()
        return self.worker()

    def close(self) -> None:
        """End everything; what a killed process had asked of the database may take a moment longer to end."""
        self.processes.close()
        wait_until(none_at_work, message="no session of a process that is gone is at work")

    # -- work -----------------------------------------------------------------------------------------------------
    def submit(self, handler: str = "demo.echo", *args: Any, **fields: Any) -> UUID:
        """Submit one task of the tenant."""
        if "script" not in fields and "script_path" not in fields:
            fields["handler"] = handler
        return submit(self.tenant, {"args": list(args), **fields}).task_ids[0]

    def workflow(self, *tasks: dict[str, Any]) -> dict[str, UUID]:
        """Submit a workflow; returns the ids by name."""
        submission = submit_workflow(self.tenant, {"name": "test", "tasks": list(tasks)})
        return dict(zip([task["name"] for task in tasks], submission.task_ids, strict=True))

    def state(self, task_id: UUID) -> TaskState:
        """The state now."""
        with connection.cursor() as cur:
            cur.execute(
                "SELECT coalesce(l.state, t.state) FROM slackwater_tasks_task t"
                " LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id "
                "WHERE t.id = %s",
                (task_id,),
            )
            return TaskState(cur.fetchone()[0])

    def wait(self, task_id: UUID, *states: TaskState, timeout: float = 60.0) -> Task:
        """Wait until the task is final (or in one of ``states``) and return its row."""

        def reached() -> bool:
            state = self.state(task_id)
            return state in states if states else is_final(state)

        wanted = ", ".join(state.name for state in states) or "final"
        try:
            wait_until(reached, timeout=timeout, message=f"{task_id} is {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.state(task_id).name}; {self.story(task_id)}") from None
        return self.row(task_id)

    def row(self, task_id: UUID) -> Task:
        """The task's row."""
        return Task.objects.unscoped().get(pk=task_id)  # the test is no tenant

    def live(self, task_id: UUID) -> LiveTask:
        """The task's live row."""
        return LiveTask.objects.unscoped().get(pk=task_id)  # the test is no tenant

    def attempts(self, task_id: UUID) -> list[Attempt]:
        """Its attempts, oldest first."""
        return list(Attempt.objects.unscoped().filter(task_id=task_id).order_by("fence"))  # the test is no tenant

    def story(self, task_id: UUID) -> str:
        """Its events, for a failing test's message."""
        rows = TaskEvent.objects.unscoped().filter(task_id=task_id).order_by("id")  # the test is no tenant
        return "; ".join(f"{e.from_state}->{e.to_state} {e.reason}" for e in rows)

    def unfinished(self) -> int:
        """What the tenant's counter says is unfinished."""
        return int(CurrentCounter.objects.get(tenant=self.tenant).unfinished)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def children_of(worker: ManagedProcess) -> list[psutil.Process]:
    """The pool children of a worker: not its agent, nor what either has started."""
    family = psutil.Process(worker.pid).children(recursive=True)
    masters = [p for p in family if "-A slackwater worker" in _command(p)]
    pids = {p.pid for p in masters}
    return [p for p in masters if (p.ppid() in pids or p.ppid() == worker.pid) and not _has_children(p, pids)]


def _has_children(process: psutil.Process, among: set[int]) -> bool:
    try:
        return any(child.pid in among for child in process.children())
    except psutil.Error:
        return False


def agent_of(worker: ManagedProcess) -> psutil.Process:
    """The worker's agent."""
    found = wait_until(
        lambda: next(
            (p for p in psutil.Process(worker.pid).children(recursive=True) if "worker.agent" in _command(p)),
            None,
        ),
        message="the worker has an agent",
    )
    assert found is not None
    return found


def none_at_work() -> bool:
    """Whether this test alone uses its database: the tables are emptied next, which must wait for no one."""
    with connection.cursor() as cur:
        cur.execute(AT_WORK)
        (count,) = cur.fetchone()
    return bool(count == 0)


def kill_all(worker: ManagedProcess) -> None:
    """Kill a worker with its children and its agent at once: a machine that vanishes."""
    family = worker.family()
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.kill()
