"""Past use in live rounds: the simulator's worked example, over a restart of the dispatcher, and in pools."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from scheduler_ext.core.types import Snapshot
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.models import Leader, PastUse, PolicyChoice
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.models import Pool, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.rounds import Rounds

MINUTE = 60.0
A_MINUTE_OF_TEN = 60 * (1 - math.exp(-1)) * 10 / 11
"""Ten of the cell's eleven slots (one is for scripts), held for as long as the memory."""


def remember(policy: str = "equal", **parameters: Any) -> None:
    PolicyChoice.objects.create(kind="share", policy=policy, parameters={"memory_s": 60, **parameters})


def hand_in(tenant: Tenant, count: int) -> None:
    submit_many(tenant, [{"handler": "demo.echo"}] * count)


def pass_by(rounds: Rounds, seconds: float) -> None:
    """As though so much time had passed since the last round."""
    assert rounds.store.past.use is not None
    rounds.store.past.use.at -= seconds
    rounds.store.past.use.landmark -= seconds


def used(rounds: Rounds, tenant: Tenant) -> float:
    """Its past use as the next round would see it."""
    return _seen(rounds.store.snapshot(), tenant)


def _seen(snapshot: Snapshot, tenant: Tenant) -> float:
    return snapshot.past_use.get(f"tenant {tenant.pk}", 0.0)


@pytest.mark.parametrize(("remembers", "shares"), [(False, (5, 5)), (True, (2, 8))])
def test_the_second_tenant_gets_more_after_the_first_had_all(
    rounds: Rounds, remembers: bool, shares: tuple[int, int]
) -> None:
    """The simulator's example: ten slots, one tenant has them for a minute, then both want them."""
    if remembers:
        remember()
    first, second = create_tenant("first", "First"), create_tenant("second", "Second")
    hand_in(first, 10)
    rounds.round()
    if remembers:
        pass_by(rounds, MINUTE)
    rounds.end(rounds.running)
    hand_in(first, 20)
    hand_in(second, 20)
    rounds.round()
    assert (rounds.held()[first.pk], rounds.held()[second.pk]) == shares


def test_it_survives_a_dispatcher_and_fades_meanwhile(rounds: Rounds) -> None:
    remember()
    tenant = create_tenant("first", "First")
    hand_in(tenant, 10)
    rounds.round()
    pass_by(rounds, MINUTE)
    before = used(rounds, tenant)
    assert before == pytest.approx(A_MINUTE_OF_TEN, rel=0.15)
    rounds.dispatcher.store.resign(rounds.dispatcher.holder)
    PastUse.objects.update(at=PastUse.objects.get().at - timedelta(seconds=30))
    other = PgRoundStore(rounds.conf, "another")
    assert other.lead("another").leads
    assert _seen(other.snapshot(), tenant) == pytest.approx(before * math.exp(-0.5), rel=0.15)
    assert _seen(other.view(8), tenant) == pytest.approx(before * math.exp(-0.5), rel=0.15), "explaining sees it"
    other.db.close()


def test_a_clock_put_back_counts_on_from_there(rounds: Rounds) -> None:
    remember()
    tenant = create_tenant("first", "First")
    hand_in(tenant, 10)
    rounds.round()
    pass_by(rounds, -3600.0)
    assert used(rounds, tenant) < 5.0, "nothing was held for the hour that was taken back"
    pass_by(rounds, MINUTE)
    assert used(rounds, tenant) == pytest.approx(A_MINUTE_OF_TEN, rel=0.15)


def test_who_leads_again_goes_by_what_the_other_wrote(rounds: Rounds) -> None:
    remember()
    tenant = create_tenant("first", "First")
    hand_in(tenant, 10)
    rounds.round()
    pass_by(rounds, MINUTE)
    rounds.round()
    rounds.store.resign(rounds.dispatcher.holder)
    other = PgRoundStore(rounds.conf, "another")
    assert other.lead("another").leads
    PastUse.objects.update(amount=7.0)
    other.resign("another")
    other.db.close()
    assert rounds.store.lead(rounds.dispatcher.holder).leads
    assert used(rounds, tenant) == pytest.approx(7.0, rel=0.15)


def test_one_that_leads_no_more_writes_nothing_over_what_the_next_one_knows(rounds: Rounds) -> None:
    remember()
    tenant = create_tenant("first", "First")
    hand_in(tenant, 10)
    rounds.round()
    pass_by(rounds, MINUTE)
    rounds.round()
    Leader.objects.update(expires_at=timezone.now())  # it was stopped for too long
    other = PgRoundStore(rounds.conf, "another")
    assert other.lead("another").leads
    PastUse.objects.create(cell="default", name=f"tenant {tenant.pk}", amount=7.0)
    rounds.store.resign(rounds.dispatcher.holder)
    assert PastUse.objects.get().amount == 7.0
    other.db.close()


def test_who_was_served_less_is_known_though_nothing_counts_as_held(rounds: Rounds) -> None:
    """Of two who hold alike the one who had less lately is next, not the one whose tasks wait longest."""
    first, second = create_tenant("first", "First"), create_tenant("second", "Second")
    hand_in(first, 10)
    rounds.round()
    pass_by(rounds, MINUTE)
    rounds.end(rounds.running)
    hand_in(first, 20)
    rounds.round()
    assert rounds.held() == {first.pk: 10}
    pass_by(rounds, MINUTE)
    hand_in(second, 20)
    rounds.end(rounds.running[:1])
    rounds.round()
    assert rounds.held() == {first.pk: 9, second.pk: 1}
    assert used(rounds, first) > used(rounds, second)
    rounds.store.resign(rounds.dispatcher.holder)
    assert not PastUse.objects.exists(), "that is not written down"


def test_it_is_written_down_now_and_then_and_forgotten_when_it_has_faded(rounds: Rounds) -> None:
    remember()
    tenant = create_tenant("first", "First")
    hand_in(tenant, 10)
    rounds.round()
    assert not PastUse.objects.exists()
    rounds.store.past._saved -= 11
    pass_by(rounds, MINUTE)
    rounds.round()
    row = PastUse.objects.get()
    assert (row.cell, row.name) == ("default", f"tenant {tenant.pk}")
    assert row.amount == pytest.approx(A_MINUTE_OF_TEN, rel=0.15)
    rounds.end(rounds.running)
    rounds.round()
    pass_by(rounds, 20 * MINUTE)
    rounds.store.past._saved -= 11
    rounds.round()
    assert not PastUse.objects.exists()


def test_pools_pay_back_what_they_had_and_so_do_their_tenants(rounds: Rounds) -> None:
    """Two pools of alike weight; the first, and one of its two tenants, had the cell for a minute."""
    remember("fair")
    one, two = Pool.objects.create(slug="one"), Pool.objects.create(slug="two")
    ahead, fellow, other = (create_tenant(slug, slug.title()) for slug in ("ahead", "fellow", "other"))
    for tenant, pool in ((ahead, one), (fellow, one), (other, two)):
        tenant.pool = pool
        tenant.save()
    hand_in(ahead, 10)
    rounds.round()
    pass_by(rounds, MINUTE)
    rounds.end(rounds.running)
    for tenant in (ahead, fellow, other):
        hand_in(tenant, 20)
    rounds.round()
    assert rounds.held() == {other.pk: 8, fellow.pk: 2}
