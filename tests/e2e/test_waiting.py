"""Execution rates, and what no node can run, with real processes."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from scheduler_ext.core.states import TaskState
from slackwater_resources.models import Handler, Tier
from slackwater_tasks.models import Attempt, Impossible, LiveTask, RateLimit, TaskEvent
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.services import create_tenant
from tests.support.platform import Platform
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e


def begun(*task_ids: UUID) -> list[datetime]:
    """When the attempts of these tasks began, in order."""
    rows = Attempt.objects.unscoped().filter(task_id__in=task_ids)  # the test is no tenant
    return sorted(rows.values_list("started_at", flat=True))


def most_in_any(starts: list[datetime], seconds: float) -> int:
    """The most starts that any span of that length holds."""
    span = timedelta(seconds=seconds)
    return max(sum(1 for later in starts[n:] if later - first < span) for n, first in enumerate(starts))


def test_no_time_frame_ever_holds_more_starts_than_its_limit(platform: Platform) -> None:
    """A key, a handler over two tenants, and a tenant; on two nodes, beside work without limits."""
    tenant, other = platform.tenant, create_tenant("other", "Other")
    add = Handler.objects.get_or_create(name="demo.add")[0]
    RateLimit.objects.create(tenant=tenant, key="bank", starts=3, per_s=1)
    RateLimit.objects.create(handler=add, starts=5, per_s=2)
    RateLimit.objects.create(tenant=other, starts=4, per_s=1)
    platform.upkeep()
    platform.worker("w1")
    platform.worker("w2")
    platform.dispatcher()  # last: it knows a new limit within a second, and these from its first round on
    mine = [
        *[{"handler": "demo.echo", "args": [n], "rate_key": "bank"} for n in range(15)],
        *[{"handler": "demo.add", "args": [n, 1]} for n in range(6)],
        *[{"handler": "demo.echo", "args": [n]} for n in range(50)],
    ]
    ids = submit_many(tenant, mine).task_ids
    key, handler, free = ids[:15], ids[15:21], ids[21:]
    theirs = submit_many(other, [{"handler": "demo.add", "args": [n, 2]} for n in range(6)]).task_ids
    wait_until(lambda: LiveTask.objects.unscoped().filter(parked__gt=0).exists(), message="the rest waits parked")
    for task_id in free:
        assert platform.wait(task_id).state == TaskState.SUCCEEDED
    begun_free = begun(*free)
    for task_id in [*key, *handler, *theirs]:
        assert platform.wait(task_id).state == TaskState.SUCCEEDED
    assert max(begun_free) < max(begun(*key)), "work without a limit waited for work with one"
    assert most_in_any(begun(*key), 1) == 3
    assert most_in_any(begun(*handler, *theirs), 2) == 5
    assert most_in_any(begun(*theirs), 1) <= 4
    # Five time frames, and no more than a round's delay is lost at the turn of each.
    assert (max(begun(*key)) - min(begun(*key))).total_seconds() < 25
    reasons = {e.reason for e in TaskEvent.objects.unscoped().filter(task_id__in=key)}  # the test is no tenant
    assert reasons == {"parked: its execution rate is used up", "its execution rate allows it"}


def test_what_no_node_can_run_is_reported_and_runs_when_one_can(platform: Platform) -> None:
    platform.dispatcher()
    platform.upkeep()
    platform.worker("small", SLACKWATER_CAPACITY="1000,1000,10000,10000,1000000,100")
    Tier.objects.create(slug="large", tenant=platform.tenant, cpu_milli=2000, memory_mb=2000)
    large = platform.submit("demo.echo", 1, tier="large")
    after = platform.submit("demo.echo", 2)
    assert platform.wait(after).state == TaskState.SUCCEEDED
    platform.wait(large, TaskState.BLOCKED)
    assert Impossible.objects.unscoped().get(task_id=large).reason.startswith("its tier is larger")
    platform.worker("big", SLACKWATER_CAPACITY="4000,4000,10000,10000,1000000,100")
    assert platform.wait(large).state == TaskState.SUCCEEDED
    wait_until(lambda: not Impossible.objects.unscoped().exists(), message="nothing is impossible any more")


def test_what_stays_impossible_is_given_up(platform: Platform) -> None:
    platform.env["SLACKWATER_SCHEDULER"] = platform.env["SLACKWATER_SCHEDULER"].replace(
        "}", ', "impossible_after_s": 2.0}'
    )
    platform.up()
    Tier.objects.create(slug="huge", tenant=platform.tenant, cpu_milli=10**9, memory_mb=1)
    ids = platform.workflow(
        {"name": "huge", "handler": "demo.echo", "tier": "huge"},
        {"name": "after", "handler": "demo.echo", "depends_on": ["huge"]},
    )
    given_up = platform.wait(ids["huge"])
    assert given_up.state == TaskState.FAILED
    assert given_up.reason == "impossible: its tier is larger than every registered node"
    assert given_up.dead_letter.reason == given_up.reason
    assert platform.wait(ids["after"]).state == TaskState.CANCELLED
    assert given_up.finished_at is not None
    assert (given_up.finished_at - given_up.submitted_at).total_seconds() >= 2
    wait_until(lambda: platform.unfinished() == 0, message="the counter is back at nought")
