"""Tiers, nodes and handlers in the admin."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from slackwater_adminkit.buttons import Button, ButtonsMixin
from slackwater_adminkit.display import ago, badge, column, facts, once
from slackwater_adminkit.pausing import PausableMixin
from slackwater_adminkit.services import ReadOnlyMixin, ServiceAdmin, UndeletedMixin
from slackwater_adminkit.units import column_of
from slackwater_resources import services
from slackwater_resources.components import SILENT_AFTER_S
from slackwater_resources.models import NODE_LIVES, Component, Handler, Node, Tier

DIMENSIONS = (
    ("CPU", 1000, "cores"),
    ("memory", 1024, "GiB"),
    ("disk", 1024, "GiB"),
    ("IOPS", 1, "a second, reading and writing"),
    ("bandwidth", 1000, "Mbit/s, in and out each"),
    ("ports", 1, ""),
)
"""The name, how many of what is stored are one of the unit shown, and that unit."""
STATE_KINDS = {
    "starting": "waiting",
    "active": "succeeded",
    "draining": "waiting",
    "left": "cancelled",
    "lost": "failed",
}


@admin.register(Tier)
class TierAdmin(UndeletedMixin, ServiceAdmin):
    """Vectors of resources. Those in use are part of the ledger, so none is deleted."""

    list_display = (
        "slug", "owner", "cpu", "memory", "disk", "iops", "bandwidth", "ports", "cap"
    )  # fmt: skip
    list_select_related = ("tenant",)
    list_filter = (("tenant", AutocompleteSelectFilter),)
    search_fields = ("slug", "tenant__slug")
    autocomplete_fields = ("tenant",)
    fieldsets = (
        (None, {"fields": (("slug", "tenant"), ("default_cap_s", "price_micros_per_hour"))}),
        ("Resources", {"fields": (("cpu_milli", "memory_mb", "disk_mb"), ("iops", "bandwidth_kbps", "ports"))}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Tier | None = None) -> tuple[str, ...]:
        """Name and owner cannot be changed: tasks refer to them."""
        return ("slug", "tenant") if obj else ()

    cpu = column("CPU", column_of("cpu_milli"), ordering="cpu_milli")
    memory = column("memory", column_of("memory_mb"), ordering="memory_mb")
    disk = column("disk", column_of("disk_mb"), ordering="disk_mb")
    bandwidth = column("network bandwidth", column_of("bandwidth_kbps"), ordering="bandwidth_kbps")
    cap = column("execution cap", column_of("default_cap_s"), ordering="default_cap_s")
    owner = column("owner", lambda tier: str(tier.tenant) if tier.tenant_id else "everyone")


@admin.register(Handler)
class HandlerAdmin(PausableMixin, ReadOnlyMixin, ServiceAdmin):
    """Functions that workers have exported; they appear by themselves."""

    list_display = ("name", "kind", "idempotent", "state", "first_seen_at")
    list_filter = ("kind", "idempotent", "paused")
    search_fields = ("name", "description")
    readonly_fields = ("name", "kind", "idempotent", "description", "paused", "first_seen_at")

    def set_paused(self, obj: Handler, *, paused: bool) -> bool:
        return services.set_handler_paused(obj, paused=paused)


@admin.register(Node)
class NodeAdmin(ButtonsMixin, ReadOnlyMixin, ServiceAdmin):
    """Worker nodes, each row one incarnation. They register themselves; here they are drained."""

    list_display = ("name", "shown_state", "cell", "slot_list", "cpu", "memory", "sandbox", "heartbeat", "started_at")
    list_filter = ("state", "cell", "sandbox")
    search_fields = ("name", "hostname", "incarnation")
    date_hierarchy = "started_at"
    fieldsets: ClassVar[Any] = (
        (None, {"fields": (("name", "hostname"), ("shown_state", "cell"), "incarnation")}),
        ("Lease", {"fields": (("started_at", "heartbeat_at", "lease_expires_at"),)}),
        ("Offers", {"fields": ("resources", "slot_list", "handler_names", "labels", "sandbox", "enforced")}),
        ("Reported", {"fields": ("statistics", "work")}),
    )
    readonly_fields: ClassVar[Any] = ("shown_state", "resources", "slot_list", "handler_names", "statistics", "work")
    buttons: ClassVar = {
        "drain": Button(
            label="Drain",
            title="Finish what runs, take nothing new",
            action="Drain: finish what runs, take nothing new",
            done="draining",
            log="Draining, from active.",
            undo="activate",
            when=lambda n: n.state == Node.State.ACTIVE,
        ),
        "activate": Button(
            label="Activate",
            action="Activate",
            done="activated",
            log="Activated, from draining.",
            undo="drain",
            when=lambda n: n.state == Node.State.DRAINING,
        ),
    }

    @admin.display(description="state", ordering="state")
    def shown_state(self, obj: Node) -> SafeString:
        """Its state; silent when it is alive by its state but has let its lease run out."""
        alive = obj.state in NODE_LIVES
        if alive and obj.lease_expires_at < timezone.now():
            return badge("silent", "failed")
        return badge(obj.state, STATE_KINDS[obj.state])

    slot_list = column(
        "slots", lambda node: ", ".join(f"{count} {kind}" for kind, count in sorted(node.slots.items())) or "–"
    )
    cpu = column("CPU", lambda node: f"{node.capacity[0] / 1000:g}" if node.capacity else "–")
    memory = column("memory", lambda node: f"{node.capacity[1] / 1024:.1f} GiB" if len(node.capacity) > 1 else "–")
    heartbeat = column("heartbeat", lambda node: ago(node.heartbeat_at), ordering="heartbeat_at")

    @admin.display(description="resources")
    def resources(self, obj: Node) -> SafeString:
        pairs = zip(DIMENSIONS, obj.capacity, strict=False)
        rows = ((name, f"{round(amount / size, 1):,g}", unit) for (name, size, unit), amount in pairs)
        return format_html_join("", "<div>{}: {} {}</div>", rows)

    @admin.display(description="tasks")
    def work(self, obj: Node) -> SafeString:
        """Its running tasks and its past ones, in the list of tasks."""
        tasks = f"{reverse('admin:slackwater_tasks_task_changelist')}?{urlencode({'q': f'node:{obj.name}'})}"
        return format_html('<a href="{0}&amp;state=in_flight">running</a> · <a href="{0}">all</a>', tasks)

    @admin.display(description="handlers")
    @once
    def handler_names(self, obj: Node) -> str:
        return ", ".join(Handler.objects.filter(pk__in=obj.handlers).values_list("name", flat=True)) or "–"

    statistics = column("statistics", lambda node: facts(node.stats) if node.stats else "–")

    def drain(self, request: HttpRequest, obj: Node) -> str:
        services.drain_node(obj)
        return f"{obj} finishes what it runs and gets nothing new."

    def activate(self, request: HttpRequest, obj: Node) -> str:
        services.activate_node(obj)
        return f"{obj} gets work again."


@admin.register(Component)
class ComponentAdmin(ReadOnlyMixin, ServiceAdmin):
    """The platform's own processes: submitters, dispatchers, upkeeps, beats."""

    list_display = ("kind", "cell", "hostname", "pid", "state", "heard", "started_at", "admitted")
    list_filter = ("kind", "cell")
    search_fields = ("hostname",)

    @admin.display(description="admitted")
    def admitted(self, obj: Component) -> SafeString | str:
        """The list of the tasks that a submitter admitted: all are in the ledger, so nobody need take them over."""
        if obj.kind != Component.Kind.SUBMITTER:
            return ""
        url = reverse("admin:slackwater_tasks_task_changelist")
        return format_html('<a href="{}?admitted_by={}">tasks</a>', url, obj.pk)

    @admin.display(description="state")
    def state(self, obj: Component) -> SafeString:
        """Whether it lives, by its last report."""
        if obj.left_at is not None:
            return badge("left", "cancelled")
        silent = (timezone.now() - obj.beat_at).total_seconds() > SILENT_AFTER_S
        return badge("silent", "failed") if silent else badge("alive", "succeeded")

    heard = column("last heard", lambda component: ago(component.beat_at))
