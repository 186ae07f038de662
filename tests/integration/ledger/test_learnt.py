"""Run times learnt for scripts: by what they are, and by the pattern of their names, alike for all who ask."""

from __future__ import annotations

import random

import pytest
import redis
from django.db import connection
from uuid_utils import uuid4

from scheduler_ext.core.run_times import script_keys
from slackwater_tasks.graph import relatives
from slackwater_tasks.ledger.connection import Database, fetch_all
from slackwater_tasks.ledger.learnt import KEYS, of_tenant
from slackwater_tasks.models import RunTime
from slackwater_tasks.submission.service import store_script, submit, submit_workflow
from slackwater_tasks.upkeep import retention
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import furnish
from tests.support.rounds import Rounds

pytestmark = pytest.mark.django_db(transaction=True)


def learn(tenant: Tenant, key: str, seconds: float, runs: int = 100) -> None:
    RunTime.objects.create(tenant=tenant, key=key, samples=runs, mean_us=seconds * 1e6, long_us=seconds * 1e6)


def stored(tenant: Tenant, text: str) -> str:
    """The hash of a new script of a tenant."""
    return store_script(tenant, "x.py", f"print('{text}')\n".encode()).sha256


def test_a_statement_finds_the_keys_that_a_worker_learns_under() -> None:
    rng = random.Random(1)
    names = ["", "night", "Night 2026-11-23 (3 of 12)", f"import {uuid4()}", f"{uuid4().hex}{uuid4()}x", "deadbeef1", "deadbeef",
             "٣ of ²", "a" * 250, "7" * 250, "it's 5 % of \\"]  # fmt: skip
    names += ["".join(rng.choices("abcdef0123456789-gz ", k=rng.randrange(1, 60))) for _ in range(3000)]
    rows = [(sha, path, name) for name in names for sha, path in (("ab" * 32, ""), ("", "nightly/x.py"))]
    given = list(map(list, zip(*rows, strict=True)))
    query = f"""
        SELECT {KEYS} FROM (SELECT '' AS handler, * FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY
            AS u(script_sha256, script_path, name, place)) t ORDER BY t.place"""
    assert [keys for (keys,) in fetch_all(query, given)] == [script_keys(*row) for row in rows]


def test_a_new_script_is_let_past_a_reservation_by_the_pattern_of_its_name(redis_client: redis.Redis) -> None:
    furnish()
    rounds = Rounds(slots=4, cpu_milli=4000, reserve_after_s=0.3)
    rounds.worker.node.slots["script"] = 3
    rounds.worker.node.save()
    try:
        runs, large, nightly, quick = (create_tenant(name, name) for name in ("runs", "large", "nightly", "quick"))
        learn(runs, "demo.echo", 20)
        learn(nightly, "name:export # of #", 300)
        learn(quick, "name:export # of #", 0.5)
        rounds.changed()
        for _ in range(2):
            submit(runs, {"handler": "demo.echo"})
        rounds.round()
        rounds.keep_room_for(large)
        for tenant in (nightly, quick):
            submit(tenant, {"script": stored(tenant, tenant.slug), "name": f"export 2026112{tenant.pk} of {uuid4()}"})
        rounds.round()
        assert rounds.held() == {runs.pk: 2, quick.pk: 1}, "the nightly one would delay the large one"
    finally:
        rounds.close()


def test_the_paths_of_a_workflow_go_by_it_too(redis_client: redis.Redis) -> None:
    furnish()
    tenant = create_tenant("acme", "Acme")
    learn(tenant, "name:part #", 3)
    learn(tenant, "demo.echo", 7)
    learn(tenant, "name:rare #", 9, runs=4)
    tasks = [
        {"name": "part 1", "script": stored(tenant, "1")},
        {"name": "rare 1", "script": stored(tenant, "2")},
        {"name": "end", "handler": "demo.echo", "depends_on": ["part 1", "rare 1"]},
    ]
    made = submit_workflow(tenant, {"name": "w", "tasks": tasks})
    assert made.workflow_id is not None
    with connection.cursor() as cur:
        shape = relatives.of_workflow(made.workflow_id, cur)
    by_name = dict(
        fetch_all("SELECT name, id::text FROM slackwater_tasks_task WHERE workflow_id = %s", [made.workflow_id])
    )
    # Of the rare one nothing is learnt yet: it counts as the mean of the others.
    assert dict(zip(shape.ids, shape.weights, strict=True)) == {
        by_name["part 1"]: 3,
        by_name["rare 1"]: 5,
        by_name["end"]: 7,
    }
    assert of_tenant(tenant.pk, [["script:x", "name:part #"], ["name:rare #"], ["demo.echo"]]) == [
        3_000_000, None, 7_000_000,
    ]  # fmt: skip


def test_a_tenant_with_ever_new_scripts_keeps_a_bounded_number_of_run_times(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant, other = create_tenant("many", "Many"), create_tenant("few", "Few")
    monkeypatch.setattr(retention, "RUN_TIMES_KEPT", 10)
    for number in range(15):
        learn(tenant, f"script:{number}", 1)
    learn(other, "demo.echo", 1)
    learn(other, "demo.long_ago", 1)
    with connection.cursor() as cur:
        cur.execute(
            "UPDATE slackwater_tasks_runtime SET updated_at = updated_at - interval '91 days' WHERE key LIKE '%%ago'"
        )
    db = Database("test run times")
    try:
        assert retention.prune(db) == 6
    finally:
        db.close()
    assert set(RunTime.objects.filter(tenant=tenant).values_list("key", flat=True)) == {
        f"script:{number}" for number in range(5, 15)
    }
    assert list(RunTime.objects.filter(tenant=other).values_list("key", flat=True)) == ["demo.echo"]
