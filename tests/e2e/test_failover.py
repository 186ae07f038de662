"""The primary of PostgreSQL dies for good while clients submit and tasks run: the platform goes on at its standby."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from scheduler_ext.core.states import Outcome
from tests.e2e.test_up import START, platform, settings_in, url_of
from tests.lab.torture import clients
from tests.lab.torture.clients import Client, Crowd
from tests.lab.torture.workload import Submission
from tests.support.processes import ManagedProcess
from tests.support.standby import PostgresPair
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
TASKS = 150
AWAY_S = 3.0
"""How long nobody takes writes: what a manager of such pairs needs to be sure, and a second more."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[PostgresPair]:
    with PostgresPair(tmp_path / "pair") as made:
        yield made


@pytest.fixture
def up(tmp_path: Path, pair: PostgresPair) -> Iterator[ManagedProcess]:
    """All of the platform on that pair."""
    with platform(tmp_path / "var", SLACKWATER_DATABASE_URL=pair.url) as made:
        made.wait_for("Slackwater is up", timeout=START)
        made.wait_for("ready", timeout=START)
        yield made


def submission(number: int) -> Submission:
    body = {"handler": "demo.sleep", "args": [0.2], "name": f"k{number}", "total_attempts": 3}
    return Submission(number=number, path="/tasks", body=body)


def test_a_pair_keeps_what_it_confirmed(pair: PostgresPair) -> None:
    with psycopg.connect(pair.url, target_session_attrs="read-write") as conn:
        conn.execute("CREATE TABLE kept AS SELECT 1 AS one")
    pair.kill_primary()
    pair.promote()
    assert wait_until(lambda: pair.ask("SELECT one FROM kept"), message="the standby takes writes") == [(1,)]


@pytest.mark.slow
def test_nothing_accepted_is_lost_and_nothing_done_twice(
    pair: PostgresPair, up: ManagedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CALL_TIMEOUT_S", 20.0)
    port = int(url_of(up.output).rsplit(":", 1)[1])
    demo = settings_in(tmp_path / "var" / "demo.env")
    client = Client([port], demo["SLACKWATER_KEY"])
    status, long = client.call("POST", "/tasks", {"handler": "demo.sleep", "args": [AWAY_S + 6]})
    assert status == 201, long
    crowd = Crowd(lambda: Client([port], demo["SLACKWATER_KEY"]), map(submission, range(TASKS)), pace_s=0.1, seed=1)
    crowd.start()
    wait_until(lambda: len(crowd.accepted) >= 20, timeout=60, message="clients are served")
    pair.kill_primary()
    time.sleep(AWAY_S)
    pair.promote()
    wait_until(lambda: len(crowd.accepted) == TASKS, timeout=120, message="clients are served again")
    crowd.stop()
    assert set(crowd.submitting.refused) == {503}, "refused cleanly"
    assert set(crowd.asking.refused) <= {503}
    wait_until(
        lambda: pair.ask("SELECT count(*) FROM slackwater_tasks_livetask") == [(0,)],
        timeout=60,
        message="all have ended",
    )
    accepted = {one.task_ids[0]: f"k{one.submission.number}" for one in crowd.accepted}
    ids = pair.ask("SELECT id::text, name FROM slackwater_tasks_task WHERE name LIKE 'k%%'")
    assert sorted(ids) == sorted(accepted.items()), "each exactly once"
    done = pair.ask(
        "SELECT task_id::text, count(*) FROM slackwater_tasks_attempt WHERE outcome = %s GROUP BY 1",
        int(Outcome.SUCCEEDED),
    )
    assert dict(done) == dict.fromkeys([long["id"], *accepted], 1)
    assert crowd.submitting.longest_s < AWAY_S + 40
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20) as ready:
        assert ready.status == 200
