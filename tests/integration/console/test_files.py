"""What the console gives to be saved, charts of usage over time, and a workflow that runs again from one task."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import pytest
from django.utils import timezone

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_console.views.usage import over_time
from slackwater_monitoring.models import Usage
from slackwater_tasks.models import Artifact, Task
from slackwater_tasks.submission import service
from slackwater_tenants.models import Tenant
from tests.support.admin import state, submit
from tests.support.api import HANDLER, client_of
from tests.support.console import browser_of, told
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
HERE = "/console/acme"


def body(response: Any) -> bytes:
    return b"".join(response.streaming_content)


def test_files_the_result_and_the_output_are_saved(tenant: Tenant) -> None:
    page, worker = browser_of(tenant, "viewer"), HandWorker()
    task_id = submit(tenant, name="builds")
    worker.end(worker.start(task_id), result='{"answer": [4, 2]}', logs="first\nsecond\n")
    for name in ("out/größe 100%.csv", "page.html"):
        Artifact._plain.create(
            task_id=task_id, tenant=tenant, name=name, size=12, sha256="5" * 64, content=b"<b>0123</b>\n", fence=1,
            content_type="text/html",
        )  # fmt: skip
    shown = told(page.get(f"{HERE}/tasks/{task_id}/"))
    at = f"{HERE}/tasks/{task_id}/files/out/gr%C3%B6%C3%9Fe%20100%25.csv"
    assert f'href="{at}"' in shown
    whole = page.get(at)
    assert (whole.status_code, body(whole)) == (200, b"<b>0123</b>\n")
    for file in (whole, page.get(f"{HERE}/tasks/{task_id}/files/page.html")):
        assert file["Content-Type"] == "application/octet-stream", "no page of a task's is shown as one of this server"
        assert file["Content-Disposition"].startswith("attachment")
        assert file["X-Content-Type-Options"] == "nosniff"
    part = page.get(at, headers={"Range": "bytes=3-6"})
    assert (part.status_code, part["Content-Range"], body(part)) == (206, "bytes 3-6/12", b"0123")
    assert page.get(at, headers={"If-None-Match": whole["ETag"]}).status_code == 304
    assert page.get(at, headers={"Range": "bytes=99-"}).status_code == 416
    assert page.get(f"{HERE}/tasks/{task_id}/files/no-such").status_code == 404
    saved = page.get(f"{HERE}/tasks/{task_id}/result.json")
    assert json.loads(body(saved)) == {"answer": [4, 2]}
    assert 'filename="builds.json"' in saved["Content-Disposition"]
    lines = body(page.get(f"{HERE}/tasks/{task_id}/output.txt")).decode().splitlines()
    assert [line.split()[-1] for line in lines] == ["first", "second"]


def test_output_of_many_pages_is_saved_whole(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater_console.views.tasks.LINES", 3)
    page, worker, task_id = browser_of(tenant, "viewer"), HandWorker(), submit(tenant)
    worker.end(worker.start(task_id), logs="".join(f"line {n}\n" for n in range(10)))
    text = body(page.get(f"{HERE}/tasks/{task_id}/output.txt")).decode()
    assert [line.split()[-1] for line in text.splitlines()] == [str(n) for n in range(10)]


def test_a_workflow_runs_again_from_one_task(tenant: Tenant) -> None:
    page, worker = browser_of(tenant, "operator", "ann"), HandWorker()
    tasks: list[dict[str, Any]] = [{"name": name, "handler": HANDLER, "depends_on": needs} for name, needs in
                                   (("a", []), ("b", ["a"]), ("c", ["b"]), ("d", ["a"]))]  # fmt: skip
    made = service.submit_workflow(tenant, {"tasks": tasks}, actor="test")
    ids = dict(zip("abcd", made.task_ids, strict=True))
    worker.run(ids["a"])
    at = f"{HERE}/workflows/{made.workflow_id}/rerun"
    assert "Run again from here" not in told(page.get(f"{HERE}/tasks/{ids['b']}/")), "it has not ended"
    assert "has not ended" in told(page.get(f"{at}/{ids['b']}/", follow=True))
    for name in "bcd":
        worker.run(ids[name], outcome=Outcome.SUCCEEDED)
    assert f'href="{at}/{ids["b"]}/"' in told(page.get(f"{HERE}/tasks/{ids['b']}/"))
    asked = told(page.get(f"{at}/{ids['b']}/"))
    assert "2 tasks run again" in asked
    assert state(ids["b"]) is TaskState.SUCCEEDED, "nothing runs before it is confirmed"
    assert "2 tasks run again" in told(page.post(f"{at}/{ids['b']}/", follow=True))
    assert [state(ids[name]) for name in "abcd"] == [
        TaskState.SUCCEEDED, TaskState.READY, TaskState.BLOCKED, TaskState.SUCCEEDED,
    ]  # fmt: skip
    theirs = client_of("other")
    flow = theirs.post("/workflows", {"tasks": [{"name": "w", "handler": HANDLER}]}).body["id"]
    task = Task.objects.unscoped().get(workflow_id=flow).pk
    for mixed in (f"{at}/{task}/", f"{HERE}/workflows/{flow}/rerun/{ids['a']}/"):
        assert page.get(mixed).status_code == 404
        assert page.post(mixed).status_code == 404
    assert state(ids["a"]) is TaskState.SUCCEEDED


def test_usage_over_time(tenant: Tenant) -> None:
    page, today = browser_of(tenant, "viewer"), timezone.now().date()
    assert "co-charts" not in told(page.get(f"{HERE}/usage/")), "nothing was used"
    for back, attempts in ((0, 5), (40, 7)):
        Usage._plain.create(
            tenant=tenant, day=today - timedelta(days=back), tier="basic", category=1, attempts=attempts, succeeded=4,
            run_ms=3_600_000, price_micros=2_000_000,
        )  # fmt: skip
    shown = page.get(f"{HERE}/usage/?since={today - timedelta(days=59)}&until={today}")
    chart = shown.context["chart"]
    assert (len(chart["at"]), chart["at"][-1]) == (60, today.isoformat())
    [sums] = chart["by"]["tier"].values()
    assert (sum(sums["attempts"]), sums["attempts"][-1], sums["failed"][-1]) == (12, 5, 1)
    assert (sum(sums["held"]), sum(sums["price"])) == (2, 4)
    assert 'id="co-usage" type="application/json"' in told(shown)
    assert "Last month" in told(shown)
    year = page.get(f"{HERE}/usage/?since={today - timedelta(days=364)}&until={today}").context["chart"]
    assert (len(year["at"]) in {12, 13}, len(year["at"][0])) == (True, 7)


def test_usage_of_many_rows_is_read_to_its_end(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater_console.views.usage.ROWS", 2)
    page, today = browser_of(tenant, "viewer"), timezone.now().date()
    for n in range(5):
        Usage._plain.create(tenant=tenant, day=today, tier=f"t{n}", category=1, attempts=1)
    chart = page.get(f"{HERE}/usage/?since={today}&until={today}").context["chart"]
    assert len(chart["by"]["tier"]) == 5
    assert chart["by"]["category"]["urgent"]["attempts"] == [5] or len(chart["by"]["category"]) == 1
    monkeypatch.setattr("slackwater_console.views.usage.MOST", 4)
    assert "there are too many rows" in told(page.get(f"{HERE}/usage/?since={today}&until={today}"))


def test_days_without_use_are_there() -> None:
    assert over_time([], date(2030, 1, 30), date(2030, 2, 2))["at"] == [
        "2030-01-30", "2030-01-31", "2030-02-01", "2030-02-02",
    ]  # fmt: skip
