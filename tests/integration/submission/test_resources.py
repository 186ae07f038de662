"""A task's resources changed from its tier's, within the plan."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from slackwater_resources.models import Tier
from slackwater_tasks.models import LiveTask, Task
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER, ApiClient, forget_lookups

pytestmark = pytest.mark.django_db


def tier_of(task: Any) -> Tier:
    return Task._plain.select_related("tier").get(pk=UUID(str(task))).tier


def test_a_task_has_other_resources_than_its_tier(acme: ApiClient) -> None:
    Tier.objects.filter(slug="regular", tenant=None).update(price_micros_per_hour=40_000)
    forget_lookups()
    fields = {"tier": "regular", "resources": {"memory_mb": 4096, "cpu_milli": 250}}
    first, second = tier_of(acme.task(**fields)), tier_of(acme.task(**fields))
    assert (first.slug, first.vector[:2], first.price_micros_per_hour) == (
        "regular-cpu250-mem4096",
        (250, 4096),
        160_000,
    )
    assert (first.pk, first.tenant_id) == (second.pk, acme.tenant.pk)
    assert LiveTask._plain.filter(line__tier=first).count() == 2, "what is alike stands in one line"
    assert tier_of(acme.task(tier="regular")).slug == "regular"
    assert acme.get("/tiers/regular-cpu250-mem4096").body["memory_mb"] == 4096
    assert not [item for item in acme.get("/tiers").body["items"] if item["own"]]
    workflow = {"tasks": [{"name": "a", "handler": HANDLER, **fields}, {"name": "b", "handler": HANDLER}]}
    assert acme.post("/workflows", workflow).status == 201


def test_no_more_than_the_plan_grants(acme: ApiClient) -> None:
    plan = acme.tenant.plan
    plan.largest_tier, plan.max_own_tiers = {"memory_mb": 2048}, 0
    plan.save()
    forget_lookups()
    for resources, status, field in (
        ({"memory_mb": 2048}, 201, None),
        ({"memory_mb": 2049}, 403, "resources.memory_mb"),
        ({"cpu_milli": 251}, 403, "resources.cpu_milli"),
        ({"cpu_milli": 100}, 201, None),
        ({"cpu_milli": 0}, 422, "resources.cpu_milli"),
        ({"gpus": 1}, 422, "resources.gpus"),
        ({"memory_mb": "1"}, 422, "resources.memory_mb"),
        ({"memory_mb": 2**31}, 422, "resources.memory_mb"),
        ([], 422, "resources"),
    ):
        got = acme.post("/tasks", {"handler": HANDLER, "tier": "basic", "resources": resources})
        assert (got.status, got.body.get("field")) == (status, field), (resources, got.body)
    assert Tier.objects.filter(tenant=acme.tenant).count() == 2


@pytest.mark.django_db(transaction=True)
def test_what_a_refused_call_made_is_not_used(acme: ApiClient) -> None:
    """Its tier went with it, and those of the same call had seen it."""
    good = {"handler": HANDLER, "resources": {"memory_mb": 77}}
    tasks = [{**good, "name": "a"}, {**good, "name": "b", "category": "offpeak"}, {"name": "c", "handler": "no.such"}]
    assert acme.post("/workflows", {"tasks": tasks}).status == 422
    with transaction.atomic():
        first = submit(acme.tenant, good)
        with transaction.atomic():
            submit(acme.tenant, {**good, "resources": {"memory_mb": 78}})
            submit(acme.tenant, {**good, "resources": {"memory_mb": 78}})
            transaction.set_rollback(True)
        again = submit(acme.tenant, {**good, "resources": {"memory_mb": 78}})
        assert [tier_of(made.task_ids[0]).memory_mb for made in (first, again)] == [77, 78]
        transaction.set_rollback(True)
    assert [tier_of(acme.task(**{**good, "resources": {"memory_mb": n}})).memory_mb for n in (77, 78)] == [77, 78]


def test_it_is_the_same_in_python(acme: ApiClient) -> None:
    tenant = Tenant.objects.get(pk=acme.tenant.pk)
    (task,) = submit(tenant, {"handler": HANDLER, "resources": {"disk_mb": 10}}).task_ids
    assert tier_of(task).disk_mb == 10
