"""Tenants, their plans, members, keys and pools in the admin."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from scheduler_ext.core.errors import Conflict, InvalidInput
from slackwater_adminkit.buttons import Button, ButtonsMixin
from slackwater_adminkit.display import ago, badge, column
from slackwater_adminkit.pausing import PausableMixin
from slackwater_adminkit.services import ServiceAdmin, UndeletedMixin, become
from slackwater_tenants import pools, services
from slackwater_tenants.keys import check_origins
from slackwater_tenants.models import ApiKey, Membership, Plan, Pool, Team, Tenant


@admin.register(Plan)
class PlanAdmin(ServiceAdmin):
    """The limits of tenants; a change takes effect with the next submission and the next round."""

    list_display = ("slug", "name", "tasks_per_hour", "burst", "max_waiting", "max_in_flight", "weight", "scripts")
    search_fields = ("slug", "name")
    list_filter = ("scripts",)
    readonly_fields = ("created_at",)
    fieldsets = (
        (None, {"fields": ("slug", "name", "created_at")}),
        (
            "Admission",
            {
                "fields": (
                    ("tasks_per_hour", "burst"),
                    ("max_waiting", "max_urgent_permille"),
                    ("refuse_impossible", "refuse_late"),
                )
            },
        ),
        (
            "Share",
            {
                "fields": (
                    ("weight", "max_in_flight"),
                    ("guaranteed_permille", "maximum_permille"),
                    ("rate_starts", "rate_per_s"),
                )
            },
        ),
        (
            "Work",
            {
                "fields": (
                    "tiers",
                    "handlers",
                    ("require_labels", "prefer_labels"),
                    ("scripts", "script_network", "max_cap_s", "max_checkpoint_bytes"),
                    "delay_tolerance_s",
                    "handler_defaults",
                    ("max_own_tiers", "largest_tier"),
                    ("max_artifact_bytes", "max_upload_bytes"),
                    ("max_log_bytes", "max_stream_bytes"),
                )
            },
        ),
        ("Sizes", {"fields": ("max_payload_bytes", ("max_dag_tasks", "max_dag_edges", "max_dag_depth"))}),
        ("Prices", {"fields": ("price_micros_per_attempt", "price_permille")}),
        ("Dead letters", {"fields": (("dead_letter_retries", "dead_letter_after_s"),)}),
        ("Kept", {"fields": ("retention_days",)}),
    )


class TeamInline(TabularInline):  # type: ignore[misc]
    model = Team
    extra = 0
    fields = ("slug", "name")


class MembershipInline(TabularInline):  # type: ignore[misc]
    model = Membership
    extra = 0
    raw_id_fields = ("user",)
    fields = ("user", "role", "team")

    def get_autocomplete_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Users are searched where the project's admin can search them; else they are given by their id."""
        found = self.admin_site._registry.get(get_user_model())
        return ("user",) if found and found.get_search_fields(request) else ()

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """A member's team is one of the same tenant."""
        if db_field.name == "team":
            match = request.resolver_match
            tenant_id = match.kwargs.get("object_id") if match else None
            kwargs["queryset"] = Team.objects.filter(tenant_id=tenant_id) if tenant_id else Team.objects.none()
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


class TenantForm(forms.ModelForm):  # type: ignore[type-arg]
    """A tenant's fields; a taken slug is an error of its field."""

    class Meta:
        model = Tenant
        fields = ("slug", "name", "plan", "client", "cell", "pool", "trusted", "script_root")


@admin.register(Tenant)
class TenantAdmin(PausableMixin, UndeletedMixin, ServiceAdmin):
    """Client organisations. They are not deleted here: that would take their ledger with them."""

    form = TenantForm
    list_display = ("slug", "name", "plan", "state", "unfinished", "trusted", "cell", "created_at")
    list_select_related = ("plan", "current_counter")
    list_filter = ("plan", "paused", "trusted", "cell")
    search_fields = ("slug", "name")
    inlines = (TeamInline, MembershipInline)

    def get_readonly_fields(self, request: HttpRequest, obj: Tenant | None = None) -> tuple[str, ...]:
        """The slug stays: keys, metrics and logs carry it. Pausing has its own buttons."""
        return ("slug", "state") if obj else ()

    def get_fields(self, request: HttpRequest, obj: Tenant | None = None) -> Any:
        """What may be given; of a tenant that exists, its state too."""
        given = list(TenantForm.Meta.fields)
        return ["slug", "state", *given[1:]] if obj else given

    unfinished = column(
        "unfinished tasks",
        lambda tenant: tenant.current_counter.unfinished if hasattr(tenant, "current_counter") else 0,
    )

    def save_model(self, request: HttpRequest, obj: Tenant, form: forms.ModelForm[Tenant], change: bool) -> None:
        """Save through the service, which makes the counter row too."""
        if change:
            super().save_model(request, obj, form, change)
            return
        made = services.create_tenant(
            obj.slug, obj.name, obj.plan.slug, trusted=obj.trusted, cell=obj.cell, script_root=obj.script_root,
            client=obj.client, pool=obj.pool,
        )  # fmt: skip
        become(obj, made)

    def set_paused(self, obj: Tenant, *, paused: bool) -> bool:
        return services.set_paused(obj, paused=paused)


class ApiKeyForm(forms.ModelForm):  # type: ignore[type-arg]
    """A new key: its owner, purpose, scopes and expiry."""

    scopes = forms.MultipleChoiceField(
        choices=ApiKey.Scope.choices,
        initial=["submit", "read", "cancel"],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="manage also changes schedules, scripts and keys. operate drains and resumes nodes, and ends "
        "all work, whosever it is: for those who run the platform.",
    )
    may_operate = False
    """Whether the user may change nodes, and so give a key that scope."""

    class Meta:
        model = ApiKey
        fields = ("tenant", "name", "scopes", "expires_at", "origins")

    def clean_scopes(self) -> list[str]:
        """Refuse scopes that the user does not have."""
        scopes: list[str] = self.cleaned_data["scopes"]
        if ApiKey.Scope.OPERATE in scopes and not self.may_operate:
            raise forms.ValidationError("scopes: only those who may change nodes can give operate")
        return scopes

    def clean_origins(self) -> list[str]:
        """Refuse what no browser sends as an origin."""
        try:
            return check_origins(self.cleaned_data["origins"] or [])
        except InvalidInput as error:
            raise forms.ValidationError(str(error)) from None

    def clean_expires_at(self) -> datetime | None:
        """Refuse an expiry in the past."""
        moment: datetime | None = self.cleaned_data["expires_at"]
        if moment is not None and moment <= timezone.now():
            raise forms.ValidationError("expires_at: must lie in the future")
        return moment


@admin.register(ApiKey)
class ApiKeyAdmin(ButtonsMixin, UndeletedMixin, ServiceAdmin):
    """Keys of tenants. The secret is shown on the page that answers the creation, and nowhere else."""

    form = ApiKeyForm
    list_display = ("name", "tenant", "prefix", "scope_list", "state", "created_at", "expires_at", "last_used")
    list_select_related = ("tenant",)
    list_filter = (("tenant", AutocompleteSelectFilter), "revoked_at", "expires_at")
    search_fields = ("name", "prefix", "tenant__slug")
    date_hierarchy = "created_at"
    autocomplete_fields = ("tenant",)
    buttons: ClassVar = {
        "revoke": Button(
            label="Revoke",
            danger=True,
            action="Revoke at once",
            done="revoked",
            log="Revoked.",
            when=lambda key: key.revoked_at is None,
        )
    }

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        """The fields of a new key, or the facts of an old one."""
        if obj is None:
            return ("tenant", "name", "scopes", "expires_at", "origins")
        return (
            "tenant",
            "name",
            "prefix",
            "scope_list",
            "origin_list",
            "member",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
        )

    def get_form(
        self, request: HttpRequest, obj: ApiKey | None = None, change: bool = False, **kwargs: Any
    ) -> type[ApiKeyForm]:
        """A form class that knows the user; made for each request."""
        form = cast("type[ApiKeyForm]", super().get_form(request, obj, change, **kwargs))
        form.may_operate = request.user.has_perm("slackwater_resources.change_node")
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        """Forbidden: a key never changes, it is revoked and replaced."""
        return self.get_fields(request, obj) if obj else ()

    scope_list = column("scopes", lambda key: ", ".join(key.scopes))
    origin_list = column("origins", lambda key: ", ".join(key.origins) or "none")

    @admin.display(description="state")
    def state(self, obj: ApiKey) -> SafeString:
        if obj.revoked_at is not None:
            return badge("revoked", "failed")
        if obj.expires_at is not None and obj.expires_at <= timezone.now():
            return badge("expired", "expired")
        return badge("valid", "succeeded")

    last_used = column("last used", lambda key: ago(key.last_used_at))

    def save_model(self, request: HttpRequest, obj: ApiKey, form: forms.ModelForm[ApiKey], change: bool) -> None:
        """Make the key through the service; its secret lives as long as this request."""
        if change:
            return
        made, secret = services.create_api_key(obj.tenant, obj.name, obj.scopes, obj.expires_at, origins=obj.origins)
        become(obj, made)
        request.sw_secret = secret  # type: ignore[attr-defined]

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Show the secret in the response itself: messages and redirects would keep it in a cookie or a session."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "The key was made",
            "key": obj,
            "secret": request.sw_secret,  # type: ignore[attr-defined]
        }
        response = TemplateResponse(request, "slackwater_dashboard/api_key_made.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def revoke(self, request: HttpRequest, obj: ApiKey) -> str:
        if not services.revoke_api_key(obj):
            raise Conflict("it is revoked already")
        return f"The key {obj.prefix} is revoked."


@admin.register(Pool)
class PoolAdmin(ServiceAdmin):
    """Pools of tenants and lines, with what each is guaranteed and may have; a change counts from the next round."""

    list_display = ("path", "cell", "weight", "guaranteed", "maximum", "lends", "inside")
    list_filter = ("cell",)
    list_select_related = ("parent",)
    search_fields = ("slug",)
    autocomplete_fields = ("parent",)
    fields = (("slug", "parent", "cell"), ("guaranteed", "maximum", "lends"), ("weight", "inside"))

    def save_model(self, request: HttpRequest, obj: Pool, form: forms.ModelForm[Pool], change: bool) -> None:
        """Through the service, which checks it against the pools beside it."""
        pools.save_pool(obj)
