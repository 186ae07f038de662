"""Forecasts that were shown are checked against what happened, and those to come are widened by it."""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client

from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.explain.hits import Record
from slackwater_tasks.models import Forecast, ForecastRecord
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from tests.support.api import HANDLER
from tests.support.cell import Cell, sql

pytestmark = pytest.mark.django_db(transaction=True)


def check(cell: Cell) -> int:
    upkeep = LedgerUpkeep(cell.worker.conf, lambda changes: None)
    try:
        return upkeep.check_forecasts()
    finally:
        upkeep.db.close()


def move(task_id: UUID, earliest_s: float, latest_s: float) -> None:
    """Let what was foretold lie elsewhere, as seen from now."""
    sql(
        "UPDATE slackwater_tasks_forecast SET earliest = clock_timestamp() + %s * interval '1 s',"
        " latest = clock_timestamp() + %s * interval '1 s' WHERE task_id = %s",
        earliest_s, latest_s, task_id,
    )  # fmt: skip


def known(cell: Cell) -> None:
    sql(
        "INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at) VALUES (%s, %s, 50, 10e6, now())",
        cell.tenant.pk, HANDLER,
    )  # fmt: skip


def test_what_was_shown_is_settled_by_what_happened(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    cell.resize(8)
    known(cell)
    early, hit, late, overdue, gone, waits, other = [cell.submit() for _ in range(7)]
    for task in (early, hit, late, overdue, gone, waits, other):
        body = cell.client.get(f"/tasks/{task}/explain").body
        assert (body["hit_rate"], body["forecasts_checked"]) == (None, 0)
    first = Forecast.objects.get(pk=hit)
    cell.explain(hit)
    assert Forecast.objects.get(pk=hit).latest == first.latest, "the first that is shown stays"
    for task in (early, hit, late, overdue, gone, waits, other):
        move(task, 0, 900)
    assert check(cell) == 0, "nothing has happened yet"
    for task, bounds in ((early, (900, 990)), (hit, (-60, 900)), (late, (-90, -60)), (overdue, (-90, -60)),
                         (other, (-60, 900))):  # fmt: skip
        move(task, *bounds)
    for task in (early, hit, late):
        cell.worker.start(task)
    cell.worker.run(other)  # it has ended: its attempt tells when it began
    cancel(cell.tenant.pk, gone)
    assert (check(cell), check(cell)) == (6, 0)
    assert [row.pk for row in Forecast.objects.all()] == [waits]
    kept = ForecastRecord.objects.get(pk="default")
    assert [round(n) for n in (kept.hits, kept.early, kept.late)] == [2, 1, 2]
    assert 1 < kept.early_factor < kept.late_factor
    body = cell.client.get(f"/tasks/{waits}/explain").body
    assert (body["hit_rate"], body["forecasts_checked"]) == (0.4, 5)
    call_command("explain", str(waits), "--tenant", "acme", "--json")
    assert json.loads(capsys.readouterr().out)["hit_rate"] == 0.4
    call_command("explain", str(waits), "--tenant", "acme")
    assert "hit rate" in capsys.readouterr().out
    assert 'slackwater_forecast_hit_rate{cell="default"} 0.4' in Client().get("/metrics").content.decode()


def test_an_explanation_that_cannot_be_noted_is_given_all_the_same(cell: Cell, monkeypatch: Any) -> None:
    known(cell)
    task = cell.submit()
    with transaction.atomic():
        sql("SET TRANSACTION READ ONLY")
        assert cell.explain(task)["predicted_start"] is not None
        assert cell.explain(task)["blockers"] == [], "its transaction goes on"
    assert not Forecast.objects.exists()
    monkeypatch.setattr("slackwater_tasks.explain.hits.MAX_OPEN", 1)
    cell.explain(task)
    cell.explain(cell.submit())
    assert [row.pk for row in Forecast.objects.all()] == [task], "a cell has so many at most"
    Forecast.objects.all().delete()
    sql("UPDATE slackwater_tenants_tenant SET paused = true")
    assert cell.explain(task)["predicted_start"] is None
    assert not Forecast.objects.exists(), "what is withheld is not noted"
    assert connection.get_autocommit()


def test_each_side_comes_to_miss_one_in_ten_whatever_the_model_gets_wrong() -> None:
    """A model whose intervals are a third as wide as they should be, and whose likely start is too soon by half."""
    rng, record, misses = Random(7), Record(), [0, 0]
    for batch in range(300):
        seen = [0, 0, 0]
        for _ in range(5):
            wait = 100 * 2 ** rng.gauss(0, 0.5)
            low, _, high = record.widened(60, 67, 75)
            verdict = 1 if wait < low else 2 if wait > high else 0
            seen[verdict] += 1
            if batch >= 100 and verdict:
                misses[verdict - 1] += 1
        record = record.after(*seen)
    assert all(0.08 <= count / 1000 <= 0.12 for count in misses), misses
    assert 0.75 <= (record.hit_rate or 0) <= 0.85
    assert record.checked <= 500


@pytest.mark.parametrize("seed", range(5))
def test_eight_in_ten_hold_over_bursts_that_nobody_could_foresee(seed: int) -> None:
    """Each hundred and eightieth forecast begins 22 that are shown at once, before any is checked, and come far too late.

    Without what makes good for the record 77 in 100 hold, as they did on a live platform.
    """
    rng, record, hits, shown = Random(seed), Record(), 0, 0
    while shown < 600:
        burst = shown // 60 % 3 == 2 and shown % 60 < 22
        seen = [0, 0, 0]
        for _ in range(22 if burst else rng.choice([1, 2, 4, 5])):
            error = rng.gauss(0.9, 0.4) if burst else rng.gauss(0, 0.45)
            wait = 10 * math.exp(0.7 * error + rng.gauss(0.1, 0.5))
            low, _, high = record.widened(6.4, 10, 15.7)
            seen[1 if wait < low else 2 if wait > high else 0] += 1
        record = record.after(*seen)
        hits, shown = hits + seen[0], shown + sum(seen)
    assert 0.78 <= hits / shown <= 0.83, (hits, shown, record)
