"""The browser's tests open every page that the addresses lead to: none is left out, and none is asked for in vain."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client

from slackwater_console.urls import urlpatterns
from slackwater_resources.models import Handler
from slackwater_tenants.models import Tenant
from tests.e2e.test_admin_pages import APPS
from tests.support.console import browser_of
from tests.support.pages import SITE, Shown, admin_pages, console_pages
from tests.support.showcase import furnish_everything

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


def test_every_table_is_among_them() -> None:
    known = [name for apps in APPS for name in apps]
    assert {SITE, *(model._meta.app_label for model in admin.site._registry)} == set(known)


KEPT = re.compile(r"<(pre|textarea|script|style|code|option)\b.*?</\1>", re.DOTALL)
"""Where something stands as it is: results and output, what is typed, and what no person reads."""
RAW = re.compile(r"‰|permille|\b\w+_us\b")
"""Codes and units of machines."""
NONE = re.compile(r">\s*None\s*<")
JSON = re.compile(r"\{(&quot;|\")|\[(&quot;|\")")


def raw(text: str) -> list[str]:
    """What a page says that is not for people; how JSON is typed is told where it is typed."""
    said = re.sub(r"<[^>]+>", " ", KEPT.sub(" ", text))
    found = [*RAW.finditer(said), *(() if "<textarea" in text else JSON.finditer(said))]
    told = [said[max(0, each.start() - 60) : each.end() + 60] for each in found]
    return [" ".join(each.split()) for each in [*told, *NONE.findall(text)]]


def opened(client: Client, page: Shown) -> int:
    """What the page answers with."""
    client = Client() if page.anonymous else client
    asked = (
        client.get(page.address, follow=page.anonymous)
        if page.posted is None
        else client.post(page.address, dict(page.posted))
    )
    found = [each for each in raw(asked.text) if '{"$param": NAME}' not in each]  # which tells how one is written
    assert not found, (page.name, found)
    return asked.status_code if "<html" in asked.text else 0


def test_pages_of_the_admin_are_found_by_their_addresses(tenant: Tenant) -> None:
    root = User.objects.create_superuser("root", password="a-long-secret")
    client = Client()
    client.force_login(root)
    furnish_everything(tenant)
    pages = list(admin_pages([name for apps in APPS for name in apps]))
    names = {page.name for page in pages}
    assert len(names) == len(pages)
    wanted = {
        "index", "login", "logout", "sw_sizes", "password_change", "password_change_done", "app-auth",
        "slackwater_tasks_task_changelist", "slackwater_tasks_task_add", "slackwater_tasks_task_history",
        "slackwater_tasks_task_edit", "slackwater_tasks_task-action-cancel", "slackwater_tasks_workflow-do-terminate",
        "slackwater_tasks_deadletter_groups", "sw_workflow_runs", "sw_workflow_output", "sw_output", "sw_schedule_runs",
        "auth_user_password_change", "slackwater_schedules_schedule_delete", "auth_group-action-delete_selected",
    }  # fmt: skip
    assert wanted <= names, wanted - names
    found = {page.name: opened(client, page) for page in pages}
    assert {name: code for name, code in found.items() if code != 200} == {}


def test_pages_of_the_console_are_found_by_their_addresses(tenant: Tenant) -> None:
    User.objects.create_superuser("root", password="a-long-secret")
    furnish_everything(tenant)
    Handler.objects.create(name="mail.letter")
    ann = browser_of(tenant, "owner", "ann")
    pages = list(console_pages(ann, tenant))
    names = {page.name for page in pages}
    gets = {str(pattern.name) for pattern in urlpatterns if not str(pattern.name).endswith(("_mark", "_output"))}
    assert {"tasks", "task", "submit", "login", "password_new", "rotate_key", "rotate_webhook", "invite"} <= names & {
        *gets
    }
    found = {page.name: opened(ann, page) for page in pages}
    assert {name: code for name, code in found.items() if code != 200} == {"not found": 404}
