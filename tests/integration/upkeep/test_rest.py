"""Upkeep with nothing to do: one question in place of all its jobs', and every job again once there is something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.upkeep import Upkeep
from slackwater_monitoring import upkeep as upkeep_jobs
from slackwater_resources.faults import FAULTS
from slackwater_tasks.submission.service import submit
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 31
MOST_PER_S = 5


def test_at_rest_upkeep_asks_little_and_at_work_as_ever(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [1000.0], []
    monkeypatch.setattr("scheduler_ext.upkeep.time", SimpleNamespace(monotonic=lambda: now[0]))
    ledger = LedgerUpkeep(SchedulerConf(), lambda changes: None)
    jobs = [*ledger.jobs(), *upkeep_jobs.jobs(ledger.db)]
    upkeep = Upkeep(jobs, FAULTS, ledger.look)
    execute = psycopg.Connection.execute

    def counted(conn: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(query)
        return execute(conn, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    assert set(upkeep.run_due()) == {job.name for job in jobs}, "each of them looks at the start"
    asked.clear()
    ran = set()
    while now[0] < 1000.0 + SECONDS:
        now[0] += upkeep.pause_s()
        ran |= set(upkeep.run_due())
    assert len(asked) <= MOST_PER_S * SECONDS
    assert {job.name for job in jobs if job.over} <= ran, "at rest they look all the same, only seldom"

    submit(tenant, {"handler": HANDLER, "start_in_s": 3600})
    ran.clear()
    while now[0] < 1000.0 + SECONDS + 2:
        now[0] += upkeep.pause_s()
        ran |= set(upkeep.run_due())
    assert {job.name for job in jobs if "tasks" in job.over} <= ran
    ledger.db.close()
