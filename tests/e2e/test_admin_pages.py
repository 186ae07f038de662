"""Every page of the admin in a real browser: none wider than its window, none with an error, all accessible."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from slackwater_tasks.models import Task
from slackwater_tenants.models import Tenant
from tests.support.browser import NEEDS, Watched
from tests.support.figures import tell
from tests.support.pages import SITE, Shown, admin_pages
from tests.support.showcase import furnish_everything

pytestmark = [*NEEDS, pytest.mark.timeout(1_800)]
APPS = (
    ("slackwater_tasks",), ("slackwater_tenants", "slackwater_schedules"), ("slackwater_monitoring", "slackwater_resources"),
    ("auth", "admin"), ("django_celery_beat",), (SITE,),
)  # fmt: skip
WINDOWS = ((1280, 800), (1440, 900), (390, 844))
PICTURES = os.environ.get("SLACKWATER_TEST_PICTURES")
"""Where a picture of each page goes, for somebody to look at."""
WIDER = """() => {
    const room = document.documentElement.clientWidth;
    const inside = (node) => {
        for (let up = node.parentElement; up; up = up.parentElement)
            if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(up).overflowX)) return true;
        return false;
    };
    const out = [...document.querySelectorAll("form, table, input, select, textarea, fieldset")].filter((node) => {
        const box = node.getBoundingClientRect();
        return box.width && box.right > room + 1 && !inside(node);
    });
    for (const node of document.querySelectorAll("input[type=radio], input[type=checkbox]"))
        if (node.getBoundingClientRect().width > 60) out.push(node); // its words stand beside it
    const wide = document.documentElement.scrollWidth - window.innerWidth;
    return [...out.map((n) => `${n.tagName}#${n.id} ends at ${n.getBoundingClientRect().right} of ${room}`),
            ...(wide > 0 ? [`page ${wide} px too wide`] : [])];
}"""
AXE = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .filter((found) => ["serious", "critical"].includes(found.impact))
    .map((found) => `${found.id}: ` + found.nodes.slice(0, 3)
        .map((node) => `${node.target} ${node.failureSummary.split("\\n")[1] || ""}`).join(" | "))"""
POST = """([address, fields]) => {
    const form = Object.assign(document.createElement("form"), {method: "post", action: address});
    const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
    for (const [name, value] of [...fields, ["csrfmiddlewaretoken", token]])
        form.append(Object.assign(document.createElement("input"), {type: "hidden", name, value}));
    document.body.append(form);
    form.submit();
}"""


def tasks_pages() -> Iterator[Shown]:
    """Tasks in several states."""
    for task in Task.objects.unscoped().filter(name__in=["monthly report", "invoice 0", "mail 1", "load", "mail 2"]):
        yield Shown(name=f"task {task.name}", address=reverse("admin:slackwater_tasks_task_change", args=[task.pk]))


def go_to(browser: Watched, shown: Shown, form: str) -> None:
    """Open a page, or post to it what leads there, from the page ``form``."""
    if shown.posted is None:
        browser.page.goto(browser.base + shown.address)
    else:
        browser.page.goto(browser.base + form)
        with browser.page.expect_navigation():
            browser.page.evaluate(POST, [shown.address, [list(pair) for pair in shown.posted]])
    browser.page.wait_for_load_state("load")


def looked_at(browser: Watched, pages: Sequence[Shown], form: str, expected: Collection[str] = ()) -> list[str]:
    """What is wrong with these pages; those of nobody are opened by nobody. ``expected``: troubles that some have."""
    found: list[str] = []
    nobody = Watched(browser.page.context.browser.new_context().new_page(), browser.base)
    for shown in pages:
        who = nobody if shown.anonymous else browser
        go_to(who, shown, form)
        if shown.name == "index":
            who.page.wait_for_selector("#sw-components table")
        found += faults(who, shown.name)
        found += [f"{shown.name}: {trouble}" for trouble in who.troubles if shown.name not in expected]
        who.troubles.clear()
    where = form.strip("/").partition("/")[0]
    tell("axe", where=where, pages=len(pages), looks=len(pages) * len(WINDOWS) * 2, faults=len(found))
    return found


def faults(browser: Watched, name: str) -> Iterator[str]:
    """What is wrong with the page that is open, in all windows and both themes."""
    from axe_playwright_python.sync_playwright import Axe

    page: Any = browser.page
    page.evaluate(Axe().axe_script)
    for width, height in WINDOWS:
        page.set_viewport_size({"width": width, "height": height})
        for theme in ("light", "dark"):
            page.evaluate("(dark) => document.documentElement.classList.toggle('dark', dark)", theme == "dark")
            where = f"{name} at {width} px, {theme}"
            yield from (f"{where}: {fault}" for fault in page.evaluate(WIDER))
            yield from (f"{where}: {fault}" for fault in page.evaluate(AXE))
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{theme}.png", full_page=True)


@pytest.mark.parametrize("apps", APPS, ids=lambda apps: apps[0] or "site")
def test_every_page_fits_its_window_and_is_accessible(browser: Watched, tenant: Tenant, apps: tuple[str, ...]) -> None:
    furnish_everything(tenant)
    pages = [*admin_pages(apps), *(tasks_pages() if "slackwater_tasks" in apps else ())]
    assert len({page.name for page in pages}) == len(pages)
    found = looked_at(browser, pages, reverse("admin:index"))
    assert not found, "\n".join(found)
