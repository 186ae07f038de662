"""The primary of PostgreSQL dies for good while clients submit and tasks run: the platform goes on at its standby."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from scheduler_ext.core.states import Outcome
from slackwater.torture import clients
from slackwater.torture.clients import Client
from tests.e2e.test_up import START, platform, settings_in, url_of
from tests.support.processes import ManagedProcess
from tests.support.standby import PostgresPair
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
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


class Clients:
    """Hands in task after task, each until it is accepted; what a client was told, and for how long it was refused."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.accepted: dict[str, str] = {}
        self.statuses: list[int] = []
        self.longest_s = 0.0
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._enough.is_set():
            key, began = f"k{len(self.accepted)}", time.monotonic()
            body = {"handler": "demo.sleep", "args": [0.2], "name": key, "total_attempts": 3}
            while True:
                status, answer = self.client.call("POST", "/tasks", body, key)
                self.statuses.append(status)
                if status in (200, 201):
                    break
                time.sleep(0.1)
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            self.accepted[key] = answer["id"]


def test_nothing_accepted_is_lost_and_nothing_done_twice(
    pair: PostgresPair, up: ManagedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CALL_TIMEOUT_S", 20.0)
    port = int(url_of(up.output).rsplit(":", 1)[1])
    demo = settings_in(tmp_path / "var" / "demo.env")
    client = Client([port], demo["SLACKWATER_KEY"])
    status, long = client.call("POST", "/tasks", {"handler": "demo.sleep", "args": [AWAY_S + 6]})
    assert status == 201, long
    with Clients(client) as crowd:
        wait_until(lambda: len(crowd.accepted) >= 20, timeout=60, message="clients are served")
        pair.kill_primary()
        time.sleep(AWAY_S)
        before = len(crowd.accepted)
        pair.promote()
        wait_until(lambda: len(crowd.accepted) >= before + 20, timeout=60, message="clients are served again")
    assert set(crowd.statuses) <= {200, 201, 503}, "refused cleanly"
    assert 503 in crowd.statuses
    wait_until(
        lambda: pair.ask("SELECT count(*) FROM tasks_livetask") == [(0,)],
        timeout=60,
        message="all have ended",
    )
    ids = pair.ask("SELECT id::text, name FROM tasks_task WHERE name LIKE 'k%%'")
    assert sorted(ids) == sorted((task_id, key) for key, task_id in crowd.accepted.items()), (
        "each exactly once"
    )
    done = pair.ask(
        "SELECT task_id::text, count(*) FROM tasks_attempt WHERE outcome = %s GROUP BY 1",
        int(Outcome.SUCCEEDED),
    )
    assert dict(done) == dict.fromkeys([long["id"], *crowd.accepted.values()], 1)
    assert crowd.longest_s < AWAY_S + 40
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20) as ready:
        assert ready.status == 200
