"""What clients are told: never lost, signed, and sent again with back-off."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from scheduler_ext.core.states import Event, Outcome
from slackwater_api.v1.shapes import notify as shapes
from slackwater_monitoring.models import Delivery, Subscription
from slackwater_monitoring.notify import subscriptions
from slackwater_monitoring.notify.sender import BACK_OFF_S, DELIVERIES, Attempted, Claimed, DeliverySender
from slackwater_monitoring.notify.webhook_signature import signature
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import Listener, LiveTask, Outbox
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from slackwater_tenants.models import Membership
from tests.support.api import ApiClient, client_of, forget_lookups
from tests.support.hand_worker import HandWorker
from tests.support.receiver import receiving
from tests.support.waiting import wait_until
from tests.support.webhooks import ALL, hook, sending, spread, told, verify

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _private(settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "WEBHOOK_PRIVATE": True, "WEBHOOK_PORTS": (0,)}


def test_each_event_is_told_to_who_asked(acme: ApiClient) -> None:
    worker = HandWorker()
    made = hook(acme, "http://127.0.0.1:9/x")
    forget_lookups()
    good, bad, capped = (UUID(acme.task(name=n, total_attempts=a)) for n, a in (("good", 3), ("bad", 1), ("cap", 2)))
    worker.run(good, result="7")
    worker.run(bad, outcome=Outcome.FAILED, error="ValueError: no")
    worker.run(capped, outcome=Outcome.CAP_EXCEEDED, error="its execution cap was reached")
    dropped = acme.task(name="dropped")
    acme.post(f"/tasks/{dropped}/cancel")
    assert spread()
    assert not Outbox._plain.exists()
    seen = [(row["payload"]["data"]["name"], row["event"].removeprefix("task.")) for row in told(acme, made["id"])]
    assert seen == [
        ("good", "started"), ("good", "succeeded"),
        ("bad", "started"), ("bad", "failed"), ("bad", "dead_lettered"),
        ("cap", "started"), ("cap", "retrying"), ("cap", "cap_exceeded"),
        ("dropped", "cancelled"),
    ]  # fmt: skip
    by_event = {(row["payload"]["data"]["name"], row["event"]): row["payload"] for row in told(acme, made["id"])}
    failed = by_event["bad", "task.failed"]
    assert failed["data"]["task_id"] == str(bad)
    assert (failed["data"]["state"], failed["data"]["attempt"]) == ("failed", 1)
    assert (failed["data"]["outcome"], failed["data"]["reason"]) == ("failed", "failed: ValueError: no")
    assert by_event["cap", "task.retrying"]["data"]["retry_at"] > timezone.now().isoformat()


def test_waiting_limits_are_told_once_with_when_to_try_again(acme: ApiClient) -> None:
    made = hook(acme, "http://127.0.0.1:9/x", ["task.late", "task.expired"])
    late = acme.task(name="late", delay_tolerance_s=0)
    given_up = acme.task(name="given up", delay_tolerance_s=0, on_late="give_up")
    in_time = acme.task(name="in time", delay_tolerance_s=600)
    upkeep = LedgerUpkeep(HandWorker().conf, lambda _: None)
    for _ in range(2):
        upkeep.expire_late()
    upkeep.db.close()
    spread()
    rows = told(acme, made["id"])
    assert sorted((row["task_id"], row["event"]) for row in rows) == sorted(
        [(late, "task.late"), (given_up, "task.expired")]
    )
    for row in rows:
        assert row["payload"]["data"]["try_again_at"] > timezone.now().isoformat()
    assert acme.get(f"/tasks/{late}").body["state"] == "ready"
    assert acme.get(f"/tasks/{in_time}").body["state"] == "ready"


def test_a_change_that_is_rolled_back_tells_nothing(acme: ApiClient) -> None:
    hook(acme, "http://127.0.0.1:9/x")
    task_id = UUID(acme.task())
    worker = HandWorker()
    with transaction.atomic():
        worker.run(task_id)
        assert Outbox._plain.count() == 2
        transaction.set_rollback(True)
    assert not Outbox._plain.exists()
    assert LiveTask._plain.filter(pk=task_id).exists()


def test_tags_and_handlers_narrow_and_tenants_are_apart(acme: ApiClient) -> None:
    other = client_of("other")
    mail = hook(acme, "http://127.0.0.1:9/mail", ["task.succeeded"], handlers=["mail.*"])
    tagged = hook(acme, "http://127.0.0.1:9/tag", ["task.succeeded"], tags=["eu", "us"])
    theirs = hook(other, "http://127.0.0.1:9/other", ["task.started"])
    worker = HandWorker()
    worker.run(UUID(acme.task(tags=["us"])), UUID(acme.task()), UUID(other.task()))
    spread()
    assert (len(told(acme, mail["id"])), len(told(acme, tagged["id"])), len(told(other, theirs["id"]))) == (
        0,
        1,
        1,
    )


def test_nothing_is_written_while_nobody_listens(acme: ApiClient) -> None:
    made = hook(acme, "http://127.0.0.1:9/x", ["task.failed"])
    HandWorker().run(UUID(acme.task()))
    assert not Outbox._plain.exists()
    acme.patch(f"/webhooks/{made['id']}", {"enabled": False})
    assert not Listener.objects.exists()
    acme.patch(f"/webhooks/{made['id']}", {"enabled": True, "events": ["task.failed", "task.started"]})
    assert Listener.objects.get().events == Event.FAILED | Event.STARTED
    assert acme.call("DELETE", f"/webhooks/{made['id']}").status == 204
    assert not Listener.objects.exists()


def test_the_platforms_keys_are_changed_without_losing_what_signs(acme: ApiClient, settings: Any) -> None:
    given = settings.SLACKWATER
    settings.SLACKWATER = {**given, "SECRETS_KEYS": ["old"]}
    first, other = hook(acme, "https://example.org/a"), hook(acme, "https://example.org/b")
    acme.post("/webhooks", {"channel": "email", "events": ALL})  # it has no secret
    second = acme.post(f"/webhooks/{first['id']}/rotate").body["secret"]
    acme.post(f"/webhooks/{other['id']}/rotate")
    Subscription._plain.filter(pk=other["id"]).update(before_until=timezone.now(), sealed_before=b"of a key long gone")
    settings.SLACKWATER = {**given, "SECRETS_KEYS": ["new", "old"]}
    assert subscriptions.reseal() == 2
    settings.SLACKWATER = {**given, "SECRETS_KEYS": ["new"]}
    row = Subscription._plain.get(pk=first["id"])
    opened = [
        subscriptions.open_secret(row.tenant_id, first["id"], bytes(sealed))
        for sealed in (row.sealed_before, row.sealed)
    ]
    assert opened == [first["secret"], second]


def test_it_is_sent_signed_and_a_rotated_secret_signs_for_a_day(acme: ApiClient) -> None:
    with receiving() as receiver:
        made = hook(acme, receiver.url)
        HandWorker().run(UUID(acme.task()))
        spread()
        with sending():
            wait_until(lambda: len(receiver.got) == 2)
            new = acme.post(f"/webhooks/{made['id']}/rotate").body["secret"]
            assert acme.post(f"/webhooks/{made['id']}/ping").status == 202
            wait_until(lambda: "ping" in receiver.events())
            wait_until(lambda: all(row["state"] == "delivered" for row in told(acme, made["id"])))
        first, last = receiver.got[0], receiver.got[-1]
        assert verify(first, made["secret"])
        assert not verify(first, new)
        assert verify(last, made["secret"])
        assert verify(last, new)
        assert first.path == "/hook?x=1"
        assert abs(int(first.headers["webhook-timestamp"]) - time.time()) < 30
        log = {row["id"]: row for row in told(acme, made["id"])}
        assert log[first.headers["webhook-id"]]["log"][0]["status"] == 204
        for path in (f"/webhooks/{made['id']}", "/webhooks", f"/webhooks/{made['id']}/deliveries"):
            assert "whsec_" not in str(acme.get(path).body)
        before = Subscription._plain.get()
        assert made["secret"].encode() not in bytes(before.sealed_before)
        Subscription._plain.update(before_until=timezone.now())
        with sending():
            acme.post(f"/webhooks/{made['id']}/ping")
            wait_until(lambda: len(receiver.got) == 4)
        assert verify(receiver.got[-1], new)
        assert not verify(receiver.got[-1], made["secret"])


def test_a_refusal_is_tried_again_later_with_the_same_id_and_content(acme: ApiClient) -> None:
    with receiving() as receiver:
        receiver.answer = lambda n: (503, {"Retry-After": "7000"}) if n == 1 else (200, {})
        made = hook(acme, receiver.url, ["task.succeeded"])
        HandWorker().run(UUID(acme.task()))
        spread()
        with sending():
            wait_until(lambda: told(acme, made["id"])[0]["log"])
        row = told(acme, made["id"])[0]
        assert (row["state"], row["attempts"], row["log"][0]["status"]) == ("pending", 1, 503)
        wait = (Delivery._plain.get().next_attempt_at - timezone.now()).total_seconds()
        assert 6_900 < wait <= 7_000  # the receiver's own word, which is longer than ours
        assert acme.get(f"/webhooks/{made['id']}").body["failing_since"] is not None
        Delivery._plain.update(next_attempt_at=timezone.now())
        with sending():
            wait_until(lambda: told(acme, made["id"])[0]["state"] == "delivered")
        assert receiver.got[0].headers["webhook-id"] == receiver.got[1].headers["webhook-id"]
        assert receiver.got[0].body == receiver.got[1].body
        assert acme.get(f"/webhooks/{made['id']}").body["failing_since"] is None
        again = acme.post(f"/webhooks/{made['id']}/deliveries/{row['id']}/replay")
        assert (again.status, again.body["state"]) == (202, "pending")
        with sending():
            wait_until(lambda: len(receiver.got) == 3)
            wait_until(lambda: told(acme, made["id"])[0]["state"] == "delivered")
        assert receiver.got[2].body == receiver.got[0].body
        assert [entry["status"] for entry in told(acme, made["id"])[0]["log"]] == [503, 200, 200]


def test_it_is_given_up_after_a_day_and_more() -> None:
    rng = random.Random(1)
    waits: list[float] = []
    for left in range(subscriptions.MAX_TRIES - 1, -1, -1):
        claimed = Claimed("d", subscriptions.MAX_TRIES - left, left, "{}", "s", 1, "http://x", b"", b"", "webhook")
        wait = Attempted(claimed=claimed, at=0, took_s=0, status=500).wait_s(rng)
        if wait is None:
            break
        waits.append(wait)
    assert len(waits) == len(BACK_OFF_S) == subscriptions.MAX_TRIES - 1
    assert all(0.8 * base <= wait <= 1.2 * base for base, wait in zip(BACK_OFF_S, waits, strict=True))
    assert 24 * 3600 < sum(waits) < 36 * 3600


def test_a_receiver_that_is_gone_or_fails_for_days_is_disabled(acme: ApiClient) -> None:
    with receiving() as receiver:
        receiver.answer = lambda _: (410, {})
        made = hook(acme, receiver.url, ["task.succeeded"])
        HandWorker().run(UUID(acme.task()))
        spread()
        with sending():
            wait_until(lambda: not acme.get(f"/webhooks/{made['id']}").body["enabled"])
        assert "410" in acme.get(f"/webhooks/{made['id']}").body["disabled_reason"]
        assert not Listener.objects.exists()
        assert acme.post(f"/webhooks/{made['id']}/ping").status == 409


def test_two_senders_send_each_once_and_a_dead_ones_claims_pass_on(acme: ApiClient) -> None:
    with receiving() as receiver:
        made = hook(acme, receiver.url, ["task.succeeded"])
        HandWorker("hand-2").run(*[UUID(acme.task()) for _ in range(20)])
        spread()
        with sending(), sending():
            wait_until(lambda: len(receiver.got) >= 20)
            wait_until(lambda: all(row["state"] == "delivered" for row in told(acme, made["id"])))
        assert len({one.headers["webhook-id"] for one in receiver.got}) == len(receiver.got) == 20
        # A sender that died after its claim: the lease is over, and another sends it; the dead one's late word is void.
        Delivery._plain.update(state="pending", next_attempt_at=timezone.now() + timedelta(seconds=60), attempts=1)
        with sending():
            Delivery._plain.filter(pk=Delivery._plain.latest("id").pk).update(next_attempt_at=timezone.now())
            wait_until(lambda: len(receiver.got) == 21)
            wait_until(lambda: told(acme, made["id"])[-1]["state"] == "delivered")
        newest = Delivery._plain.latest("id")
        late = Claimed(str(newest.pk), 1, 5, "{}", made["id"], acme.tenant.pk, receiver.url, b"", b"", "webhook")
        with connect() as conn:
            DELIVERIES.record(conn, [Attempted(claimed=late, at=0, took_s=0, error="late").sent(random.Random(1))])
        newest.refresh_from_db()
        assert (newest.state, newest.attempts) == ("delivered", 2)


def test_one_that_hangs_holds_up_no_other(acme: ApiClient) -> None:
    let_go = threading.Event()
    with receiving() as slow, receiving() as quick:
        slow.answer = lambda _: (200 if let_go.wait(20) else 500, {})
        hook(acme, slow.url, ["task.succeeded"])
        hook(acme, quick.url, ["task.succeeded"])
        HandWorker().run(*[UUID(acme.task()) for _ in range(30)])
        spread()
        with sending():
            wait_until(lambda: len(quick.got) == 30 and len(slow.got) >= 8, timeout=10)
            assert len(slow.got) == 8  # no more at a time, however long they hang
            let_go.set()
            wait_until(lambda: len(slow.got) == 30, timeout=10)


def test_the_signature_is_that_of_the_specification() -> None:
    # The example of the Standard Webhooks' own libraries.
    body = b'{"test": 2432232314}'
    made = signature(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


# -- e-mail -----------------------------------------------------------------------------------------------------------
def test_owners_are_told_by_e_mail_in_one_message(acme: ApiClient, settings: Any, tmp_path: Path) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH = str(tmp_path)
    for name, role in (("ann", "owner"), ("bob", "operator")):
        user = get_user_model().objects.create_user(name, f"{name}@example.org")
        Membership.objects.create(tenant=acme.tenant, user=user, role=role)
    made = acme.post("/webhooks", {"channel": "email", "events": ["task.failed", "task.cancelled"]}).body
    assert (made["secret"], made["url"]) == (None, None)
    worker = HandWorker()
    for n in range(3):
        worker.run(UUID(acme.task(name=f"job {n}", total_attempts=1)), outcome=Outcome.FAILED, error="no")
    acme.post(f"/tasks/{acme.task(name='dropped')}/cancel")
    spread()
    for at, made_at in Delivery._plain.values_list("next_attempt_at", "created_at"):
        assert (at.second, at.microsecond, at > made_at) == (0, 0, True)  # it is collected by the minute
    sender = DeliverySender()
    Delivery._plain.update(next_attempt_at=timezone.now())
    assert sender.mail() == 4
    assert sender.mail() == 0
    (sent,) = tmp_path.iterdir()
    text = sent.read_text()
    assert re.search(r"^Subject: Acme: 3 failed, 1 cancelled$", text, re.MULTILINE)
    assert re.search(r"^To: ann@example.org$", text, re.MULTILINE)
    assert "bob@" not in text
    assert [n for n in range(3) if f"failed: job {n}" in text] == [0, 1, 2]
    assert {row["state"] for row in told(acme, made["id"])} == {"delivered"}


# -- fields and counts ------------------------------------------------------------------------------------------------
def test_shapes_name_every_field() -> None:
    assert set(shapes.WebhookIn().fields) == set(subscriptions.FIELDS)
    assert set(shapes.WebhookChange().fields) == subscriptions.CHANGEABLE


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"url": "https://x.org"}, "events"),
        ({"url": "https://x.org", "events": []}, "events"),
        ({"url": "https://x.org", "events": ["task.nothing"]}, "events[0]"),
        ({"url": "https://x.org", "events": ["task.late", 7]}, "events[1]"),
        ({"events": ["task.late"]}, "url"),
        ({"channel": "pigeon", "events": ["task.late"]}, "channel"),
        ({"channel": "email", "url": "https://x.org", "events": ["task.late"]}, "url"),
        ({"url": "https://x.org", "events": ["task.late"], "tags": "eu"}, "tags"),
        ({"url": "https://x.org", "events": ["task.late"], "handlers": [3]}, "handlers[0]"),
        ({"url": "https://x.org", "events": ["task.late"], "secret": "mine"}, "secret"),
        ([], None),
    ],
)
def test_wrong_fields_are_named(acme: ApiClient, body: Any, field: str | None) -> None:
    answer = acme.post("/webhooks", body)
    assert (answer.status, answer.body.get("field")) == (422, field), answer.body
    assert not Subscription._plain.exists()


def test_there_is_a_most(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 2)
    for n in range(2):
        hook(acme, f"https://x.org/{n}")
    assert acme.post("/webhooks", {"url": "https://x.org", "events": ALL}).code == "not_granted"


def test_the_log_is_paged_and_filtered(acme: ApiClient) -> None:
    made = hook(acme, "http://127.0.0.1:9/x")
    for _ in range(3):
        acme.post(f"/webhooks/{made['id']}/ping")
    path = f"/webhooks/{made['id']}/deliveries"
    page = acme.get(f"{path}?limit=2").body
    rest = acme.get(f"{path}?limit=2&cursor={page['next_cursor']}").body
    assert (len(page["items"]), len(rest["items"]), rest["next_cursor"]) == (2, 1, None)
    assert len(acme.get(f"{path}?state=pending").body["items"]) == 3
    assert acme.get(f"{path}?state=failed").body["items"] == []
    assert acme.get(f"{path}?state=lost").status == 422
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload FROM slackwater_monitoring_delivery LIMIT 1")
        assert json.loads(cursor.fetchone()[0])["type"] == "ping"


# -- admin ------------------------------------------------------------------------------------------------------------
def test_operators_switch_try_and_send_again(acme: ApiClient) -> None:
    made = hook(acme, "https://x.org/hook")
    get_user_model().objects.create_superuser("root", "root@example.org", "secret")
    page = Client()
    page.login(username="root", password="secret")
    address = f"/admin/slackwater_monitoring/subscription/{made['id']}"
    assert page.post(f"{address}/do/ping/").status_code == 302
    sent = Delivery._plain.get()
    shown = page.get(f"/admin/slackwater_monitoring/delivery/{sent.pk}/change/")
    assert (shown.status_code, b"webhook_id" in shown.content) == (200, True)
    for path in (
        "/admin/slackwater_monitoring/delivery/",
        "/admin/slackwater_monitoring/subscription/",
        f"{address}/change/",
    ):
        text = page.get(path).content.decode()
        assert "whsec" not in text
        assert "x.org" in text
    page.post(f"{address}/do/disable/")
    assert not acme.get(f"/webhooks/{made['id']}").body["enabled"]
    page.post(f"{address}/do/enable/")
    Delivery._plain.update(state="failed", tries_left=0)
    page.post(f"/admin/slackwater_monitoring/delivery/{sent.pk}/do/replay/")
    sent.refresh_from_db()
    assert (sent.state, sent.tries_left) == ("pending", subscriptions.MAX_TRIES)
