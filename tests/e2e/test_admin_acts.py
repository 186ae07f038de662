"""Acts of an operator in a real browser: on everything that matches, undone, on groups of dead letters, previewed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler_ext.core.states import Outcome
from slackwater_tasks.control import bulk_operations as bulk
from slackwater_tasks.models import BulkOperation, DeadLetter, LiveTask, RunTime
from slackwater_tenants.models import Plan, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.admin import submit
from tests.support.api import HANDLER
from tests.support.browser import NEEDS, Watched
from tests.support.hand_worker import HandWorker

pytestmark = [*NEEDS, pytest.mark.timeout(600)]
PICTURES = os.environ.get("SLACKWATER_TEST_PICTURES")


def picture(browser: Watched, name: str) -> None:
    """Pictures of the page in two widths and themes, where somebody wants to look at them."""
    if not PICTURES:
        return
    for width in (1440, 390):
        browser.page.set_viewport_size({"width": width, "height": 900})
        for theme in ("light", "dark"):
            browser.page.evaluate("(on) => document.documentElement.classList.toggle('dark', on)", theme == "dark")
            browser.page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{theme}.png", full_page=True)
    browser.page.evaluate("() => document.documentElement.classList.remove('dark')")
    browser.page.set_viewport_size({"width": 1440, "height": 900})


def test_everything_that_matches_is_cancelled_and_a_pause_undone(browser: Watched, tenant: Tenant) -> None:
    for n in range(60):  # more than a page of the list
        submit(tenant, name=f"mail {n}")
    page = browser.page
    browser.go("slackwater_tasks_task_changelist")
    page.click("#action-toggle")
    page.get_by_text("Select all 60").click()
    page.select_option("select[name=action]", "cancel")
    page.click("button[name=index]")
    assert "ready 60" in page.inner_text("#confirm")
    picture(browser, "confirm")
    page.fill("#reason", "the release was withdrawn")
    page.click("#confirm button[type=submit]")
    page.wait_for_selector("text=0 of 60")
    picture(browser, "operation")
    while bulk.advance():
        pass
    page.wait_for_selector("text=60 of 60")  # by itself
    page.wait_for_selector("#sw-task[data-final=yes]")
    picture(browser, "operation-done")
    assert BulkOperation.objects.get().status == "done"
    assert not LiveTask.objects.unscoped().exists()

    browser.go("slackwater_tenants_tenant_change", tenant.pk)
    page.fill("[name=reason]", "too loud")
    page.get_by_role("button", name="Pause").click()
    page.wait_for_selector(".sw-undo")
    picture(browser, "paused")
    page.click(".sw-undo button")
    page.wait_for_selector("text=1 resumed")
    assert not Tenant.objects.get(pk=tenant.pk).paused
    browser.go("admin_logentry_changelist")
    picture(browser, "audit")
    assert page.get_by_text("Cancel 60 tasks, from ready 60 to cancelled: the release was withdrawn").count()
    assert not browser.troubles


def test_dead_letters_of_one_error_are_requeued_a_few_first(browser: Watched, tenant: Tenant) -> None:
    worker = HandWorker()
    for n in range(7):
        worker.run(submit(tenant, total_attempts=1), outcome=Outcome.FAILED, error=f"ValueError: no order {n}")
    page = browser.page
    browser.go("slackwater_tasks_deadletter_changelist")
    page.get_by_role("link", name="By handler and error").click()
    page.wait_for_selector("text=ValueError: no order #")
    picture(browser, "groups")
    page.fill("[name=reason]", "mended")
    page.get_by_role("button", name="Requeue 5, then the rest if they succeed").click()
    page.wait_for_selector("text=0 of 7")
    bulk.advance()
    bulk.advance()
    page.wait_for_selector("text=waits for the first 5: 0 succeeded so far")
    assert DeadLetter.objects.unscoped().count() == 2
    assert not browser.troubles


def test_a_weight_is_tried_on_the_last_hour_before_it_is_saved(browser: Watched, tenant: Tenant) -> None:
    other = create_tenant("globex", "Globex", Plan.objects.create(slug="small", name="Small").slug)
    HandWorker()
    for each in (tenant, other):
        RunTime.objects.create(tenant=each, key=HANDLER, samples=40, mean_us=3e6, long_us=9e6)
        for _ in range(40):
            submit(each)
    page = browser.page
    browser.go("slackwater_tenants_plan_change", tenant.plan_id)
    page.fill("#id_weight", "20")
    page.get_by_role("button", name="Preview").click()
    page.wait_for_selector("#sw-preview table")
    assert "shorter" in page.inner_text("#sw-preview tr:has-text('acme')")
    assert "longer" in page.inner_text("#sw-preview tr:has-text('globex')")
    page.locator("#sw-preview").scroll_into_view_if_needed()
    picture(browser, "preview")
    assert Plan.objects.get(pk=tenant.plan_id).weight == 1
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/plan/")
    assert Plan.objects.get(pk=tenant.plan_id).weight == 20
    assert not browser.troubles
