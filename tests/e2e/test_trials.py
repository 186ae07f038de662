"""What an operator does to a running platform, and what a busy machine does: 0 lost, 0 doubled, nobody refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.lab.torture.run import Result
from tests.lab.torture.trials import Trial, attempt

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

NEXT = {"DJANGO_SETTINGS_MODULE": "tests.lab.torture.next_release.settings"}


def holds(result: Result) -> None:
    """Nothing was lost or doubled, and no client was turned away."""
    assert result.verdict.clean(), (result.verdict, result.stories)
    assert result.refused == []
    assert result.side.accepted == result.side.finished > 200
    assert (result.submitting.failed, result.asking.failed) == (0, 0)
    assert result.stuck == []


def columns(trial: Trial) -> int:
    """Those that the next release has more."""
    with psycopg.connect(trial.cluster.postgres.url) as connection:
        rows: Any = connection.execute(
            "SELECT count(*) FROM information_schema.columns WHERE column_name IN ('next_note', 'next_flag')"
        ).fetchone()
    return int(rows[0])


def test_the_schema_goes_forth_and_back_while_work_flows(tmp_path: Path) -> None:
    """Three times, with somebody's long transaction in the way the first time."""
    waited: list[bool] = []

    def act(trial: Trial) -> None:
        for turn in range(3):
            for target, expected in (("0002", 2), ("0001", 0)):
                with trial.reading(8.0 if turn == 0 else 0.1):
                    done = trial.command("migrate", "slackwater_tasks", target, **NEXT)
                assert done.returncode == 0, done.stdout + done.stderr
                waited.append("trying again" in done.stderr)
                assert columns(trial) == expected
                trial.goes_on()

    holds(attempt(tmp_path, act))
    assert waited[0], "the first had to wait"
