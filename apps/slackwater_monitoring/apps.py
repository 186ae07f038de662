"""App configuration."""

from importlib import import_module

from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    """Health, metrics, alerts and notifications."""

    name = "slackwater_monitoring"
    verbose_name = "Monitoring"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks and the receivers that record logins."""
        import_module("slackwater_monitoring.checks")
        import_module("slackwater_monitoring.logins")
