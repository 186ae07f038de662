"""Live rounds recorded and decided again, and a second policy in their shadow."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import call_command

from slackwater_tasks.control import policies as choosing
from slackwater_tasks.ledger.round_recorder import Recorder, RoundWatcher
from slackwater_tasks.read import platform, shares
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.models import Pool, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import furnish
from tests.support.rounds import Rounds


@pytest.fixture
def rounds(transactional_db: None, redis_client: redis.Redis, tmp_path: Path) -> Iterator[Rounds]:
    """A cell of four slots whose rounds are recorded."""
    furnish()
    made = Rounds(slots=4, record_folder=str(tmp_path / "rounds"))
    made.dispatcher.watch = RoundWatcher(made.conf, made.store)
    yield made
    made.close()


def hand_in(tenant: Tenant, count: int, **fields: Any) -> None:
    submit_many(tenant, [{"handler": "demo.echo", **fields} for _ in range(count)])


def policies(*args: str) -> Any:
    out = io.StringIO()
    call_command("policies", *args, "--json", stdout=out)
    return json.loads(out.getvalue())


@pytest.mark.parametrize("share", ["equal", "capacity", "fair", "dominant_resource"])
def test_recorded_live_rounds_decide_the_same_byte_for_byte(rounds: Rounds, tmp_path: Path, share: str) -> None:
    a, b, c = (create_tenant(name, name) for name in "abc")
    a.pool = Pool.objects.create(slug="org", guaranteed=60, weight=3)
    a.save()
    choosing.choose("share", share)
    for tenant, category in ((a, "delayable"), (b, "urgent"), (c, "offpeak")):
        hand_in(tenant, 6, category=category, priority=3)
        hand_in(tenant, 3, category=category, mutex_key="k")
    for _ in range(8):
        rounds.round()
        rounds.end(rounds.running[:2])
    (file,) = (tmp_path / "rounds").iterdir()
    found = policies("replay", str(file))
    assert found["rounds"] >= 8
    assert found["same"] == found["rounds"]
    lines = file.read_bytes().splitlines(keepends=True)
    changed = json.loads(lines[0])
    changed["plan"]["decisions"] = changed["plan"]["decisions"][1:]
    file.write_bytes(json.dumps(changed).encode() + b"\n" + lines[1])
    with pytest.raises(SystemExit):
        policies("replay", str(file))


def test_records_keep_within_their_bound(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), max_bytes=1 << 20)
    for _ in range(400):
        recorder.write(b"x" * 9_999 + b"\n")
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert 600_000 < sum(sizes) <= 1 << 20
    old = Recorder(str(tmp_path), keep_s=0.0)
    old.write(b"new\n")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new\n"]


def test_a_folder_that_cannot_be_written_stops_no_round(rounds: Rounds) -> None:
    rounds.dispatcher.watch = RoundWatcher(replace(rounds.conf, record_folder="/proc/nowhere"), rounds.store)
    hand_in(create_tenant("a", "A"), 1)
    assert rounds.round().claimed == 1


def test_a_shadow_tells_who_would_have_waited_less(rounds: Rounds) -> None:
    """Equal dominant shares hold; a queue with four fifths of the cell would serve its tenant sooner."""
    big, small = create_tenant("big", "Big"), create_tenant("small", "Small")
    for tenant, part in ((big, 75), (small, 25)):
        tenant.pool = Pool.objects.create(slug=f"pool-{tenant.slug}", guaranteed=part)
        tenant.save()
    choosing.choose("shadow", "capacity")
    hand_in(big, 12)
    hand_in(small, 12)
    for _ in range(10):
        rounds.round()
        rounds.end(rounds.running)
    watcher = rounds.dispatcher.watch
    assert isinstance(watcher, RoundWatcher)
    watcher._flush(rounds.store.db)
    rows = {row["tenant"]: row for row in policies("compare")}
    assert [row["tenant"] for row in policies("compare")] == ["big", "small"]
    assert (rows["big"]["first"], rows["big"]["second"]) == ("dominant_resource", "capacity")
    assert rows["big"]["started"] == rows["small"]["started"] == 12
    assert rows["big"]["sooner"] > 0
    assert rows["big"]["mean_change_s"] < 0 < rows["small"]["mean_change_s"]
    assert rows["big"]["sooner"] == rows["small"]["later"]


def test_what_a_round_could_claim_and_did_is_told_and_how_the_cell_stands(rounds: Rounds) -> None:
    a, b = create_tenant("a", "A"), create_tenant("b", "B")
    hand_in(a, 6)
    rounds.round()
    (told,) = shares.rounds()
    plan = a.plan.slug
    assert (told["could"], told["claimed"], told["rounds"]) == (4, 4, 1), "its slot of scripts is none for handlers"
    assert told["plans"] == [{"plan": plan, "claimed": 4, "left": {"no_slot": 2}}]
    assert [(one["took"], one["claimed"], one["why"]) for one in told["nodes"]] == [(4, 4, "no_slot")]
    hand_in(b, 1)
    (cell,) = shares.shares()
    wanted = [("a", 1.0, 0.5, True), ("b", 0.0, 0.5, True)]
    assert [(row["tenant"], row["held"], row["entitled"], row["waits"]) for row in cell["tenants"]] == wanted
    assert (cell["policy"], cell["utilization"], cell["jain"]) == ("dominant_resource", 1.0, 0.5)
    Tenant.objects.filter(pk=b.pk).update(paused=True)
    assert shares.shares()[0]["jain"] == 1, "who is paused waits for nothing"
    assert [row["tenant"] for row in platform.tenants()] == ["a", "b"]
    rounds.end(rounds.running)
    assert isinstance(rounds.dispatcher.watch, RoundWatcher)
    rounds.dispatcher.watch._written = float("-inf")
    rounds.changed()
    rounds.round()
    assert (shares.rounds()[0]["claims"], shares.rounds()[0]["nodes"][0]["why"]) == (6, "paused")
