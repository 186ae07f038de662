"""Receipts: every end has one, they agree with the bill, and whoever has them can prove it."""

from __future__ import annotations

import io
import json
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.core.management import call_command
from django.test import Client

from scheduler_ext.core.states import Outcome
from slackwater_monitoring import usage
from slackwater_monitoring.models import ReceiptKey, ReceiptPage
from slackwater_monitoring.receipts import chain, keys, pages, terms
from slackwater_resources.models import Tier
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import Task
from slackwater_tasks.upkeep.retention import forget
from tests.support.api import ApiClient, client_of, furnish
from tests.support.cell import sql
from tests.support.hand_worker import HandWorker
from tests.support.usage import add_up, ended, number, settle
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme() -> ApiClient:
    """Its prices are odd: nothing comes out even."""
    furnish()
    client = client_of("acme")
    plan = client.tenant.plan
    plan.price_micros_per_attempt = 0
    plan.price_permille = {**plan.price_permille, "urgent": 1_333}
    plan.save()
    Tier.objects.filter(slug="basic").update(price_micros_per_hour=777_777)
    return client


def receipts(client: ApiClient, query: str = "") -> list[dict[str, Any]]:
    """All of them, page by page."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        body = client.get(f"/receipts?limit=3{query}{cursor}").body
        found += body["items"]
        if body["next_cursor"] is None:
            return found
        cursor = f"&cursor={body['next_cursor']}"


def test_every_end_has_a_receipt_and_they_sum_to_the_bill(acme: ApiClient, tmp_path: Path, page: Client) -> None:
    other, worker = client_of("other"), HandWorker()
    for took in (0.011, 0.017, 0.023, 0.031):  # each costs a few millionths and a bit
        worker.run(UUID(acme.task(category="urgent")), took_s=took)
    late = UUID(acme.task(delay_tolerance_s=0, total_attempts=2))
    sql(
        "UPDATE slackwater_tasks_livetask SET latest_start = latest_start - interval '1 minute' WHERE task_id = %s",
        late,
    )
    worker.run(late, outcome=Outcome.FAILED, error="no", took_s=2.0)
    cancelled = acme.task()
    acme.post(f"/tasks/{cancelled}/cancel")
    worker.run(UUID(other.task()))
    ended()
    found = receipts(acme)
    assert [one["number"] for one in found] == list(range(1, 7))
    day = str(datetime.now(UTC).date())
    bill = acme.get("/usage").body
    assert sum(one["charged_micros"] for one in found) == bill["total"]["price_micros"] > 0
    urgent = [one for one in found if one["category"] == "urgent" and one["ended_at"].startswith(day)]
    assert sum(one["charged_micros"] for one in urgent) == next(
        row["price_micros"] for row in bill["items"] if row["category"] == "urgent"
    )
    failed = next(one for one in found if one["task_id"] == str(late))
    assert (failed["attempt"], failed["state"], failed["outcome"]) == (1, None, "failed"), "it goes on"
    assert failed["kept"]["late_by_s"] > 50
    assert failed["promised"]["hour_micros"] == 777_777
    assert failed["kept"]["before"]["category"] <= 4
    gone = next(one for one in found if one["task_id"] == cancelled)
    assert (gone["attempt"], gone["state"], gone["charged_micros"]) == (None, "cancelled", 0)
    assert [one["number"] for one in receipts(acme, f"&task_id={cancelled}")] == [gone["number"]]
    first = min(one["ended_at"] for one in found)
    assert receipts(acme, f"&ended_before={first}") == []
    assert receipts(other, f"&task_id={cancelled}") == []
    assert {one["seal"]["tenant"] for one in receipts(other) if one["seal"]} == {"other"}
    # What has been deleted keeps its receipts.
    with connect() as conn:
        forget(conn, [(task,) for task in Task._plain.values_list("pk", flat=True)])
    assert receipts(acme) == found
    proved(acme, found, tmp_path)
    assert page.get("/admin/slackwater_monitoring/receiptpage/").status_code == 200
    newest = ReceiptPage._plain.filter(tenant=acme.tenant).latest("first")
    shown = page.get(f"/admin/slackwater_monitoring/receiptpage/{newest.pk}/change/").content.decode()
    assert found[-1]["hash"] in shown


def proved(client: ApiClient, found: list[dict[str, Any]], folder: Path) -> None:
    """The command says so, and what was changed in a file of them."""
    file, public = folder / "receipts.json", folder / "keys.json"
    file.write_text(json.dumps(found))
    public.write_text(json.dumps(client.get("/receipt-keys").body))
    call_command("verify_receipts", str(file), "--keys", str(public))
    file.write_text(
        json.dumps([*found[:2], {**found[2], "charged_micros": found[2]["charged_micros"] + 1}, *found[3:]])
    )
    with pytest.raises(SystemExit):
        call_command("verify_receipts", str(file), "--keys", str(public), "--json")


def test_a_chain_is_never_forked_and_a_price_holds_from_its_submission_on(acme: ApiClient) -> None:
    worker = HandWorker()
    worker.run(UUID(acme.task()), took_s=3.6)
    settle()
    promised = UUID(acme.task())
    Tier.objects.filter(slug="basic").update(price_micros_per_hour=1)
    with connect() as conn:
        assert terms.note(conn) >= 1
        assert terms.note(conn) == 0, "nothing has changed since"
    worker.run(promised, took_s=3.6)
    worker.run(UUID(acme.task()), took_s=3.6)
    # An account that breaks off leaves nothing: not the page, not the mark.
    with connect() as conn, conn.transaction(force_rollback=True):
        usage.add_up(conn)
        usage.add_up(conn)
    settle()
    found = receipts(acme)
    assert [one["charged_micros"] for one in found] == [778, 778, 0]
    assert [one["promised"]["terms"] for one in found] == [1, 1, 2]
    assert [one["number"] for one in found] == [1, 2, 3]
    # Another key seals what comes, and the first is still published.
    ReceiptKey.objects.update(created_at=datetime(2026, 1, 1, tzinfo=UTC))
    worker.run(UUID(acme.task()))
    settle()
    assert len({one["seal"]["key_id"] for one in receipts(acme) if one["seal"]}) == len(keys.published()) == 2
    # Old pages go, the newest stays: the chain goes on from there.
    ReceiptPage.objects.unscoped().update(until=datetime(2024, 1, 1, tzinfo=UTC))  # the test is no tenant
    with connect() as conn:
        conn.execute(pages.OLD, (pages.KEPT_DAYS, 100))
    worker.run(UUID(acme.task()))
    settle()
    assert [one["number"] for one in receipts(acme)] == [4, 5]


def test_several_upkeeps_and_one_that_is_killed_before_its_commit_double_and_lose_none(acme: ApiClient) -> None:
    other, worker = client_of("other"), HandWorker()

    def work() -> None:
        for client in (acme, other, acme):
            worker.run(UUID(client.task()))

    work()
    settle()
    work()
    # One has written pages and the mark, and its connection dies before the commit; meanwhile another finds nothing to do.
    unread = "SELECT count(*) FROM slackwater_monitoring_usagemark WHERE seen > done"
    wait_until(lambda: number(unread) or add_up(), timeout=120, message="what has ended is noted")
    written = "SELECT count(*) FROM slackwater_monitoring_receiptpage WHERE first > 1"
    with closing(connect()) as victim:
        victim.execute("BEGIN")
        wait_until(lambda: usage.add_up(victim), timeout=120, message="receipts are written")
        assert victim.execute(written).fetchone() == (2,)
        assert add_up() == 0
        number(f"SELECT pg_terminate_backend({victim.info.backend_pid})::int")
        with pytest.raises(psycopg.OperationalError):
            victim.execute("COMMIT")
    assert number(written) == 0
    # Two at once, while more ends.
    enough, failed = threading.Event(), []

    def upkeep() -> None:
        try:
            with connect() as conn:
                while not enough.is_set():
                    with conn.transaction():
                        usage.add_up(conn)
                    enough.wait(0.02)
        except Exception as error:  # noqa: BLE001 - told below
            failed.append(error)

    both = [threading.Thread(target=upkeep) for _ in range(2)]
    for thread in both:
        thread.start()
    try:
        for _ in range(4):
            work()
        settle()
    finally:
        enough.set()
        for thread in both:
            thread.join()
    assert failed == []
    public = chain.read_keys(io.StringIO(json.dumps(acme.get("/receipt-keys").body)))
    for client, count in ((acme, 12), (other, 6)):
        found = receipts(client)
        assert [one["number"] for one in found] == list(range(1, count + 1))
        assert len({one["task_id"] for one in found}) == count
        proof = chain.verify(found, public)
        assert (proof.count, proof.findings) == (count, [])
        assert client.get("/usage").body["total"]["attempts"] == count
