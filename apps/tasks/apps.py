"""The app's configuration."""

from importlib import import_module

from django.apps import AppConfig


class TasksConfig(AppConfig):
    """Tasks and their past."""

    name = "apps.tasks"
    label = "tasks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and follow what plans say."""
        import_module("apps.tasks.checks")
        import_module("apps.tasks.plan_rates").connect_signals()
