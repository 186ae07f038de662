"""The admin's side bar: pages in the order of how often they are used."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Work",
        (
            ("Tasks", "task_alt", "slackwater_tasks.task"),
            ("Workflows", "account_tree", "slackwater_tasks.workflow"),
            ("Dead letters", "report", "slackwater_tasks.deadletter"),
            ("Schedules", "calendar_month", "slackwater_schedules.schedule"),
            ("Scripts", "description", "slackwater_tasks.script"),
        ),
    ),
    (
        "Clients",
        (
            ("Tenants", "apartment", "slackwater_tenants.tenant"),
            ("API keys", "key", "slackwater_tenants.apikey"),
            ("Plans", "sell", "slackwater_tenants.plan"),
            ("Webhooks", "webhook", "slackwater_monitoring.subscription"),
        ),
    ),
    (
        "Resources",
        (
            ("Nodes", "dns", "slackwater_resources.node"),
            ("Tiers", "layers", "slackwater_resources.tier"),
            ("Handlers", "function", "slackwater_resources.handler"),
            ("Lines", "stacks", "slackwater_tasks.line"),
            ("Rate limits", "timer", "slackwater_tasks.ratelimit"),
            ("Pools", "pool", "slackwater_tenants.pool"),
            ("Policies", "tune", "slackwater_tasks.policychoice"),
            ("Leaders", "flag", "slackwater_tasks.leader"),
            ("Components", "lan", "slackwater_resources.component"),
            ("Alerts", "notifications", "slackwater_monitoring.alert"),
        ),
    ),
    (
        "Records",
        (
            ("Bulk operations", "playlist_add_check", "slackwater_tasks.bulkoperation"),
            ("Attempts", "history", "slackwater_tasks.attempt"),
            ("Events", "timeline", "slackwater_tasks.taskevent"),
            ("Firings", "alarm_on", "slackwater_schedules.schedulefire"),
            ("Deliveries", "send", "slackwater_monitoring.delivery"),
            ("Receipts", "receipt_long", "slackwater_monitoring.receiptpage"),
        ),
    ),
    (
        "celery-beat",
        (
            ("Periodic tasks", "update", "django_celery_beat.periodictask"),
            ("Crontabs", "event_repeat", "django_celery_beat.crontabschedule"),
            ("Intervals", "timer", "django_celery_beat.intervalschedule"),
        ),
    ),
    (
        "People",
        (
            ("Users", "person", "auth.user"),
            ("Groups", "group", "auth.group"),
            ("Logins", "login", "slackwater_monitoring.login"),
            ("Changes", "manage_history", "admin.logentry"),
        ),
    ),
)


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups with the entries that the user may see and that are registered in the admin."""
    from django.contrib import admin

    registered = {model._meta.label_lower for model in admin.site._registry}
    groups = []
    for title, entries in GROUPS:
        items = [_item(*entry) for entry in entries if entry[2] in registered and _may_see(request, entry[2])]
        if title == "Work" and request.user.has_perm("slackwater_tasks.view_task"):
            items.append({"title": "Output", "icon": "notes", "link": reverse("admin:sw_output")})
        if title == "Records" and request.user.has_perm("slackwater_tasks.view_runtime"):
            items.append({"title": "Run times", "icon": "speed", "link": reverse("admin:sw_run_times")})
        if title == "Records" and request.user.has_perm("slackwater_monitoring.view_sizing"):
            items.append({"title": "Smaller tiers", "icon": "compress", "link": reverse("admin:sw_sizes")})
        if items:
            groups.append({"title": title, "items": items, "collapsible": title in ("celery-beat", "People")})
    live = {"title": "Live", "icon": "monitoring", "link": reverse("admin:index")}
    return [{"title": "", "items": [live]}, *groups]


def _item(title: str, icon: str, label: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": reverse(f"admin:{label.replace('.', '_')}_changelist")}


def _may_see(request: HttpRequest, label: str) -> bool:
    app, model = label.split(".")
    return any(request.user.has_perm(f"{app}.{verb}_{model}") for verb in ("view", "change"))
