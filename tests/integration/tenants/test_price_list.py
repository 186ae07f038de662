"""The plans that ship, and the two demo tenants on them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from django.core.management import call_command

from scheduler_ext.core.errors import InvalidInput, NotGranted, TooLarge
from slackwater.management.commands import create_demo
from slackwater_conf import conf
from slackwater_tasks.read.overview import limits
from slackwater_tasks.submission.service import submit, submit_workflow
from slackwater_tenants import price_list
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER, furnish

pytestmark = pytest.mark.django_db
NUMBERS = (
    "tasks_per_hour",
    "burst",
    "max_waiting",
    "max_in_flight",
    "rate_starts",
    "max_cap_s",
    "max_payload_bytes",
    "max_dag_tasks",
    "max_dag_edges",
    "max_dag_depth",
    "max_own_tiers",
    "max_urgent_permille",
    "weight",
    "maximum_permille",
    "dead_letter_retries",
    "retention_days",
)


@pytest.fixture(autouse=True)
def furnished() -> None:
    """Tiers, a handler, and the plans as a new platform has them."""
    furnish()
    price_list.ship(Plan)


def test_each_plan_gives_no_less_than_the_one_before_and_free_has_a_limit_of_everything() -> None:
    plans = [Plan.objects.get(slug=slug) for slug in ("free", "basic", "pro", "enterprise")]
    for lower, higher in pairwise(plans):
        for name in NUMBERS:
            less, more = getattr(lower, name), getattr(higher, name)
            assert more is None or less <= more, (higher.slug, name)
        assert set(lower.tiers) <= set(higher.tiers)
        assert lower.burst >= lower.max_dag_tasks
    free, most = plans[0], Plan()
    for name in NUMBERS:
        if name not in ("weight", "dead_letter_retries"):
            own, default = getattr(free, name), getattr(most, name)
            assert own is not None, name
            assert default is None or own < default, name
    assert all(plan.dead_letter_retries > 0 for plan in plans)
    for plan in plans[1:]:
        plan.full_clean()
        assert plan.price_permille["urgent"] > plan.price_permille["delayable"] > plan.price_permille["offpeak"] > 0


def test_an_edited_plan_stays_as_it_is() -> None:
    Plan.objects.filter(slug="pro").update(weight=5)
    price_list.ship(Plan)
    assert create_tenant("acme", "Acme", "pro").plan.weight == 5


def test_the_demo_has_a_tenant_at_each_end_of_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_demo, "conf", lambda: replace(conf(), var=str(tmp_path)))
    call_command("create_demo", url="http://here")
    assert "KEY=sw_" in (tmp_path / "demo.env").read_text()
    assert "KEY=sw_" in (tmp_path / "demo-free.env").read_text()
    rich, free = (Tenant.objects.select_related("plan").get(slug=slug) for slug in ("demo", "demo-free"))
    submit(rich, {"handler": HANDLER, "tier": "premium", "category": "urgent"})
    submit(free, {"handler": HANDLER})
    with pytest.raises(NotGranted):
        submit(free, {"handler": HANDLER, "tier": "regular"})
    with pytest.raises(NotGranted, match="urgent"):
        submit(free, {"handler": HANDLER, "category": "urgent"})
    with pytest.raises((TooLarge, InvalidInput)):
        submit(free, {"handler": HANDLER, "execution_cap": 301})
    with pytest.raises(TooLarge, match="tasks"):
        submit_workflow(free, {"tasks": [{"handler": HANDLER} for _ in range(51)]})
    assert limits(rich)["prices"]["category_permille"]["urgent"] > limits(free)["prices"]["category_permille"]["urgent"]
