"""What is not ours in the admin: users and celery-beat's tables, in the same clothes, and the live first page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django_celery_beat.admin import ClockedScheduleAdmin as BeatClockedAdmin
from django_celery_beat.admin import CrontabScheduleAdmin as BeatCrontabAdmin
from django_celery_beat.admin import PeriodicTaskAdmin as BeatPeriodicTaskAdmin
from django_celery_beat.admin import PeriodicTaskForm, TaskSelectWidget
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    SolarSchedule,
)
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from slackwater_dashboard.views import extra_urls

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
else:
    from unfold.admin import ModelAdmin

admin.site.index_template = "slackwater_dashboard/index.html"
admin.site.index_title = "Live"
admin.site.extra_urls = extra_urls  # type: ignore[attr-defined]  # unfold's site asks for it

for model in (User, Group, PeriodicTask, IntervalSchedule, CrontabSchedule, SolarSchedule, ClockedSchedule):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg]
    """Users of the admin."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    compressed_fields = True


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):  # type: ignore[type-arg]
    """Groups of permissions."""

    compressed_fields = True


class BeatTaskSelect(UnfoldAdminSelectWidget, TaskSelectWidget):  # type: ignore[misc]
    """Celery's registered tasks, in unfold's clothes."""


class BeatTaskForm(PeriodicTaskForm):  # type: ignore[misc]
    """celery-beat's form in unfold's clothes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["task"].widget = UnfoldAdminTextInputWidget()
        self.fields["regtask"].widget = BeatTaskSelect()


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(BeatPeriodicTaskAdmin, ModelAdmin):  # type: ignore[misc,type-arg]
    """celery-beat's own table: the platform's housekeeping, and periodic tasks of an older code base."""

    form = BeatTaskForm


@admin.register(CrontabSchedule)
class CrontabScheduleAdmin(BeatCrontabAdmin, ModelAdmin):  # type: ignore[misc,type-arg]
    """Cron expressions."""


@admin.register(ClockedSchedule)
class ClockedScheduleAdmin(BeatClockedAdmin, ModelAdmin):  # type: ignore[misc,type-arg]
    """Single moments."""


@admin.register(IntervalSchedule)
class IntervalScheduleAdmin(ModelAdmin):  # type: ignore[type-arg]
    """Intervals."""

    list_display = ("__str__", "every", "period")


@admin.register(SolarSchedule)
class SolarScheduleAdmin(ModelAdmin):  # type: ignore[type-arg]
    """Sunrise, sunset and the like."""

    list_display = ("__str__", "event", "latitude", "longitude")
