"""What an operator does to a running platform, and what a busy machine does: 0 lost, 0 doubled, nobody refused."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from pkgutil import iter_modules
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
import redis

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks import migrations
from tests.lab.torture.clients import Client
from tests.lab.torture.cluster import Member
from tests.lab.torture.run import Result
from tests.lab.torture.trials import Trial, attempt
from tests.lab.torture.workload import Expected, Submission
from tests.support.receiver import Receiver, receiving
from tests.support.waiting import wait_until
from tests.support.webhooks import verify

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

LEASE_S = 8.0
OLD_KEY = "the-key-that-is-there-before-" + "x" * 30
NEW_KEY = "the-key-that-comes-after-" + "y" * 30
PRESENT = max(found.name for found in iter_modules(migrations.__path__))
NEXT = {"DJANGO_SETTINGS_MODULE": "tests.lab.torture.next_release.settings"}


def holds(result: Result, *, at_once: bool = True) -> None:
    """Nothing was lost or doubled, and no client was turned away, nor (``at_once``) kept waiting for ten seconds."""
    assert result.verdict.clean(), (result.verdict, result.stories)
    assert result.refused == []
    assert result.side.accepted == result.side.finished > 200
    assert not at_once or (result.submitting.failed, result.asking.failed) == (0, 0)
    assert result.stuck == []


def columns(trial: Trial) -> int:
    """Those that the next release has more."""
    with psycopg.connect(trial.cluster.postgres.url) as connection:
        rows: Any = connection.execute(
            "SELECT count(*) FROM information_schema.columns WHERE column_name IN ('next_note', 'next_flag')"
        ).fetchone()
    return int(rows[0])


def test_the_schema_goes_forth_and_back_while_work_flows(tmp_path: Path) -> None:
    """Three times, each time with somebody's open transaction in the way."""

    def act(trial: Trial) -> None:
        for _ in range(3):
            for target, expected in (("9999", 2), (PRESENT, 0)):
                assert "trying again" in trial.migrate(target, **NEXT), "it had to wait"
                assert columns(trial) == expected
                trial.goes_on()

    holds(attempt(tmp_path, act))


def test_every_password_and_key_changes_without_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in its order: the new one is believed everywhere before anybody uses it, the old one until nobody does."""
    monkeypatch.setenv("SLACKWATER_SECRET_KEY", OLD_KEY)
    monkeypatch.setenv("SLACKWATER_WEBHOOK_PRIVATE", "true")
    monkeypatch.setenv("SLACKWATER_WEBHOOK_PORTS", "0")
    with receiving() as receiver:
        rotation = Rotation(receiver)
        holds(attempt(tmp_path, rotation))
    assert len(rotation.signs) == 2
    for begin, secret in rotation.signs:
        assert receiver.got[begin:], "webhooks went on"
        assert all(verify(one, secret) for one in receiver.got[begin:])


class Rotation:
    """What an operator does, and a tenant."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.signs: list[tuple[int, str]] = []
        """From which webhook on a secret signs all of them."""

    def __call__(self, trial: Trial) -> None:
        """Change all of them: three times all processes are replaced, one half after the other."""
        cluster, old_key = trial.cluster, trial.key
        owner = self._owner(trial)
        hook = done(owner, "/webhooks", {"url": self.receiver.url, "events": ["task.succeeded"]})
        self._note(hook["secret"])

        with servers_admit_new(trial) as forget_old:
            cluster.env |= {"SLACKWATER_SECRET_KEY": OLD_KEY, "SLACKWATER_SECRET_KEY_FALLBACKS": NEW_KEY}
            trial.replace_all()

            old_id = next(row["id"] for row in owner.call("GET", "/keys")[1]["items"] if row["id"] in old_key)
            new_key = done(owner, f"/keys/{old_id}/rotate", {"overlap_s": 3_600})["key"]
            rotated = done(owner, f"/webhooks/{hook['id']}/rotate", {})["secret"]
            for client in trial.clients[::2]:
                client.key = new_key
            cluster.env |= {"SLACKWATER_SECRET_KEY": NEW_KEY, "SLACKWATER_SECRET_KEY_FALLBACKS": OLD_KEY}
            trial.replace_all()

            cluster.manage("reseal_secrets")
            for client in trial.clients:
                client.key = new_key
            trial.goes_on()
            del cluster.env["SLACKWATER_SECRET_KEY_FALLBACKS"]
            trial.replace_all()
            forget_old()
        assert owner.call("DELETE", f"/keys/{old_id}")[0] == 204
        wait_until(lambda: Client(cluster.ports, old_key).call("GET", "/limits")[0] == 401, message="the old key ends")
        self._note(rotated)
        trial.goes_on()
        self._hear()
        for words in ("refused what came through Redis", "no key of SLACKWATER_SECRETS_KEYS opens"):
            assert words not in trial.logs()

    def _owner(self, trial: Trial) -> Client:
        scopes = [word for scope in ("read", "submit", "manage") for word in ("--scope", scope)]
        made = trial.cluster.manage("create_api_key", "demo", *scopes, "--json")
        return Client(trial.cluster.ports, json.loads(made)["key"])

    def _note(self, secret: str) -> None:
        self._hear()
        self.signs.append((len(self.receiver.got), secret))

    def _hear(self) -> None:
        before = len(self.receiver.got)
        wait_until(lambda: len(self.receiver.got) > before + 1, timeout=120, message="webhooks are sent")


def done(client: Client, path: str, body: Any) -> Any:
    """The answer to a request that must succeed."""
    status, answer = client.call("POST", path, body)
    assert status in (200, 201), (path, status, answer)
    return answer


@contextlib.contextmanager
def servers_admit_new(trial: Trial) -> Iterator[Callable[[], None]]:
    """PostgreSQL and Redis take a new password beside the old one, until they are told to forget that."""
    cluster = trial.cluster
    of_postgres, of_redis = cluster.postgres.url, cluster.redis.url
    old = urlsplit(of_redis).password
    with psycopg.connect(of_postgres, autocommit=True) as admin, redis.Redis.from_url(of_redis) as root:
        admin.execute("CREATE ROLE rotated LOGIN PASSWORD 'new-of-postgresql' IN ROLE slackwater")
        admin.execute("ALTER ROLE rotated SET role = 'slackwater'")
        root.execute_command("ACL", "SETUSER", "default", ">new-of-redis")
        cluster.env |= {
            "SLACKWATER_DATABASE_URL": re.sub("//[^@]+@", "//rotated:new-of-postgresql@", of_postgres),
            "SLACKWATER_REDIS_URL": re.sub("//[^@]+@", "//:new-of-redis@", of_redis),
        }

        def forget() -> None:
            root.execute_command("ACL", "SETUSER", "default", f"<{old}")
            admin.execute("ALTER ROLE slackwater PASSWORD NULL")
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(of_postgres)
            with pytest.raises(redis.AuthenticationError), redis.Redis.from_url(of_redis) as late:
                late.ping()

        yield forget


def test_a_machine_that_is_too_busy_loses_leases_and_no_work(tmp_path: Path) -> None:
    """Ours are stopped for less than a lease, then for more, while processes that come before them take all cores."""
    lost: list[Any] = []

    def act(trial: Trial) -> None:
        slow_nodes_keep_their_work(trial)
        with burning():
            for _ in range(3):
                for member in trial.cluster.of("worker"):
                    hold([member], LEASE_S + 4)
                trial.goes_on()
                hold([*trial.cluster.of("worker"), *trial.cluster.of("dispatcher")], LEASE_S + 4)
                trial.goes_on()
        lost.extend(trial.ledger.ask("SELECT count(*) FROM slackwater_resources_node WHERE state = 'lost'") or ())
        all_slots_are_free(trial)

    holds(attempt(tmp_path, act, conf={"node_lease_s": LEASE_S, "claim_ttl_s": LEASE_S}), at_once=False)
    assert lost[0][0] > 0, "no lease was lost: the trial has shown nothing"


def slow_nodes_keep_their_work(trial: Trial) -> None:
    """Whoever is stopped for less than half of a lease loses nothing."""
    long = {"handler": "torture.long", "args": [str(trial.folder), 10.0], "total_attempts": 1, "category": "urgent"}
    two = Submission(number=2_000_000, path="/tasks", body=[long] * 2, expected=(Expected(kind="long"),) * 2)
    trial.crowd.hand_in(trial.client_of_canaries, two)
    ids = next(one.task_ids for one in trial.crowd.accepted if one.submission is two)
    wait_until(lambda: set(running(trial)) >= set(ids), timeout=120, message="both run")
    for _ in range(2):
        hold(trial.cluster.of("worker"), 3.0)
        time.sleep(1.0)
    wait_until(lambda: all(map(trial.ledger.final, ids)), timeout=120, message="both have ended")
    for task_id in ids:
        rows = trial.ledger.ask("SELECT outcome FROM slackwater_tasks_attempt WHERE task_id = %s", (task_id,))
        assert rows == [(int(Outcome.SUCCEEDED),)], trial.ledger.story(task_id)


def all_slots_are_free(trial: Trial) -> None:
    """No slot waits for what a lost lease left in it: as many tasks run at once as there are slots."""
    client = trial.client_of_canaries
    trial.stop_schedules()
    wait_until(lambda: not trial.crowd.busy(), timeout=300, message="all is submitted")
    wait_until(lambda: trial.ledger.unfinished() == 0, timeout=300, message="all has ended")
    busy = "SELECT sum((stats->>'busy')::int) FROM slackwater_resources_node WHERE state = 'active'"
    wait_until(lambda: trial.ledger.ask(busy) == [(0,)], message="no slot holds anything")
    body = {"handler": "torture.long", "args": [str(trial.folder), 8.0], "total_attempts": 10}
    four = Submission(number=3_000_000, path="/tasks", body=[body] * 4, expected=(Expected(kind="long"),) * 4)
    trial.crowd.hand_in(client, four)
    ids = next(one.task_ids for one in trial.crowd.accepted if one.submission is four)
    wait_until(lambda: set(running(trial)) == set(ids), timeout=60, message="all four slots work at once")
    wait_until(lambda: all(map(trial.ledger.final, ids)), timeout=120, message="they have ended")


def running(trial: Trial) -> list[str]:
    """The tasks that run now."""
    rows = trial.ledger.ask(
        "SELECT task_id::text FROM slackwater_tasks_livetask WHERE state = %s", (TaskState.RUNNING,)
    )
    return [row[0] for row in rows or ()]


def hold(members: Sequence[Member], seconds: float) -> None:
    """Stop processes with all that descends from them, then let them go on."""
    family = [process for member in members for process in member.family()]
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.suspend()
    time.sleep(seconds)
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.resume()


@contextlib.contextmanager
def burning() -> Iterator[None]:
    """Processes that take all cores, before ours where that is allowed."""
    code = "import contextlib, os\nwith contextlib.suppress(OSError):\n    os.nice(-5)\nwhile True:\n    pass"
    burners = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for one in burners:
            one.kill()
            one.wait()
