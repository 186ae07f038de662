"""Execution rates over REST: a tenant's own beside the operators'; they are exact where rounds are killed."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.db import connection
from django.urls import reverse

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_resources.models import Handler
from slackwater_tasks.control.rate_limits import public_id
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.models import LiveTask, RateLimit, RateStart
from slackwater_tasks.upkeep.plan_rates import settle
from slackwater_tenants.models import Plan, Tenant
from tests.support.api import HANDLER, client_of, furnish
from tests.support.cell import Cell, let_go

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_tenant_sets_its_own_and_sees_those_that_apply() -> None:
    furnish()
    acme, other = client_of("acme"), client_of("other")
    made = acme.post("/rates", {"key": "bank", "starts": 60, "window_s": 60})
    assert made.status == 201, made.body
    assert made.headers["Location"] == f"/api/v1/rates/{made.body['id']}"
    shared = RateLimit.objects.create(handler=Handler.objects.get(name=HANDLER), starts=5, per_s=1)
    theirs = RateLimit.objects.create(tenant=acme.tenant, starts=5, per_s=1)
    assert [(r["of"], r["own"], r["shared"]) for r in acme.get("/rates").body["items"]] == [
        ("key", True, False), ("handler", False, True), ("tenant", False, False)
    ]  # fmt: skip
    assert [r["id"] for r in other.get("/rates").body["items"]] == [str(public_id(shared))]
    for limit in (shared, theirs):
        assert acme.call("DELETE", f"/rates/{public_id(limit)}").status == 404
    assert other.call("DELETE", f"/rates/{made.body['id']}").status == 404
    assert acme.post("/rates", {"key": "bank", "starts": 6, "window_s": 60}).status == 409
    assert acme.call("DELETE", f"/rates/{made.body['id']}").status == 204


@pytest.mark.parametrize(
    ("change", "field"),
    [({"starts": 0}, "starts"), ({"starts": True}, "starts"), ({"window_s": 1.5}, "window_s"),
     ({"window_s": 10**9}, "window_s"), ({"key": 7}, "key"), ({"key": "a", "handler": HANDLER}, "key"),
     ({"handler": "no.such"}, "handler"), ({"tenant": 1}, "tenant"), ({"key": "a\x00"}, "key")],
)  # fmt: skip
def test_what_is_wrong_is_named(change: dict[str, Any], field: str) -> None:
    furnish()
    answer = client_of("acme").post("/rates", {"starts": 1, "window_s": 1, **change})
    assert (answer.status, answer.body["field"]) == (422, field)


@pytest.fixture
def cell(redis_client: redis.Redis) -> Any:
    made = Cell(redis_client)
    try:
        yield made
    finally:
        made.store.db.close()


def queued(cell: Cell) -> int:
    cell.round()
    return LiveTask.objects.unscoped().filter(state=TaskState.QUEUED).count()  # the test is no tenant


def test_a_claim_that_did_not_begin_gives_its_place_back(cell: Cell) -> None:
    RateLimit.objects.create(tenant=cell.tenant, key="bank", starts=1, per_s=3600)
    first, second = [cell.submit(rate_key="bank") for _ in range(2)]
    assert cell.claimed(first)
    assert not cell.claimed(second)
    cell.store.return_queued()
    assert queued(cell) == 1
    started = cell.started(first)
    assert queued(cell) == 0
    assert RateStart.objects.count() == 1
    # It has begun: its attempt counts for an hour, whatever becomes of it.
    cell.worker.end(started, Outcome.FAILED, error="boom")
    assert queued(cell) == 0
    assert RateStart.objects.get().at is not None
    with connection.cursor() as cur:
        cur.execute("UPDATE slackwater_tasks_ratestart SET at = at - interval '3601 s'")
        cur.execute("UPDATE slackwater_tasks_livetask SET not_before = now() WHERE state = 2")
    assert queued(cell) == 1


def test_work_without_limits_writes_nothing(cell: Cell) -> None:
    RateLimit.objects.create(tenant=client_of("other").tenant, starts=1, per_s=1)
    assert cell.claimed(cell.submit())
    assert not RateStart.objects.exists()


def test_a_deleted_limit_holds_nobody(cell: Cell) -> None:
    from slackwater_tasks.runtime.work_store import PgWorkStore
    from slackwater_tasks.upkeep.parking import ParkingUpkeep

    limit = RateLimit.objects.create(tenant=cell.tenant, key="bank", starts=1, per_s=3600)
    tasks = [cell.submit(rate_key="bank") for _ in range(3)]
    assert queued(cell) == 1
    assert LiveTask.objects.unscoped().filter(parked=limit.pk).count() == 2  # the test is no tenant
    limit.delete()
    work = PgWorkStore(cell.worker.conf, "test", cell.store.db)
    assert ParkingUpkeep(cell.worker.conf, cell.store.db, work, lambda changes: None).unpark_limited() == 2
    assert queued(cell) == len(tasks)


# -- rates that plans give ------------------------------------------------------------------------------------------
def plan_rate(cell: Cell, starts: int | None, per_s: int = 3600) -> None:
    plan = cell.tenant.plan
    plan.rate_starts, plan.rate_per_s = starts, per_s
    plan.save()


def running(cell: Cell, *clients: Any) -> list[int]:
    """How many tasks of each have been claimed after a round."""
    queued(cell)
    rows = LiveTask.objects.unscoped().filter(state=TaskState.QUEUED)  # the test is no tenant
    return [rows.filter(tenant=client.tenant).count() for client in clients]


def settled(cell: Cell) -> int:
    db = Database("upkeep of a test")
    try:
        return db.repeatable(settle)
    finally:
        db.close()


def test_each_tenant_of_a_plan_has_its_rate_for_itself(cell: Cell) -> None:
    plan_rate(cell, 2)
    fellow = client_of("fellow")
    Plan.objects.create(slug="thin", name="Thin")
    free = client_of("free", plan_slug="thin")
    clients = [cell.client, fellow, free]
    cell.resize(20)
    for client in clients:
        for _ in range(4):
            client.task(category="urgent")
    assert running(cell, *clients) == [2, 2, 4]
    assert [(r["of"], r["starts"], r["own"]) for r in fellow.get("/rates").body["items"]] == [("tenant", 2, False)]
    assert fellow.call("DELETE", f"/rates/{fellow.get('/rates').body['items'][0]['id']}").status == 404


def test_it_stands_beside_what_the_tenant_set_itself(cell: Cell) -> None:
    assert cell.client.post("/rates", {"starts": 3, "window_s": 3600}).status == 201
    plan_rate(cell, 2)
    for _ in range(4):
        cell.submit(category="urgent")
    assert queued(cell) == 2
    plan_rate(cell, 4)
    assert queued(cell) == 3, "what has started under the plan's rate counts on, and its own holds it now"


def test_a_change_of_plan_changes_the_rate(cell: Cell) -> None:
    plan_rate(cell, 1)
    for _ in range(3):
        cell.submit(category="urgent")
    assert queued(cell) == 1
    assert (settled(cell), RateLimit.objects.get().starts) == (0, 1)
    free = Plan.objects.create(slug="thin", name="Thin")
    Tenant.objects.filter(pk=cell.tenant.pk).update(plan=free)  # past the models
    assert settled(cell) == 1
    assert not RateLimit.objects.exists()
    assert not RateStart.objects.exists()
    let_go(cell)
    assert queued(cell) == 3


def test_what_a_plan_gives_is_changed_in_the_plan(cell: Cell, admin_client: Any) -> None:
    plan_rate(cell, 1)
    limit = RateLimit.objects.get()
    page = reverse("admin:slackwater_tasks_ratelimit_change", args=[limit.pk])
    assert admin_client.get(page).status_code == 200
    assert admin_client.post(page, {"starts": 9, "per_s": 9}).status_code == 403
    assert admin_client.post(reverse("admin:slackwater_tasks_ratelimit_delete", args=[limit.pk])).status_code == 403
    assert RateLimit.objects.get().starts == 1
