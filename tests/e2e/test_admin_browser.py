"""The admin in a real browser: it moves by itself, its forms work, and it asks nobody but its own server."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.urls import reverse

from slackwater_dashboard import live
from slackwater_tasks.models import Task
from slackwater_tasks.submission import service
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER, forget_lookups, furnish
from tests.support.hand_worker import HandWorker

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.e2e,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
    pytest.mark.skipif(
        importlib.util.find_spec("playwright") is None,
        reason="playwright is not installed: make env-browser",
    ),
]


class Watched:
    """A page, and what went wrong on it."""

    def __init__(self, page: Any, base: str) -> None:
        self.page, self.base = page, base
        self.troubles: list[str] = []
        page.on("pageerror", lambda error: self.troubles.append(f"script: {error}"))
        page.on("request", self._note)
        page.on("console", self._heard)
        page.on("response", self._answered)

    def _heard(self, message: Any) -> None:
        if "Content Security Policy" in message.text or "Content-Security-Policy" in message.text:
            self.troubles.append(message.text)

    def _answered(self, answer: Any) -> None:
        if answer.status >= 400:
            self.troubles.append(f"{answer.status}: {answer.url}")

    def _note(self, request: Any) -> None:
        if urlsplit(request.url).scheme in ("http", "https") and not request.url.startswith(self.base):
            self.troubles.append(f"asked another server: {request.url}")

    def go(self, name: str, *args: Any) -> None:
        """Open a page of the admin."""
        self.page.goto(self.base + reverse(f"admin:{name}", args=args))


@pytest.fixture
def tenant(transactional_db: None) -> Iterator[Tenant]:
    """A client organisation; what this process remembers of another test's rows is dropped."""
    forget_lookups()
    live._memory = live._Memory()
    furnish()
    yield create_tenant("acme", "Acme", trusted=True)
    forget_lookups()
    live._memory = live._Memory()


@pytest.fixture
def browser(tenant: Tenant, live_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A browser with an administrator logged in through the page for it."""
    from playwright.sync_api import sync_playwright

    # Playwright's loop runs in this thread; the test asks the database between its steps, never inside them.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    # The server's threads end with the test, so they must not keep connections to the database that goes then.
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    User.objects.create_superuser("root", password="a-long-secret")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = chromium.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(20_000)
        watched = Watched(page, live_server.url)
        watched.go("login")
        page.fill("#id_username", "root")
        page.fill("#id_password", "a-long-secret")
        page.click("button[type=submit]")
        yield watched
        chromium.close()
        connections.close_all()  # while the loop runs Django keeps another connection than without


def submit(tenant: Tenant, **fields: Any) -> Any:
    """One task, submitted."""
    return service.submit(tenant, {"handler": HANDLER, **fields}, actor="test").task_ids[0]


def test_the_live_page_moves_by_itself(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    browser.go("index")
    waiting = page.locator("#sw-tiles .sw-tile", has_text="Waiting").locator("b")
    page.wait_for_function("document.querySelector('#sw-tiles b')?.textContent === '0'")
    page.evaluate("window.notReloaded = true")
    worker = HandWorker("node-9")
    running = submit(tenant)
    for _ in range(3):
        submit(tenant, tier="regular")
    worker.start(running)
    page.wait_for_function("document.querySelector('#sw-tiles b')?.textContent === '3'")
    page.wait_for_selector("#sw-nodes >> text=node-9")
    assert waiting.inner_text() == "3"
    assert page.locator("#sw-lines tbody tr").count() == 1
    assert "acme" in page.locator("#sw-tenants").inner_text()
    assert page.locator("#sw-throughput rect").count() >= 30
    assert page.evaluate("window.notReloaded")
    assert browser.troubles == []


def test_a_task_is_handed_in_and_cancelled(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    browser.go("slackwater_tasks_task_add")
    page.select_option("#id_tenant", str(tenant.pk), force=True)
    page.select_option("#id_handler", HANDLER, force=True)
    page.fill("#id_name", "from the browser")
    page.fill("#id_priority", "9999")
    page.click("button[name=_save]")
    page.wait_for_selector("text=priority: must be from 0 to 1000")
    assert not Task.objects.unscoped().exists()
    page.fill("#id_priority", "5")
    page.click("button[name=_save]")
    page.wait_for_selector("text=The task was accepted.")
    task = Task.objects.unscoped().get()
    assert (task.name, task.priority) == ("from the browser", 5)
    assert page.locator(".sw-head .sw-badge").first.inner_text() == "ready"
    page.click("text=Cancel >> nth=0")
    page.wait_for_selector(".sw-head .sw-badge.sw-cancelled")
    assert browser.troubles == []


def test_a_tasks_page_follows_it(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    tasks = [
        {"name": "parent", "handler": HANDLER},
        {"name": "child", "handler": HANDLER, "depends_on": ["parent"]},
    ]
    made = service.submit_workflow(tenant, {"name": "pair", "tasks": tasks}, actor="test")
    worker = HandWorker()
    started = worker.start(made.task_ids[0])
    browser.go("slackwater_tasks_task_change", made.task_ids[0])
    page.wait_for_selector(".sw-head .sw-badge.sw-running")
    worker.end(started, result='{"answer": 42}', logs="said by the task\n")
    page.wait_for_selector(".sw-head .sw-badge.sw-succeeded")
    page.wait_for_selector("text=said by the task")
    page.click("svg.sw-graph a:has-text('child')")
    page.wait_for_selector("h2:has-text('Timeline')")
    assert str(made.task_ids[1]) in page.url
    assert browser.troubles == []


def test_pages_hold_together_in_the_dark_and_on_a_phone(browser: Watched, tenant: Tenant) -> None:
    page = browser.page
    submit(tenant, name="a task with quite a long name that has to fit somewhere")
    page.set_viewport_size({"width": 390, "height": 800})
    for name in (
        "index",
        "slackwater_tasks_task_changelist",
        "slackwater_tasks_task_add",
        "slackwater_tenants_apikey_add",
    ):
        browser.go(name)
        page.wait_for_load_state("load")
        wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wider <= 0, f"{name} is {wider} px too wide for a phone"
    assert browser.troubles == []


def test_the_reference_page_and_every_kind_of_page_live_with_their_policies(browser: Watched, tenant: Tenant) -> None:
    task_id = submit(tenant, name="x")
    for name, args in (
        ("index", ()), ("slackwater_tasks_task_changelist", ()), ("slackwater_tasks_task_change", (task_id,)),
        ("slackwater_tasks_task_add", ()),
        ("slackwater_monitoring_alert_changelist", ()), ("auth_user_changelist", ()), ("slackwater_schedules_schedule_add", ()),
        ("sw_sizes", ()), ("sw_run_times", ()), ("password_change", ()),
    ):  # fmt: skip
        browser.go(name, *args)
        browser.page.wait_for_load_state("networkidle" if name != "index" else "load")
        # Alpine works: it has taken its marks off the page.
        assert browser.page.evaluate("typeof window.Alpine") == "object", name
    browser.page.goto(browser.base + "/api/docs/")
    browser.page.wait_for_selector(".opblock-tag")
    assert browser.troubles == []
    # What a page may not do, it cannot: a script that somebody got into it does not run.
    browser.go("index")
    browser.page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.broken = true";
        document.body.append(script);
    }""")
    assert browser.page.evaluate("window.broken === undefined")
    assert len(browser.troubles) == 1
