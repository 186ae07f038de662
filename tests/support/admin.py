"""The admin as a test sees it: an administrator, a tenant, pages and their buttons."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.forms.widgets import CheckboxInput, Input, MultiWidget, Textarea
from django.test import Client
from django.urls import reverse

from scheduler_ext.core.states import TaskState
from slackwater_tasks.models import LiveTask, Task
from slackwater_tasks.submission import service
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER


def staff(*permissions: str) -> Client:
    """The browser of somebody with just these permissions (app.codename)."""
    user = User.objects.create_user(f"staff-{uuid4().hex[:6]}", password="x", is_staff=True)
    for name in permissions:
        app, codename = name.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    client = Client()
    client.force_login(user)
    return client


def submit(tenant: Tenant, **fields: Any) -> UUID:
    """One task, submitted."""
    return service.submit(tenant, {"handler": HANDLER, **fields}, actor="test").task_ids[0]


def state(task_id: UUID) -> TaskState:
    """Where a task stands."""
    live = LiveTask.objects.unscoped().filter(pk=task_id).first()
    return TaskState(live.state if live else Task.objects.unscoped().get(pk=task_id).state)


def said(response: Any) -> str:
    """All messages of a response."""
    return " | ".join(str(message) for message in get_messages(response.wsgi_request))


def press(page: Client, model: str, pk: Any, button: str) -> Any:
    """Press a button of an object's page."""
    return page.post(f"{reverse(f'admin:{model}_change', args=[pk]).removesuffix('change/')}do/{button}/")


def act(page: Client, model: str, action: str, *pks: Any, **fields: str) -> Any:
    """Run an action of a list, with a reason; with ``query`` on all that matches it."""
    query = fields.pop("query", None)
    data = {"action": action, "_selected_action": [str(pk) for pk in pks], "reason": "because", **fields}
    data |= {} if query is None else {"select_across": "1"}
    return page.post(reverse(f"admin:{model}_changelist") + (f"?{query}" if query else ""), data)


def form_of(page: Client, url: str, **fields: Any) -> dict[str, Any]:
    """The form of an object as its page sends it, with some fields changed."""
    form = page.get(url).context["adminform"].form
    given = dict(pair for bound in form for pair in _sent(bound.html_name, bound.field.widget, bound.value()))
    return {name: value for name, value in given.items() if value is not None and value is not False} | fields


def _sent(name: str, widget: Any, value: Any) -> list[tuple[str, Any]]:
    """What a browser sends of a field that nobody has touched: texts as they stand there."""
    if isinstance(widget, MultiWidget):
        return [(f"{name}_{n}", part or "") for n, part in enumerate(widget.decompress(value) or ())]
    text = isinstance(widget, Input | Textarea) and not isinstance(widget, CheckboxInput)
    return [(name, (widget.format_value(value) or "") if text else value)]


def add_form(tenant: Tenant, **fields: Any) -> dict[str, Any]:
    """The form for a task as the page sends it, with some fields filled in."""
    return {
        "tenant": tenant.pk, "args": "[]", "kwargs": "{}", "tier": "basic", "category": "delayable", "priority": "0",
        "mutex_limit": "1", "mutex_scope": "both",
        "on_late": "run_first", "total_attempts": "3", "condition": "all_succeeded", **fields,
    }  # fmt: skip


def schedule_form(tenant: Tenant, **fields: Any) -> dict[str, Any]:
    """A daily schedule as the page sends it."""
    return {
        "tenant": tenant.pk, "name": "nightly", "kind": "daily", "times": "03:00", "time_zone": "UTC", "starts": "handler",
        "handler": HANDLER, "jitter_s": "0", "missed": "one", "missed_after_s": "1 min", "missed_limit": "100",
        "missed_window_s": "1 h", "overlap": "allow", **fields,
    }  # fmt: skip
