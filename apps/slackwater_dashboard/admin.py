"""The admin of other packages' models (users, celery-beat) in the same style, and the live first page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model
from django_celery_beat.admin import ClockedScheduleAdmin as BeatClockedAdmin
from django_celery_beat.admin import CrontabScheduleAdmin as BeatCrontabAdmin
from django_celery_beat.admin import PeriodicTaskAdmin as BeatPeriodicTaskAdmin
from django_celery_beat.admin import PeriodicTaskForm, TaskSelectWidget
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from slackwater_dashboard.views import extra_urls

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
else:
    from unfold.admin import ModelAdmin

admin.site.extra_urls = extra_urls  # type: ignore[attr-defined]  # unfold's site asks for it


class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    compressed_fields = True


class GroupAdmin(DjangoGroupAdmin, ModelAdmin):  # type: ignore[type-arg]
    compressed_fields = True


class BeatTaskSelect(UnfoldAdminSelectWidget, TaskSelectWidget):  # type: ignore[misc]
    """Celery's registered tasks, in unfold's clothes."""


class BeatTaskForm(PeriodicTaskForm):  # type: ignore[misc]
    """celery-beat's form in unfold's clothes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["task"].widget = UnfoldAdminTextInputWidget()
        self.fields["regtask"].widget = BeatTaskSelect()


class PeriodicTaskAdmin(BeatPeriodicTaskAdmin, ModelAdmin):  # type: ignore[misc,type-arg]
    """celery-beat's own table: the platform's housekeeping, and periodic tasks of an older code base."""

    form = BeatTaskForm
    change_form_template = "slackwater_dashboard/periodic_task.html"  # its own has a script in the page


class CrontabScheduleAdmin(BeatCrontabAdmin, ModelAdmin):  # type: ignore[misc,type-arg]
    """Cron expressions."""


class ClockedScheduleAdmin(BeatClockedAdmin, ModelAdmin):  # type: ignore[misc,type-arg]
    """Single moments."""


class IntervalScheduleAdmin(ModelAdmin):  # type: ignore[type-arg]
    list_display = ("__str__", "every", "period")


class SolarScheduleAdmin(ModelAdmin):  # type: ignore[type-arg]
    list_display = ("__str__", "event", "latitude", "longitude")


def take_over() -> None:
    """Make the admin the platform's: its first page, and the tables of others in the same clothes."""
    admin.site.index_template = "slackwater_dashboard/index.html"
    admin.site.index_title = "Live"
    for model, shown in SHOWN.items():
        if admin.site.is_registered(model):
            admin.site.unregister(model)
        admin.site.register(model, shown)


SHOWN: dict[type[Model], type[ModelAdmin[Any]]] = {
    User: UserAdmin,
    Group: GroupAdmin,
    PeriodicTask: PeriodicTaskAdmin,
    CrontabSchedule: CrontabScheduleAdmin,
    ClockedSchedule: ClockedScheduleAdmin,
    IntervalSchedule: IntervalScheduleAdmin,
    SolarSchedule: SolarScheduleAdmin,
}
# In a project of somebody else's the first page, and who may log in, are theirs.
if getattr(settings, "UNFOLD", {}).get("DASHBOARD_CALLBACK") == "slackwater_dashboard.views.dashboard_context":
    take_over()
