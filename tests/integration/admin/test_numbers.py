"""The live page's numbers are right and cheap; long lists are neither counted nor waited for."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_adminkit import big
from slackwater_adminkit.big import EstimatedPaginator
from slackwater_dashboard import live
from slackwater_resources.models import Node
from slackwater_tasks.ledger import connection as engine
from slackwater_tasks.models import LiveTask, Task
from slackwater_tasks.submission import service
from slackwater_tenants.models import Tenant, TenantCounter
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker
from tests.support.planner import learn
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


def administrator() -> Client:
    """Somebody who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def submit(tenant: Tenant, **fields: Any) -> Any:
    """One task, submitted."""
    return service.submit(tenant, {"handler": HANDLER, **fields}, actor="test").task_ids[0]


class TestLive:
    """``live.json``."""

    def test_it_tells_what_stands_in_the_ledger(self) -> None:
        acme, globex = create_tenant("acme", "Acme"), create_tenant("globex", "Globex")
        worker = HandWorker("node-1")
        running, done = submit(acme, category="urgent"), submit(acme)
        dead = submit(acme, total_attempts=1)
        for _ in range(3):
            submit(globex, tier="regular")
        later = (timezone.now() + timedelta(hours=1)).isoformat()
        submit(acme, start_at=later)
        worker.start(running)
        worker.run(done)
        worker.run(dead, outcome=Outcome.FAILED, error="no")
        answer = administrator().get(reverse("admin:sw_live"))
        assert answer["Cache-Control"] == "no-store" or "no-store" in answer["Cache-Control"]
        now = answer.json()
        assert now["states"]["by_state"] == {
            "blocked": 0,
            "scheduled": 1,
            "ready": 3,
            "queued": 0,
            "running": 1,
        }
        assert (now["states"]["unfinished"], now["states"]["tenants"], now["states"]["exact"]) == (5, 2, True)
        assert now["dead_letters"] == {"count": 1, "more": False}
        (line,) = now["lines"]
        assert (line["tenant"], line["category"], line["tier"]) == ("globex", "delayable", "regular")
        assert line["ready"] == {"count": 3, "more": False}
        assert 0 <= line["head_waits_s"] < 60
        (node,) = now["nodes"]
        assert (node["name"], node["state"], node["running"], node["queued"]) == ("node-1", "active", 1, 0)
        assert (node["slots_permille"], node["slots"]) == (250, {"process": 4, "script": 2})
        assert node["cpu_permille"] > 0
        assert [(row["tenant"], row["unfinished"], row["urgent"]) for row in now["tenants"]] == [
            ("globex", 3, 0), ("acme", 2, 1),
        ]  # fmt: skip
        (leader,) = now["leaders"]
        assert (leader["cell"], leader["leads"], leader["epoch"]) == ("default", True, 1)

    def test_an_empty_platform_has_numbers_too(self) -> None:
        now = live.snapshot()
        assert now["states"]["unfinished"] == 0
        assert (now["lines"], now["nodes"], now["leaders"], now["tenants"]) == ([], [], [], [])
        assert (now["start_delay"], now["run_time"]) == (None, None)
        assert (now["rate"], now["failed"]) == (0, 0)

    def test_one_snapshot_serves_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(live, "FRESH_S", 60.0)
        live.snapshot()
        with CaptureQueriesContext(connection) as asked:
            for _ in range(20):
                live.snapshot()
        assert len(asked) == 0

    def test_a_long_line_is_not_counted_through(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(live, "READY_COUNTED", 5)
        acme = create_tenant("acme", "Acme")
        for _ in range(8):
            submit(acme)
        assert live.snapshot()["lines"][0]["ready"] == {"count": 5, "more": True}

    def test_many_tasks_are_told_by_statistics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With more unfinished tasks than are counted, the table is not read: its statistics and counters are."""
        acme = create_tenant("acme", "Acme")
        first = submit(acme)
        with connection.cursor() as cursor:
            columns = [
                str(field.column)
                for field in LiveTask._meta.concrete_fields
                if field.column not in ("task_id", "state") and not field.generated
            ]
            names = ", ".join(columns)
            cursor.execute(
                f"INSERT INTO slackwater_tasks_livetask (task_id, state, {names}) SELECT gen_random_uuid(), "
                f"CASE WHEN n %% 4 = 0 THEN 2 ELSE 3 END, {names} "
                "FROM slackwater_tasks_livetask, generate_series(1, 4000) n WHERE task_id = %s",
                [first],
            )
        learn("slackwater_tasks_livetask")
        TenantCounter.objects.filter(pk=acme.pk).update(unfinished=400_000)
        HandWorker().start(first)
        monkeypatch.setattr(live, "EXACT_LIVE", 1_000)
        states = live.snapshot()["states"]
        assert (states["exact"], states["unfinished"]) == (False, 400_000)
        assert states["by_state"]["running"] == 1
        assert states["by_state"]["ready"] == pytest.approx(300_000, rel=0.1)
        assert states["by_state"]["scheduled"] == pytest.approx(100_000, rel=0.1)

    def test_a_silent_node_is_called_so(self) -> None:
        node = HandWorker().node
        type(node).objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        assert live.snapshot()["nodes"][0]["state"] == "silent"

    def test_a_lost_node_stays_in_sight_until_it_is_back(self) -> None:
        worker = HandWorker()
        Node.objects.filter(pk=worker.node.pk).update(state=Node.State.LOST)
        live._memory.taken = float("-inf")
        assert [node["state"] for node in live.snapshot()["nodes"]] == ["lost"]
        again = Node.objects.get()
        again.pk, again.state, again.incarnation = None, Node.State.ACTIVE, uuid.uuid4()
        again.save(force_insert=True)
        live._memory.taken = float("-inf")
        assert [node["state"] for node in live.snapshot()["nodes"]] == ["active"]

    def test_the_mark_of_a_task_changes_with_it(self) -> None:
        page = administrator()
        task_id = submit(create_tenant("acme", "Acme"))
        url = reverse("admin:sw_task", args=[task_id])
        shown = page.get(reverse("admin:slackwater_tasks_task_change", args=[task_id])).context["seen"]
        assert page.get(url).json() == {"mark": shown, "final": False}
        HandWorker().run(task_id)
        after = page.get(url).json()
        assert after["final"]
        assert after["mark"] != shown


class TestBigLists:
    """Lists that hold millions of rows."""

    def test_few_rows_are_counted_and_many_are_estimated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        acme = create_tenant("acme", "Acme")
        for _ in range(7):
            submit(acme)
        learn("slackwater_tasks_task")
        assert EstimatedPaginator(Task.objects.unscoped().order_by("-id"), 5).count == 7
        assert EstimatedPaginator(Task.objects.unscoped().none(), 5).count == 0
        monkeypatch.setattr(big, "COUNTED", 1)
        with CaptureQueriesContext(connection) as asked:
            estimated = EstimatedPaginator(Task.objects.unscoped().order_by("-id"), 5).count
        assert (estimated, str(estimated)) == (7, "about 7")
        assert [query["sql"].split()[0] for query in asked] == ["EXPLAIN"]

    def test_filters_count_nothing(self) -> None:
        submit(create_tenant("acme", "Acme"))
        page, url = administrator(), reverse("admin:slackwater_tasks_task_changelist")
        page.get(url)
        with CaptureQueriesContext(connection) as plain:
            page.get(url)
        with CaptureQueriesContext(connection) as asked:
            page.get(url, {"_facets": "True"})
        assert len(asked) == len(plain)

    def test_a_page_of_tasks_is_read_by_the_key(self) -> None:
        acme = create_tenant("acme", "Acme")
        for _ in range(200):
            submit(acme)
        learn("slackwater_tasks_task")
        with connection.cursor() as cursor:
            # So few rows may be sorted as quickly; what counts is that they need not be.
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute("SET LOCAL enable_sort = off")
        rows = Task.objects.unscoped().select_related("live", "tenant", "tier").order_by("-id")[:50]
        plan = rows.explain()
        assert "slackwater_tasks_task_pkey" in plan
        assert "Sort" not in plan

    @pytest.mark.django_db(transaction=True)
    def test_a_search_that_takes_too_long_is_stopped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The list waits for a lock that this test holds: it gives up in its time, and says so."""
        page = administrator()
        submit(create_tenant("acme", "Acme"))
        url = reverse("admin:slackwater_tasks_task_changelist")
        assert page.get(url, {"q": "x"}).status_code == 200
        monkeypatch.setattr(big, "LIST_TIMEOUT_S", 0.3)
        holder = engine.connect(application_name="holder")
        answers: list[Any] = []

        def look() -> None:
            answers.append(page.get(url, {"q": "x"}))
            connection.close()

        try:
            with holder.transaction():
                holder.execute("LOCK TABLE slackwater_tasks_task IN ACCESS EXCLUSIVE MODE")
                thread = threading.Thread(target=look)
                thread.start()
                wait_until(lambda: answers, message="the list gives up")
                thread.join()
        finally:
            holder.close()
        (answer,) = answers
        assert (answer.status_code, answer["Location"]) == (302, url)
        assert "was stopped" in str(next(iter(get_messages(answer.wsgi_request))))
        assert LiveTask.objects.unscoped().get().state == TaskState.READY
