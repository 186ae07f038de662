"""Demand against resources, counted from what is ready and in flight, and published."""

from __future__ import annotations

import pytest
import redis
from django.db import connection
from django.test import Client

from slackwater_dashboard.live import snapshot
from slackwater_resources.models import Node
from slackwater_tasks.read.autoscaling import demands, waited_for, work
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER
from tests.support.cell import Cell

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_ratio_of_resources_to_demand_is_published_with_its_target(redis_client: redis.Redis) -> None:
    cell = Cell(redis_client)
    try:
        cell.worker.start(cell.submit())
        for _ in range(7):
            cell.submit()
        cell.submit(start_at="2090-01-01T00:00:00Z")
        # Each kind of slot by itself, for handlers run in no script's: five process slots.
        Node.objects.update(slots={"process": 5, "script": 5})
        handlers, scripts = demands()
        assert (handlers.kind, handlers.slots, handlers.demand, handlers.wanted) == ("process", 5.0, 8.0, 10.0)
        assert handlers.ratio == 5 / 8
        assert waited_for(work()) == {("default", cell.tenant.pk): 7 / 5}, "what is ready, as a part of the cell"
        [row] = snapshot()["shares"][0]["tenants"]
        assert (row["held"], row["waits"], row["waited_for"]) == (pytest.approx(1 / 5), True, 7 / 5)
        assert (scripts.kind, scripts.slots, scripts.demand, scripts.ratio) == ("script", 5.0, 0.0, None)
        text = Client().get("/metrics").content.decode()
        assert 'slackwater_demand_slots{cell="default",kind="process"} 8.0' in text
        assert 'slackwater_wanted_slots{cell="default",kind="process"} 10.0' in text
        # Work known to be short shares slots, and so asks for less.
        with connection.cursor() as cur:
            cur.execute(
                "INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at) "
                "VALUES (%s, %s, 50, 8e3, now())",
                (cell.tenant.pk, HANDLER),
            )
        assert demands()[0].demand == pytest.approx(1.7)
        Tenant.objects.update(paused=True)
        assert demands()[0].demand == 1.0, "what is paused asks for nothing; what runs, runs"
    finally:
        cell.store.db.close()


def test_a_cell_without_work_or_nodes_asks_for_nothing() -> None:
    assert demands() == []
