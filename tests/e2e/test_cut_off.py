"""A worker cut off from its servers for a minute: another does its work, and its late results are refused."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from tests.lab.torture import links, record
from tests.lab.torture.clients import Client
from tests.lab.torture.cluster import Cluster, Member
from tests.lab.torture.ledger import Ledger
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400)]

CUT_S = 60.0
SHORT_S, LONG_S = 2.0, 30.0
"""One ends behind the cut while the lease still holds, the other long after it. The results of both must be refused: a
worker that hears nothing cannot tell whether it alone was cut off or the database is away for all, and works on."""


def test_a_worker_cut_off_for_a_minute(tmp_path: Path) -> None:
    if why := links.obstacle():
        pytest.skip(f"a cut needs links between namespaces: {why}")
    failures: list[BaseException] = []

    def in_a_network_of_its_own(body: Callable[[Path], None]) -> None:
        try:
            links.leave_network()
            body(tmp_path)
        except BaseException as error:  # noqa: BLE001 - raised again where pytest sees it
            failures.append(error)

    # Only this thread, and what it starts, leaves the machine's network.
    thread = threading.Thread(target=in_a_network_of_its_own, args=(_scene,))
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _scene(folder: Path) -> None:
    with Cluster(folder, nodes=1, concurrency=2, conf={}, links=True) as cluster, ExitStack() as closing:
        assert cluster.links is not None
        ledger = Ledger(cluster.postgres.url)
        closing.callback(ledger.close)
        ledger.prepare()
        client = Client(cluster.ports, cluster.key())
        wait_until(lambda: ledger.exported("torture.%") > 0, timeout=60)
        task_ids = [_submit(client, folder, seconds) for seconds in (SHORT_S, LONG_S)]
        wait_until(lambda: all(task_id in record.read(folder) for task_id in task_ids), timeout=30)
        cut = cluster.of("worker")[0]
        cluster.links.cut(cut.link)
        _cut_off(cluster, ledger, folder, task_ids)
        _back(cluster, ledger, client, folder, task_ids, cut)


def _cut_off(cluster: Cluster, ledger: Ledger, folder: Path, task_ids: list[str]) -> None:
    """Another worker comes, and does both."""
    assert cluster.links is not None
    healing = threading.Event()
    timer = threading.Timer(CUT_S, healing.set)
    timer.start()
    cluster.add_worker()
    wait_until(lambda: all(map(ledger.final, task_ids)), timeout=CUT_S + 30)
    assert healing.wait(CUT_S + 10)
    cluster.links.heal(1)
    lives = record.read(folder)
    for task_id in task_ids:
        assert [life.ended for life in lives[task_id]] == [True, True], "both came to an end, one behind the cut"


def _back(cluster: Cluster, ledger: Ledger, client: Client, folder: Path, task_ids: list[str], cut: Member) -> None:
    """The one that was cut off is heard again, takes work, and has changed nothing of what was decided without it."""
    others = [member for member in cluster.of("worker") if member is not cut]
    for member in others:
        cluster.dismiss(member)
    after = _submit(client, folder, 0.1)
    wait_until(lambda: ledger.final(after), timeout=60)
    truth = ledger.truth()
    for task_id in task_ids:
        row, attempts = truth.tasks[task_id], truth.attempts[task_id]
        assert (row.state, row.attempts_used) == (TaskState.SUCCEEDED, 2)
        assert [a.number for a in attempts] == [1, 2]
        assert [a.outcome for a in attempts] == [Outcome.WORKER_LOST, Outcome.SUCCEEDED]
        assert attempts[0].fence < attempts[1].fence
        assert len(record.read(folder)[task_id]) == 2


def _submit(client: Client, folder: Path, seconds: float) -> str:
    body = {
        "handler": "torture.long",
        "args": [str(folder), seconds],
        "total_attempts": 3,
        "category": "urgent",
    }
    key = uuid.uuid4().hex
    answers: list[Any] = []

    def accepted() -> bool:
        """On a busy machine no submitter may answer in time; the key makes a second try harmless."""
        status, answer = client.call("POST", "/tasks", body, key)
        assert status in (0, 200, 201, 503), answer
        answers.append(answer)
        return status in (200, 201)

    wait_until(accepted, timeout=60, message="a submitter accepts the task")
    return str((answers[-1].get("ids") or answers[-1]["task_ids"])[0])
