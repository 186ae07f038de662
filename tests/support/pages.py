"""Every page of the admin and of the console, found in the addresses that there are: a new page cannot be left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.test import Client
from django.urls import URLPattern, URLResolver, reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from slackwater_console import urls as console
from slackwater_console.acts import ACTS
from slackwater_dashboard.models import SavedView
from slackwater_monitoring.models import Delivery, Subscription
from slackwater_schedules.models import Schedule
from slackwater_tasks.models import Task, Workflow
from slackwater_tenants.models import ApiKey, Membership, Tenant

SITE: Final = ""
"""Instead of an app's name: the admin's pages that are of no table."""
ELSEWHERE: Final = {
    "admin:view_on_site": "leads to another site's page, and no row has one",
    "admin:autocomplete": "asked by a field, with what was typed: JSON",
    "admin:": "whatever is not there: leads to the address with a slash, or is not found",
    "console:oidc": "leads to the provider, where one is set",
    "console:rotate_key_slowly": "answers with the page of rotate_key, which has replaced the key by then",
    "console:oidc_callback": "the provider leads here, and it leads on",
}
"""Addresses that cannot be asked for as the others are, each with what it does."""

AT_ONCE: Final = frozenset({"enable_tasks", "disable_tasks", "toggle_tasks", "run_tasks"})
"""Actions of celery-beat's own list: no page asks before them."""
ONLY_POSTED: Final = {
    "sw_views": "", "sw_schedule_firings": "", "slackwater_tenants_plan_preview": "", "slackwater_tenants_plan_preview_add": "",
    "slackwater_tasks_policychoice_preview": "", "slackwater_tasks_policychoice_preview_add": "",
    "slackwater_tenants_pool_preview": "", "slackwater_tenants_pool_preview_add": "",
    "slackwater_tenants_tenant_preview": "", "slackwater_tenants_tenant_preview_add": "",
    "firings": "", "invite": "a page",
}  # fmt: skip
"""Addresses to which something is only posted: whether a page answers, or a part of one or an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One page: its address, or what is posted there."""

    name: str
    address: str
    posted: tuple[tuple[str, str], ...] | None = None
    anonymous: bool = False
    """It is read by who is not logged in."""


def is_page(response: Any, name: str) -> bool:
    """Whether the answer is a whole page; a refusal and an error are a fault of who asked."""
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    assert response.status_code in (200, 302, 405), f"{name}: {response.status_code}"
    assert response.status_code != 405 or name in ONLY_POSTED, f"{name} is only posted to: does a page answer?"
    if response.status_code != 200 or kind != "text/html" or response.streaming:
        return False
    return "<html" in response.text


def administrator() -> Client:
    """The browser of the one who may do everything."""
    client = Client()
    client.force_login(User.objects.get(username="root"))
    return client


def admin_pages(apps: Collection[str]) -> Iterator[Shown]:
    """The pages of these apps' tables, for the rows that the showcase has."""
    client = administrator()
    for model, shown in admin.site._registry.items():
        if model._meta.app_label in apps:
            yield from _pages_of(client, model, shown)
    if SITE in apps:
        yield from _site_pages(client)


def _pages_of(client: Client, model: Any, shown: Any) -> Iterator[Shown]:
    label = f"{model._meta.app_label}_{model._meta.model_name}"
    listed = reverse(f"admin:{label}_changelist")
    request = client.get(listed).wsgi_request
    rows = list(shown.get_queryset(request)[:30])
    assert rows, f"the showcase has no {label}"
    refused = {
        f"{label}_add": not shown.has_add_permission(request),
        f"{label}_delete": not shown.has_delete_permission(request, rows[0]),
        f"{label}_password_change": False,
    }
    for pattern in shown.get_urls():
        name = pattern.name or ""
        parameters = list(pattern.pattern.converters) or list(getattr(pattern.pattern.regex, "groupindex", ()))
        if not name or name.endswith("_do") or refused.get(name):
            continue
        asked = [_value(parameter, rows[0]) for parameter in parameters]
        address = reverse(f"admin:{name}", args=asked)
        if is_page(client.get(address), name):
            yield Shown(name=name, address=address)
    for name, button in getattr(shown, "buttons", {}).items():
        row = next((each for each in rows if button.when(each)), None)
        # What a workflow that still goes on refuses: its page is opened where workflows are tested.
        if row is not None and name != "rerun-from":
            address = reverse(f"admin:{shown.press_url_name()}", args=[row.pk, name])
            yield Shown(name=f"{label}-do-{name}", address=address, posted=(("ask", "1"),))
    for name in shown.get_actions(request).keys() - AT_ONCE:
        posted = (("action", name), ("_selected_action", str(rows[0].pk)))
        yield Shown(name=f"{label}-action-{name}", address=listed, posted=posted)


def _value(parameter: str, row: Any) -> Any:
    assert parameter in ("object_id", "id", "artifact_id"), (
        f"no example of {parameter}: tests/support/pages.py needs one"
    )
    return row.pk


def _site_pages(client: Client) -> Iterator[Shown]:
    view, _ = SavedView.objects.get_or_create(owner="root", page="slackwater_tasks.task", name="all")
    examples: dict[str, Any] = {"task_id": Task.objects.unscoped().latest("pk").pk, "pk": view.pk}
    yield Shown(name="login", address=reverse("admin:login"), anonymous=True)
    for pattern in admin.site.get_urls():
        name = f"admin:{pattern.name}" if isinstance(pattern, URLPattern) and pattern.name else "admin:"
        if isinstance(pattern, URLResolver) or name in ELSEWHERE or name in ("admin:login", "admin:logout"):
            continue
        groups = [*pattern.pattern.converters, *pattern.pattern.regex.groupindex]
        if groups == ["app_label"]:
            labels = dict.fromkeys(model._meta.app_label for model in admin.site._registry)
            yield from (Shown(name=f"app-{label}", address=reverse(name, args=[label])) for label in labels)
            continue
        given = {each: examples[each] for each in dict.fromkeys(groups)}
        address = reverse(name, kwargs=given)
        if is_page(client.get(address), str(pattern.name)):
            yield Shown(name=pattern.name or "", address=address)
    yield Shown(name="logout", address=reverse("admin:logout"), posted=())  # last: it ends the session


def console_examples(tenant: Tenant) -> Mapping[str, Any]:
    """A thing of the tenant's for each parameter that an address has."""
    new = User.objects.filter(memberships__tenant=tenant).latest("pk")
    hook = Subscription.objects.unscoped().filter(tenant=tenant).latest("pk")
    workflow = Workflow.objects.unscoped().filter(tenant=tenant).latest("pk")
    member = Task.objects.unscoped().filter(tenant=tenant, workflow=workflow).first()
    return {
        "task_of_workflow": member.pk if member else None,
        "slug": tenant.slug, "task_id": Task.objects.unscoped().get(tenant=tenant, name="monthly report").pk,
        "artifact_name": "report.pdf", "handler_name": "mail.letter", "workflow_id": workflow.pk,
        "schedule_id": Schedule.objects.unscoped().filter(tenant=tenant).latest("pk").pk,
        "member_id": Membership.objects.filter(tenant=tenant).latest("id").public_id, "webhook_id": hook.pk,
        "key_id": ApiKey.objects.filter(tenant=tenant).latest("pk").prefix,
        "delivery_id": Delivery.objects.unscoped().filter(subscription=hook).latest("pk").pk,
        "uidb64": urlsafe_base64_encode(force_bytes(new.pk)), "token": default_token_generator.make_token(new),
    }  # fmt: skip


def console_pages(client: Client, tenant: Tenant) -> Iterator[Shown]:
    """Every page of the console that this browser's person has."""
    examples = console_examples(tenant)
    once = []
    for pattern in console.urlpatterns:
        name = str(pattern.name)
        if f"console:{name}" in ELSEWHERE or name == "logout":
            continue
        given = {each: examples[each] for each in pattern.pattern.converters}
        if {"workflow_id", "task_id"} <= set(given):
            given["task_id"] = examples["task_of_workflow"]
        address = reverse(f"console:{name}", kwargs=given)
        anonymous = name in ("login", "password_new")
        if name in ACTS:
            if ACTS[name].shows:
                once.append(Shown(name=name, address=address, posted=()))
        elif name == "password_new":
            yield Shown(name=name, address=address, anonymous=True)
        elif is_page(client.get(address), name):
            yield Shown(name=name, address=address, anonymous=anonymous)
        elif ONLY_POSTED.get(name):
            once.append(Shown(name=name, address=address, posted=()))
    missing = reverse("console:task", args=[tenant.slug, "00000000-0000-7000-8000-000000000000"])
    yield from (*once, Shown(name="not found", address=missing))
