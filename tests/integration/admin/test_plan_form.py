"""The form of a plan: all that a plan has is set there, and what no tenant could use is refused at its field."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from slackwater_resources.models import Tier
from slackwater_tenants.models import Plan, Tenant
from tests.support.admin import form_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
ADD = "admin:slackwater_tenants_plan_add"


@pytest.fixture
def plan() -> Plan:
    """One to change."""
    return Plan.objects.create(slug="gold", name="Gold")


def change(page: Client, plan: Plan, **fields: Any) -> Any:
    """Send the plan's form as its page shows it, with some fields changed."""
    url = reverse("admin:slackwater_tenants_plan_change", args=[plan.pk])
    return page.post(url, form_of(page, url, **fields))


def faults(response: Any) -> dict[str, list[str]]:
    """What the form refuses, by field."""
    assert response.status_code == 200
    return dict(response.context["adminform"].form.errors)


def test_all_that_a_plan_has_is_in_its_form(page: Client) -> None:
    form = page.get(reverse(ADD)).context["adminform"].form
    given = {field.name for field in Plan._meta.concrete_fields if field.editable and not field.primary_key}
    assert given == set(form.fields)


def test_how_long_tasks_are_kept_is_set_there(page: Client, plan: Plan) -> None:
    assert change(page, plan, retention_days="7").status_code == 302
    plan.refresh_from_db()
    assert plan.retention_days == 7


@pytest.mark.parametrize(
    ("field", "given", "told"),
    [
        ("tiers", "basic,nosuch", "there is no shared tier 'nosuch'; known are "),
        ("handlers", "mail.*,[", "'[': a [ begins a set of characters, such as [a-z], and nothing ends it"),
        ("handlers", "mail.[!a", "'mail.[!a': a [ begins a set"),
        ("handler_defaults", "mail.[: urgent", "'mail.[': a [ begins a set"),
    ],
)
def test_what_would_grant_nothing_is_refused_at_its_field(
    page: Client, plan: Plan, field: str, given: str, told: str
) -> None:
    refused = faults(change(page, plan, **{field: given}))
    assert list(refused) == [field]
    assert told in refused[field][0]


def test_patterns_of_sets_and_tiers_there_are_are_saved(page: Client, plan: Plan) -> None:
    assert change(page, plan, tiers="basic,regular", handlers="mail.*,shop.[!a-c]?,a[]]").status_code == 302
    plan.refresh_from_db()
    assert plan.handlers == ["mail.*", "shop.[!a-c]?", "a[]]"]
    assert plan.tiers == ["basic", "regular"]


def test_the_tier_of_one_client_is_none_of_a_plans(page: Client, plan: Plan, tenant: Tenant) -> None:
    Tier.objects.create(tenant=tenant, slug="own", cpu_milli=1, memory_mb=1)
    assert list(faults(change(page, plan, tiers="own"))) == ["tiers"]


@pytest.mark.parametrize(
    ("field", "given", "told"),
    [
        ("maximum_permille", "400 %", "Ensure this value is less than or equal to 100 %."),
        ("max_urgent_permille", "100.1", "Ensure this value is less than or equal to 100 %."),
        ("guaranteed_permille", "1000 %", "Ensure this value is less than or equal to 100 %."),
        ("max_cap_s", "99999 d", "Ensure this value is less than or equal to 2147483647 s."),
    ],
)
def test_a_limit_is_told_in_the_unit_of_its_field(page: Client, plan: Plan, field: str, given: str, told: str) -> None:
    assert faults(change(page, plan, **{field: given})) == {field: [told]}


def test_the_least_of_a_tier_is_told_in_its_unit(page: Client) -> None:
    tier = {"slug": "odd", "cpu_milli": "0 cores", "memory_mb": "0", "default_cap_s": "0 s"}
    found = faults(page.post(reverse("admin:slackwater_resources_tier_add"), tier))
    told = {name: found[name] for name in ("cpu_milli", "memory_mb", "default_cap_s")}
    least = {"cpu_milli": "0.001 cores", "memory_mb": "1 MiB", "default_cap_s": "1 s"}
    assert told == {name: [f"Ensure this value is greater than or equal to {each}."] for name, each in least.items()}


def test_more_guaranteed_than_there_may_be_is_refused_at_its_field(page: Client, plan: Plan) -> None:
    refused = faults(change(page, plan, guaranteed_permille="50 %", maximum_permille="20 %"))
    assert refused == {"guaranteed_permille": ["must not be more than the maximum"]}
