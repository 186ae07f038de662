"""A child goes on with the only dependant of what it has run; killed or cut off in the middle, it loses and doubles nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import F

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.models import Attempt, Opening, RunTime
from slackwater_tasks.submission.service import submit_many
from tests.support.platform import Platform, children_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e
LINKS = 60
NAP_S = 0.005
CUT = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'slackwater child%%'"


def chain(platform: Platform, links: int = LINKS) -> list[UUID]:
    """Tasks one behind the other, once there is room given ahead for such."""
    ahead = Opening.objects.filter(places__gt=0)
    wait_until(ahead.exists, message="room is given ahead")
    names = [f"t{number}" for number in range(links)]
    made = platform.workflow(*(
        {"name": name, "handler": "demo.sleep", "args": [NAP_S], **({"depends_on": [before]} if before else {})}
        for before, name in zip(["", *names], names, strict=False)
    ))  # fmt: skip
    return [made[name] for name in names]


def attempts(ids: Sequence[UUID]) -> list[Attempt]:
    found = (
        Attempt.objects.unscoped().filter(task_id__in=ids).order_by("running_at", "fence")
    )  # unscoped: of these tasks
    return list(found)


def done(platform: Platform) -> None:
    wait_until(lambda: platform.unfinished() == 0, timeout=60, message="all are done")


def test_a_chain_is_run_by_whoever_ran_the_link_before(platform: Platform) -> None:
    worker = platform.up()
    submit_many(platform.tenant, [{"handler": "demo.sleep", "args": [NAP_S]}] * 12)
    done(platform)
    wait_until(RunTime.objects.filter(key="demo.sleep", samples__gte=5).exists, message="its time is learnt")
    ids = chain(platform, 12)
    done(platform)
    ran = attempts(ids)
    assert [attempt.task_id for attempt in ran] == ids, "one after the other, each once"
    assert all(before.finished_at <= after.started_at for before, after in pairwise(ran))
    # Begun as its parent was recorded, and not claimed before.
    assert Attempt.objects.unscoped().filter(task_id__in=ids, queued_at__gte=F("running_at")).exists()  # of these tasks

    ids, killed = chain(platform), 0
    for link in (10, 25, 40):
        platform.wait(ids[link])
        for child in children_of(worker)[:1]:
            child.kill()
            killed += 1
        wait_until(lambda: len(children_of(worker)) >= 1, message="a new child")
    done(platform)
    ran = attempts(ids)
    assert sorted(a.task_id for a in ran if a.outcome == Outcome.SUCCEEDED) == sorted(ids)
    lost = [attempt for attempt in ran if attempt.outcome != Outcome.SUCCEEDED]
    assert len(lost) <= killed
    assert {attempt.outcome for attempt in lost} <= {Outcome.WORKER_LOST}

    ids = chain(platform)
    cuts = 0
    while (left := platform.unfinished()) > 10:
        with connection.cursor() as cur:
            cur.execute(CUT)
            assert cur.fetchone()[0], "the children's sessions"
        cuts += 1
        wait_until(lambda: platform.unfinished() <= left - 3, message="it goes on")
    assert cuts > 1
    done(platform)
    assert [(attempt.task_id, attempt.outcome) for attempt in attempts(ids)] == [(i, Outcome.SUCCEEDED) for i in ids]

    ids = chain(platform)
    platform.wait(ids[3])
    assert cancel(platform.tenant.pk, ids[50])
    done(platform)
    states = [platform.row(task_id).state for task_id in ids]
    assert states == [TaskState.SUCCEEDED] * 50 + [TaskState.CANCELLED] * (LINKS - 50)
