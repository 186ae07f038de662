"""App configuration."""

from django.apps import AppConfig


class SchedulesConfig(AppConfig):
    """Schedules beside django-celery-beat's periodic tasks."""

    name = "slackwater_schedules"
    default_auto_field = "django.db.models.BigAutoField"
