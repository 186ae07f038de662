"""A node full of tasks that are over soon has the next one already, and never more than it may hold at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from scheduler_ext.core.types import MILLI, WorkKind
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.models import Tenant
from tests.support.api import TIERS, client_of, furnish
from tests.support.rounds import Rounds

pytestmark = pytest.mark.django_db(transaction=True)
CPU_MILLI = TIERS["basic"][0]
LEARNT = """
INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at) VALUES (%s, 'demo.echo', 50, %s, now())
"""


@pytest.fixture
def cells(redis_client: Any) -> Iterator[list[Rounds]]:
    furnish()
    made: list[Rounds] = []
    yield made
    for each in made:
        each.close()


def busy(cells: list[Rounds], tenant: Tenant, expected_us: int) -> Rounds:
    """A node of two slots that has room for two tasks of the tenant at once, and five of them."""
    with connection.cursor() as cur:
        cur.execute(LEARNT, (tenant.pk, expected_us))
    cell = Rounds(slots=2, cpu_milli=2 * CPU_MILLI)
    cells.append(cell)
    submit_many(tenant, [{"handler": "demo.echo", "tier": "basic"}] * 5)
    return cell


def test_one_more_is_claimed_than_there_are_slots(cells: list[Rounds]) -> None:
    cell = busy(cells, client_of("ahead").tenant, 55_000)
    assert cell.round().claimed == 3
    (node,) = cell.store.snapshot().nodes
    assert (node.ahead, node.passing, dict(node.exclusive_count)) == (1, 2, {WorkKind.PROCESS: 2})
    assert node.exclusive_used[0] == 2 * CPU_MILLI, "what it takes is that of one that ends"
    assert cell.round().claimed == 0
    for left in (1, 1, 0):
        cell.end(cell.running[:1])
        assert cell.round().claimed == left, "one follows as another begins"
    (node,) = cell.store.snapshot().nodes
    assert (node.ahead, dict(node.exclusive_count)) == (0, {WorkKind.PROCESS: 2})


def test_nothing_is_claimed_ahead_of_what_runs_longer(cells: list[Rounds]) -> None:
    assert busy(cells, client_of("long").tenant, 200_000).round().claimed == 2


def test_a_tenant_has_no_more_in_flight_than_it_may(cells: list[Rounds]) -> None:
    tenant = client_of("few").tenant
    tenant.plan.max_in_flight = 2
    tenant.plan.save()
    assert busy(cells, tenant, 55_000).round().claimed == 2


def test_its_slot_counts_for_its_tenant_at_once(cells: list[Rounds]) -> None:
    tenant = client_of("counted").tenant
    cell = busy(cells, tenant, 55_000)
    cell.round()
    assert cell.store.snapshot().tenants[tenant.pk].used_slots_milli == {WorkKind.PROCESS: 3 * MILLI}
