"""App configuration."""

from django.apps import AppConfig


class SchedulesConfig(AppConfig):
    """Schedules beside django-celery-beat's periodic tasks."""

    name = "slackwater_schedules"
    verbose_name = "Schedules"
    default_auto_field = "django.db.models.BigAutoField"
