"""The app's configuration."""

from django.apps import AppConfig


class TasksConfig(AppConfig):
    """Tasks and their past."""

    name = "apps.tasks"
    label = "tasks"
    default_auto_field = "django.db.models.BigAutoField"
