"""A real browser for tests of pages: an administrator in it, and everything that goes wrong on a page."""

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

from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import furnish

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

NEEDS = [
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
        if message.type == "error":  # breaches of the content security policy too
            self.troubles.append(f"console: {message.text}")

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
def tenant(transactional_db: None) -> Tenant:
    """A client organisation."""
    furnish()
    return create_tenant("acme", "Acme", trusted=True)


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
        # Far from UTC, which all pages tell: a script that tells the reader's own time is seen.
        page = chromium.new_page(viewport={"width": 1440, "height": 900}, timezone_id="Asia/Kolkata")
        page.set_default_timeout(20_000)
        watched = Watched(page, live_server.url)
        watched.go("login")
        page.fill("#id_username", "root")
        page.fill("#id_password", "a-long-secret")
        page.click("button[type=submit]")
        yield watched
        chromium.close()
        connections.close_all()  # while the loop runs Django keeps another connection than without
