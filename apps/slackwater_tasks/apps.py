"""The app's configuration."""

from importlib import import_module

from django.apps import AppConfig

from scheduler_ext.core.seals import seals
from slackwater_conf import sealing_keys


class TasksConfig(AppConfig):
    """Tasks and their history."""

    name = "slackwater_tasks"
    verbose_name = "Tasks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, follow changes of plans, and give the seals of this process their keys."""
        import_module("slackwater_tasks.checks")
        import_module("slackwater_tasks.upkeep.plan_rates").connect_signals()
        seals.texts = sealing_keys
