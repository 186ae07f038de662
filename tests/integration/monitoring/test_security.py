"""Logins are limited and recorded, pages have their policy, and production passes Django's own checks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from slackwater_api.server import content_security
from slackwater_api.server.application import _headers
from slackwater_monitoring.logins import KNOWN_FOR, MAX_FOR_ADDRESS, MAX_FOR_BOTH, MAX_FOR_NAME, WINDOW, address_of
from slackwater_monitoring.models import Login
from slackwater_tasks.models import RateLimit
from slackwater_tenants.models import Tenant
from tests.support.admin import act, press, staff, submit
from tests.support.hand_worker import HandWorker

ROOT = Path(__file__).resolve().parents[3]
GOOD = "secret-root"
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


def log_in(password: str, username: str = "root", address: str = "192.0.2.1") -> bool:
    client = Client(REMOTE_ADDR=address)
    answer = client.post(reverse("admin:login"), {"username": username, "password": password})
    assert answer.status_code in (200, 302)
    return answer.status_code == 302


def outcomes() -> list[str]:
    return list(Login.objects.order_by("id").values_list("outcome", flat=True))


class TestLogins:
    """Guessing is limited, and everything is recorded."""

    def test_a_name_is_refused_at_an_address_after_some_failures_whatever_the_password(self, root: User) -> None:
        for _ in range(MAX_FOR_BOTH):
            assert not log_in("wrong")
        assert not log_in(GOOD)
        assert outcomes() == ["failed"] * MAX_FOR_BOTH + ["refused"]
        assert not log_in(GOOD, username="ROOT")
        # Who is elsewhere gets in, and so does who waits.
        assert log_in(GOOD, address="192.0.2.2")
        Login.objects.update(at=timezone.now() - WINDOW - timedelta(seconds=1))
        assert log_in(GOOD)

    def test_an_attacker_who_goes_on_keeps_out_neither_others_nor_anybody_for_longer(self, root: User) -> None:
        User.objects.create_superuser("alice", password="secret-alice")
        for _ in range(2 * MAX_FOR_ADDRESS):
            assert not log_in("wrong")
        assert not log_in(GOOD), "that name is refused there"
        assert log_in("secret-alice", username="alice"), "another name, at the attacker's own address"
        assert log_in(GOOD, address="192.0.2.2"), "that name, anywhere else"
        # The 15 minutes are over, all through which he has gone on: his refused tries were no failures.
        failed = Login.objects.filter(outcome="failed")
        assert failed.count() == MAX_FOR_BOTH
        failed.update(at=timezone.now() - WINDOW - timedelta(seconds=1))
        assert log_in(GOOD)

    def test_a_success_forgets_the_failures_before_it(self, root: User) -> None:
        for _ in range(2):
            for _ in range(MAX_FOR_BOTH - 1):
                assert not log_in("wrong")
            assert log_in(GOOD)

    def test_an_address_is_refused_after_failures_for_many_names(self, root: User) -> None:
        for number in range(MAX_FOR_ADDRESS):
            assert not log_in("wrong", username=f"nobody{number}")
        assert not log_in(GOOD)
        assert log_in(GOOD, address="192.0.2.2")

    def test_who_was_let_in_there_before_is_not_kept_out_by_others(self, root: User) -> None:
        assert log_in(GOOD)
        for number in range(MAX_FOR_ADDRESS):
            assert not log_in("wrong", username=f"nobody{number}")
        rows = [Login(username="root", address=f"198.51.100.{n}", outcome="failed") for n in range(MAX_FOR_NAME)]
        Login.objects.bulk_create(rows)
        assert log_in(GOOD)
        assert not log_in(GOOD, address="192.0.2.9"), "nobody knows that address"
        # Guessing that one name there is limited as ever, and what was long ago is forgotten.
        for _ in range(MAX_FOR_BOTH):
            assert not log_in("wrong")
        assert not log_in(GOOD)
        Login.objects.filter(outcome="succeeded").update(at=timezone.now() - KNOWN_FOR - timedelta(seconds=1))
        Login.objects.filter(username="root", address="192.0.2.1", outcome="failed").delete()
        assert not log_in(GOOD)

    def test_a_name_is_refused_after_failures_from_many_addresses(self, root: User) -> None:
        rows = [Login(username="root", address=f"198.51.100.{n}", outcome="failed") for n in range(MAX_FOR_NAME - 1)]
        Login.objects.bulk_create(rows)
        assert log_in(GOOD)
        Login.objects.create(username="Root", address="x", outcome="failed")
        assert not log_in(GOOD, address="192.0.2.9")

    def test_logins_and_changes_are_shown_and_cannot_be_edited(self, page: Client, root: User) -> None:
        log_in("wrong", username="<mallory>")
        worker = HandWorker()
        press(page, "slackwater_resources_node", worker.node.pk, "drain")
        assert LogEntry.objects.get().get_change_message() == "Draining, from active."
        text = page.get(reverse("admin:slackwater_monitoring_login_changelist")).content.decode()
        assert "&lt;mallory&gt;" in text
        assert "sw-failed" in text
        assert "Draining, from active." in page.get(reverse("admin:admin_logentry_changelist")).content.decode()
        for model in (Login, LogEntry):
            site = admin.site._registry[model]
            request = page.get("/admin/").wsgi_request
            may = (site.has_add_permission, site.has_change_permission, site.has_delete_permission)
            assert [one(request) for one in may] == [False] * 3
        assert (
            staff("slackwater_tasks.view_task").get(reverse("admin:slackwater_monitoring_login_changelist")).status_code
            == 403
        )

    def test_what_was_done_to_many_and_what_a_value_was_before_are_told(self, page: Client, tenant: Tenant) -> None:
        tasks = [submit(tenant) for _ in range(2)]
        act(page, "slackwater_tasks_task", "cancel", *tasks)
        press(page, "slackwater_tasks_task", tasks[0], "retry")
        limit = RateLimit.objects.create(tenant=tenant, starts=8, per_s=60)
        changed = reverse("admin:slackwater_tasks_ratelimit_change", args=[limit.pk])
        assert page.post(changed, {"starts": 1, "per_s": 60}).status_code == 302
        told = [(entry.object_repr, entry.get_change_message()) for entry in LogEntry.objects.order_by("pk")]
        assert told[0] == (f"2 of 2 tasks: {tasks[1]}, {tasks[0]}", "Cancel: because")
        assert [text for _, text in told[1:]] == ["Run again.", "Changed Starts from 8 to 1."]
        shown = page.get(reverse("admin:admin_logentry_changelist")).content.decode()
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", shown)

    def test_a_logout_is_recorded(self, page: Client) -> None:
        page.post(reverse("admin:logout"))
        assert outcomes() == ["succeeded", "left"]

    @pytest.mark.parametrize(
        ("proxies", "forwarded", "address"),
        [
            (0, "203.0.113.1", "192.0.2.1"),
            (1, "203.0.113.1", "203.0.113.1"),
            (1, "6.6.6.6, 203.0.113.1", "203.0.113.1"),
            (2, "6.6.6.6, 203.0.113.1, 10.0.0.1", "203.0.113.1"),
            (1, "", "192.0.2.1"),
        ],
    )
    def test_only_trusted_proxies_are_believed(self, proxies: int, forwarded: str, address: str, settings: Any) -> None:
        settings.SLACKWATER = {**settings.SLACKWATER, "TRUSTED_PROXIES": proxies}
        request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1", HTTP_X_FORWARDED_FOR=forwarded)
        assert address_of(request) == address


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("/healthz", content_security.NOTHING), ("/metrics", content_security.NOTHING),
        ("/api/v1/tasks", content_security.NOTHING),
        ("/api/schema/", content_security.NOTHING), ("/api/docs/errors", content_security.NOTHING),
        ("/api/docs/", content_security.REFERENCE),
        ("/admin/login/", content_security.ADMIN), ("/admin/", content_security.ADMIN), ("/nowhere", content_security.NOTHING),
    ],
)  # fmt: skip
def test_every_page_has_its_policy(path: str, policy: str) -> None:
    assert Client().get(path).headers[content_security.HEADER] == policy


def test_policies_are_as_strict_as_the_pages_allow() -> None:
    for policy in (content_security.NOTHING, content_security.REFERENCE, content_security.ADMIN):
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        scripts = [part for part in policy.split("; ") if part.startswith("script-src")]
        assert not [part for part in scripts if "unsafe-inline" in part or "*" in part or "http" in part]
    assert "unsafe-eval" not in content_security.REFERENCE
    assert "script-src" not in content_security.NOTHING


def test_the_apis_own_front_sends_the_policy_too() -> None:
    assert (b"content-security-policy", content_security.NOTHING.encode()) in _headers(HttpResponse())
    page = Client().get("/api/docs/").content.decode()
    assert "<script>" not in page  # what the page's policy would not run


def test_production_passes_djangos_checks_for_deployment() -> None:
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "slackwater.settings.production",
        "SLACKWATER_SECRET_KEY": "k9$" + "".join(chr(33 + n * 7 % 90) for n in range(60)),
        "SLACKWATER_ALLOWED_HOSTS": "slackwater.example.org",
    }
    run = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING", "--tag", "security",
         "--tag", "models", "--tag", "admin", "--tag", "urls", "--tag", "staticfiles", "--tag", "alerts"],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "no issues" in run.stdout + run.stderr
