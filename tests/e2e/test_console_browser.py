"""The console in a real browser: somebody logs in, watches a task, cancels another, and every page fits and is accessible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from slackwater_console.views.login import BACKEND
from slackwater_resources.models import Handler
from slackwater_tasks.models import Task
from slackwater_tenants.models import Tenant
from tests.e2e.test_admin_pages import faults, looked_at
from tests.support.admin import submit
from tests.support.browser import NEEDS, Watched
from tests.support.console import PASSWORD, member
from tests.support.hand_worker import HandWorker
from tests.support.pages import Shown, console_pages
from tests.support.showcase import furnish_everything

pytestmark = [*NEEDS, pytest.mark.timeout(1_800)]
SCHEMA = {
    "type": "object", "required": ["to"], "additionalProperties": False,
    "properties": {
        "to": {"type": "string"}, "copies": {"type": "integer", "minimum": 1}, "draft": {"type": "boolean"},
        "kind": {"enum": ["letter", "postcard"]}, "more": {"type": "object"},
    },
}  # fmt: skip


def tasks_pages(tenant: Tenant) -> Iterator[Shown]:
    """Tasks in several states."""
    for name in ("monthly report", "invoice 0", "mail 1", "mail 2"):
        task = Task.objects.unscoped().get(name=name, tenant=tenant)
        yield Shown(name=f"console {name}", address=reverse("console:task", args=[tenant.slug, task.pk]))


def log_in(browser: Watched, tenant: Tenant) -> Any:
    """Come in as an admin of the tenant, through the page for it; what is wrong with that page."""
    ann = member(tenant, "owner", "ann")
    ann.set_password(PASSWORD)
    ann.save()
    page = browser.page
    page.context.clear_cookies()
    page.goto(f"{browser.base}/console/")
    found = [*faults(browser, "console-login")]
    page.set_viewport_size({"width": 1440, "height": 900})
    page.fill("#id_username", "ann")
    page.fill("#id_password", PASSWORD)
    page.click("button:text-is('Log in')")
    page.wait_for_selector("text=ann, admin")
    return found


def test_the_console_fits_is_accessible_and_works(browser: Watched, tenant: Tenant) -> None:
    page, base = browser.page, f"{browser.base}/console/{tenant.slug}/"
    furnish_everything(tenant)
    Handler.objects.create(name="mail.letter", schema=SCHEMA, description="Send a letter.")
    found = log_in(browser, tenant)
    ann = Client()
    ann.force_login(User.objects.get(username="ann"), backend=BACKEND)
    pages = [*console_pages(ann, tenant), *tasks_pages(tenant)]
    found += looked_at(browser, pages, f"/console/{tenant.slug}/tasks/", expected=("not found", "password_new"))
    assert not found, "\n".join(found)
    page.set_viewport_size({"width": 1440, "height": 900})
    worker = HandWorker("node-8")
    begun = worker.start(submit(tenant, name="followed"))
    page.goto(f"{base}tasks/{begun[0].task_id}/")
    page.wait_for_selector(".sw-head .sw-running")
    worker.end(begun, result='{"answer": 42}', logs="said by the task\n")
    page.wait_for_selector(".sw-head .sw-succeeded")
    page.wait_for_selector("text=said by the task")
    waits = submit(tenant, name="to be cancelled")
    page.goto(f"{base}tasks/{waits}/")
    page.fill("[name=reason]", "the order was withdrawn")
    page.click("button:text-is('Cancel')")
    page.wait_for_selector("text=The task was cancelled")
    page.wait_for_selector("text=cancelled on request: the order was withdrawn")
    page.goto(f"{base}submit/mail.letter/")
    page.fill("[name='arg.to']", "a@example.org")
    page.click("button:text-is('Submit')")
    page.wait_for_selector("text=The task was accepted.")
    page.goto(f"{base}keys/")
    page.fill("#id_name", "ci")
    page.click("button:text-is('Make')")
    assert page.inner_text("#secret").startswith("sw_")
    dark = page.evaluate("document.documentElement.classList.contains('dark')")
    page.click("#co-theme")
    page.reload()
    assert page.evaluate("document.documentElement.classList.contains('dark')") is not dark
    assert browser.troubles == []
