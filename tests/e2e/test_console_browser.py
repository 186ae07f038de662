"""The console in a real browser: somebody logs in, watches a task, cancels another, and every page fits and is accessible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from slackwater_monitoring.models import Subscription
from slackwater_resources.models import Handler
from slackwater_schedules.models import Schedule
from slackwater_tasks.models import Task, Workflow
from slackwater_tenants.models import Membership, Tenant
from tests.e2e.test_admin_pages import faults
from tests.support.admin import submit
from tests.support.browser import NEEDS, Watched
from tests.support.console import PASSWORD, member
from tests.support.hand_worker import HandWorker
from tests.support.showcase import furnish_everything

pytestmark = [*NEEDS, pytest.mark.timeout(1_800)]
SCHEMA = {
    "type": "object", "required": ["to"], "additionalProperties": False,
    "properties": {
        "to": {"type": "string"}, "copies": {"type": "integer", "minimum": 1}, "draft": {"type": "boolean"},
        "kind": {"enum": ["letter", "postcard"]}, "more": {"type": "object"},
    },
}  # fmt: skip
LISTS = ("tasks", "submit", "workflows", "schedules", "dead-letters", "usage", "limits", "webhooks", "keys", "members")


def addresses(tenant: Tenant) -> Iterator[str]:
    """Every page of the tenant's, below its own address."""
    yield from (f"{name}/" for name in LISTS)
    yield "../password/"
    for name in ("monthly report", "invoice 0", "mail 1", "mail 2"):
        yield f"tasks/{Task.objects.unscoped().get(name=name, tenant=tenant).pk}/"
    yield "submit/mail.letter/"
    yield f"members/{Membership.objects.filter(tenant=tenant).latest('id').public_id}/"
    for name, model in (("workflows", Workflow), ("schedules", Schedule), ("webhooks", Subscription)):
        rows: Any = model
        yield f"{name}/{rows.objects.unscoped().filter(tenant=tenant).first().pk}/"


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
    for address in list(addresses(tenant)):
        page.goto(base + address)
        page.wait_for_load_state("load")
        found += faults(browser, f"console-{address.strip('./').replace('/', '-')}")
        found += [f"{address}: {trouble}" for trouble in browser.troubles]
        browser.troubles.clear()
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
