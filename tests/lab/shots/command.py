"""``make docs-shots``: starts a platform, lets it work for a while, and takes the pictures of ``docs/tour.md``."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import secrets
import shutil
import subprocess
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from slackwater import Client
from slackwater.client import LimitExceeded
from slackwater.client.bodies import TaskIn
from tests.lab.attack import ground
from tests.lab.site.staging import ROOT
from tests.support.processes import manage

FOLDER: Final = ROOT / "docs" / "images"
WAVE_S: Final = 3
PASSWORD: Final = secrets.token_urlsafe(12)
WINDOW: Final[Any] = {"width": 1280, "height": 860}
WORKFLOW: Final[list[TaskIn]] = [
    {"name": "orders", "handler": "demo.sleep", "args": [1.5]},
    {"name": "customers", "handler": "demo.sleep", "args": [2.5]},
    {"name": "rates", "handler": "demo.sleep", "args": [0.4]},
    {"name": "clean orders", "handler": "demo.sleep", "args": [2], "depends_on": ["orders"]},
    {"name": "join", "handler": "demo.sleep", "args": [1], "depends_on": ["clean orders", "customers", "rates"]},
    {"name": "report", "handler": "demo.sleep", "args": [300], "depends_on": ["join"]},
    {"name": "mail it", "handler": "demo.echo", "depends_on": ["report"]},
]
SCRIPT: Final = """#!/bin/sh
for n in $(seq 600); do
    echo "page $n of 600 is written"
    [ $((n % 4)) = 0 ] && echo "page $n has no picture" >&2
    sleep 0.5
done
"""
MEMBER: Final = """
from django.contrib.auth.models import User
from slackwater_tenants.models import Membership, Tenant
user = User.objects.create_user("ann", password="{password}")
Membership.objects.create(user=user, tenant=Tenant.objects.get(slug="demo"), role="owner")
"""
"""Somebody who logs in to the console; over REST one is made without a password."""


class Command(BaseCommand):
    help = "Take the pictures of the documents anew, of a platform that is started for it; needs Chromium."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """How long it works before the pictures."""
        parser.add_argument("--minutes", type=float, default=4.0, help="how long work comes in before (4)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Start, fill, look."""
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if chromium is None:
            raise CommandError("no Chromium on this machine: apt-get install chromium")
        logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for each of hundreds of submissions
        with ground.platform() as made:
            shown = _work(made, options["minutes"] * 60)
            for name in _pictures(made, chromium, shown):
                self.stdout.write(f"docs/images/{name}.png")


def _clients(made: ground.Ground) -> Iterator[Client]:
    for name in ("demo.env", "demo-free.env"):
        lines = (made.var / name).read_text().splitlines()
        given = dict(line.split("=", 1) for line in lines if line.startswith("SLACKWATER_"))
        yield Client(given["SLACKWATER_URL"], given["SLACKWATER_KEY"])


def wave_of(wave: int) -> tuple[list[TaskIn], list[TaskIn]]:
    """What the two tenants submit in one wave; the second has the plan free, whose burst is fifty tasks."""
    large: list[TaskIn] = [
        {"handler": "demo.sleep", "args": [0.1 + 0.15 * (n % 5)], "name": f"invoice {wave}-{n}"}
        for n in range(4 + 8 * (wave % 4 == 0))
    ]
    large.append({"handler": "demo.add", "args": [wave, 2], "name": "price", "category": "urgent"})
    small: list[TaskIn] = []
    if wave % 2 == 0:
        small.append({"handler": "demo.spin", "args": [0.3], "name": f"thumbnail {wave}"})
    if wave % 8 == 0:
        gone: TaskIn = {"handler": "demo.fail", "args": ["the address is gone"], "name": f"mail {wave}"}
        small.append({**gone, "total_attempts": 1})
    return large, small


def _work(made: ground.Ground, seconds: float) -> dict[str, str]:
    """Work of two tenants, in waves, some of it failing; returns what is shown: a workflow, a script, what waits."""
    large, small = _clients(made)
    ends, wave = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        wave += 1
        for client, tasks in zip((large, small), wave_of(wave), strict=True):
            for task in tasks:
                with contextlib.suppress(LimitExceeded):  # who works longer than the plan free allows is refused
                    client.submit(**task)
        time.sleep(WAVE_S)
    made_of = large.submit_workflow(WORKFLOW, name="nightly report")
    stored = large.store_script("book.sh", SCRIPT)
    script = large.submit(script=stored["sha256"], name="print the book")
    large.submit("demo.sleep", args=[300], name="yearly report")
    waits = large.submit("demo.sleep", args=[1], name="letter to the board")
    time.sleep(20)  # its first tasks have ended, the report runs, and the last figures are in
    return {"workflow": str(made_of["id"]), "task": str(script["id"]), "why": str(waits["id"])}


def _pictures(made: ground.Ground, chromium: str, shown: dict[str, str]) -> Iterator[str]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--disable-gpu"])
        page = browser.new_page(viewport=WINDOW, color_scheme="light")
        _log_in(page, f"{made.url}/admin/", "admin", _password(made))
        task = "slackwater_tasks/task/{}/change/"
        for name, path, ready in (
            ("live", "#window=5min&by=tenant", "#sw-charts[data-shown='5min tenant']"),
            ("workflow", f"slackwater_tasks/workflow/{shown['workflow']}/change/", "#sw-flow-graph canvas"),
            ("task", task.format(shown["task"]), "text=is written"),
            ("why", task.format(shown["why"]), ".sw-chain"),
        ):
            page.goto(f"{made.url}/admin/{path}")
            page.wait_for_selector(ready)
            if name == "task":
                page.locator("text=is written").first.scroll_into_view_if_needed()
            page.wait_for_timeout(1_500)
            _keep(name, page.screenshot())
            yield name
        page.context.clear_cookies()
        _member(made)
        _log_in(page, f"{made.url}/console/", "ann", PASSWORD)
        page.wait_for_selector("text=letter to the board")
        _keep("console", page.screenshot())
        yield "console"
        browser.close()


def _log_in(page: Any, address: str, name: str, password: str) -> None:
    page.goto(address)
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.click("form:has(#id_password) button[type=submit]")


def _member(made: ground.Ground) -> None:
    done = subprocess.run(
        manage("shell", "--no-imports", "-c", MEMBER.format(password=PASSWORD)), check=False, capture_output=True, text=True,
        env={**os.environ, "SLACKWATER_VAR": str(made.var)},
    )  # fmt: skip
    if done.returncode:
        raise CommandError(done.stderr)


def _password(made: ground.Ground) -> str:
    found = re.search(r"shown this once: name admin, password (\S+)", made.printed)
    if found is None:
        raise CommandError("up has not told the administrator's password")
    return found[1]


def _keep(name: str, picture: bytes) -> None:
    """With 128 colours it looks the same and is a third of the size."""
    from PIL import Image

    FOLDER.mkdir(exist_ok=True)
    with Image.open(io.BytesIO(picture)) as found:
        found.convert("RGB").quantize(128).save(Path(FOLDER) / f"{name}.png", optimize=True)
