"""Every page of the admin in a real browser: none wider than its window, none with an error, all accessible."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from slackwater_tasks.models import Task
from slackwater_tenants.models import Tenant
from tests.support.browser import NEEDS, Watched
from tests.support.showcase import furnish_everything

pytestmark = [*NEEDS, pytest.mark.timeout(1_800)]
APPS = (
    ("slackwater_tasks",), ("slackwater_tenants", "slackwater_schedules"), ("slackwater_monitoring", "slackwater_resources"),
    ("auth", "admin", "django_celery_beat"),
)  # fmt: skip
WINDOWS = ((1280, 800), (1440, 900), (390, 844))
ACCESSIBLE = {(1280, "light"), (1280, "dark"), (390, "light")}
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
    const wide = document.documentElement.scrollWidth - window.innerWidth;
    return [...out.map((n) => `${n.tagName}#${n.id} ends at ${n.getBoundingClientRect().right} of ${room}`),
            ...(wide > 0 ? [`page ${wide} px too wide`] : [])];
}"""
AXE = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .filter((found) => ["serious", "critical"].includes(found.impact))
    .map((found) => `${found.id}: ` + found.nodes.slice(0, 3)
        .map((node) => `${node.target} ${node.failureSummary.split("\\n")[1] || ""}`).join(" | "))"""


def addresses(apps: Collection[str]) -> Iterator[tuple[str, str]]:
    """A name and the address of each page of these apps' tables: the list, the form to add, a row, how it is deleted."""
    client = Client()
    client.force_login(User.objects.get(username="root"))
    for model, shown in admin.site._registry.items():
        if model._meta.app_label not in apps:
            continue
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        response = client.get(listed := reverse(f"admin:{name}_changelist"))
        yield f"{name}-list", listed
        if shown.has_add_permission(response.wsgi_request):
            yield f"{name}-add", reverse(f"admin:{name}_add")
        row = shown.get_queryset(response.wsgi_request).first()
        assert row is not None, f"the showcase has no {name}"
        yield f"{name}-change", reverse(f"admin:{name}_change", args=[row.pk])
        if shown.has_delete_permission(response.wsgi_request, row):
            yield f"{name}-delete", reverse(f"admin:{name}_delete", args=[row.pk])


def own_addresses() -> Iterator[tuple[str, str]]:
    """The pages that are of no table, and tasks in several states."""
    for name in ("index", "sw_run_times", "sw_sizes", "password_change"):
        yield name, reverse(f"admin:{name}")
    for task in Task.objects.unscoped().filter(name__in=["monthly report", "invoice 0", "mail 1", "load", "mail 2"]):
        yield f"task {task.name}", reverse("admin:slackwater_tasks_task_change", args=[task.pk])
    for task in Task.objects.unscoped().filter(name="mail 1"):
        yield "task-edit", reverse("admin:slackwater_tasks_task_edit", args=[task.pk])


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
            if (width, theme) in ACCESSIBLE:
                yield from (f"{where}: {fault}" for fault in page.evaluate(AXE))
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{theme}.png", full_page=True)


@pytest.mark.parametrize("apps", [*APPS, ()], ids=lambda apps: apps[0] if apps else "own")
def test_every_page_fits_its_window_and_is_accessible(browser: Watched, tenant: Tenant, apps: tuple[str, ...]) -> None:
    furnish_everything(tenant)
    found: list[str] = []
    for name, address in list(addresses(apps) if apps else own_addresses()):
        browser.page.goto(browser.base + address)
        browser.page.wait_for_load_state("load")
        if name == "index":
            browser.page.wait_for_selector("#sw-components table")
        found += faults(browser, name)
        found += [f"{name}: {trouble}" for trouble in browser.troubles]
        browser.troubles.clear()
    assert not found, "\n".join(found)


def test_every_table_is_among_them() -> None:
    assert {model._meta.app_label for model in admin.site._registry} == {name for apps in APPS for name in apps}
