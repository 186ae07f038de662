"""Many lines from many tasks at once: none is lost below the bound, in order, and what a thousand of them cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from uuid import UUID

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.work import Started
from scheduler_ext.task.output import Output
from slackwater_tasks.read import output as stored
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tenants.models import Plan
from slackwater_tenants.scoping import tenant_scope
from tests.integration.runtime.test_output import begun
from tests.support.api import ApiClient
from tests.support.figures import tell
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]
TASKS = 100
SECRETS = ("correct horse battery", "staple-0123456789", "hunter2")
"""What is blotted out of each line, the longest first."""
MOST_CPU_S = 0.08
"""Processor time for 1,000 lines at the most, of the process that writes them; a few times what it takes."""


@pytest.fixture
def output() -> Iterator[Output]:
    """One that stores in the ledger, as a worker's process has it."""
    made = Output()
    stores: list[PgWorkStore] = []

    def store() -> PgWorkStore:
        stores.append(PgWorkStore(SchedulerConf(), "test output"))
        return stores[-1]

    made.open(store)
    yield made
    for each in stores:
        each.close()


def tasks(client: ApiClient) -> list[Started]:
    Plan.objects.filter(pk=client.tenant.plan_id).update(max_waiting=1_000, max_in_flight=1_000)
    worker = HandWorker()
    return [begun(worker, client.task()) for _ in range(TASKS)]


def texts(client: ApiClient, task: Started) -> list[str]:
    with tenant_scope(client.tenant.pk):
        return [line["text"] for line in stored.lines(UUID(task.task_id), limit=10_000)]


@pytest.mark.slow
def test_ten_thousand_lines_a_second_from_a_hundred_tasks(acme: ApiClient, output: Output) -> None:
    running, each, rounds = tasks(acme), 10, 50  # ten times a second, ten lines of each task
    write = partial(output.write, stream="stdout", secrets=lambda: SECRETS)
    began, cpu = time.monotonic(), time.process_time()
    for n in range(rounds):
        said = "".join(f"line {n * each + k} with hunter2 and what a line of a log usually has\n" for k in range(each))
        for task in running:
            write(task, text=said)
        pause = began + (n + 1) / 10 - time.monotonic()
        if pause > 0:
            time.sleep(pause)
    wrote_s = time.monotonic() - began
    for task in running:
        output.end(task)
    output.flush()
    cpu = time.process_time() - cpu
    total = TASKS * rounds * each
    wanted = [f"line {n} with *** and what a line of a log usually has" for n in range(rounds * each)]
    for task in running:
        assert texts(acme, task) == wanted
    tell("output", lines=total, per_s=round(total / wrote_s), lost=0, cpu_ms=f"{cpu / total * 1e6:.1f}")
    told = f"{total:,} lines in {wrote_s:.1f} s, {cpu / total * 1e6:.1f} ms of processor time a 1,000 lines"
    assert cpu / total * 1_000 < MOST_CPU_S, told


def test_where_the_bound_is_reached_each_task_has_its_mark_and_all_before_it(acme: ApiClient, output: Output) -> None:
    running = tasks(acme)
    Plan.objects.filter(pk=acme.tenant.plan_id).update(max_log_bytes=1_000)
    for n in range(200):
        for task in running:
            output.write(task, "stdout", f"line {n:04}\n", lambda: ())  # ten bytes, with the end of the line
    for task in running:
        output.end(task)
    output.flush()
    for task in running:
        *lines, last = texts(acme, task)
        assert lines == [f"line {n:04}" for n in range(100)]
        assert last == "cut here: the plan keeps 1,000 bytes of what an attempt writes"
