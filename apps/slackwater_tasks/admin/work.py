"""Nodes and tenants in the admin with the work they have, which the apps they belong to do not know."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from scheduler_ext.core.errors import Conflict
from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.states import Outcome
from slackwater_adminkit.buttons import Button
from slackwater_adminkit.display import ago, once, seconds, table
from slackwater_adminkit.looking import look
from slackwater_adminkit.services import actor, why
from slackwater_resources.admin import HandlerAdmin, NodeAdmin
from slackwater_resources.models import NODE_LIVES, Handler, Node
from slackwater_tasks.admin.bulk import link, states
from slackwater_tasks.admin.graphs import task_url
from slackwater_tasks.admin.preview import PreviewMixin
from slackwater_tasks.admin.terminate import TERMINATE, TerminateMixin
from slackwater_tasks.control.bulk_operations import begin, matching
from slackwater_tasks.control.terminate import Subject, foretell
from slackwater_tasks.ledger.connection import fetch_value
from slackwater_tasks.models import Attempt, Task
from slackwater_tasks.read import overview, platform
from slackwater_tasks.read.tasks import word
from slackwater_tenants.admin import PlanAdmin, PoolAdmin, TenantAdmin
from slackwater_tenants.models import Plan, Pool, Tenant
from slackwater_tenants.scoping import tenant_scope

SHOWN = 20
LATEST_AFTER = timedelta(minutes=10)
"""So long after a node's last heartbeat an attempt of it may still have been recorded."""
# Attempts get their numbers as they end: a few looks find the first that ended after a moment, without an index on it.
ENDED_AFTER = """
WITH RECURSIVE halved(low, high) AS (
    SELECT min(id), max(id) + 1 FROM slackwater_tasks_attempt
    UNION ALL
    SELECT CASE WHEN past THEN low ELSE middle + 1 END, CASE WHEN past THEN middle ELSE high END
    FROM (SELECT low, high, (low + high) / 2 AS middle FROM halved WHERE low < high) h
    CROSS JOIN LATERAL (SELECT coalesce((SELECT a.finished_at > %s FROM slackwater_tasks_attempt a
        WHERE a.id >= middle ORDER BY a.id LIMIT 1), true) AS past) p)
SELECT low FROM halved WHERE low >= high
"""
LINKS = (
    ("Tasks", "slackwater_tasks.task"), ("Workflows", "slackwater_tasks.workflow"),
    ("Dead letters", "slackwater_tasks.deadletter"), ("Schedules", "slackwater_schedules.schedule"),
    ("Lines", "slackwater_tasks.line"), ("API keys", "slackwater_tenants.apikey"),
    ("Rate limits", "slackwater_tasks.ratelimit"), ("Webhooks", "slackwater_monitoring.subscription"),
    ("Scripts", "slackwater_tasks.script"), ("Receipts", "slackwater_monitoring.receiptpage"),
)  # fmt: skip


STOP = Button(
    label="Stop…",
    confirm="foretell_stop",
    danger=True,
    title="Pause it, cancel what waits, end what runs",
    log="Stopped:",
    tells=True,
    undo="resume",
)


def _task(row: dict[str, Any]) -> SafeString:
    return format_html('<a href="{}">{}</a>', task_url(row["id"]), row["name"] or row["handler"] or "script")


def running_table(rows: list[dict[str, Any]]) -> SafeString:
    """What runs, the longest first."""
    shown = [
        (_task(r), r["tenant"], r["node"] or "–", seconds(r["running_s"]), seconds(r["cap_s"])) for r in rows
    ]  # fmt: skip
    return table(("Task", "Tenant", "Node", "Runs for", "Cap"), shown, "nothing")


for model in (Handler, Node, Tenant, Plan, Pool):
    admin.site.unregister(model)


@admin.register(Plan)
class PlanPreviewAdmin(PreviewMixin, PlanAdmin):
    """Plans, whose change can be tried on the last hour."""


@admin.register(Pool)
class PoolPreviewAdmin(PreviewMixin, PoolAdmin):
    """Pools, as above."""


@admin.register(Handler)
class HandlerWorkAdmin(HandlerAdmin):
    """Handlers, with the way to their tasks and what these wrote."""

    @admin.display(description="its")
    def links(self, obj: Handler) -> SafeString:
        """Searches over all tenants and workflows."""
        tasks, lines = reverse("admin:slackwater_tasks_task_changelist"), reverse("admin:sw_output")
        pairs = ((tasks, {"q": f'handler:"{obj.name}"'}, "Tasks"), (lines, {"handler": obj.name}, "Output"))
        return format_html_join(
            " · ", '<a href="{}?{}">{}</a>', ((url, urlencode(q), title) for url, q, title in pairs)
        )

    readonly_fields: ClassVar[Any] = (*HandlerAdmin.readonly_fields, "links")

    def get_fields(self, request: HttpRequest, obj: Handler | None = None) -> Any:
        """After its own fields."""
        return [*super().get_fields(request, obj), "links"]


@admin.register(Node)
class NodeWorkAdmin(NodeAdmin):
    """Nodes, with the tasks they run and ran."""

    @admin.display(description="runs")
    @once
    def work(self, obj: Node) -> SafeString:
        """Its running tasks; all it ever had are a search in the list of tasks."""
        tasks = f"{reverse('admin:slackwater_tasks_task_changelist')}?{urlencode({'q': f'node:{obj.name}'})}"
        rows = running_table(platform.running(node_id=obj.pk, limit=SHOWN))
        return format_html('{} <a href="{}">all tasks of the node</a>', rows, tasks)

    @admin.display(description="ended lately")
    @once
    def history(self, obj: Node) -> SafeString:
        """Its latest attempts; of a node that is gone they are looked for where it ended."""
        every = Attempt.objects.unscoped()  # the operators' view: the node says which
        gone = obj.state not in NODE_LIVES
        place = fetch_value(ENDED_AFTER, [obj.heartbeat_at + LATEST_AFTER]) if gone else None
        keys, stopped = look(every.filter(node_id=obj.pk), every, place, SHOWN, ascending=False)
        shown = "task__name", "task__handler", "task__tenant", "number", "outcome", "started_at", "finished_at"
        found = every.filter(pk__in=keys).select_related("task").only(*shown).order_by("-pk")
        rows = [
            (
                format_html(
                    '<a href="{}">{}</a>', task_url(one.task_id), one.task.name or one.task.handler or "script"
                ),
                one.number,
                word(Outcome(one.outcome)).replace("_", " "),
                ago(one.finished_at),
                seconds(one.finished_at - one.started_at),
            )
            for one in found
        ]
        empty = "none among the latest attempts of all nodes" if stopped else "none"
        heads = ("Task", "Attempt", "Outcome", "Ended", "Took")
        address = reverse("admin:slackwater_tasks_attempt_changelist")
        return format_html(
            '{} <a href="{}?node__id__exact={}">all its attempts</a>', table(heads, rows, empty), address, obj.pk
        )

    readonly_fields: ClassVar[Any] = (*NodeAdmin.readonly_fields, "history")
    fieldsets: ClassVar[Any] = (
        *(entry for entry in NodeAdmin.fieldsets if entry[0] != "Reported"),
        ("Work", {"fields": ("work", "history")}),
        ("Reported", {"fields": ("statistics",)}),
    )


@admin.register(Tenant)
class TenantWorkAdmin(PreviewMixin, TerminateMixin, TenantAdmin):
    """Tenants, with what they hold and may, and what is done to their work."""

    buttons: ClassVar = {**TenantAdmin.buttons, "stop": STOP, "terminate": TERMINATE}

    def stop(self, request: HttpRequest, obj: Tenant) -> SafeString | str:
        """Start nothing of it any more, cancel what waits, and ask what runs to end."""
        was = "paused" if obj.paused else "active"
        self.set_paused(obj, paused=True)
        rows = Task.objects.unscoped().for_tenant(obj.pk)  # the operators' view of one tenant
        before = states(matching("cancel", rows))
        try:
            made = begin("cancel", rows, what=f"all work of {obj}", reason=why(request), actor=actor(request))
        except Conflict:
            return f"{obj} is paused, from {was}; it has no work."
        cancelled = counted(made.total, "task is", plural="tasks are")
        return format_html(
            "{} is paused, from {}, and its {} cancelled, from {}. {}", obj, was, cancelled, before, link(made)
        )

    def foretell_stop(self, request: HttpRequest, obj: Tenant) -> str:
        """How much would end."""
        found = foretell([self.subject(obj)], most_dead=0)
        return (
            f"This pauses {obj}, so that nothing starts until somebody resumes it, cancels "
            f"{counted(found.cancelled, 'waiting task')}, and asks {counted(found.asked, 'running task')} to end. "
            "Dead letters and schedules stay."
        )

    def subject(self, obj: Tenant) -> Subject:
        return Subject.of_tenant(obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Tenant | None = None) -> Any:
        """Its use of the platform is told, never written."""
        return (*super().get_readonly_fields(request, obj), *(("usage", "work", "links") if obj else ()))

    def get_fields(self, request: HttpRequest, obj: Tenant | None = None) -> Any:
        """First what an operator looks for."""
        fields = super().get_fields(request, obj)
        return [*fields[:2], "usage", "work", "links", *fields[2:]] if obj else fields

    @admin.display(description="used of its plan")
    @once
    def usage(self, obj: Tenant) -> SafeString:
        with tenant_scope(obj.pk):
            found = overview.limits(obj)
        used, most = found["used"], found["limits"]
        rows = (
            ("Tasks not finished", used["unfinished"], most["max_waiting"]),
            ("of these urgent", used["urgent_unfinished"], "–"),
            ("Claimed or running", used["in_flight"], most["max_in_flight"]),
            ("Submissions it may make now", used["submissions_available_now"], most["burst"]),
            ("Submissions an hour", "–", most["tasks_per_hour"]),
        )
        shown = [(what, *(f"{n:,}" if isinstance(n, int) else n for n in pair)) for what, *pair in rows]
        plan = format_html(
            '<a href="{}">plan {}</a>', reverse("admin:slackwater_tenants_plan_change", args=[obj.plan_id]), obj.plan
        )
        return format_html("{} {}", table(("", "Now", "At most"), shown, ""), plan)

    @admin.display(description="runs")
    @once
    def work(self, obj: Tenant) -> SafeString:
        return running_table(platform.running(obj.pk, limit=SHOWN))

    @admin.display(description="its")
    def links(self, obj: Tenant) -> SafeString:
        """The lists of what is its own."""
        pairs = ((reverse(f"admin:{name.replace('.', '_')}_changelist"), obj.pk, title) for title, name in LINKS)
        return format_html_join(" · ", '<a href="{}?tenant__id__exact={}">{}</a>', pairs)
