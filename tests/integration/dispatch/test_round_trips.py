"""What a round asks PostgreSQL and Redis along with something else, so that a lone task waits for fewer answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scheduler_ext.core.states import TaskState
from slackwater_tasks.ledger import parking, round_store
from slackwater_tasks.models import LiveTask
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Tenant
from tests.support.api import client_of, furnish
from tests.support.rounds import Rounds

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture
def cell(redis_client: Any) -> Iterator[Rounds]:
    furnish()
    made = Rounds()
    yield made
    made.close()


@pytest.fixture
def tenant(cell: Rounds) -> Tenant:
    return client_of("round-trips").tenant


def claims() -> int:
    return LiveTask.objects.unscoped().filter(state=TaskState.QUEUED).count()  # unscoped: of all tenants


def test_a_round_that_publishes_sees_that_redis_was_emptied_and_the_next_returns_what_was_queued(
    cell: Rounds, tenant: Tenant, redis_client: Any
) -> None:
    submit(tenant, {"handler": "demo.echo"})
    assert cell.dispatcher.run_round().claimed == 1
    assert not cell.dispatcher.last.again
    redis_client.flushall()
    submit(tenant, {"handler": "demo.echo"})
    cell.dispatcher._woken = float("inf")  # it does not ask
    published = cell.dispatcher.run_round()
    assert (published.returned, published.claimed, published.again) == (0, 1, True)
    after = cell.dispatcher.run_round()
    assert (after.returned, after.claimed, claims()) == (2, 2, 2)
    assert cell.dispatcher.run_round().returned == 0


def test_a_round_that_publishes_nothing_asks_now_and_then_whether_redis_was_emptied(
    cell: Rounds, tenant: Tenant, redis_client: Any
) -> None:
    submit(tenant, {"handler": "demo.echo"})
    cell.dispatcher.run_round()
    redis_client.flushall()
    cell.dispatcher._woken = float("inf")
    assert cell.dispatcher.run_round().returned == 0
    cell.dispatcher._woken = float("-inf")
    assert cell.dispatcher.run_round().returned == 1


def test_the_heads_of_the_lines_come_with_what_is_in_flight_while_there_is_as_much_room_as_before(
    cell: Rounds, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A key of its own: what has one is left to rounds, whatever room was given ahead.
    plain = {"handler": "demo.echo", "mutex_key": "k", "mutex_limit": 9}
    submit(tenant, plain)
    cell.dispatcher.run_round()
    apart: list[int] = []
    asked = parking.nominate

    def watched(conn: Any, heads: int, paused: Any) -> list[Any]:
        apart.append(heads)
        return asked(conn, heads, paused)

    monkeypatch.setattr(round_store, "nominate", watched)
    submit(tenant, plain)
    assert cell.dispatcher.run_round().claimed == 1
    assert apart == []
    cell.store.depth.reach *= 100  # more room than there is: more came along than is looked at
    submit(tenant, plain)
    assert cell.dispatcher.run_round().claimed == 1
    assert apart == []
    cell.store.depth.reach = 1  # less than there is
    submit(tenant, plain)
    assert cell.dispatcher.run_round().claimed == 1
    assert len(apart) == 1
