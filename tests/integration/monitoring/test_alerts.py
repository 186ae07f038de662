"""Alerts: raised when something has been wrong for a while, not flapping, cleared, acknowledged, told once."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scheduler_ext.core.errors import ConfigurationError, Conflict
from scheduler_ext.core.states import Outcome
from slackwater_dashboard import live
from slackwater_monitoring.alerts import evaluation, sender
from slackwater_monitoring.alerts.evaluation import look, pulse
from slackwater_monitoring.alerts.rules import RULES, changed
from slackwater_monitoring.models import Alert, AlertNotice, Pulse
from slackwater_monitoring.notify.webhook_signature import make_secret
from slackwater_resources.models import Node
from slackwater_tasks.models import Leader, LiveTask
from slackwater_tenants.models import Tenant
from tests.support.admin import act, press, said, staff, submit
from tests.support.hand_worker import HandWorker
from tests.support.receiver import receiving
from tests.support.webhooks import verify

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]
SECRET = "whsec_" + "c2VjcmV0LW9mLXRoZS1vcGVyYXRvcg=="


class Watch:
    """Looks at moments of the test's choice, at one rule alone."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.now = timezone.now()
        self.conf = settings.SLACKWATER

    def only(self, rule: str, **values: Any) -> None:
        """Switch the others off."""
        off = {name: {"enabled": False} for name in RULES if name != rule}
        self.settings.SLACKWATER = {**self.conf, "ALERTS": {**off, rule: values}}

    def after(self, seconds: float) -> list[tuple[str, bool]]:
        """Look ``seconds`` later: the rules of what was raised (True) or cleared (False)."""
        self.now += timedelta(seconds=seconds)
        return [(alert.rule, alert.cleared_at is None) for alert in look(self.now)]

    def until(self, seconds: float) -> list[tuple[str, bool]]:
        """Look every 20 s for so long."""
        found = []
        for _ in range(int(seconds // 20)):
            found += self.after(20)
        return found


@pytest.fixture
def watch(settings: Any) -> Watch:
    return Watch(settings)


def _unused(watch: Watch, acme: Tenant) -> Callable[[], object]:
    worker = HandWorker()
    Node.objects.update(started_at=watch.now - timedelta(hours=9), lease_expires_at=watch.now + timedelta(hours=9))
    return lambda: worker.start(submit(acme))


def _failed(watch: Watch, acme: Tenant) -> Callable[[], object]:
    HandWorker("w7")
    Node.objects.update(state="lost", started_at=watch.now - timedelta(hours=1))
    return lambda: HandWorker("w7")


def _capacity(watch: Watch, acme: Tenant) -> Callable[[], object]:
    HandWorker()
    tasks = [submit(acme) for _ in range(6)]  # six slots are there; seven and a half are wanted
    return lambda: LiveTask.objects.unscoped().filter(pk__in=tasks[2:]).delete()


def _dispatcher(watch: Watch, acme: Tenant) -> Callable[[], object]:
    values = {"holder": "x", "renewed_at": watch.now, "expires_at": watch.now + timedelta(hours=9)}
    return lambda: Leader.objects.update_or_create(cell="default", defaults=values)


def _silent(kind: str) -> Callable[[Watch, Tenant], Callable[[], object]]:
    def begin(watch: Watch, acme: Tenant) -> Callable[[], object]:
        pulse(kind)
        rows = Pulse.objects.filter(kind=kind)
        rows.update(beat_at=watch.now - timedelta(seconds=11))
        return lambda: rows.update(beat_at=watch.now + timedelta(hours=1))

    return begin


def _queue(watch: Watch, acme: Tenant) -> Callable[[], object]:
    HandWorker().claim(submit(acme))
    rows = LiveTask.objects.unscoped()
    rows.update(claim_expires_at=watch.now - timedelta(seconds=31))
    return lambda: rows.update(claim_expires_at=watch.now + timedelta(hours=9))


def _redis(watch: Watch, acme: Tenant) -> Callable[[], object]:
    there = watch.settings.SLACKWATER
    watch.settings.SLACKWATER = {**there, "REDIS_URL": "redis://127.0.0.1:1/0"}
    return lambda: setattr(watch.settings, "SLACKWATER", there)


def _late(watch: Watch, acme: Tenant) -> Callable[[], object]:
    submit(acme)
    rows = LiveTask.objects.unscoped()
    rows.update(latest_start=watch.now - timedelta(seconds=31))
    return lambda: rows.update(latest_start=watch.now + timedelta(hours=9))


def _failures(watch: Watch, acme: Tenant) -> Callable[[], object]:
    worker = HandWorker()
    worker.run(*[submit(acme) for _ in range(20)])
    cursor = connection.cursor()
    cursor.execute("UPDATE slackwater_tasks_attempt SET finished_at = %s", [watch.now - timedelta(minutes=5)])
    worker.run(*[submit(acme) for _ in range(15)])
    worker.run(*[submit(acme, total_attempts=1) for _ in range(5)], outcome=Outcome.FAILED, error="no")
    late = watch.now + timedelta(hours=9)  # so that they stay within the last minute of every look
    cursor.execute("UPDATE slackwater_tasks_attempt SET finished_at = %s WHERE finished_at > %s",
                   [late, watch.now - timedelta(minutes=1)])  # fmt: skip

    def end() -> None:
        worker.run(*[submit(acme) for _ in range(60)])
        _stretch(late)

    return end


def _stretch(late: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE slackwater_tasks_attempt SET finished_at = %s WHERE finished_at > now() - interval '1 minute'",
            [late],
        )


CASES: dict[str, Callable[[Watch, Tenant], Callable[[], object]]] = {
    "node_unused": _unused, "node_failed": _failed, "capacity_low": _capacity, "failures_rising": _failures,
    "dispatcher": _dispatcher, "beat": _silent("beat"), "upkeep": _silent("upkeep"), "queue": _queue,
    "work_late": _late,
}  # fmt: skip


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_raised_after_its_time_and_cleared_after_its_time(
    rule: str,
    watch: Watch,
    tenant: Tenant,
) -> None:
    watch.only(rule, after_s=60.0, clear_after_s=60.0)
    end = CASES[rule](watch, tenant)
    assert watch.after(0) == []
    assert watch.until(40) == []
    assert watch.after(20) == [(rule, True)]
    assert watch.until(60) == []
    alert = Alert.objects.get()
    assert (alert.rule, alert.cell, alert.cleared_at) == (rule, "default", None)
    assert alert.last_seen_at == watch.now
    end()
    assert watch.after(0) == []
    assert watch.until(40) == []
    assert watch.after(20) == [(rule, False)]
    assert watch.until(60) == []
    assert Alert.objects.count() == 1


def test_redis_that_does_not_answer_is_an_alert(watch: Watch, tenant: Tenant) -> None:
    watch.only("queue", after_s=0, clear_after_s=0)
    end = _redis(watch, tenant)
    assert watch.after(0) == [("queue", True)]
    end()
    assert watch.after(1) == [("queue", False)]


def test_what_comes_and_goes_is_neither_raised_nor_cleared(watch: Watch, tenant: Tenant) -> None:
    watch.only("beat", after_s=60.0, clear_after_s=60.0)
    end = _silent("beat")(watch, tenant)
    for _ in range(4):
        assert watch.until(40) == []
        end()
        assert watch.after(20) == []
        Pulse.objects.update(beat_at=watch.now - timedelta(minutes=9))
    assert watch.until(80) == [("beat", True)]
    for _ in range(4):
        end()
        assert watch.until(40) == []
        Pulse.objects.update(beat_at=watch.now - timedelta(minutes=9))
        assert watch.after(20) == []
    assert Alert.objects.filter(cleared_at=None).count() == 1


def test_what_nobody_looked_at_meanwhile_is_not_known_to_have_lasted(watch: Watch, tenant: Tenant) -> None:
    watch.only("beat", after_s=90.0)
    _silent("beat")(watch, tenant)
    assert watch.after(0) == []
    assert watch.after(3600) == []
    assert watch.until(80) == []
    assert watch.after(20) == [("beat", True)]


def test_few_failures_and_the_usual_ones_are_no_alert(watch: Watch, tenant: Tenant) -> None:
    watch.only("failures_rising", after_s=0)
    worker = HandWorker()
    failing = [submit(tenant, total_attempts=1) for _ in range(19)]
    worker.run(*failing, outcome=Outcome.FAILED, error="no")
    assert watch.after(1) == []  # too few to say
    with connection.cursor() as cursor:
        cursor.execute("UPDATE slackwater_tasks_attempt SET finished_at = %s", [watch.now - timedelta(minutes=5)])
    worker.run(*[submit(tenant, total_attempts=1) for _ in range(20)], outcome=Outcome.FAILED, error="no")
    assert watch.after(1) == []  # as many as before


def test_it_is_acknowledged_once_and_shown_on_every_page(watch: Watch, page: Client, tenant: Tenant) -> None:
    watch.only("dispatcher", after_s=0)
    watch.after(1)
    alert = Alert.objects.get()
    live._memory.taken = float("-inf")
    (shown,) = page.get(reverse("admin:sw_live")).json()["alerts"]
    assert (shown["rule"], shown["acknowledged_by"], shown["says"]) == (
        "dispatcher",
        "",
        RULES["dispatcher"].says,
    )
    gauge = 'slackwater_alerts_open{{acknowledged="{}",cell="default",rule="dispatcher"}} 1.0'
    assert gauge.format(0) in Client().get("/metrics").content.decode()
    listed = page.get(reverse("admin:slackwater_monitoring_alert_changelist")).content.decode()
    assert RULES["dispatcher"].says in listed
    assert "You look after it" in said(press(page, "slackwater_monitoring_alert", alert.pk, "acknowledge"))
    assert "already" in said(act(page, "slackwater_monitoring_alert", "acknowledge", alert.pk))
    alert.refresh_from_db()
    assert alert.acknowledged_by == "user:root"
    assert alert.acknowledged_at is not None
    assert gauge.format(1) in Client().get("/metrics").content.decode()
    with pytest.raises(Conflict):
        evaluation.acknowledge(alert, "other")
    viewer = staff("slackwater_monitoring.view_alert")
    assert press(viewer, "slackwater_monitoring_alert", alert.pk, "acknowledge").status_code == 403


def test_administrators_are_told_once_by_mail_and_by_webhook(
    watch: Watch,
    root: Any,
    tenant: Tenant,
) -> None:
    root.email = "root@example.org"
    root.save()
    with receiving() as receiver:
        receiver.answer = lambda n: (503 if n == 1 else 204, {})
        watch.conf = {**watch.conf, "ALERT_WEBHOOK": receiver.url, "ALERT_WEBHOOK_SECRET": SECRET}
        watch.only("dispatcher", after_s=0, clear_after_s=0)
        end = _dispatcher(watch, tenant)
        watch.after(1)
        AlertNotice.objects.update(due_at=timezone.now())
        assert (sender.send_due(), sender.send_due()) == (1, 0)  # the webhook was refused, and waits
        AlertNotice.objects.filter(done_at=None).update(due_at=timezone.now())
        assert (sender.send_due(), sender.send_due()) == (1, 0)
        end()
        watch.after(1)
        AlertNotice.objects.filter(done_at=None).update(due_at=timezone.now())
        assert (sender.send_due(), sender.send_due()) == (2, 0)
    assert [(m.to, m.subject) for m in mail.outbox] == [
        (["root@example.org"], "[Slackwater] raised: dispatcher in default"),
        (["root@example.org"], "[Slackwater] cleared: dispatcher in default"),
    ]
    assert receiver.events() == ["alert.raised", "alert.raised", "alert.cleared"]
    assert receiver.got[0].headers["webhook-id"] == receiver.got[1].headers["webhook-id"]
    assert all(verify(one, SECRET) for one in receiver.got)
    assert receiver.got[2].json["data"]["rule"] == "dispatcher"


def test_a_notice_that_cannot_be_sent_says_why_and_holds_up_no_other(
    watch: Watch, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def due() -> int:
        AlertNotice.objects.filter(done_at=None).update(due_at=timezone.now())
        return sender.send_due()

    def raised(notice: AlertNotice) -> dict[str, Any]:
        if notice.event == "raised":
            raise RuntimeError("nobody expected it")
        return {}

    with receiving() as receiver:
        watch.conf = {**watch.conf, "ALERT_WEBHOOK": receiver.url, "ALERT_WEBHOOK_SECRET": "whsec_secre"}
        watch.only("dispatcher", after_s=0, clear_after_s=0)
        end = _dispatcher(watch, tenant)
        watch.after(1)
        end()
        watch.after(1)
        AlertNotice.objects.filter(channel="email").delete()
        assert due() == 0
        told = list(AlertNotice.objects.order_by("pk").values_list("tries", "error"))
        assert [tries for tries, _ in told] == [1, 1]
        assert {error for _, error in told} == {"SLACKWATER_ALERT_WEBHOOK_SECRET: must be whsec_ and a key in base64"}
        watch.conf = {**watch.conf, "ALERT_WEBHOOK_SECRET": SECRET}
        watch.only("dispatcher", after_s=0, clear_after_s=0)
        monkeypatch.setattr(sender, "payload", raised)
        assert due() == 1
        one, other = AlertNotice.objects.order_by("pk")
        assert (one.error, one.done_at) == ("nobody expected it", None)
        assert (other.error, other.done_at is None) == ("", False)
        monkeypatch.undo()
        assert due() == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ALERT_WEBHOOK", "foo"), ("ALERT_WEBHOOK", "https://user:word@example.org"), ("SCALE_WEBHOOK", "https://user:word@example.org"),
        ("ALERT_WEBHOOK_SECRET", "foo"), ("ALERT_WEBHOOK_SECRET", "whsec_c2Vjcm"), ("ALERT_WEBHOOK_SECRET", "whsec_"),
        ("ALERT_WEBHOOK_SECRET", "whsec_" + "\xe9" * 4), ("ALERT_EMAILS", ("ops@example.org", "foo")),
        ("ALERT_EMAILS", ("ops@",)),
    ],
)  # fmt: skip
def test_where_alerts_cannot_go_is_refused_by_the_check(key: str, value: Any, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, key: value}
    (found,) = run_checks(tags=["alerts"])
    assert found.id == "slackwater.E021"
    assert found.msg.startswith(f"SLACKWATER_{key} cannot be used: ")
    if key.endswith("SECRET"):
        assert found.msg.endswith("must be whsec_ and a key in base64"), "and is not told"


def test_where_alerts_can_go_passes_the_check(settings: Any) -> None:
    settings.SLACKWATER = {
        **settings.SLACKWATER, "ALERT_WEBHOOK": "http://10.0.0.7:9000/hooks", "SCALE_WEBHOOK": "https://scaler.internal/",
        "ALERT_WEBHOOK_SECRET": make_secret(), "ALERT_EMAILS": ("ops@example.org", "root@localhost", "Ops <a@b.example>"),
    }  # fmt: skip
    assert run_checks(tags=["alerts"]) == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ([], "SLACKWATER_ALERTS"),
        ({"nonsense": {}}, "nonsense"),
        ({"beat": 1}, "beat"),
        ({"beat": {"says": "x"}}, "beat.says"),
        ({"beat": {"after_s": -1}}, "beat.after_s"),
        ({"beat": {"after_s": True}}, "beat.after_s"),
        ({"beat": {"enabled": 1}}, "beat.enabled"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_its_name(changes: Any, field: str, settings: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        changed(changes)
    assert caught.value.field == field
    settings.SLACKWATER = {**settings.SLACKWATER, "ALERTS": changes}
    with pytest.raises(SystemCheckError, match=r"slackwater\.E020"):
        call_command("check", "--tag", "alerts")


def test_rules_change_by_settings_and_stand_in_the_documents() -> None:
    found = changed(json.loads('{"beat": {"after_s": 7, "enabled": false}}'))
    assert (found["beat"].after_s, found["beat"].enabled, found["upkeep"]) == (7.0, False, RULES["upkeep"])
    page = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text()
    for name, rule in RULES.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert row.endswith(f"| {rule.after_s:.0f} s | {rule.clear_after_s:.0f} s |"), name


def test_those_who_watch_take_turns() -> None:
    assert evaluation.is_turn(4.5), "nobody has looked yet"
    assert not evaluation.is_turn(4.5), "the other has, a moment ago"
    Pulse.objects.filter(kind="alerts").update(beat_at=timezone.now() - timedelta(seconds=5))
    assert evaluation.is_turn(4.5), "whoever looked last time is late, or gone"
