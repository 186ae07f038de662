"""Crowds of clients over several processes: exact, and nothing half stored when one is killed."""

from __future__ import annotations

import contextlib
import http.client
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from slackwater_tasks.ledger.connection import connect
from slackwater_tenants.services import create_api_key, create_tenant
from tests.integration.api.test_group_commit import BUSY, LOCK, WAITING, asked, held, stored
from tests.support.api import HANDLER
from tests.support.processes import ManagedProcess, running
from tests.support.submitters import Client, free_port, is_up
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("furnished", "redis_client")]


# -- over processes ---------------------------------------------------------------------------------------------------
def crowd(clients: list[Client], bodies: list[Any]) -> list[int]:
    """All submit at the same moment; their statuses."""
    together, statuses = threading.Barrier(len(clients)), [0] * len(clients)

    def one(place: int) -> None:
        together.wait()
        statuses[place], _ = clients[place].submit(bodies[place])

    threads = [threading.Thread(target=one, args=(n,)) for n in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.connection.close()
    return statuses


@pytest.mark.parametrize("submitters", ["with Redis"], indirect=True)
def test_a_mixed_crowd_over_four_processes_is_exact(submitters: list[int]) -> None:
    limit, keys = 60, 10
    tenant = create_tenant("acme", "Acme")
    tenant.plan.burst, tenant.plan.tasks_per_hour = limit, 1
    tenant.plan.save()
    key = create_api_key(tenant, "test", ("submit",))[1]
    kinds = {
        "plain": {"handler": HANDLER},
        "bad": {"handler": HANDLER, "priority": "high"},
        **{f"k{n}": {"handler": HANDLER, "idempotency_key": f"k{n}"} for n in range(keys)},
    }
    # Each key once in every process, and among the first, so that the same one meets itself everywhere.
    names = [name for n in range(keys) for name in [f"k{n}"] * 4 + ["bad"] * 4 + ["plain"] * 8]
    clients = [Client(submitters[n % 4], key) for n in range(len(names))]
    statuses = crowd(clients, [kinds[name] for name in names])
    by_kind: dict[str, Counter[int]] = {}
    for name, status in zip(names, statuses, strict=True):
        by_kind.setdefault(name, Counter())[status] += 1
    assert by_kind["bad"].keys() <= {422, 429}, "a refusal at the door comes before the body is read"
    assert by_kind["plain"].keys() <= {201, 429}
    ids: dict[str, set[str]] = {}
    for name, status, client in zip(names, statuses, clients, strict=True):
        if status < 300 and name != "plain":
            ids.setdefault(name, set()).update(client.body["task_ids"])
    assert all(len(found) == 1 for found in ids.values()), "one task for each key"
    for n in range(keys):
        assert by_kind[f"k{n}"].keys() <= {200, 201, 429}
        assert by_kind[f"k{n}"][201] <= 1
    assert sum(found[201] for found in by_kind.values()) == limit
    assert stored()[::2] == (limit, limit)
    assert asked("SELECT count(*) FROM slackwater_tasks_idempotencykey") == len(ids)


@contextmanager
def submitter(env: dict[str, str]) -> Iterator[tuple[ManagedProcess, int]]:
    """One server as it runs in production, and its port."""
    port = free_port()
    command = [sys.executable, "-m", "granian", "--interface", "asginl", "--port", str(port), "--no-ws"]
    with running([*command, "slackwater.asgi:application"], env=env, name="api") as process:
        wait_until(lambda: is_up(port), timeout=60, message="the submitter answers")
        yield process, port


def answers_of(clients: list[Client]) -> tuple[list[threading.Thread], list[int]]:
    """Every client submits, each in a thread; the statuses come in as they are answered."""
    statuses: list[int] = []

    def one(client: Client) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # the server is killed
            statuses.append(client.submit()[0])
        client.connection.close()

    threads = [threading.Thread(target=one, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    return threads, statuses


@pytest.mark.parametrize("killed", [True, False])
def test_a_process_killed_in_the_middle_leaves_its_group_whole_and_counted(
    database_url: str, redis_url: str, tmp_path: Path, killed: bool
) -> None:
    env = {
        "SLACKWATER_DATABASE_URL": database_url, "SLACKWATER_REDIS_URL": redis_url,
        "SLACKWATER_VAR": str(tmp_path / "var"), "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": "platform:apps:.",
    }  # fmt: skip
    tenant = create_tenant("acme", "Acme")
    key = create_api_key(tenant, "test", ("submit",))[1]
    connections.close_all()
    with submitter(env) as (process, port), connect() as next_in_line:
        clients = [Client(port, key) for _ in range(30)]
        with held(tenant.pk):
            first, told_first = answers_of(clients[:1])
            wait_until(lambda: asked(WAITING) == 1, message="the first waits for the counters")
            others, told_others = answers_of(clients[1:])
            # Whoever locks the counters next comes after the first, and before the group.
            next_in_line.execute("BEGIN")
            locking = threading.Thread(target=next_in_line.execute, args=(LOCK, (tenant.pk,)))
            locking.start()
            wait_until(lambda: asked(WAITING) == 2)
        locking.join()
        first[0].join()
        wait_until(lambda: asked(WAITING) == 1, message="the group waits for the counters")
        assert (told_first, told_others) == ([201], [])
        if killed:
            process.send(signal.SIGKILL)
            process.wait()
        next_in_line.execute("COMMIT")
        for thread in others:
            thread.join()
        wait_until(lambda: asked(BUSY) == 0, message="no session is at work")
    if killed:
        # It is one statement, which the server brings to its end: all of the group, or nothing of it.
        assert (told_others, stored()) == ([], (30, 2, 30))
    else:
        assert told_others == [201] * 29
        assert stored()[::2] == (30, 30)
