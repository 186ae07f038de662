"""What an explanation foretells, and where it is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from scheduler_ext.core.errors import NotFound
from slackwater_tasks.explain.explanation import explain
from slackwater_tasks.models import LiveTask, RateLimit
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tenants.scoping import tenant_scope
from tests.integration.explain.test_reasons import mutex
from tests.support.api import HANDLER, client_of
from tests.support.cell import Cell, sql

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_forecast_counts_what_is_ahead(cell: Cell) -> None:
    """Five slots, runs of ten seconds: the sixteenth of those that wait starts in the fourth round of them."""
    sql(
        "INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at) VALUES (%s, %s, 50, 10e6, now())",
        cell.tenant.pk, HANDLER,
    )  # fmt: skip
    cell.worker.start(*[cell.submit() for _ in range(5)])
    tasks = [cell.submit() for _ in range(16)]
    began = timezone.now()
    found = cell.explain(tasks[-1])
    likely = (found["predicted_start"]["likely"] - found["as_of"]).total_seconds()
    assert 28 <= likely <= 45
    first = (cell.explain(tasks[0])["predicted_start"]["likely"] - began).total_seconds()
    assert 5 <= first <= 11


def test_the_forecast_knows_that_what_is_late_goes_first(cell: Cell) -> None:
    """Behind four rounds of urgent work of ten seconds each, one may be delayed for 15 s, another for long."""
    store: Any = PgWorkStore(cell.worker.conf, "test", cell.store.db)
    store.learn({(cell.tenant.pk, HANDLER): [10.0] * 50})
    cell.worker.start(*[cell.submit() for _ in range(5)])
    for _ in range(20):
        cell.submit(category="urgent", delay_tolerance_s=900)
    sql("UPDATE slackwater_tasks_task SET start_at = submitted_at")  # what comes in lately is not foreseen again
    for tolerance_s, least, most in ((15, 14, 25), (900, 45, 75)):
        found = cell.explain(cell.submit(delay_tolerance_s=tolerance_s))
        likely = (found["predicted_start"]["likely"] - found["as_of"]).total_seconds()
        assert least <= likely <= most


def test_it_is_as_wide_as_what_is_known_and_withheld_where_that_is_nothing(cell: Cell) -> None:
    cell.worker.node.slots = {"process": 5, "script": 5}  # of which a handler has the former alone
    cell.worker.node.save()
    cell.worker.start(*[cell.submit() for _ in range(5)])
    task = cell.submit()
    found = cell.explain(task)
    assert (found["predicted_start"], found["not_predicted"][:30]) == (None, "It hangs on 5 tasks before it ")
    store: Any = PgWorkStore(cell.worker.conf, "test", cell.store.db)
    store.learn({(cell.tenant.pk, HANDLER): [100.0] * 50 + [200.0] * 50})
    found = cell.explain(task)
    begins = [(found["predicted_start"][name] - found["as_of"]).total_seconds() for name in ("earliest", "latest")]
    assert 85 <= begins[0] <= begins[1] <= 215, "the first of five that run 100 or 200 s"
    assert cell.explain(task)["not_predicted"] is None


def test_what_came_in_lately_is_foreseen_again(cell: Cell) -> None:
    store: Any = PgWorkStore(cell.worker.conf, "test", cell.store.db)
    store.learn({(cell.tenant.pk, HANDLER): [10.0] * 50})
    cell.worker.start(*[cell.submit(category="urgent") for _ in range(2)])
    patient = cell.submit(category="offpeak")
    soon = (cell.explain(patient)["predicted_start"]["latest"] - timezone.now()).total_seconds()
    urgent = [cell.submit(category="urgent") for _ in range(15)]
    found = cell.explain(patient)
    assert (soon < 9, found["predicted_start"]) == (True, None)
    assert found["not_predicted"].startswith("It hangs on what comes in before it: ")
    assert cell.explain(urgent[-1])["predicted_start"] is not None, "what comes in stands behind this one"


def test_the_forecast_knows_execution_rates(cell: Cell) -> None:
    """Two starts a minute, both just used up: of those that wait, the fifth starts in the third minute from now."""
    cell.resize(50)
    RateLimit.objects.create(tenant=cell.tenant, key="bank", starts=2, per_s=60)
    tasks = [cell.submit(rate_key="bank") for _ in range(7)]
    assert cell.claimed(tasks[0])
    assert not cell.claimed(tasks[6]), "it is parked"
    found = cell.explain(tasks[6])
    likely = (found["predicted_start"]["likely"] - found["as_of"]).total_seconds()
    assert 170 <= likely <= 182
    other = (
        cell.explain(cell.submit(mutex_key="its own"))["predicted_start"]["likely"] - found["as_of"]
    ).total_seconds()
    assert other < 20, "what has no rate passes"


def test_what_does_not_wait_says_so_and_what_is_not_there_is_not_found(cell: Cell) -> None:
    task = cell.submit()
    assert cell.explain(task)["summary"] == "Nothing holds it: it starts with the next round."
    started = cell.worker.start(task)
    assert cell.explain(task)["summary"] == "It runs on hand-1."
    cell.worker.end(started)
    assert (cell.explain(task)["waiting"], cell.explain(task)["summary"]) == (
        False,
        "It has ended: succeeded.",
    )
    stranger = client_of("stranger")
    with tenant_scope(stranger.tenant.pk), pytest.raises(NotFound):
        explain(task)


def test_it_is_told_over_rest_by_command_and_changes_nothing(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    task, _ = mutex(cell)
    before = list(LiveTask.objects.unscoped().values())  # the test is no tenant
    answer = cell.client.get(f"/tasks/{task}/explain")
    assert (answer.status, answer.body["blockers"][0]["kind"]) == (200, "mutex")
    call_command("explain", str(task), "--tenant", "acme", "--json")
    assert json.loads(capsys.readouterr().out)["summary"].startswith("Its mutex key door is held by")
    call_command("explain", str(task), "--tenant", "acme")
    assert "A holder ends." in capsys.readouterr().out
    assert list(LiveTask.objects.unscoped().values()) == before
