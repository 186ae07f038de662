"""The app's configuration."""

from importlib import import_module

from django.apps import AppConfig


class TasksConfig(AppConfig):
    """Tasks and their past."""

    name = "slackwater_tasks"
    label = "slackwater_tasks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and follow what plans say."""
        import_module("slackwater_tasks.checks")
        import_module("slackwater_tasks.upkeep.plan_rates").connect_signals()
