"""Pools and queues in live rounds: shares, lending and giving back, and room kept for large tasks."""

from __future__ import annotations

import pytest
import redis

from scheduler_ext.core.types import Reason
from slackwater_tasks.models import Line, LiveTask, PolicyChoice, RunTime
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.models import Pool, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import furnish
from tests.support.rounds import Rounds


def two(first: dict[str, object], second: dict[str, object]) -> tuple[Tenant, Tenant]:
    """Two tenants, each in a pool of its own."""
    a = create_tenant("a", "A")
    b = create_tenant("b", "B")
    for tenant, terms in ((a, first), (b, second)):
        tenant.pool = Pool.objects.create(slug=f"pool-{tenant.slug}", **terms)
        tenant.save()
    return a, b


def choose(policy: str, **parameters: object) -> None:
    PolicyChoice.objects.create(kind="share", policy=policy, parameters=parameters)


def hand_in(tenant: Tenant, count: int, **fields: object) -> None:
    submit_many(tenant, [{"handler": "demo.echo", **fields} for _ in range(count)])


def test_queues_of_eighty_and_twenty_lend_idle_share_and_get_it_back_as_tasks_end(rounds: Rounds) -> None:
    a, b = two({"guaranteed": 80}, {"guaranteed": 20})
    choose("capacity")
    hand_in(b, 40)
    rounds.round()
    assert rounds.held() == {b.pk: 10}, "idle share is lent"
    hand_in(a, 40)
    assert rounds.round().claimed == 0, "nothing is pre-empted"
    for returned in range(1, 9):
        rounds.end_of(b.pk)
        rounds.round()
        assert rounds.held() == {a.pk: returned, b.pk: 10 - returned}
    for _ in range(3):
        rounds.end_of(b.pk)
        rounds.end_of(a.pk, 2)
        rounds.round()
        assert rounds.held() == {a.pk: 8, b.pk: 2}


def test_a_queue_that_lends_nothing_stays_free_and_a_maximum_is_never_passed(rounds: Rounds) -> None:
    a, b = two({"guaranteed": 50, "lends": 0, "maximum": 70}, {"guaranteed": 20})
    choose("capacity")
    hand_in(b, 40)
    rounds.round()
    assert rounds.held() == {b.pk: 5}
    hand_in(a, 40)
    rounds.round()
    assert rounds.held() == {a.pk: 5, b.pk: 5}
    rounds.end_of(b.pk, 5)
    b.paused = True
    b.save()
    rounds.changed()
    rounds.round()
    assert rounds.held() == {a.pk: 7}


def test_pools_of_fifty_and_fifty_are_fair_whatever_each_hands_in(rounds: Rounds) -> None:
    a, b = two({"weight": 1, "guaranteed": 50}, {"weight": 1, "guaranteed": 50})
    choose("fair")
    crowd = [create_tenant(f"crowd{n}", "Crowd") for n in range(3)]
    for each in crowd:
        each.pool = b.pool
        each.save()
        hand_in(each, 30)
    hand_in(a, 10)
    rounds.round()
    held = rounds.held()
    assert held[a.pk] == 5
    assert sorted(held[each.pk] for each in crowd) == [1, 2, 2]


@pytest.mark.parametrize("category", ["urgent", "delayable", "periodic", "offpeak"])
def test_inside_a_category_each_tenant_has_the_same_chance_whatever_it_hands_in(rounds: Rounds, category: str) -> None:
    loud, quiet = create_tenant("loud", "Loud"), create_tenant("quiet", "Quiet")
    hand_in(loud, 60, category=category, tags=["a"])
    hand_in(loud, 30, category=category, tier="premium")
    hand_in(quiet, 10, category=category)
    rounds.round()
    assert rounds.held() == {loud.pk: 5, quiet.pk: 5}


def test_several_tenants_of_one_client_share_as_one(rounds: Rounds) -> None:
    single = create_tenant("single", "Single")
    split = [create_tenant(f"part{n}", "Part", client="acme") for n in range(5)]
    for tenant in (single, *split):
        hand_in(tenant, 20)
    rounds.round()
    assert rounds.held() == {single.pk: 5} | dict.fromkeys([tenant.pk for tenant in split], 1)
    rounds.end_of(split[0].pk)
    rounds.end_of(single.pk)
    rounds.round()
    assert rounds.held()[single.pk] == 5, "what its tenants hold counts together"


def test_marking_all_work_urgent_wins_nothing_in_use(rounds: Rounds) -> None:
    """What urgent work holds counts for its tenant's other work."""
    urgent, mixed = create_tenant("urgent", "Urgent"), create_tenant("mixed", "Mixed")
    hand_in(urgent, 5, category="urgent")
    rounds.round()
    hand_in(urgent, 10)
    hand_in(mixed, 10)
    rounds.round()
    assert rounds.held() == {urgent.pk: 5, mixed.pk: 5}


def test_a_line_can_stand_in_a_pool_of_its_own(rounds: Rounds) -> None:
    a, b = two({"guaranteed": 50}, {"guaranteed": 50})
    choose("capacity")
    hand_in(a, 20)
    hand_in(a, 20, tier="premium")
    line = Line.objects.unscoped().get(tenant=a, tier__slug="premium")  # the test is no tenant
    line.pool = b.pool
    line.save()
    rounds.changed()
    rounds.round()
    running = [one.task_id for one in rounds.running]
    in_line = LiveTask.objects.unscoped().filter(pk__in=running, line=line)  # the test is no tenant
    assert in_line.count() == 5


def test_pools_in_pools_share_what_the_pool_above_has(rounds: Rounds) -> None:
    org = Pool.objects.create(slug="org", guaranteed=60, maximum=60)
    a, b = two({"parent": org, "guaranteed": 50}, {"parent": org, "guaranteed": 50})
    other = create_tenant("other", "Other")
    choose("capacity")
    for tenant in (a, b, other):
        hand_in(tenant, 20)
    rounds.round()
    assert rounds.held() == {a.pk: 3, b.pk: 3, other.pk: 4}


def test_another_policy_may_hold_inside_a_pool(rounds: Rounds) -> None:
    """The cell goes by capacity; inside the pool tenants get equal turns by weight instead of by rank."""
    crowd = Pool.objects.create(slug="crowd", guaranteed=60, maximum=60)
    first, second = create_tenant("first", "First"), create_tenant("second", "Second")
    for tenant in (first, second):
        tenant.pool = crowd
        tenant.save()
    choose("capacity")
    hand_in(first, 20)
    hand_in(second, 20)
    rounds.round()
    assert rounds.held() == {first.pk: 6}, "capacity queues go by rank"
    rounds.end_of(first.pk, 6)
    PolicyChoice.objects.create(kind="share", pool=crowd, policy="equal")
    rounds.changed()
    rounds.round()
    assert rounds.held() == {first.pk: 3, second.pk: 3}


def learn(tenant: Tenant, seconds: float, long_s: float | None = None) -> None:
    known = {"samples": 100, "mean_us": seconds * 1e6, "long_us": long_s and long_s * 1e6}
    RunTime.objects.update_or_create(tenant=tenant, key="demo.echo", defaults=known)


def test_room_is_kept_for_a_large_task_by_what_is_learnt_and_short_ones_run_beside(
    transactional_db: None, redis_client: redis.Redis
) -> None:
    furnish()
    rounds = Rounds(slots=4, cpu_milli=4000, reserve_after_s=0.3)
    try:
        runs, large, long, short = (create_tenant(name, name) for name in ("runs", "large", "long", "short"))
        learn(runs, 20)
        learn(long, 2, 300)  # one in five of its runs is long
        learn(short, 0.5)
        rounds.changed()
        hand_in(runs, 2)
        rounds.round()
        rounds.keep_room_for(large)
        hand_in(long, 1)
        hand_in(short, 1)
        result = rounds.round()
        assert rounds.held() == {runs.pk: 2, short.pk: 1}, "the long task would delay the large one"
        assert Reason.RESERVED in result.left.values()
        snapshot = rounds.store.snapshot(ends=True)
        ends = [end.at - snapshot.now for end in snapshot.nodes[0].ends]
        assert len(ends) == 3
        assert max(ends) == pytest.approx(20, abs=6)
        rounds.end_of(short.pk)
        rounds.end_of(runs.pk, 2)
        rounds.round()
        assert rounds.held() == {large.pk: 1}
    finally:
        rounds.close()
